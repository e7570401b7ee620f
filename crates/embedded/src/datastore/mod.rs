//! The datastore of the local plane: one etcd, as a StatefulSet on it, that hosted control planes share.
//!
//! Flows: Service (its ClusterIP is the endpoint) -> keys and certificates (kept in a Secret, renewed) -> StatefulSet -> DataStore `default`.
//! Holds: applying it again changes nothing; etcd listens with TLS only and asks every client for a certificate; tenants' certificates do not open
//! its peer port.

mod certificates;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_pki::{PkiError, SystemKeys};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use certificates::Files;

const NAMESPACE: &str = "kamaji-system";
const NAME: &str = "etcd";
const CERTIFICATES: &str = "etcd-certs";
const MANAGER: &str = "hangar-embedded";
/// Never a key of an authority, and not what the root user has.
const MOUNTED: [&str; 6] = ["ca.crt", "server.crt", "server.key", "peer-ca.crt", "peer.crt", "peer.key"];
const PKI: &str = "/etc/etcd/pki";

#[derive(Debug, thiserror::Error)]
pub enum DatastoreError {
    #[error("could not install the shared etcd")]
    Api(#[from] kube::Error),
    #[error("could not create the certificates of the shared etcd")]
    Pki(#[from] PkiError),
    #[error("the shared etcd did not become ready")]
    NotReady(#[source] Box<kube::runtime::wait::Error>),
    #[error("the Service {NAMESPACE}/{NAME} got no ClusterIP")]
    NoAddress,
}

/// Installs the shared etcd and the DataStore `default`; `version` is etcd's.
pub async fn install(client: &Client, version: &str, now: Timestamp) -> Result<(), DatastoreError> {
    apply(client, "v1", "Namespace", "", &json!({ "metadata": { "name": NAMESPACE } })).await?;
    apply(client, "v1", "Service", NAMESPACE, &service()).await?;
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let address = services.get(NAME).await?.spec.and_then(|spec| spec.cluster_ip).ok_or(DatastoreError::NoAddress)?;
    complete_certificates(client, &address, now).await?;
    apply(client, "apps/v1", "StatefulSet", NAMESPACE, &stateful_set(&address, version)).await?;
    apply(client, "kamaji.clastix.io/v1alpha1", "DataStore", "", &data_store(&address)).await
}

/// Issues its certificates anew that are due; etcd reads them again for each connection.
pub async fn renew(client: &Client, now: Timestamp) -> Result<(), DatastoreError> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let Some(service) = services.get_opt(NAME).await? else { return Ok(()) };
    let address = service.spec.and_then(|spec| spec.cluster_ip).ok_or(DatastoreError::NoAddress)?;
    complete_certificates(client, &address, now).await
}

async fn complete_certificates(client: &Client, address: &str, now: Timestamp) -> Result<(), DatastoreError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let before = files(secrets.get_opt(CERTIFICATES).await?);
    let after = certificates::complete(before.clone(), &SystemKeys, address, now)?;
    if after != before {
        apply(client, "v1", "Secret", NAMESPACE, &certificates(&after)).await?;
    }
    Ok(())
}

async fn apply(
    client: &Client,
    api_version: &str,
    kind: &str,
    namespace: &str,
    body: &Value,
) -> Result<(), DatastoreError> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    };
    let mut object = body.clone();
    object["apiVersion"] = api_version.into();
    object["kind"] = kind.into();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object)).await?;
    Ok(())
}

fn labels() -> Value {
    json!({ "app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "hangar" })
}

fn service() -> Value {
    json!({
        "metadata": { "name": NAME, "labels": labels() },
        "spec": { "selector": labels(), "ports": [{ "name": "client", "port": 2379, "targetPort": 2379 }] },
    })
}

fn certificates(files: &Files) -> Value {
    let data: BTreeMap<&str, String> = files.iter().map(|(name, pem)| (name.as_str(), STANDARD.encode(pem))).collect();
    json!({ "metadata": { "name": CERTIFICATES, "labels": labels() }, "data": data })
}

/// What the Secret has; what is not text is as good as missing.
fn files(secret: Option<Secret>) -> Files {
    let data = secret.and_then(|secret| secret.data).unwrap_or_default();
    data.into_iter().filter_map(|(name, bytes)| Some((name, String::from_utf8(bytes.0).ok()?))).collect()
}

pub(crate) fn arguments(address: &str) -> Vec<String> {
    vec![
        "--name=etcd-0".to_owned(),
        "--data-dir=/var/lib/etcd/data".into(),
        "--listen-client-urls=https://$(POD_IP):2379".into(),
        format!("--advertise-client-urls=https://{address}:2379"),
        "--listen-peer-urls=https://$(POD_IP):2380".into(),
        "--initial-advertise-peer-urls=https://$(POD_IP):2380".into(),
        "--initial-cluster=etcd-0=https://$(POD_IP):2380".into(),
        "--listen-metrics-urls=http://$(POD_IP):2381".into(),
        "--client-cert-auth=true".into(),
        format!("--trusted-ca-file={PKI}/ca.crt"),
        format!("--cert-file={PKI}/server.crt"),
        format!("--key-file={PKI}/server.key"),
        "--peer-client-cert-auth=true".into(),
        format!("--peer-trusted-ca-file={PKI}/peer-ca.crt"),
        format!("--peer-cert-file={PKI}/peer.crt"),
        format!("--peer-key-file={PKI}/peer.key"),
        // The API servers of tenants do not compact, since several of them share this etcd.
        "--auto-compaction-mode=periodic".into(),
        "--auto-compaction-retention=5m".into(),
        "--quota-backend-bytes=8589934592".into(),
        "--enable-grpc-gateway=false".into(),
    ]
}

fn stateful_set(address: &str, version: &str) -> Value {
    let probe = |path: &str, period: u32, failures: u32| json!({ "httpGet": { "path": path, "port": 2381 }, "periodSeconds": period, "failureThreshold": failures });
    json!({
        "metadata": { "name": NAME, "labels": labels() },
        "spec": {
            "replicas": 1,
            "serviceName": NAME,
            "selector": { "matchLabels": labels() },
            "template": {
                "metadata": { "labels": labels() },
                "spec": {
                    "automountServiceAccountToken": false,
                    "containers": [{
                        "name": "etcd",
                        "image": format!("registry.k8s.io/etcd:{version}"),
                        "command": ["etcd"],
                        "args": arguments(address),
                        "env": [{ "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }],
                        "volumeMounts": [
                            { "name": "data", "mountPath": "/var/lib/etcd" },
                            { "name": "pki", "mountPath": PKI, "readOnly": true },
                        ],
                        "startupProbe": probe("/readyz", 1, 120),
                        "readinessProbe": probe("/readyz", 10, 3),
                        "livenessProbe": probe("/livez", 10, 6),
                    }],
                    "volumes": [{ "name": "pki", "secret": {
                        "secretName": CERTIFICATES,
                        "items": MOUNTED.map(|file| json!({ "key": file, "path": file })),
                    }}],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": { "name": "data" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "8Gi" } } },
            }],
        },
    })
}

fn data_store(address: &str) -> Value {
    let from =
        |key: &str| json!({ "secretReference": { "name": CERTIFICATES, "namespace": NAMESPACE, "keyPath": key } });
    json!({
        "metadata": { "name": "default" },
        "spec": {
            "driver": "etcd",
            "endpoints": [format!("{address}:2379")],
            "tlsConfig": {
                "certificateAuthority": { "certificate": from("ca.crt"), "privateKey": from("ca.key") },
                "clientCertificate": { "certificate": from("root.crt"), "privateKey": from("root.key") },
            },
        },
    })
}
