//! The Service and the Deployments of a control plane.

use std::collections::BTreeMap;

use hangar_api::{Object, control_plane_arguments};
use serde_json::{Value, json};

use super::access::Configuration;
use super::{Addresses, Component, ControlPlane, encryption, konnectivity};

const PKI: &str = "/etc/kubernetes/pki";
const CONF: &str = "/etc/kubernetes";
/// Nobody in particular; the images of konnectivity have the same.
const USER: i64 = 65_532;
/// Stands for the Secret with the cluster's authority.
const AUTHORITY: &str = "-ca";
/// An API server waits for its watches to end by themselves, which they do not; a new one is ready before an old one goes.
const GRACE_SECONDS: u32 = 10;

/// Where the API server is reached.
pub fn service(plane: &ControlPlane) -> Object {
    let mut service = Object::named("v1", "Service", &plane.namespace, &plane.name);
    service.0["metadata"]["labels"] = merged(plane.labels("kube-apiserver"), &plane.exposure.labels);
    if plane.exposure.annotations.is_object() {
        service.0["metadata"]["annotations"] = plane.exposure.annotations.clone();
    }
    service.0["spec"] = json!({
        "type": plane.exposure.service_type,
        "selector": plane.labels("kube-apiserver"),
        "ports": [{ "name": "kube-apiserver", "protocol": "TCP", "port": plane.exposure.port, "targetPort": 6443 }],
    });
    if let (Some(konnectivity), Some(ports)) = (&plane.addons.konnectivity, service.0["spec"]["ports"].as_array_mut()) {
        ports.push(konnectivity::service_port(konnectivity));
    }
    if plane.exposure.service_type == "LoadBalancer" {
        if let Some(address) = &plane.exposure.address {
            service.0["spec"]["loadBalancerIP"] = address.clone().into();
        }
        if let Some(class) = &plane.exposure.class {
            service.0["spec"]["loadBalancerClass"] = class.clone().into();
        }
        if !plane.exposure.source_ranges.is_empty() {
            service.0["spec"]["loadBalancerSourceRanges"] = json!(plane.exposure.source_ranges);
        }
    }
    service
}

