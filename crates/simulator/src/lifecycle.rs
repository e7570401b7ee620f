//! What happens to servers after the request: BUILD to ACTIVE or ERROR, deletion, and booting of guests.
//!
//! Holds: a server that is deleted while it builds never becomes ACTIVE; deletion sets free the ports it was given and
//! takes away those Nova made.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use hangar_openstack::wire::Fault;

use crate::guests::Guest;
use crate::state::{Effect, State, World};
use crate::{Simulator, compute};

impl Simulator {
    /// Starts what the last request left behind.
    pub(crate) fn start_effects(&self) {
        let effects = std::mem::take(&mut self.world().effects);
        for effect in effects {
            self.start(effect);
        }
    }

    /// Once, as soon as there is a runtime: goes on with what was under way when the state was saved.
    pub(crate) fn resume(&self) {
        if tokio::runtime::Handle::try_current().is_err() || self.0.resumed.swap(true, Ordering::AcqRel) {
            return;
        }
        let effects: Vec<Effect> = {
            let world = self.world();
            let under_way = world.state.servers.values().filter_map(|record| {
                let id = record.server.id.clone();
                match (record.server.task_state.as_deref(), record.server.status.as_str()) {
                    (Some("deleting"), _) => Some(Effect::Remove(id)),
                    (_, "BUILD") => Some(Effect::Build(id)),
                    _ => None,
                }
            });
            under_way.collect()
        };
        for effect in effects {
            self.start(effect);
        }
        self.boot_active();
    }

    fn start(&self, effect: Effect) {
        let simulator = self.clone();
        tokio::spawn(async move {
            let options = &simulator.0.options;
            let time = if matches!(effect, Effect::Build(_)) { options.build_time } else { options.delete_time };
            tokio::select! {
                () = simulator.0.closed.cancelled() => return,
                () = tokio::time::sleep(time) => {}
            }
            match effect {
                Effect::Build(id) => simulator.built(&id),
                Effect::Remove(id) => simulator.removed(&id),
            }
        });
    }

    fn built(&self, id: &str) {
        let active = turn(&mut self.world().state, id, self.now_text());
        self.server_changed();
        if active {
            self.boot(id);
        }
    }

    fn removed(&self, id: &str) {
        remove(&mut self.world(), id);
        self.server_changed();
        if let Some(driver) = self.guest_driver() {
            driver.shut_down(id);
        }
    }

    fn server_changed(&self) {
        self.0.changes.send_modify(|count| *count += 1);
        self.save_soon();
    }

    /// Guests of servers that became ACTIVE before there was a driver, or before a restart.
    pub(crate) fn boot_active(&self) {
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let active: Vec<String> = {
            let world = self.world();
            let active =
                world.state.servers.values().filter(|record| {
                    record.server.status == "ACTIVE" && !world.consoles.contains_key(&record.server.id)
                });
            active.map(|record| record.server.id.clone()).collect()
        };
        for id in active {
            self.boot(&id);
        }
    }

    fn boot(&self, id: &str) {
        let Some(driver) = self.guest_driver() else { return };
        let guest = {
            let mut world = self.world();
            // A console means that it has been booted already.
            if world.consoles.contains_key(id) {
                return;
            }
            let console = crate::Console::default();
            let Some(guest) = guest(&world.state, id, console.clone()) else { return };
            world.consoles.insert(id.to_owned(), console);
            guest
        };
        driver.boot(guest);
    }

    fn guest_driver(&self) -> Option<std::sync::Arc<dyn crate::GuestDriver>> {
        self.0.guests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether the server is ACTIVE now.
fn turn(state: &mut State, id: &str, now: String) -> bool {
    let Some(record) = state.servers.get_mut(id) else { return false };
    if record.server.status != "BUILD" || record.server.task_state.as_deref() == Some("deleting") {
        return false;
    }
    let server = &mut record.server;
    server.updated.clone_from(&now);
    server.task_state = None;
    if let Some(message) = record.doomed.clone() {
        server.status = "ERROR".to_owned();
        server.vm_state = Some("error".to_owned());
        server.fault = Some(Fault { code: 500, message, created: now });
        return false;
    }
    server.status = "ACTIVE".to_owned();
    server.vm_state = Some("active".to_owned());
    server.power_state = Some(1);
    for port in &record.ports {
        if let Some(port) = state.ports.get_mut(port) {
            port.status = "ACTIVE".to_owned();
        }
    }
    true
}

fn remove(world: &mut World, id: &str) {
    let Some(record) = world.state.servers.remove(id) else { return };
    for port_id in &record.ports {
        if record.own_ports.contains(port_id) {
            world.state.ports.remove(port_id);
        } else if let Some(port) = world.state.ports.get_mut(port_id).filter(|port| port.device_id == id) {
            port.device_id.clear();
            port.device_owner.clear();
            port.host_id = None;
            port.status = "DOWN".to_owned();
            port.revision_number += 1;
        }
    }
    world.consoles.remove(id);
}

fn guest(state: &State, id: &str, console: crate::Console) -> Option<Guest> {
    let record = state.servers.get(id)?;
    let server = compute::show(state, record);
    let image = server.image.as_ref().and_then(|image| state.images.get(&image.id));
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let properties = image.map(|image| &image.properties).into_iter().flatten();
    let addresses = server.addresses.values().flatten().map(|address| address.addr.clone()).collect();
    Some(Guest {
        server_id: server.id,
        name: server.name,
        project_id: server.tenant_id,
        image_properties: properties.map(|(name, value)| (name.clone(), text(value))).collect(),
        metadata: server.metadata,
        availability_zone: server.availability_zone.unwrap_or_default(),
        addresses,
        user_data: record.user_data.clone(),
        console,
    })
}
