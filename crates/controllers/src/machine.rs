//! Machine: reads its bootstrap config, its infrastructure and its Node.

use std::sync::Arc;

use async_trait::async_trait;
use hangar_api::{Object, ObjectKey, kinds};
use hangar_engine::pass::{Controller, PassError, act_on_management};
use hangar_planner::machine::{self as planner, Tenant, World};
use hangar_planner::step::TenantAnswer;
use hangar_planner::{Effect, Plan, Reason, Step, Wake};
use jiff::Timestamp;

use crate::{Context, owned, referenced, tenant_calls, typed};

pub struct Machines(pub Arc<Context>);

#[async_trait]
impl Controller for Machines {
    type World = World;

    async fn observe(&self, key: &ObjectKey, _now: Timestamp) -> Result<Option<World>, PassError> {
        let cache = self.0.cache();
        let Some(object) = cache.get(key) else { return Ok(None) };
        let machine: kinds::Machine = typed(&object)?;
        let cluster = cache.get(&ObjectKey::of::<kinds::Cluster>(&key.namespace, &machine.spec.cluster_name));
        let initialized = cluster
            .as_ref()
            .is_some_and(|cluster| cluster.get("/status/initialization/controlPlaneInitialized") == true);
        let infrastructure = referenced(cache, &object, "/spec/infrastructureRef");
        let known_id = object.text("/spec/providerID");
        let provider_id = if known_id.is_empty() {
            infrastructure.as_ref().map_or("", |infra| infra.text("/spec/providerID"))
        } else {
            known_id
        };
        let tenant = if initialized {
            tenant_calls::node(
                &self.0.tenants,
                &(key.namespace.clone(), machine.spec.cluster_name.clone()),
                provider_id,
            )
            .await
        } else {
            Tenant::Unreachable
        };
        Ok(Some(World {
            machine,
            bootstrap: referenced(cache, &object, "/spec/bootstrap/configRef").as_ref().map(owned),
            infrastructure: infrastructure.as_ref().map(owned),
            cluster: cluster.as_ref().map(owned),
            tenant,
            object: owned(&object),
            refusal: None,
        }))
    }

    fn plan(&self, world: &World, now: Timestamp) -> Plan {
        planner::plan(world, now)
    }

    async fn act(&self, world: &World, step: Step) -> Result<Effect, Reason> {
        let Step::Tenant(call) = step else { return act_on_management(self.0.management(), step).await };
        let cluster = (world.object.namespace().to_owned(), world.machine.spec.cluster_name.clone());
        let now = (self.0.passes.clock)();
        let answer = tenant_calls::carry_out(&self.0.tenants, self.0.keys.as_ref(), &cluster, &call, now).await;
        answer.map(Effect::Tenant).map_err(|message| Reason { code: "NodeNotUpdated", message, wake: Wake::Retry })
    }

    fn absorb(&self, world: &mut World, effect: Effect) {
        match effect {
            Effect::Applied(object) => {
                if let Ok(machine) = object.typed() {
                    world.machine = machine;
                }
                world.object = object;
            }
            Effect::Deleted(key) => {
                crate::cluster::mark_deleting(world.infrastructure.iter_mut().chain(&mut world.bootstrap), &key);
            }
            Effect::Tenant(TenantAnswer::NodeDeleted) => world.tenant = Tenant::NoNode,
            Effect::Tenant(TenantAnswer::NodeAdopted) => {
                if let Tenant::Node(node) = &mut world.tenant {
                    let taints = node.get("/spec/taints").as_array().cloned().unwrap_or_default();
                    let rest: Vec<_> = taints
                        .into_iter()
                        .filter(|taint| taint["key"] != hangar_api::names::NODE_UNINITIALIZED_TAINT)
                        .collect();
                    node.0["spec"]["taints"] = rest.into();
                    node.0["metadata"]["annotations"]["cluster.x-k8s.io/machine"] = world.object.name().into();
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
}