pub fn api_server(plane: &ControlPlane, addresses: &Addresses, checksum: &str) -> Object {
    let pki = |file: &str| format!("{PKI}/{file}");
    let mut managed: BTreeMap<&str, String> = BTreeMap::from([
        ("advertise-address", addresses.endpoint.clone()),
        ("bind-address", "$(POD_IP)".into()),
        ("client-ca-file", pki("ca.crt")),
        ("enable-admission-plugins", "NodeRestriction".into()),
        (encryption::ARGUMENT, pki(encryption::FILE)),
        ("kubelet-client-certificate", pki("apiserver-kubelet-client.crt")),
        ("kubelet-client-key", pki("apiserver-kubelet-client.key")),
        ("kubelet-preferred-address-types", plane.kubelet.preferred_address_types.join(",")),
        ("proxy-client-cert-file", pki("front-proxy-client.crt")),
        ("proxy-client-key-file", pki("front-proxy-client.key")),
        ("requestheader-allowed-names", "front-proxy-client".into()),
        ("requestheader-client-ca-file", pki("front-proxy-ca.crt")),
        ("secure-port", "6443".into()),
        ("service-account-key-file", pki("sa.pub")),
        ("service-account-signing-key-file", pki("sa.key")),
        ("service-cluster-ip-range", plane.network.service_cidr.to_string()),
        ("tls-cert-file", pki("apiserver.crt")),
        ("tls-private-key-file", pki("apiserver.key")),
    ]);
    managed.extend(storage_arguments(plane));
    if addresses.endpoint.parse::<std::net::IpAddr>().map_or(true, |address| address.is_loopback()) {
        // An endpoint of the `kubernetes` Service can be neither a name nor a loopback address; the API server refuses both.
        managed.insert("endpoint-reconciler-type", "none".into());
        if addresses.endpoint.parse::<std::net::IpAddr>().is_err() {
            managed.remove("advertise-address");
        }
    }
    if plane.addons.konnectivity.is_some() {
        managed.insert("egress-selector-config-file", konnectivity::egress_file());
    }
    let configuration = Configuration::of(plane);
    managed.extend(configuration.arguments.iter().cloned());
    let mut defaults = BTreeMap::from([
        ("allow-privileged", "true".to_owned()),
        ("authorization-mode", "Node,RBAC".into()),
        ("enable-bootstrap-token-auth", "true".into()),
        ("profiling", "false".into()),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("service-account-issuer", format!("https://kubernetes.default.svc.{}", plane.network.domain)),
        // Whoever still asks one that ends is sent to the next, and those who only watch do not hold it up for ten seconds.
        ("shutdown-send-retry-after", "true".into()),
    ]);
    let mut extra_args = plane.api_server.extra_args.clone();
    if configuration.has_authorizers() {
        // The API server does not take both, and what it refuses now must not depend on the user.
        defaults.remove("authorization-mode");
        extra_args.retain(|argument| !control_plane_arguments::name(argument).starts_with("authorization-"));
    }
    let args = arguments(&managed, &defaults, &extra_args);
    let secrets = [
        // Its key is the controller manager's, which signs with it.
        (AUTHORITY, &["ca.crt"][..], ""),
        ("-front-proxy-ca-certificate", &["front-proxy-ca.crt"], ""),
        ("-sa-certificate", &["sa.pub", "sa.key"], ""),
        ("-encryption", &[encryption::FILE], ""),
        ("-api-server-certificate", &["apiserver.crt", "apiserver.key"], ""),
        (
            "-api-server-kubelet-client-certificate",
            &["apiserver-kubelet-client.crt", "apiserver-kubelet-client.key"],
            "",
        ),
        ("-front-proxy-client-certificate", &["front-proxy-client.crt", "front-proxy-client.key"], ""),
        ("-datastore-certificate", &["ca.crt", "server.crt", "server.key"], "etcd/"),
    ];
    let volumes = json!([{ "name": "pki", "projected": { "sources": projected(plane, &secrets) } }]);
    let mounts = json!([{ "name": "pki", "mountPath": PKI, "readOnly": true }]);
    let probes = probes(6443, "/readyz", "/livez");
    let container = container(plane, &plane.api_server, "kube-apiserver", args, mounts, &probes);
    let mut deployment = deployment(plane, "", "kube-apiserver", plane.replicas, container, volumes, checksum);
    configuration.join_pod(plane, &mut deployment.0["spec"]["template"]);
    if let Some(konnectivity) = &plane.addons.konnectivity {
        konnectivity::join_pod(plane, konnectivity, &mut deployment.0["spec"]["template"]["spec"]);
    }
    deployment
}

fn storage_arguments(plane: &ControlPlane) -> Vec<(&'static str, String)> {
    let Some(tenancy) = plane.tenancy() else { return vec![] };
    let servers: Vec<String> = tenancy.endpoints.iter().map(|host| format!("https://{host}")).collect();
    vec![
        ("etcd-cafile", format!("{PKI}/etcd/ca.crt")),
        ("etcd-certfile", format!("{PKI}/etcd/server.crt")),
        ("etcd-keyfile", format!("{PKI}/etcd/server.key")),
        // Whoever runs the shared store compacts it.
        ("etcd-compaction-interval", "0".into()),
        ("etcd-prefix", format!("/{}", tenancy.schema)),
        ("etcd-servers", servers.join(",")),
    ]
}

