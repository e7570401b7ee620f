//! Connections from the API server into the tenant's network, through a tunnel that the nodes open: a server beside each API server, an
//! agent on the nodes.
//!
//! Holds: the API server reaches its server over a socket in a directory that the two share, so nobody else can use the tunnel; agents
//! prove who they are by a token for this purpose alone, which the server has reviewed.

use hangar_api::Object;
use serde_json::{Value, json};

use super::pods::confined;
use super::tenant::config_map;
use super::{Addresses, ControlPlane};

const DIRECTORY: &str = "/etc/kubernetes/konnectivity";
const SOCKETS: &str = "/etc/kubernetes/konnectivity-server";
const SOCKET: &str = "/etc/kubernetes/konnectivity-server/konnectivity-server.socket";
const EGRESS_FILE: &str = "egress-selector-configuration.yaml";
const AUDIENCE: &str = "system:konnectivity-server";
const AGENT: &str = "konnectivity-agent";
const ADMIN_PORT: u16 = 8133;
const HEALTH_PORT: u16 = 8134;
pub const PORT: i64 = 8132;
pub const SERVER_IMAGE: &str = "registry.k8s.io/kas-network-proxy/proxy-server";
pub const AGENT_IMAGE: &str = "registry.k8s.io/kas-network-proxy/proxy-agent";

/// What the user wants of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Konnectivity {
    pub port: i64,
    pub server_image: String,
    pub server_args: Vec<String>,
    pub server_resources: Value,
    pub agent_image: String,
    pub agent_args: Vec<String>,
    pub tolerations: Value,
    pub host_network: bool,
    /// A Deployment with so many replicas instead of a DaemonSet.
    pub agent_replicas: Option<i32>,
}

/// The argument of the API server.
pub fn egress_file() -> String {
    format!("{DIRECTORY}/{EGRESS_FILE}")
}

/// Tells the API server which connections go through the tunnel.
pub fn egress_map(plane: &ControlPlane) -> Object {
    let tunnel = json!({ "proxyProtocol": "GRPC", "transport": { "uds": { "udsName": SOCKET } } });
    let configuration = json!({
        "apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
        "egressSelections": [{ "name": "cluster", "connection": tunnel }],
    });
    let name = plane.object("-konnectivity-egress-selector-configuration");
    let mut map = config_map(&plane.namespace, &name, EGRESS_FILE, &configuration);
    map.0["metadata"]["labels"] = plane.labels("konnectivity-server");
    map
}

pub fn service_port(konnectivity: &Konnectivity) -> Value {
    json!({ "name": "konnectivity-server", "protocol": "TCP", "port": konnectivity.port, "targetPort": konnectivity.port })
}

/// Adds the server to the pod of an API server.
pub fn join_pod(plane: &ControlPlane, konnectivity: &Konnectivity, pod: &mut Value) {
    let socket = json!({ "name": "konnectivity-socket", "mountPath": SOCKETS });
    let configuration = json!({ "name": "konnectivity-egress", "mountPath": DIRECTORY, "readOnly": true });
    push(&mut pod["containers"][0]["volumeMounts"], [socket.clone(), configuration]);
    push(&mut pod["containers"], [server(plane, konnectivity, socket)]);
    let secret = |suffix: &str| json!({ "secret": { "name": plane.object(suffix) } });
    push(
        &mut pod["volumes"],
        [
            json!({ "name": "konnectivity-socket", "emptyDir": { "medium": "Memory" } }),
            json!({ "name": "konnectivity-egress", "configMap": { "name": plane.object("-konnectivity-egress-selector-configuration") } }),
            json!({ "name": "konnectivity", "projected": { "sources": [
                secret("-konnectivity-certificate"), secret("-konnectivity-kubeconfig"),
            ] } }),
        ],
    );
}

fn push(list: &mut Value, items: impl IntoIterator<Item = Value>) {
    if let Value::Array(list) = list {
        list.extend(items);
    }
}

