//! OpenStackMachine: reads its server and its ports from the project's lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hangar_api::{Object, ObjectKey, Owner, kinds};
use hangar_engine::pass::{Controller, PassError, act_on_management};
use hangar_openstack as openstack;
use hangar_planner::cloud::CloudAnswer;
use hangar_planner::open_stack_machine::{self as planner, CloudView, Named, UserData, World};
use hangar_planner::{Effect, Plan, Progress, Reason, Step};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::cloud_calls::carry_out;
use crate::clouds::Session;
use crate::{Context, cluster_of, owned, referenced, typed};

/// While a server builds or goes, a list may be this old.
const PENDING_AGE: Duration = Duration::from_millis(700);
/// At rest a server is looked at again after this time, when something else wakes its machine.
const DRIFT: Duration = Duration::from_secs(600);

pub struct OpenStackMachines {
    context: Arc<Context>,
    /// By UID: machines whose server runs, and since when we know.
    settled: Mutex<BTreeMap<String, (Instant, CloudView)>>,
    /// Machines that wait for Nova: their next look must be a new one.
    pending: Mutex<BTreeSet<String>>,
}

impl OpenStackMachines {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, settled: Mutex::default(), pending: Mutex::default() }
    }

    async fn session(&self, world: &World) -> Result<Arc<Session>, Reason> {
        let own = world.object.get("/spec/identityRef");
        let of_cluster = world.infrastructure.as_ref().map(|cluster| cluster.get("/spec/identityRef"));
        let identity = if own.is_object() { own } else { of_cluster.unwrap_or(own) };
        self.context.clouds.session(self.context.management(), world.object.namespace(), identity).await
    }

    fn remembered(&self, uid: &str) -> Option<CloudView> {
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        settled.get(uid).filter(|(at, _)| at.elapsed() < DRIFT).map(|(_, view)| view.clone())
    }

    async fn read(&self, world: &World) -> Result<CloudView, Reason> {
        let session = self.session(world).await?;
        let waits = self.pending.lock().unwrap_or_else(PoisonError::into_inner).contains(world.object.uid());
        let view = read_view(&session, world, waits.then_some(PENDING_AGE)).await;
        view.map_err(|error| self.context.clouds.refusal(&error))
    }
}

async fn read_view(session: &Session, world: &World, age: Option<Duration>) -> Result<CloudView, openstack::Error> {
    let uid = world.object.uid();
    let ours = |key: &Option<hangar_planner::OwnerKey>| key.as_ref().is_some_and(|key| key.object_uid == uid);
    let servers = session.servers(age).await?.into_iter().filter(|server| ours(&server.key)).collect();
    let ports = session.ports(None).await?.into_iter().filter(|port| ours(&port.key)).collect();
    let mut view = CloudView { servers, ports, ..CloudView::default() };
    if !world.object.is_deleting() {
        view.flavor = flavor(session, world).await?;
        view.image = image(session, world).await?;
        view.port_networks = port_networks(session, world).await?;
    }
    Ok(view)
}

async fn flavor(session: &Session, world: &World) -> Result<Named, openstack::Error> {
    if let Some(id) = &world.machine.spec.flavor_id {
        return Ok(Named::Id(id.clone()));
    }
    let wanted = world.machine.spec.flavor.clone().unwrap_or_default();
    let mut flavors = session.flavors().await?;
    flavors.sort();
    Ok(match flavors.iter().find(|(name, _)| *name == wanted) {
        Some((_, id)) => Named::Id(id.clone()),
        None => Named::Unknown { wanted, known: flavors.into_iter().map(|(name, _)| name).collect() },
    })
}

async fn image(session: &Session, world: &World) -> Result<Named, openstack::Error> {
    let image = &world.machine.spec.image;
    if let Some(id) = &image.id {
        return Ok(Named::Id(id.clone()));
    }
    let Some(filter) = &image.filter else { return Ok(Named::NotAsked) };
    let query = openstack::ImageQuery {
        name: filter.name.clone(),
        tags: filter.tags.clone().unwrap_or_default(),
        ..Default::default()
    };
    let found = session.cloud.images(&query).await?;
    let wanted = filter.name.clone().unwrap_or_else(|| format!("with tags {:?}", filter.tags));
    Ok(match found.as_slice() {
        [one] => Named::Id(one.id.clone()),
        many => Named::Unknown {
            wanted: format!("{wanted} that is the only one"),
            known: many.iter().map(|image| image.id.clone()).collect(),
        },
    })
}