/// Signs certificates of nodes with the authority whose certificate is in the file given.
pub fn controller_manager(plane: &ControlPlane, checksum: &str, signing_file: &str) -> Object {
    let pki = |file: &str| format!("{PKI}/{file}");
    let kubeconfig = format!("{CONF}/controller-manager.conf");
    let managed = BTreeMap::from([
        ("allocate-node-cidrs", "true".to_owned()),
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig.clone()),
        ("bind-address", "$(POD_IP)".into()),
        ("client-ca-file", pki("ca.crt")),
        ("cluster-cidr", plane.network.pod_cidr.clone()),
        ("cluster-name", plane.cluster_name.clone()),
        ("cluster-signing-cert-file", pki(signing_file)),
        ("cluster-signing-key-file", pki("ca.key")),
        ("kubeconfig", kubeconfig),
        ("requestheader-client-ca-file", pki("front-proxy-ca.crt")),
        ("root-ca-file", pki("ca.crt")),
        ("service-account-private-key-file", pki("sa.key")),
        ("service-cluster-ip-range", plane.network.service_cidr.to_string()),
        ("use-service-account-credentials", "true".into()),
    ]);
    let defaults = BTreeMap::from([
        ("controllers", "*,bootstrapsigner,tokencleaner".to_owned()),
        // Each controller asks for an account and a token before it starts: at the usual 20 requests a second the last one starts after five.
        ("kube-api-burst", "200".into()),
        ("kube-api-qps", "100".into()),
        ("leader-elect", (plane.replicas > 1).to_string()),
        ("profiling", "false".into()),
    ]);
    let args = arguments(&managed, &defaults, &plane.controller_manager.extra_args);
    let own_file = (signing_file != "ca.crt").then_some(signing_file);
    let authority: Vec<&str> = ["ca.crt", "ca.key"].into_iter().chain(own_file).collect();
    let secrets = [
        (AUTHORITY, &authority[..], ""),
        ("-front-proxy-ca-certificate", &["front-proxy-ca.crt"], ""),
        ("-sa-certificate", &["sa.key"], ""),
    ];
    let conf = [("-controller-manager-kubeconfig", &["controller-manager.conf"][..], "")];
    let volumes = json!([
        { "name": "pki", "projected": { "sources": projected(plane, &secrets) } },
        { "name": "kubeconfig", "projected": { "sources": projected(plane, &conf) } },
    ]);
    let mounts = json!([
        { "name": "kubeconfig", "mountPath": CONF, "readOnly": true },
        { "name": "pki", "mountPath": PKI, "readOnly": true },
    ]);
    let probes = probes(10257, "/healthz", "/healthz");
    let container = container(plane, &plane.controller_manager, "kube-controller-manager", args, mounts, &probes);
    deployment(
        plane,
        "-controller-manager",
        "kube-controller-manager",
        plane.replicas.min(2),
        container,
        volumes,
        checksum,
    )
}

pub fn scheduler(plane: &ControlPlane, checksum: &str) -> Object {
    let kubeconfig = format!("{CONF}/scheduler.conf");
    let managed = BTreeMap::from([
        ("authentication-kubeconfig", kubeconfig.clone()),
        ("authorization-kubeconfig", kubeconfig.clone()),
        ("bind-address", "$(POD_IP)".to_owned()),
        ("kubeconfig", kubeconfig),
    ]);
    let defaults = BTreeMap::from([("leader-elect", (plane.replicas > 1).to_string()), ("profiling", "false".into())]);
    let args = arguments(&managed, &defaults, &plane.scheduler.extra_args);
    let conf = [("-scheduler-kubeconfig", &["scheduler.conf"][..], "")];
    let volumes = json!([{ "name": "kubeconfig", "projected": { "sources": projected(plane, &conf) } }]);
    let mounts = json!([{ "name": "kubeconfig", "mountPath": CONF, "readOnly": true }]);
    let probes = probes(10259, "/healthz", "/healthz");
    let container = container(plane, &plane.scheduler, "kube-scheduler", args, mounts, &probes);
    deployment(plane, "-scheduler", "kube-scheduler", plane.replicas.min(2), container, volumes, checksum)
}

/// Three layers: what the control plane stands on wins over the user, the user wins over defaults.
fn arguments(managed: &BTreeMap<&str, String>, defaults: &BTreeMap<&str, String>, user: &[String]) -> Vec<String> {
    let name = |argument: &String| control_plane_arguments::name(argument);
    let user: Vec<&String> = user.iter().filter(|argument| !managed.contains_key(name(argument).as_str())).collect();
    let kept = defaults.iter().filter(|(flag, _)| !user.iter().any(|argument| name(argument) == **flag));
    let mut all: Vec<String> = managed.iter().chain(kept).map(|(flag, value)| format!("--{flag}={value}")).collect();
    all.extend(user.into_iter().cloned());
    all.sort();
    all
}

