//! What happens after the request: servers from BUILD to ACTIVE or ERROR, volumes, load balancers and floating IPs to where
//! they are on the way to, deletion, and booting of guests.
//!
//! Holds: a server that is deleted while it builds never becomes ACTIVE; deletion sets free the ports it was given and
//! takes away those Nova made.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hangar_openstack::wire::Fault;

use crate::guests::{Guest, GuestPort};
use crate::network::{self, floating_ips};
use crate::state::{Effect, State, World};
use crate::{Simulator, compute, image, load_balancer, volume};

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
        let effects = under_way(&self.world().state);
        for effect in effects {
            self.start(effect);
        }
        self.boot_active();
        self.start_forwarding();
        self.start_filtering();
    }

    fn start(&self, effect: Effect) {
        // Without a runtime nothing happens later; whoever works like that asks again when there is one.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let simulator = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = simulator.0.closed.cancelled() => return,
                () = tokio::time::sleep(simulator.time_of(&effect)) => {}
            }
            simulator.measured(|| simulator.happen(&effect));
        });
    }

    fn happen(&self, effect: &Effect) {
        match effect {
            Effect::Build(id) => self.built(id),
            Effect::Remove(id) => self.removed(id),
            Effect::Power(id, status) => self.powered(id, status),
            Effect::Volume(id) => {
                let now = self.now_micros();
                self.settle(|world| volume::settle(world, id, now));
            }
            Effect::LoadBalancer(id) => self.settle(|world| load_balancer::settle(world, id)),
            Effect::FloatingIp(id) => self.settle(|world| floating_ips::settle(&mut world.state, id)),
            Effect::Image(id) => self.settle(|world| image::imported(world, id)),
        }
    }

    fn time_of(&self, effect: &Effect) -> Duration {
        let options = &self.0.options;
        let time = match effect {
            Effect::Build(_) | Effect::Image(_) => options.build_time,
            Effect::Volume(_) | Effect::LoadBalancer(_) | Effect::Power(..) => options.build_time / 2,
            Effect::Remove(_) => options.delete_time,
            Effect::FloatingIp(_) => options.delete_time / 3,
        };
        time.div_f64(options.speed.max(0.001))
    }

    pub(crate) fn settle(&self, change: impl FnOnce(&mut World)) {
        {
            let mut world = self.world();
            change(&mut world);
            self.record(&mut world, "");
        }
        self.start_effects();
    }

    fn built(&self, id: &str) {
        if self.make_volumes(id) {
            return;
        }
        let mut active = false;
        self.settle(|world| active = turn(&mut world.state, id, self.now_text()));
        self.server_changed();
        if active {
            self.boot(id);
        }
    }

    /// Nova makes the volumes of a server before it starts it; whether that was still to be done.
    fn make_volumes(&self, id: &str) -> bool {
        let mut made = false;
        self.settle(|world| {
            let Some(record) = world.state.servers.get_mut(id) else { return };
            let wanted = std::mem::take(&mut record.volumes_to_make);
            let (project, user) = (record.server.tenant_id.clone(), record.server.user_id.clone());
            let deleting = record.server.task_state.as_deref() == Some("deleting");
            if deleting {
                return;
            }
            for (number, volume_) in wanted.into_iter().enumerate() {
                let with_server = volume_.delete_on_termination;
                let volume = volume::make_for_server(self, world, &project, &user, volume_);
                compute::hang(self, world, &volume, id, number, with_server);
                if let Some(row) = world.state.volumes.get_mut(&volume) {
                    row.status = "creating".to_owned();
                }
                made = true;
            }
            if made {
                world.effects.push(Effect::Build(id.to_owned()));
            }
        });
        made
    }

    fn powered(&self, id: &str, status: &str) {
        let now = self.now_text();
        self.settle(|world| {
            let Some(record) = world.state.servers.get_mut(id) else { return };
            let server = &mut record.server;
            if server.task_state.as_deref() == Some("deleting") {
                return;
            }
            server.status = status.to_owned();
            server.vm_state = Some(if status == "ACTIVE" { "active" } else { "stopped" }.to_owned());
            server.power_state = Some(if status == "ACTIVE" { 1 } else { 4 });
            server.task_state = None;
            server.updated = now;
            world.consoles.remove(id);
        });
        self.server_changed();
        if let Some(driver) = self.guest_driver() {
            driver.stop(id);
        }
        if status == "ACTIVE" {
            self.boot(id);
        }
    }

    fn removed(&self, id: &str) {
        self.settle(|world| remove(world, id));
        self.server_changed();
        if let Some(driver) = self.guest_driver() {
            driver.shut_down(id);
        }
    }

    fn server_changed(&self) {
        self.0.changes.send_modify(|count| *count += 1);
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

    pub(crate) fn guest_driver(&self) -> Option<std::sync::Arc<dyn crate::GuestDriver>> {
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
    server.launched_at = Some(server.updated.trim_end_matches('Z').to_owned() + ".000000");
    for port in record.ports.clone() {
        state.ports.change(&port, |port| port.status = "ACTIVE".to_owned());
    }
    true
}

/// Whatever was on its way when the state was saved.
fn under_way(state: &State) -> Vec<Effect> {
    let servers = state.servers.values().filter_map(|record| {
        let id = record.server.id.clone();
        match (record.server.task_state.as_deref(), record.server.status.as_str()) {
            (Some("deleting"), _) => Some(Effect::Remove(id)),
            (Some("powering-off"), _) => Some(Effect::Power(id, "SHUTOFF")),
            (Some("powering-on" | "rebooting"), _) => Some(Effect::Power(id, "ACTIVE")),
            (_, "BUILD") => Some(Effect::Build(id)),
            _ => None,
        }
    });
    let moving = ["creating", "attaching", "detaching", "deleting"];
    let volumes = state.volumes.values().filter(|volume| moving.contains(&volume.status.as_str()));
    let balancers =
        state.load_balancers.values().filter(|balancer| balancer.provisioning_status.starts_with("PENDING"));
    let images = state.images.values().filter(|image| image.status == "importing");
    let floating = state.floating_ips.values().filter(|ip| ip.port_id.is_some() != (ip.status == "ACTIVE"));
    servers
        .chain(volumes.map(|volume| Effect::Volume(volume.id.clone())))
        .chain(balancers.map(|balancer| Effect::LoadBalancer(balancer.id.clone())))
        .chain(images.map(|image| Effect::Image(image.id.clone())))
        .chain(floating.map(|ip| Effect::FloatingIp(ip.id.clone())))
        .collect()
}

fn remove(world: &mut World, id: &str) {
    let Some(record) = world.state.servers.remove(id) else { return };
    for port in &record.ports {
        release_port(world, port, id, record.own_ports.contains(port));
    }
    for on in &record.server.volumes {
        let Some(volume) = world.state.volumes.get_mut(&on.id) else { continue };
        volume.attachments.retain(|attachment| attachment.server_id != id);
        volume.status = if on.delete_on_termination { "deleting" } else { "detaching" }.to_owned();
        world.effects.push(Effect::Volume(on.id.clone()));
    }
    for group in world.state.server_groups.ids(|group| group.members.iter().any(|member| member == id)) {
        if let Some(group) = world.state.server_groups.get_mut(&group) {
            group.members.retain(|member| member != id);
        }
    }
    world.consoles.remove(id);
}

/// Ports that Nova made go with the server, others are set free.
pub(crate) fn release_port(world: &mut World, port_id: &str, server: &str, own: bool) {
    if own {
        floating_ips::unbind_port(world, port_id);
        world.state.ports.remove(port_id);
        return;
    }
    let bound = world.state.ports.get(port_id).is_some_and(|port| port.device_id == server);
    if bound {
        world.state.ports.change(port_id, |port| {
            port.device_id.clear();
            port.device_owner.clear();
            port.host_id = Some(String::new());
            port.vif_type = Some("unbound".to_owned());
            port.status = "DOWN".to_owned();
            port.revision_number += 1;
        });
    }
}

/// Somebody else deletes what a path names, at once and without asking.
pub(crate) fn vanish(simulator: &Simulator, service: &str, segments: &[&str]) {
    let (kind, id) = match segments {
        ["lbaas", kind, id, ..] | [kind, id, ..] => (*kind, *id),
        _ => return,
    };
    simulator.settle(|world| match (service, kind) {
        ("compute", "servers") => remove(world, id),
        ("network", "ports") => {
            floating_ips::unbind_port(world, id);
            world.state.ports.remove(id);
        }
        ("network", "floatingips") => floating_ips::remove(world, id),
        ("network", "networks") => network::vanish(&mut world.state, id),
        ("network", "subnets") => drop(world.state.subnets.remove(id)),
        ("network", "routers") => network::routers::vanish(world, id),
        ("network", "security-groups") => drop(world.state.security_groups.remove(id)),
        ("volume", "volumes") => drop(world.state.volumes.remove(id)),
        ("image", "images") => drop(world.state.images.remove(id)),
        ("load-balancer", "loadbalancers") => load_balancer::remove(world, id),
        _ => {}
    });
    if kind == "servers" {
        simulator.server_changed();
        if let Some(driver) = simulator.guest_driver() {
            driver.shut_down(id);
        }
    }
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
        ports: record.ports.iter().filter_map(|id| guest_port(state, id)).collect(),
        user_data: record.user_data.clone(),
        console,
    })
}

fn guest_port(state: &State, id: &str) -> Option<GuestPort> {
    let port = state.ports.get(id)?;
    let fixed = port.fixed_ips.first()?;
    let subnet = state.subnets.get(fixed.subnet_id.as_ref()?)?;
    let mtu = state.networks.get(&port.network_id).and_then(|network| network.mtu);
    Some(GuestPort {
        network_id: port.network_id.clone(),
        mac_address: port.mac_address.clone(),
        address: fixed.ip_address.clone()?,
        cidr: subnet.cidr.clone(),
        gateway: subnet.gateway_ip.clone(),
        mtu: mtu.unwrap_or(1450),
    })
}
