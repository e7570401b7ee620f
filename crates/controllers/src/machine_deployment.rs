//! MachineDeployment: reads its Cluster and the sets that it controls.

use std::sync::Arc;

use async_trait::async_trait;
use hangar_api::{Kind as _, Object, ObjectKey, kinds};
use hangar_engine::pass::{Controller, PassError, act_on_management};
use hangar_planner::machine_deployment::{self as planner, Set, World};
use hangar_planner::{Effect, Plan, Reason, Step};
use jiff::Timestamp;

use crate::{Context, owned, referenced, typed};

pub struct MachineDeployments(pub Arc<Context>);

#[async_trait]
impl Controller for MachineDeployments {
    type World = World;

    async fn observe(&self, key: &ObjectKey, _now: Timestamp) -> Result<Option<World>, PassError> {
        let cache = self.0.cache();
        let Some(object) = cache.get(key) else { return Ok(None) };
        let deployment: kinds::MachineDeployment = typed(&object)?;
        let mut sets = vec![];
        for set in cache.owned_by(object.uid(), kinds::MachineSet::KIND) {
            sets.push(Set { set: typed(&set)?, object: owned(&set) });
        }
        let cluster = cache.get(&ObjectKey::of::<kinds::Cluster>(&key.namespace, &deployment.spec.cluster_name));
        let references = ["/spec/template/spec/bootstrap/configRef", "/spec/template/spec/infrastructureRef"];
        let templates = references
            .iter()
            .filter_map(|at| referenced(cache, &object, at))
            .map(|template| owned(&template))
            .collect();
        let cluster = cluster.as_ref().map(owned);
        Ok(Some(World { deployment, cluster, sets, templates, object: owned(&object), refusal: None }))
    }

    fn plan(&self, world: &World, now: Timestamp) -> Plan {
        planner::plan(world, now)
    }

    async fn act(&self, _world: &World, step: Step) -> Result<Effect, Reason> {
        act_on_management(self.0.management(), step).await
    }

    fn absorb(&self, world: &mut World, effect: Effect) {
        match effect {
            Effect::Applied(object) if object.kind() == kinds::MachineSet::KIND => {
                let Ok(set) = object.typed() else { return };
                world.sets.retain(|other| other.object.uid() != object.uid());
                world.sets.push(Set { set, object });
            }
            Effect::Applied(object) if object.uid() == world.object.uid() => world.object = object,
            Effect::Applied(object) => crate::cluster::replace(world.templates.iter_mut(), &object),
            Effect::Deleted(key) => {
                crate::cluster::mark_deleting(world.sets.iter_mut().map(|set| &mut set.object), &key)
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
}