fn projected(plane: &ControlPlane, secrets: &[(&str, &[&str], &str)]) -> Vec<Value> {
    let source = |(suffix, files, directory): &(&str, &[&str], &str)| {
        let items: Vec<Value> =
            files.iter().map(|file| json!({ "key": file, "path": format!("{directory}{file}") })).collect();
        let name = if *suffix == AUTHORITY { plane.authority_secret.clone() } else { plane.object(suffix) };
        json!({ "secret": { "name": name, "items": items } })
    };
    secrets.iter().map(source).collect()
}

/// Start is looked at every second, because people wait for it; afterwards the usual ten.
fn probes(port: u16, ready: &str, live: &str) -> Value {
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": { "scheme": "HTTPS", "path": path, "port": port },
            "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures, "successThreshold": 1,
        })
    };
    json!({ "startupProbe": probe(ready, 1, 600), "readinessProbe": probe(ready, 10, 3), "livenessProbe": probe(live, 10, 6) })
}

fn container(
    plane: &ControlPlane,
    component: &Component,
    name: &str,
    args: Vec<String>,
    mounts: Value,
    probes: &Value,
) -> Value {
    let mut container = json!({
        "name": name,
        "image": plane.image(component, name),
        "command": [name],
        "args": args,
        "env": [{ "name": "POD_IP", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "status.podIP" } } }],
        "volumeMounts": mounts,
        "securityContext": confined(name),
        // So that its last words are found in the pod's status, and from there in the control plane's.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    for (name, probe) in probes.as_object().into_iter().flatten() {
        container[name] = probe.clone();
    }
    if component.resources.is_object() {
        container["resources"] = component.resources.clone();
    }
    container
}

/// What a container of a control plane may do: read what is mounted and talk to others.
pub(super) fn confined(container: &str) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
    });
    if container == "kube-apiserver" {
        // The program in the official image has this capability in its file, and is not started without it.
        context["capabilities"]["add"] = json!(["NET_BIND_SERVICE"]);
    }
    context
}

fn deployment(
    plane: &ControlPlane,
    suffix: &str,
    component: &str,
    replicas: i32,
    container: Value,
    volumes: Value,
    checksum: &str,
) -> Object {
    let labels = plane.labels(component);
    let mut deployment = Object::named("apps/v1", "Deployment", &plane.namespace, &plane.object(suffix));
    deployment.0["metadata"]["labels"] = labels.clone();
    // One user for all containers: they share sockets.
    let user = json!({
        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER, "seccompProfile": { "type": "RuntimeDefault" },
    });
    let mut pod = json!({ "securityContext": user, "containers": [container], "volumes": volumes, "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": GRACE_SECONDS });
    for (field, value) in plane.placement.as_object().into_iter().flatten() {
        pod[field] = value.clone();
    }
    deployment.0["spec"] = json!({
        "replicas": replicas,
        "selector": { "matchLabels": labels },
        "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "100%", "maxUnavailable": 0 } },
        "template": {
            "metadata": { "labels": labels, "annotations": { "hangar.dev/certificates": checksum } },
            "spec": pod,
        },
    });
    deployment
}

fn merged(mut base: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().into_iter().flatten() {
        base[name] = value.clone();
    }
    base
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_wins_over_defaults_and_loses_against_what_everything_stands_on() {
        let managed = BTreeMap::from([("secure-port", "6443".to_owned())]);
        let defaults =
            BTreeMap::from([("authorization-mode", "Node,RBAC".to_owned()), ("profiling", "false".to_owned())]);
        let user = [
            "--secure-port=1".to_owned(),
            "--authorization-mode=AlwaysAllow".into(),
            "--cloud-provider=external".into(),
        ];
        assert_eq!(
            arguments(&managed, &defaults, &user),
            [
                "--authorization-mode=AlwaysAllow",
                "--cloud-provider=external",
                "--profiling=false",
                "--secure-port=6443"
            ]
        );
    }
}
