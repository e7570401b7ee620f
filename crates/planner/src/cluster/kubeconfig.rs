//! The administrator's kubeconfig of a Cluster that refers to no control plane: nobody else makes one.
//!
//! Flows: endpoint and the authority in NAME-ca -> NAME-kubeconfig -> issued anew when they change, or after two thirds of its life. Holds: one that a user made stays.

use std::time::Duration;

use hangar_api::Object;
use hangar_api::names::{CLUSTER_NAME_LABEL, SECRET_TYPE};
use jiff::Timestamp;
use serde_json::json;

use super::{World, has_control_plane};
use crate::hosted::certificates::{ISSUED_FOR_ANNOTATION, Renewal, host_port};
use crate::intent::{self, fingerprint};
use crate::step::{Identity, Issue, LeafCertificate, Material, Signer};
use crate::{Phase, Step};

/// C2.
pub(super) fn issued(world: &World, now: Timestamp) -> Phase {
    if has_control_plane(world) {
        return Phase::Done;
    }
    let (Some(server), Some(authority)) = (server(world), authority(world)) else { return Phase::Done };
    let cluster = world.object();
    let wish = fingerprint(&json!([server, authority.certificate_pem]));
    let current = secret(world);
    match current {
        Some(current) if !current.is_owned_by(cluster.uid()) => return Phase::Done,
        Some(current)
            if current.annotation(ISSUED_FOR_ANNOTATION) == Some(&wish)
                && !Renewal::of([current].into_iter(), now).is_due(current) =>
        {
            return Phase::Done;
        }
        _ => {}
    }
    let mut secret = Object::named("v1", "Secret", cluster.namespace(), &name(cluster));
    secret.0["metadata"]["labels"] = json!({ CLUSTER_NAME_LABEL: cluster.name() });
    secret.0["metadata"]["annotations"] = json!({ ISSUED_FOR_ANNOTATION: wish });
    secret.0["type"] = SECRET_TYPE.into();
    let leaf = LeafCertificate {
        common_name: "kubernetes-admin".to_owned(),
        organizations: vec!["system:masters".to_owned()],
        names: vec![],
        server: false,
        client: true,
    };
    let user = format!("{}-admin", cluster.name());
    let identity = Identity { leaf, user, files: vec![("value".to_owned(), server)] };
    let material = Material::Kubeconfig { authority, cluster: cluster.name().to_owned(), identities: vec![identity] };
    let secret = intent::owned(secret, &cluster.as_owner(true));
    Phase::Steps(vec![Step::Issue(Issue { secret, material, replaces: current.is_some() })])
}

/// How long until it is issued anew.
pub(super) fn renewal(world: &World, now: Timestamp) -> Option<Duration> {
    let own = secret(world).filter(|secret| !has_control_plane(world) && secret.is_owned_by(world.object().uid()))?;
    Renewal::of([own].into_iter(), now).remaining()
}

fn name(cluster: &Object) -> String {
    format!("{}-kubeconfig", cluster.name())
}

fn secret(world: &World) -> Option<&Object> {
    world.named("", "Secret", &name(world.object()))
}

fn server(world: &World) -> Option<String> {
    let endpoint = world.object().get("/spec/controlPlaneEndpoint");
    let host = endpoint["host"].as_str().filter(|host| !host.is_empty())?;
    Some(format!("https://{}", host_port(host, endpoint["port"].as_i64()?)))
}

fn authority(world: &World) -> Option<Signer> {
    let secret = world.named("", "Secret", &format!("{}-ca", world.object().name()))?;
    let text = |key: &str| secret.secret_text(key).filter(|text| !text.trim().is_empty());
    Some(Signer { certificate_pem: text("tls.crt")?, key_pem: text("tls.key")?, trust_pem: None })
}
