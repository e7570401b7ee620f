//! Keys, certificates and a kubeconfig for a control plane that runs inside the plane.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "a test says what went wrong by panicking; not every test uses all"
)]

use std::path::PathBuf;

use hangar_pki::{Authority, CertifiedKey, Kubeconfig, Leaf, SystemKeys, Usage, service_account_keys};
use serde_json::{Value, json};

use crate::plane::Plane;

/// Puts keys and certificates into a Secret of the plane, and writes a kubeconfig for the server; `names` are what its certificate is for.
pub fn pki(plane: &Plane, server: &str, names: &[&str]) -> PathBuf {
    let now = jiff::Timestamp::now();
    let authority = Authority::create(&SystemKeys, "inner", now).unwrap();
    // Pods have addresses of their own, but what they open comes from 127.0.0.1; etcd looks for that in its peers' certificates.
    let members = std::iter::once("127.0.0.1".to_owned());
    let members = members.chain((0..3).flat_map(|n| [format!("etcd-{n}.etcd.default.svc"), format!("etcd-{n}.etcd")]));
    let etcd = Leaf { usage: Usage::ServerAndClient, ..Leaf::server("etcd", members) };
    let served = names.iter().copied().chain(["127.0.0.1"]).map(str::to_owned);
    let serving = Leaf::server("kube-apiserver", served);
    let issue = |leaf: &Leaf| authority.issue(&SystemKeys, leaf, now).unwrap();
    let admin = issue(&Leaf::client("admin", &["system:masters"]));
    let (public, private) = service_account_keys(&SystemKeys).unwrap();
    let mut data = json!({ "ca.crt": authority.certificate_pem(), "sa.pub": public, "sa.key": private });
    let mut put = |name: &str, pair: &CertifiedKey| {
        data[format!("{name}.crt")] = pair.certificate_pem.clone().into();
        data[format!("{name}.key")] = pair.key_pem.clone().into();
    };
    put("etcd", &issue(&etcd));
    put("server", &issue(&serving));
    put("admin", &admin);
    let secret =
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "inner-pki" }, "stringData": data });
    let ca_pem = authority.certificate_pem();
    let kubeconfig = Kubeconfig { cluster: "inner", user: "admin", server, ca_pem, identity: &admin };
    apply(plane, &secret);
    let path = plane.home().join("inner.kubeconfig");
    std::fs::write(&path, kubeconfig.to_json()).unwrap();
    path
}

pub fn apply(plane: &Plane, object: &Value) {
    let path = plane.home().join("object.json");
    std::fs::write(&path, object.to_string()).unwrap();
    plane.kubectl(&["apply", "-f", path.to_str().unwrap()]);
}
