//! KubeadmConfig: reads its Machine or MachinePool, the cluster's authority, and how long its token lives.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::{Object, ObjectKey, kinds, references};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, named, owner, read, reference};
use hangar_planner::kubeadm_config::approval::{Requested, SigningRequest, user_of};
use hangar_planner::kubeadm_config::contents::{Contents, wanted};
use hangar_planner::kubeadm_config::{
    Facts, KubeadmConfigs, TOKEN_ID_ANNOTATION, awaits_node, bound_token, data_secret, is_of_pool, tenant,
};
use hangar_planner::step::ClusterName;
use hangar_planner::{Reason, World};
use jiff::Timestamp;
use serde_json::Value;

use crate::machine::kubeconfig;
use crate::{Context, tenant_calls};

fn authority(cluster: &Object) -> Option<ObjectKey> {
    Some(ObjectKey::new("", "Secret", cluster.namespace(), &format!("{}-ca", cluster.name())))
}

/// The bootstrap data has the name of its config.
fn own_data(config: &Object) -> Option<ObjectKey> {
    Some(ObjectKey::new("", "Secret", config.namespace(), config.name()))
}

/// With what it asks for, which is in its PEM.
fn signing_request(object: &Object) -> SigningRequest {
    let pem = STANDARD.decode(object.text("/spec/request")).unwrap_or_default();
    let read = hangar_pki::request::read(&String::from_utf8_lossy(&pem)).map_err(|error| error.to_string());
    let requested = read.map(|(subject, asks_for_more)| Requested {
        common_name: subject.common_name,
        organizations: subject.organizations,
        asks_for_more,
    });
    SigningRequest { object: object.clone(), requested }
}

impl Controller<Context> for KubeadmConfigs {
    const READS: &'static [Read] = &[
        read(&[owner::<kinds::Machine>()], &["/status/nodeRef", "/spec/version", "/spec/infrastructureRef"]),
        read(&[owner::<kinds::MachinePool>()], &["/spec/template/spec/version"]),
        read(&[cluster()], &["/status/initialization", "/spec/controlPlaneEndpoint", "/spec/controlPlaneRef"]),
        // Templates in files ask for its version.
        read(&[cluster(), reference("/spec/controlPlaneRef")], &[]),
        read(&[cluster(), named("", "Secret", authority)], &["/data"]),
        read(&[cluster(), named("", "Secret", kubeconfig)], &["/data"]),
        read(&[named("", "Secret", own_data)], &[]),
    ];

    async fn facts(context: &Context, world: &World<Self>, _now: Timestamp) -> Result<Facts, Reason> {
        let secret = world.cluster().and_then(authority).and_then(|key| world.objects.get(&key));
        let trusted = secret.and_then(|secret| secret.secret_text("tls.crt")).unwrap_or_default();
        let mut facts = Facts { ca_hashes: hangar_pki::ca_hashes(&trusted), ca_pem: trusted, ..Facts::default() };
        // Only until the data is there; that of a pool is written again and again.
        if (data_secret(world).is_none() || is_of_pool(world)) && world.cluster().is_some() {
            facts.contents = contents(context, world).await?;
        }
        // Only until the node has joined: afterwards the tenant is not asked any more.
        let awaited = data_secret(world).filter(|_| awaits_node(world));
        if let Some(id) = awaited.and_then(|secret| secret.annotation(TOKEN_ID_ANNOTATION)) {
            let client = context.tenants.client(&tenant(world)).await;
            let expiry = match client {
                Ok(client) => tenant_calls::token_expiry(&client, id).await,
                Err(message) => Err(message),
            };
            let unreachable = |message| Reason::retry("ControlPlaneUnreachable", message);
            facts.token_expires = expiry.map_err(unreachable)?;
        }
        let (cluster, own) = (tenant(world), world.object().key());
        match bound_token(world) {
            Some((token, _)) => {
                let requests = context.tenants.requests(&cluster, own, &user_of(token)).await;
                facts.requests = requests.iter().map(|request| signing_request(request)).collect();
            }
            None => context.tenants.leave_requests(&cluster, &own),
        }
        Ok(facts)
    }

    fn forget(context: &Context, object: &Object) {
        if let Some(cluster) = references::cluster(object) {
            let cluster = ClusterName { namespace: cluster.namespace, name: cluster.name };
            context.tenants.leave_requests(&cluster, &object.key());
        }
    }
}

/// What the spec takes from Secrets of its namespace.
async fn contents(context: &Context, world: &World<KubeadmConfigs>) -> Result<Contents, Reason> {
    let mut contents = Contents::default();
    for (name, key) in wanted(world.object().get("/spec")) {
        let place = ObjectKey::new("", "Secret", world.object().namespace(), &name);
        let found = context.unwatched.get(context.management(), &place, crate::unwatched::AGE).await;
        let content = match found.map_err(|error| Reason::retry("APIServerUnreachable", error.to_string()))? {
            None => Err(format!("there is no {place}")),
            Some(secret) => match secret.get("/data").get(&key).and_then(Value::as_str) {
                None => Err(format!("{place} has no key {key}")),
                Some(encoded) => STANDARD.decode(encoded).map_err(|_| format!("key {key} of {place} is not base64")),
            },
        };
        contents.0.insert((name, key), content);
    }
    Ok(contents)
}
