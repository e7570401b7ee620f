//! MachineSet: reads its machines with what belongs to them, its templates and the control plane's version.

use std::sync::Arc;

use async_trait::async_trait;
use hangar_api::{Kind as _, Object, ObjectKey, kinds};
use hangar_engine::cache::Cache;
use hangar_engine::pass::{Controller, PassError, act_on_management};
use hangar_planner::machine_set::{self as planner, Member, World};
use hangar_planner::{Effect, Plan, Reason, Step};
use jiff::Timestamp;

use crate::{Context, owned, referenced, typed};

pub struct MachineSets(pub Arc<Context>);

#[async_trait]
impl Controller for MachineSets {
    type World = World;

    async fn observe(&self, key: &ObjectKey, _now: Timestamp) -> Result<Option<World>, PassError> {
        let cache = self.0.cache();
        let Some(object) = cache.get(key) else { return Ok(None) };
        let set: kinds::MachineSet = typed(&object)?;
        let cluster = cache.get(&ObjectKey::of::<kinds::Cluster>(&key.namespace, &set.spec.cluster_name));
        let mut machines = vec![];
        for machine in cache.owned_by(object.uid(), kinds::Machine::KIND) {
            machines.push(member(cache, &machine)?);
        }
        Ok(Some(World {
            set,
            control_plane: cluster
                .as_ref()
                .and_then(|cluster| referenced(cache, cluster, "/spec/controlPlaneRef"))
                .as_ref()
                .map(owned),
            cluster: cluster.as_ref().map(owned),
            bootstrap_template: referenced(cache, &object, "/spec/template/spec/bootstrap/configRef")
                .as_ref()
                .map(owned),
            infrastructure_template: referenced(cache, &object, "/spec/template/spec/infrastructureRef")
                .as_ref()
                .map(owned),
            machines,
            object: owned(&object),
            refusal: None,
        }))
    }

    fn plan(&self, world: &World, now: Timestamp) -> Plan {
        planner::plan(world, now)
    }

    async fn act(&self, _world: &World, step: Step) -> Result<Effect, Reason> {
        act_on_management(self.0.management(), step).await
    }

    fn absorb(&self, world: &mut World, effect: Effect) {
        match effect {
            Effect::Applied(object) if object.uid() == world.object.uid() => world.object = object,
            Effect::Applied(object) if object.kind() == kinds::Machine::KIND => {
                let Ok(machine) = object.typed() else { return };
                world.machines.retain(|member| member.object.uid() != object.uid());
                world.machines.push(Member { machine, bootstrap: None, infrastructure: None, object });
            }
            Effect::Applied(object) => {
                let Some(member) = world.machines.iter_mut().find(|member| member.object.name() == object.name())
                else {
                    return;
                };
                let is_bootstrap = member.object.text("/spec/bootstrap/configRef/kind") == object.kind();
                *(if is_bootstrap { &mut member.bootstrap } else { &mut member.infrastructure }) = Some(object);
            }
            Effect::Deleted(key) => {
                crate::cluster::mark_deleting(world.machines.iter_mut().map(|member| &mut member.object), &key)
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

fn member(cache: &Cache, machine: &Arc<Object>) -> Result<Member, PassError> {
    Ok(Member {
        machine: typed(machine)?,
        bootstrap: referenced(cache, machine, "/spec/bootstrap/configRef").as_ref().map(owned),
        infrastructure: referenced(cache, machine, "/spec/infrastructureRef").as_ref().map(owned),
        object: owned(machine),
    })
}