fn server(plane: &ControlPlane, konnectivity: &Konnectivity, socket: Value) -> Value {
    const KEYS: &str = "/etc/konnectivity";
    let mut args = vec![
        "--mode=grpc".to_owned(),
        "--server-port=0".into(),
        format!("--uds-name={SOCKET}"),
        format!("--cluster-cert={KEYS}/konnectivity-server.crt"),
        format!("--cluster-key={KEYS}/konnectivity-server.key"),
        format!("--kubeconfig={KEYS}/konnectivity-server.conf"),
        format!("--authentication-audience={AUDIENCE}"),
        "--agent-namespace=kube-system".into(),
        format!("--agent-service-account={AGENT}"),
        "--agent-bind-address=$(POD_IP)".into(),
        format!("--agent-port={}", konnectivity.port),
        "--admin-bind-address=$(POD_IP)".into(),
        format!("--admin-port={ADMIN_PORT}"),
        "--health-bind-address=$(POD_IP)".into(),
        format!("--health-port={HEALTH_PORT}"),
        format!("--server-count={}", plane.replicas.max(1)),
        "--logtostderr=true".into(),
    ];
    args.extend(konnectivity.server_args.iter().cloned());
    let mut container = json!({
        "name": "konnectivity-server",
        "image": konnectivity.server_image,
        "args": args,
        "securityContext": confined("konnectivity-server"),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [{ "name": "POD_IP", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "status.podIP" } } }],
        "ports": [
            { "name": "agentport", "containerPort": konnectivity.port, "protocol": "TCP" },
            { "name": "healthport", "containerPort": HEALTH_PORT, "protocol": "TCP" },
        ],
        "livenessProbe": { "httpGet": { "path": "/healthz", "port": HEALTH_PORT }, "initialDelaySeconds": 30, "timeoutSeconds": 60 },
        "volumeMounts": [{ "name": "konnectivity", "mountPath": KEYS, "readOnly": true }, socket],
    });
    if konnectivity.server_resources.is_object() {
        container["resources"] = konnectivity.server_resources.clone();
    }
    container
}

/// What the tenant needs: the right to review tokens for the server, and the agents.
pub fn tenant_objects(plane: &ControlPlane, addresses: &Addresses) -> Vec<Object> {
    let Some(konnectivity) = &plane.addons.konnectivity else { return vec![] };
    let rbac = "rbac.authorization.k8s.io";
    let mut binding = Object::named(&format!("{rbac}/v1"), "ClusterRoleBinding", "", AUDIENCE);
    binding.0["roleRef"] = json!({ "apiGroup": rbac, "kind": "ClusterRole", "name": "system:auth-delegator" });
    binding.0["subjects"] = json!([{ "apiGroup": rbac, "kind": "User", "name": AUDIENCE }]);
    vec![Object::named("v1", "ServiceAccount", "kube-system", AGENT), binding, agents(konnectivity, addresses)]
}

fn agents(konnectivity: &Konnectivity, addresses: &Addresses) -> Object {
    let kind = if konnectivity.agent_replicas.is_some() { "Deployment" } else { "DaemonSet" };
    let labels = json!({ "k8s-app": AGENT });
    let mut agents = Object::named("apps/v1", kind, "kube-system", AGENT);
    agents.0["metadata"]["labels"] = labels.clone();
    agents.0["spec"] = json!({
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": agent_pod(konnectivity, addresses) },
    });
    if let Some(replicas) = konnectivity.agent_replicas {
        agents.0["spec"]["replicas"] = replicas.into();
    }
    agents
}

fn agent_pod(konnectivity: &Konnectivity, addresses: &Addresses) -> Value {
    let mut args = vec![
        format!("--proxy-server-host={}", addresses.endpoint),
        format!("--proxy-server-port={}", konnectivity.port),
        "--ca-cert=/var/run/secrets/kubernetes.io/serviceaccount/ca.crt".into(),
        "--service-account-token-path=/var/run/secrets/tokens/konnectivity-agent-token".into(),
        format!("--admin-server-port={ADMIN_PORT}"),
        format!("--health-server-port={HEALTH_PORT}"),
        "--logtostderr=true".into(),
    ];
    args.extend(konnectivity.agent_args.iter().cloned());
    let token = json!({ "path": "konnectivity-agent-token", "audience": AUDIENCE, "expirationSeconds": 3600 });
    json!({
        "serviceAccountName": AGENT,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": { "kubernetes.io/os": "linux" },
        "hostNetwork": konnectivity.host_network,
        "tolerations": konnectivity.tolerations,
        "containers": [{
            "name": AGENT,
            "image": konnectivity.agent_image,
            "args": args,
            "livenessProbe": { "httpGet": { "path": "/healthz", "port": HEALTH_PORT }, "initialDelaySeconds": 15, "timeoutSeconds": 15 },
            "volumeMounts": [{ "name": "token", "mountPath": "/var/run/secrets/tokens" }],
        }],
        "volumes": [{ "name": "token", "projected": { "sources": [{ "serviceAccountToken": token }] } }],
    })
}
