//! CoreDNS and kube-proxy inside the tenant, as kubeadm would install them, and the agents of konnectivity.

use hangar_api::Object;
use serde_json::{Value, json};

use super::certificates::host_port;
use super::tenant::config_map;
use super::{Addresses, ControlPlane, konnectivity};

const CORE_DNS_IMAGE: &str = "registry.k8s.io/coredns/coredns";
const CORE_DNS_TAG: &str = "v1.12.1";
const KUBE_PROXY_IMAGE: &str = "registry.k8s.io/kube-proxy";
const RBAC: &str = "rbac.authorization.k8s.io";

pub fn objects(plane: &ControlPlane, addresses: &Addresses) -> Vec<Object> {
    let mut objects = vec![];
    if plane.addons.core_dns.is_some() {
        objects.extend(core_dns(plane));
    }
    if plane.addons.kube_proxy.is_some() {
        objects.extend(kube_proxy(plane, addresses));
    }
    objects.extend(konnectivity::tenant_objects(plane, addresses));
    objects
}

fn core_dns(plane: &ControlPlane) -> Vec<Object> {
    let labels = json!({ "k8s-app": "kube-dns" });
    let mut role = Object::named(&format!("{RBAC}/v1"), "ClusterRole", "", "system:coredns");
    role.0["rules"] = json!([
        { "apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"] },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"] },
    ]);
    let mut corefile = Object::named("v1", "ConfigMap", "kube-system", "coredns");
    corefile.0["data"] = json!({ "Corefile": corefile_text(&plane.network.domain) });
    let mut service = Object::named("v1", "Service", "kube-system", "kube-dns");
    service.0["metadata"]["labels"] =
        json!({ "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS" });
    service.0["spec"] = json!({
        "clusterIP": plane.network.dns_ip,
        "selector": labels,
        "ports": [
            { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53 },
            { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53 },
            { "name": "metrics", "port": 9153, "protocol": "TCP", "targetPort": 9153 },
        ],
    });
    vec![
        service_account("coredns"),
        role,
        binding("system:coredns", "system:coredns", "coredns"),
        corefile,
        service,
        core_dns_deployment(plane, &labels),
    ]
}

fn core_dns_deployment(plane: &ControlPlane, labels: &Value) -> Object {
    let image = plane.addons.core_dns.clone().unwrap_or_default();
    let repository =
        image.repository.map_or_else(|| CORE_DNS_IMAGE.to_owned(), |repository| format!("{repository}/coredns"));
    let tag = image.tag.unwrap_or_else(|| CORE_DNS_TAG.to_owned());
    let mut deployment = Object::named("apps/v1", "Deployment", "kube-system", "coredns");
    deployment.0["metadata"]["labels"] = labels.clone();
    deployment.0["spec"] = json!({
        "replicas": 2,
        "selector": { "matchLabels": labels },
        "template": {
            "metadata": { "labels": labels },
            "spec": {
                "serviceAccountName": "coredns",
                "priorityClassName": "system-cluster-critical",
                "dnsPolicy": "Default",
                "tolerations": [{ "key": "CriticalAddonsOnly", "operator": "Exists" }],
                "containers": [{
                    "name": "coredns", "image": format!("{repository}:{tag}"), "args": ["-conf", "/etc/coredns/Corefile"],
                    "volumeMounts": [{ "name": "config-volume", "mountPath": "/etc/coredns", "readOnly": true }],
                    "ports": [
                        { "containerPort": 53, "name": "dns", "protocol": "UDP" },
                        { "containerPort": 53, "name": "dns-tcp", "protocol": "TCP" },
                        { "containerPort": 9153, "name": "metrics", "protocol": "TCP" },
                    ],
                    "livenessProbe": { "httpGet": { "path": "/health", "port": 8080 }, "initialDelaySeconds": 60 },
                    "readinessProbe": { "httpGet": { "path": "/ready", "port": 8181 } },
                    "resources": { "requests": { "cpu": "100m", "memory": "70Mi" }, "limits": { "memory": "170Mi" } },
                }],
                "volumes": [{ "name": "config-volume", "configMap": { "name": "coredns", "items": [{ "key": "Corefile", "path": "Corefile" }] } }],
            },
        },
    });
    deployment
}

