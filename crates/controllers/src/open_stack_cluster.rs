//! OpenStackCluster: reads network, subnets, groups and zones from the cloud, and remembers them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hangar_api::{Kind as _, Object, ObjectKey, kinds};
use hangar_engine::pass::{Controller, PassError, act_on_management};
use hangar_openstack as openstack;
use hangar_planner::cloud::{CloudAnswer, Network, Subnet};
use hangar_planner::open_stack_cluster::{self as planner, CloudView, Role, World};
use hangar_planner::{Effect, Plan, Progress, Reason, Step, Wake};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::cloud_calls::{carry_out, group};
use crate::clouds::Session;
use crate::{Context, cluster_of, owned, typed};

/// What somebody else changed in the cloud is noticed after this time at the latest, when the object is looked at.
const DRIFT: Duration = Duration::from_secs(600);
/// Control planes that do not run on machines of the cloud.
const HOSTED: [&str; 3] = ["KamajiControlPlane", "K0smotronControlPlane", "HostedControlPlane"];

pub struct OpenStackClusters {
    context: Arc<Context>,
    /// By UID: when the cloud was read, and what it was. The endpoint that a control plane writes is no reason to read it again.
    known: Mutex<BTreeMap<String, (Instant, CloudView)>>,
}

impl OpenStackClusters {
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, known: Mutex::default() }
    }

    async fn session(&self, object: &Object) -> Result<Arc<Session>, Reason> {
        let clouds = &self.context.clouds;
        clouds.session(self.context.management(), object.namespace(), object.get("/spec/identityRef")).await
    }

    fn remembered(&self, object: &Object) -> Option<CloudView> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, view) = known.get(object.uid())?;
        (at.elapsed() < DRIFT).then(|| view.clone())
    }

    async fn read(&self, object: &Object, cluster: &str) -> Result<CloudView, Reason> {
        let session = self.session(object).await?;
        let view = read_view(&session, object, cluster).await;
        view.map_err(|error| self.context.clouds.refusal(&error))
    }
}

async fn read_view(session: &Session, object: &Object, cluster: &str) -> Result<CloudView, openstack::Error> {
    let cloud = &session.cloud;
    let (networks, zones) =
        (cloud.networks(&network_query(object.get("/spec/network"))).await?, cloud.availability_zones().await?);
    let network = networks.into_iter().next();
    let mut subnets = vec![];
    if let Some(network) = &network {
        let all = cloud
            .subnets(&openstack::SubnetQuery { network_id: Some(network.id.clone()), ..Default::default() })
            .await?;
        let wanted: Vec<&str> = object
            .get("/spec/subnets")
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|subnet| subnet["id"].as_str())
            .collect();
        subnets = all
            .into_iter()
            .filter(|subnet| wanted.is_empty() || wanted.contains(&subnet.id.as_str()))
            .map(subnet)
            .collect();
    }
    let mut groups = vec![];
    if !object.get("/spec/managedSecurityGroups").is_null() {
        for role in Role::ALL {
            let name = Some(role.group_name(object.namespace(), cluster));
            let found = cloud.security_groups(&openstack::SecurityGroupQuery { name, ..Default::default() }).await?;
            groups.extend(found.into_iter().map(group));
        }
    }
    Ok(CloudView {
        network: network.map(|network| Network { id: network.id, name: network.name, tags: network.tags }),
        subnets,
        groups,
        zones: zones.into_iter().filter(|zone| zone.state.available).map(|zone| zone.name).collect(),
    })
}

pub(crate) fn network_query(parameter: &Value) -> openstack::NetworkQuery {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let filter = &parameter["filter"];
    openstack::NetworkQuery {
        id: text(&parameter["id"]),
        name: text(&filter["name"]),
        description: text(&filter["description"]),
        project_id: text(&filter["projectID"]),
        ..Default::default()
    }
}

fn subnet(wire: openstack::Subnet) -> Subnet {
    Subnet { id: wire.id, name: wire.name, network_id: wire.network_id, cidr: wire.cidr, tags: wire.tags }
}

#[async_trait]
impl Controller for OpenStackClusters {
    type World = World;

    async fn observe(&self, key: &ObjectKey, _now: Timestamp) -> Result<Option<World>, PassError> {
        let cache = self.context.cache();
        let Some(object) = cache.get(key) else { return Ok(None) };
        let cluster = cluster_of(cache, &object);
        let name = cluster.as_ref().map_or("", |cluster| cluster.name());
        let mut world = World {
            spec: typed(&object)?,
            hosted: cluster
                .as_ref()
                .is_some_and(|cluster| HOSTED.contains(&cluster.text("/spec/controlPlaneRef/kind"))),
            machines: cache.of_cluster(&key.namespace, name, kinds::OpenStackMachine::KIND).len(),
            cluster: cluster.as_ref().map(owned),
            cloud: self.remembered(&object),
            object: owned(&object),
            refusal: None,
        };
        // Before it has an owner and after its end there is nothing to ask the cloud for.
        if world.cloud.is_none() && cluster.is_some() {
            match self.read(&object, name).await {
                Ok(view) => world.cloud = Some(view),
                Err(reason) => world.refusal = Some(reason),
            }
        }
        Ok(Some(world))
    }

    fn plan(&self, world: &World, now: Timestamp) -> Plan {
        planner::plan(world, now)
    }

    async fn act(&self, world: &World, step: Step) -> Result<Effect, Reason> {
        let Step::Cloud(call) = step else { return act_on_management(self.context.management(), step).await };
        let session = self.session(&world.object).await?;
        carry_out(&session, &call, (self.context.passes.clock)())
            .await
            .map(Effect::Cloud)
            .map_err(|error| self.context.clouds.refusal(&error))
    }

    fn absorb(&self, world: &mut World, effect: Effect) {
        match effect {
            Effect::Applied(object) => {
                if let Ok(spec) = object.typed() {
                    world.spec = spec;
                }
                world.object = object;
            }
            Effect::Cloud(answer) => {
                let Some(cloud) = &mut world.cloud else { return };
                match answer {
                    CloudAnswer::SecurityGroup(group) => cloud.groups.push(group),
                    CloudAnswer::SecurityGroupGone { id } => cloud.groups.retain(|group| group.id != id),
                    CloudAnswer::Rules { group_id, rules } => {
                        cloud
                            .groups
                            .iter_mut()
                            .filter(|group| group.id == group_id)
                            .for_each(|group| group.rules.extend(rules.clone()));
                    }
                    CloudAnswer::RuleGone { group_id, id } => {
                        cloud
                            .groups
                            .iter_mut()
                            .filter(|group| group.id == group_id)
                            .for_each(|group| group.rules.retain(|rule| rule.id != id));
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
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let trusted =
            world.refusal.is_none() && !matches!(progress, Progress::Blocked(Reason { wake: Wake::Retry, .. }));
        match &world.cloud {
            Some(view) if trusted && !world.object.is_deleting() => {
                let at = known.get(world.object.uid()).map_or_else(Instant::now, |(at, _)| *at);
                known.insert(world.object.uid().to_owned(), (at, view.clone()));
            }
            _ => drop(known.remove(world.object.uid())),
        }
    }
}
