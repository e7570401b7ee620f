//! KubeadmConfig: reads its Machine, the cluster's authority, and how long its token lives.

use std::sync::Arc;

use async_trait::async_trait;
use hangar_api::{Object, ObjectKey, Owner, kinds};
use hangar_engine::pass::{Controller, PassError, act_on_management};
use hangar_planner::kubeadm_config::{self as planner, TOKEN_ID_ANNOTATION, Token, World};
use hangar_planner::step::TenantAnswer;
use hangar_planner::{Effect, Plan, Reason, Step, Wake};
use jiff::Timestamp;

use crate::{Context, cluster_of, owned, tenant_calls, typed};

pub struct KubeadmConfigs(pub Arc<Context>);

#[async_trait]
impl Controller for KubeadmConfigs {
    type World = World;

    async fn observe(&self, key: &ObjectKey, _now: Timestamp) -> Result<Option<World>, PassError> {
        let cache = self.0.cache();
        let Some(object) = cache.get(key) else { return Ok(None) };
        let owner = object.owners().into_iter().find(Owner::is::<kinds::Machine>);
        let machine = owner.and_then(|owner| cache.get(&ObjectKey::of::<kinds::Machine>(&key.namespace, &owner.name)));
        let cluster = cluster_of(cache, &object);
        let authority = cluster.as_ref().and_then(|cluster| {
            cache.get(&ObjectKey::new("", "Secret", &key.namespace, &format!("{}-ca", cluster.name())))
        });
        let ca_hash = authority.and_then(|secret| hangar_pki::ca_hash(&secret.secret_text("tls.crt")?).ok());
        let data_secret = cache.get(&ObjectKey::new("", "Secret", &key.namespace, &key.name));
        let mut world = World {
            config: typed(&object)?,
            machine: machine.as_ref().map(owned),
            cluster: cluster.as_ref().map(owned),
            ca_hash,
            data_secret: data_secret.as_ref().map(owned),
            token: None,
            token_expires: None,
            object: owned(&object),
            refusal: None,
        };
        self.look_at_token(&mut world).await;
        Ok(Some(world))
    }

    fn plan(&self, world: &World, now: Timestamp) -> Plan {
        planner::plan(world, now)
    }

    async fn act(&self, world: &World, step: Step) -> Result<Effect, Reason> {
        let Step::Tenant(call) = step else { return act_on_management(self.0.management(), step).await };
        let now = (self.0.passes.clock)();
        let answer =
            tenant_calls::carry_out(&self.0.tenants, self.0.keys.as_ref(), &cluster_name(world), &call, now).await;
        answer.map(Effect::Tenant).map_err(|message| Reason { code: "TokenNotCreated", message, wake: Wake::Retry })
    }

    fn absorb(&self, world: &mut World, effect: Effect) {
        match effect {
            Effect::Applied(object) if object.kind() == "Secret" => world.data_secret = Some(object),
            Effect::Applied(object) => world.object = object,
            Effect::Deleted(_) => world.data_secret = None,
            Effect::Tenant(TenantAnswer::Token { id, secret, expires }) => {
                world.token = Some(Token { id, secret });
                world.token_expires = Some(expires);
            }
            Effect::Tenant(TenantAnswer::TokenExtended { expires }) => world.token_expires = Some(expires),
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

impl KubeadmConfigs {
    /// Only while the node has not joined: afterwards the tenant is not asked any more.
    async fn look_at_token(&self, world: &mut World) {
        let joined = world.machine.as_ref().is_none_or(|machine| machine.get("/status/nodeRef/name").is_string());
        let going = world.machine.as_ref().is_some_and(Object::is_deleting);
        let Some(secret) = world.data_secret.as_ref().filter(|_| !joined && !going) else { return };
        let id = secret.annotation(TOKEN_ID_ANNOTATION).unwrap_or_default().to_owned();
        let client = self.0.tenants.client(&cluster_name(world)).await;
        let expiry = match client {
            Ok(client) => tenant_calls::token_expiry(&client, &id).await,
            Err(message) => Err(message),
        };
        match expiry {
            Ok(expires) => world.token_expires = expires,
            Err(message) => {
                world.refusal = Some(Reason { code: "ControlPlaneUnreachable", message, wake: Wake::Retry })
            }
        }
    }
}

fn cluster_name(world: &World) -> (String, String) {
    (world.object.namespace().to_owned(), world.cluster.as_ref().map_or("", |cluster| cluster.name()).to_owned())
}