fn corefile_text(domain: &str) -> String {
    format!(
        ".:53 {{\n    errors\n    health {{\n       lameduck 5s\n    }}\n    ready\n    kubernetes {domain} in-addr.arpa ip6.arpa {{\n       pods insecure\n       fallthrough in-addr.arpa ip6.arpa\n       ttl 30\n    }}\n    prometheus :9153\n    forward . /etc/resolv.conf {{\n       max_concurrent 1000\n    }}\n    cache 30\n    loop\n    reload\n    loadbalance\n}}\n"
    )
}

fn kube_proxy(plane: &ControlPlane, addresses: &Addresses) -> Vec<Object> {
    let image = plane.addons.kube_proxy.clone().unwrap_or_default();
    let repository =
        image.repository.map_or_else(|| KUBE_PROXY_IMAGE.to_owned(), |repository| format!("{repository}/kube-proxy"));
    let tag = image.tag.unwrap_or_else(|| plane.version.to_string());
    let configuration = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "clientConnection": { "kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf" },
        "clusterCIDR": plane.network.pod_cidr,
    });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "clusters": [{ "name": "default", "cluster": {
            "certificate-authority": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
            "server": format!("https://{}", host_port(&addresses.endpoint, plane.exposure.port)),
        }}],
        "contexts": [{ "name": "default", "context": { "cluster": "default", "namespace": "default", "user": "default" } }],
        "users": [{ "name": "default", "user": { "tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token" } }],
    });
    let mut map = config_map("kube-system", "kube-proxy", "config.conf", &configuration);
    map.0["data"]["kubeconfig.conf"] = format!("{kubeconfig:#}\n").into();
    vec![
        service_account("kube-proxy"),
        binding("kubeadm:node-proxier", "system:node-proxier", "kube-proxy"),
        map,
        kube_proxy_daemon_set(&format!("{repository}:{tag}")),
    ]
}

fn kube_proxy_daemon_set(image: &str) -> Object {
    let labels = json!({ "k8s-app": "kube-proxy" });
    let mut set = Object::named("apps/v1", "DaemonSet", "kube-system", "kube-proxy");
    set.0["metadata"]["labels"] = labels.clone();
    set.0["spec"] = json!({
        "selector": { "matchLabels": labels },
        "updateStrategy": { "type": "RollingUpdate" },
        "template": {
            "metadata": { "labels": labels },
            "spec": {
                "serviceAccountName": "kube-proxy",
                "priorityClassName": "system-node-critical",
                "hostNetwork": true,
                "tolerations": [{ "operator": "Exists" }],
                "nodeSelector": { "kubernetes.io/os": "linux" },
                "containers": [{
                    "name": "kube-proxy", "image": image,
                    "command": ["/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf", "--hostname-override=$(NODE_NAME)"],
                    "env": [{ "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
                    "securityContext": { "privileged": true },
                    "volumeMounts": [
                        { "name": "kube-proxy", "mountPath": "/var/lib/kube-proxy" },
                        { "name": "xtables-lock", "mountPath": "/run/xtables.lock" },
                        { "name": "lib-modules", "mountPath": "/lib/modules", "readOnly": true },
                    ],
                }],
                "volumes": [
                    { "name": "kube-proxy", "configMap": { "name": "kube-proxy" } },
                    { "name": "xtables-lock", "hostPath": { "path": "/run/xtables.lock", "type": "FileOrCreate" } },
                    { "name": "lib-modules", "hostPath": { "path": "/lib/modules" } },
                ],
            },
        },
    });
    set
}

fn service_account(name: &str) -> Object {
    Object::named("v1", "ServiceAccount", "kube-system", name)
}

fn binding(name: &str, role: &str, account: &str) -> Object {
    let mut binding = Object::named(&format!("{RBAC}/v1"), "ClusterRoleBinding", "", name);
    binding.0["roleRef"] = json!({ "apiGroup": RBAC, "kind": "ClusterRole", "name": role });
    binding.0["subjects"] = json!([{ "kind": "ServiceAccount", "name": account, "namespace": "kube-system" }]);
    binding
}
