//! What `kubeadm join` and every cluster need inside the tenant.

use hangar_api::{KubeVersion, Object};
use serde_json::{Value, json};

use super::certificates::{ADMINS, host_port};
use super::{Addresses, ControlPlane, addons};

/// Of tokens that users make as kubeadm does: the tenant approves whatever node they ask for.
pub const KUBEADM_BOOTSTRAPPERS: &str = "system:bootstrappers:kubeadm:default-node-token";
/// Of tokens that are good for one node: only Hangar approves.
pub const BOOTSTRAPPERS: &str = "system:bootstrappers:hangar";

/// All objects, in the order in which they are applied.
pub fn objects(plane: &ControlPlane, addresses: &Addresses, ca_pem: &str) -> Vec<Object> {
    let mut objects =
        vec![Object::named("v1", "Namespace", "", "kube-system"), Object::named("v1", "Namespace", "", "kube-public")];
    objects.extend(cluster_info(plane, addresses, ca_pem));
    objects.extend(kubeadm_config(plane, addresses));
    objects.extend(kubelet_config(plane));
    objects.extend(bootstrap_rbac());
    objects.extend(addons::objects(plane, addresses));
    objects
}

/// Where another version runs in the place of the one that was asked for, nodes are told what runs: kubeadm does not join a cluster that says it is much older
/// than kubeadm is.
pub fn as_it_runs(plane: &ControlPlane, running: Option<&str>) -> ControlPlane {
    let mut plane = plane.clone();
    if let Some(running) = running.and_then(KubeVersion::parse) {
        plane.version = running;
    }
    plane
}

/// kubeadm's description of the cluster.
pub fn cluster_configuration(plane: &ControlPlane, addresses: &Addresses) -> Value {
    // Nodes up to 1.30 may not know v1beta4.
    let version = if plane.version.at_least(1, 31) { "v1beta4" } else { "v1beta3" };
    json!({
        "apiVersion": format!("kubeadm.k8s.io/{version}"),
        "kind": "ClusterConfiguration",
        "clusterName": plane.cluster_name,
        "controlPlaneEndpoint": host_port(&addresses.endpoint, plane.exposure.port),
        "kubernetesVersion": plane.version.to_string(),
        "networking": {
            "dnsDomain": plane.network.domain, "podSubnet": plane.network.pod_cidr,
            "serviceSubnet": plane.network.service_cidr.to_string(),
        },
    })
}

fn kubeadm_config(plane: &ControlPlane, addresses: &Addresses) -> Vec<Object> {
    let map =
        config_map("kube-system", "kubeadm-config", "ClusterConfiguration", &cluster_configuration(plane, addresses));
    let mut objects = vec![map];
    objects.extend(readers(
        "kubeadm:nodes-kubeadm-config",
        "kube-system",
        "kubeadm-config",
        &[KUBEADM_BOOTSTRAPPERS, BOOTSTRAPPERS, "system:nodes"],
    ));
    objects
}

fn kubelet_config(plane: &ControlPlane) -> Vec<Object> {
    let configuration = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false }, "webhook": { "enabled": true },
            "x509": { "clientCAFile": "/etc/kubernetes/pki/ca.crt" },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": plane.kubelet.cgroup_driver,
        "clusterDNS": [plane.network.dns_ip],
        "clusterDomain": plane.network.domain,
        "rotateCertificates": true,
        "staticPodPath": "/etc/kubernetes/manifests",
    });
    // Below 1.24 kubeadm looks for a name with the version in it.
    let name = if plane.version.at_least(1, 24) {
        "kubelet-config".into()
    } else {
        format!("kubelet-config-{}", plane.version.minor_text())
    };
    let mut objects = vec![config_map("kube-system", &name, "kubelet", &configuration)];
    objects.extend(readers(
        "kubeadm:kubelet-config",
        "kube-system",
        &name,
        &[KUBEADM_BOOTSTRAPPERS, BOOTSTRAPPERS, "system:nodes"],
    ));
    objects
}

/// Public: a new node reads it before it trusts anybody, and checks the signature that its token makes.
fn cluster_info(plane: &ControlPlane, addresses: &Addresses, ca_pem: &str) -> Vec<Object> {
    use base64::Engine as _;
    let server = format!("https://{}", host_port(&addresses.endpoint, plane.exposure.port));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{ "name": "", "cluster": {
            "server": server,
            "certificate-authority-data": base64::engine::general_purpose::STANDARD.encode(ca_pem),
        }}],
        "contexts": null, "current-context": "", "preferences": {}, "users": null,
    });
    let map = config_map("kube-public", "cluster-info", "kubeconfig", &kubeconfig);
    let role = role("kubeadm:bootstrap-signer-clusterinfo", "kube-public", "cluster-info");
    let subjects = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:anonymous" }]);
    vec![map, role, role_binding("kubeadm:bootstrap-signer-clusterinfo", "kube-public", subjects)]
}

fn bootstrap_rbac() -> Vec<Object> {
    let both = [KUBEADM_BOOTSTRAPPERS, BOOTSTRAPPERS];
    let mut get_nodes = Object::named("rbac.authorization.k8s.io/v1", "ClusterRole", "", "kubeadm:get-nodes");
    get_nodes.0["rules"] = json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] }]);
    vec![
        get_nodes,
        cluster_role_binding("kubeadm:get-nodes", "kubeadm:get-nodes", &both),
        cluster_role_binding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", &both),
        cluster_role_binding(
            "kubeadm:node-autoapprove-bootstrap",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            &[KUBEADM_BOOTSTRAPPERS],
        ),
        cluster_role_binding(
            "kubeadm:node-autoapprove-certificate-rotation",
            "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
            &["system:nodes"],
        ),
        cluster_role_binding(ADMINS, "cluster-admin", &[ADMINS]),
    ]
}

pub(super) fn config_map(namespace: &str, name: &str, key: &str, value: &Value) -> Object {
    let mut map = Object::named("v1", "ConfigMap", namespace, name);
    // JSON is YAML, and a machine reads it.
    map.0["data"] = json!({ key: format!("{value:#}\n") });
    map
}

fn readers(name: &str, namespace: &str, config_map: &str, groups: &[&str]) -> Vec<Object> {
    vec![role(name, namespace, config_map), role_binding(name, namespace, subjects(groups))]
}

fn subjects(groups: &[&str]) -> Value {
    let subject = |group: &&str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group });
    groups.iter().map(subject).collect()
}

fn role(name: &str, namespace: &str, config_map: &str) -> Object {
    let mut role = Object::named("rbac.authorization.k8s.io/v1", "Role", namespace, name);
    role.0["rules"] =
        json!([{ "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [config_map], "verbs": ["get"] }]);
    role
}

fn role_binding(name: &str, namespace: &str, subjects: Value) -> Object {
    let mut binding = Object::named("rbac.authorization.k8s.io/v1", "RoleBinding", namespace, name);
    binding.0["roleRef"] = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name });
    binding.0["subjects"] = subjects;
    binding
}

fn cluster_role_binding(name: &str, role: &str, groups: &[&str]) -> Object {
    let mut binding = Object::named("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", name);
    binding.0["roleRef"] = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role });
    binding.0["subjects"] = subjects(groups);
    binding
}