async fn port_networks(session: &Session, world: &World) -> Result<Vec<Option<String>>, openstack::Error> {
    let mut networks = vec![];
    for port in world.object.get("/spec/ports").as_array().into_iter().flatten() {
        networks.push(match (&port["network"]["id"], &port["network"]["filter"]) {
            (Value::String(id), _) => Some(id.clone()),
            (_, Value::Object(_)) => {
                let query = crate::open_stack_cluster::network_query(&port["network"]);
                session.cloud.networks(&query).await?.into_iter().next().map(|network| network.id)
            }
            _ => world.infrastructure.as_ref().map(|cluster| cluster.text("/status/network/id").to_owned()),
        });
    }
    Ok(networks)
}

#[async_trait]
impl Controller for OpenStackMachines {
    type World = World;

    async fn observe(&self, key: &ObjectKey, _now: Timestamp) -> Result<Option<World>, PassError> {
        let cache = self.context.cache();
        let Some(object) = cache.get(key) else { return Ok(None) };
        let owner = object.owners().into_iter().find(Owner::is::<kinds::Machine>);
        let owner = owner.and_then(|owner| cache.get(&ObjectKey::of::<kinds::Machine>(&key.namespace, &owner.name)));
        let cluster = cluster_of(cache, &object);
        let infrastructure = cluster.as_ref().and_then(|cluster| referenced(cache, cluster, "/spec/infrastructureRef"));
        let data_name = owner.as_ref().map_or("", |machine| machine.text("/spec/bootstrap/dataSecretName"));
        let data = cache.get(&ObjectKey::new("", "Secret", &key.namespace, data_name));
        let mut world = World {
            machine: typed(&object)?,
            owner: owner.as_ref().map(owned),
            cluster: cluster.as_ref().map(owned),
            infrastructure: infrastructure.as_ref().map(owned),
            user_data: data.and_then(|secret| secret.secret_text("value")).map(UserData),
            cloud: None,
            object: owned(&object),
            refusal: None,
        };
        let ready = infrastructure.is_some_and(|cluster| cluster.get("/status/initialization/provisioned") == true)
            && world.user_data.is_some();
        if ready || object.is_deleting() {
            world.cloud = self.remembered(object.uid()).filter(|_| !object.is_deleting());
            if world.cloud.is_none() {
                match self.read(&world).await {
                    Ok(view) => world.cloud = Some(view),
                    Err(reason) => world.refusal = Some(reason),
                }
            }
        }
        Ok(Some(world))
    }

    fn plan(&self, world: &World, now: Timestamp) -> Plan {
        planner::plan(world, now)
    }

    async fn act(&self, world: &World, step: Step) -> Result<Effect, Reason> {
        let Step::Cloud(call) = step else { return act_on_management(self.context.management(), step).await };
        let session = self.session(world).await?;
        let now = (self.context.passes.clock)();
        carry_out(&session, &call, now).await.map(Effect::Cloud).map_err(|error| self.context.clouds.refusal(&error))
    }

    fn absorb(&self, world: &mut World, effect: Effect) {
        match effect {
            Effect::Applied(object) => {
                if let Ok(machine) = object.typed() {
                    world.machine = machine;
                }
                world.object = object;
            }
            Effect::Cloud(answer) => {
                let cloud = world.cloud.get_or_insert_with(CloudView::default);
                match answer {
                    CloudAnswer::Port(port) => cloud.ports.push(port),
                    CloudAnswer::PortTagged { id, tags } => {
                        cloud
                            .ports
                            .iter_mut()
                            .filter(|port| port.id == id)
                            .for_each(|port| port.tags.clone_from(&tags));
                    }
                    CloudAnswer::PortGone { id } => cloud.ports.retain(|port| port.id != id),
                    CloudAnswer::Server(server) => cloud.servers.push(server),
                    CloudAnswer::ServerGoing { id } => {
                        cloud
                            .servers
                            .iter_mut()
                            .filter(|server| server.id == id)
                            .for_each(|server| server.status = "DELETING".into());
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn refuse(&self, world: &mut World, reason: Reason) {
        world.refusal = Some(reason);
    }

    fn object<'a>(&self, world: &'a World) -> &'a Object {
        &world.object
    }

    fn settle(&self, world: &World, progress: &Progress) {
        let uid = world.object.uid().to_owned();
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match (progress, &world.cloud) {
            (Progress::Done, Some(view)) if !world.object.is_deleting() => {
                settled.entry(uid.clone()).or_insert_with(|| (Instant::now(), view.clone()));
                pending.remove(&uid);
            }
            (Progress::Done | Progress::Acting, _) => {
                settled.remove(&uid);
                pending.remove(&uid);
            }
            (Progress::Waiting(_) | Progress::Blocked(_), Some(view)) => {
                settled.remove(&uid);
                if !view.servers.is_empty() {
                    pending.insert(uid);
                }
            }
            _ => drop(settled.remove(&uid)),
        }
    }
}
