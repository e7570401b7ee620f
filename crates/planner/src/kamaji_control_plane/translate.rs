//! From Kamaji's words to the one model of hosted control planes.

use hangar_api::{KubeVersion, Object, control_plane_arguments, data_store_names, references};
use serde_json::{Map, Value, json};

use super::World;
use crate::data_store::read_only;
use crate::hosted::access::AUDIT_ANNOTATION;
use crate::hosted::konnectivity::{self, Konnectivity};
use crate::hosted::{
    AddonImage, Addons, Component, ControlPlane, DataStoreView, Exposure, Kubelet, Network, Profile, Runtime, Storage,
    Tenancy, nth_address, roots,
};

const SERVICE_CIDR: &str = "10.96.0.0/16";
const POD_CIDR: &str = "10.244.0.0/16";
const REGISTRY: &str = "registry.k8s.io";
const API_PORT: i64 = 6443;

/// The model, or what in the spec cannot be used.
pub fn control_plane(world: &World) -> Result<ControlPlane, String> {
    let spec = &world.typed().spec;
    let version = KubeVersion::parse(&spec.version)
        .ok_or_else(|| format!("spec.version {:?} is not a Kubernetes version such as v1.34.4", spec.version))?;
    let raw = world.object().get("/spec");
    for (field, name) in
        [("dataStoreUsername", &spec.data_store_username), ("dataStoreSchema", &spec.data_store_schema)]
    {
        let name = name.as_deref().filter(|name| !name.is_empty());
        if let Some(problem) = name.and_then(|name| data_store_names::problem(name, world.object().uid())) {
            return Err(format!("spec.{field}: {problem}"));
        }
    }
    for component in ["apiServer", "controllerManager", "scheduler"] {
        let problem = texts(&raw[component]["extraArgs"]).iter().find_map(|it| control_plane_arguments::problem(it));
        if let Some(problem) = problem {
            return Err(format!("spec.{component}.extraArgs: {problem}"));
        }
    }
    let cluster_name = world.cluster().map_or_else(|| world.object().name(), |cluster| cluster.name()).to_owned();
    let secret = |name: &str| world.named("", "Secret", name);
    Ok(ControlPlane {
        namespace: world.object().namespace().to_owned(),
        name: world.object().name().to_owned(),
        read_only: store(world).is_some_and(|store| read_only::is_marked(store, world.object().uid())),
        audit: world.object().annotation(AUDIT_ANNOTATION) != Some("false"),
        authority_secret: roots::authority_secret(world.object(), &cluster_name, secret),
        cluster_name,
        profile: Profile::Kamaji,
        runtime: Runtime::Upstream,
        version: version.clone(),
        replicas: spec.replicas.unwrap_or(2),
        registry: spec.registry.clone().filter(|registry| !registry.is_empty()).unwrap_or_else(|| REGISTRY.into()),
        api_server: component(&raw["apiServer"]),
        controller_manager: component(&raw["controllerManager"]),
        scheduler: component(&raw["scheduler"]),
        network: network(world)?,
        exposure: exposure(raw),
        storage: Storage::SharedEtcd(tenancy(world)),
        kubelet: kubelet(raw),
        addons: addons(world, &version),
        placement: placement(&raw["deployment"]),
    })
}

/// The DataStore that it names.
pub(super) fn store(world: &World) -> Option<&Object> {
    world.objects.get(&references::data_store(world.object()))
}

/// The object's UID is the schema and the user unless the spec names others: names can collide, UIDs cannot.
fn tenancy(world: &World) -> Tenancy {
    let spec = &world.typed().spec;
    let or_uid = |name: &Option<String>| {
        name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| world.object().uid().to_owned())
    };
    let endpoints = match &world.facts.data_store {
        DataStoreView::Ready { endpoints, .. } => endpoints.clone(),
        _ => vec![],
    };
    Tenancy {
        store: references::data_store(world.object()).name,
        endpoints,
        schema: or_uid(&spec.data_store_schema),
        user: or_uid(&spec.data_store_username),
    }
}

fn component(spec: &Value) -> Component {
    Component {
        image: spec["containerImageName"].as_str().filter(|name| !name.is_empty()).map(str::to_owned),
        extra_args: texts(&spec["extraArgs"]),
        resources: spec["resources"].clone(),
    }
}

fn network(world: &World) -> Result<Network, String> {
    let cluster = world.cluster().map(|cluster| cluster.get("/spec/clusterNetwork").clone()).unwrap_or_default();
    let block = |field: &str, default: &str| cluster[field]["cidrBlocks"][0].as_str().unwrap_or(default).to_owned();
    let services = block("services", SERVICE_CIDR);
    let service_cidr: ipnet::IpNet = services
        .parse()
        .map_err(|_| format!("the Cluster's service range {services:?} is not a CIDR such as {SERVICE_CIDR}"))?;
    let network = world.object().get("/spec/network");
    let chosen = texts(&world.object().get("/spec/addons/coreDNS")["dnsServiceIPs"])
        .into_iter()
        .chain(texts(&network["dnsServiceIPs"]))
        .next();
    Ok(Network {
        dns_ip: chosen.unwrap_or_else(|| nth_address(&service_cidr, 10)),
        service_cidr,
        pod_cidr: block("pods", POD_CIDR),
        domain: cluster["serviceDomain"].as_str().filter(|name| !name.is_empty()).unwrap_or("cluster.local").to_owned(),
        certificate_names: texts(&network["certSANs"]),
    })
}

fn exposure(spec: &Value) -> Exposure {
    let network = &spec["network"];
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    Exposure {
        service_type: text(&network["serviceType"]).unwrap_or_else(|| "LoadBalancer".into()),
        port: API_PORT,
        address: text(&network["serviceAddress"]),
        labels: network["serviceLabels"].clone(),
        annotations: network["serviceAnnotations"].clone(),
        source_ranges: texts(&network["loadBalancerConfig"]["loadBalancerSourceRanges"]),
        class: text(&network["loadBalancerConfig"]["loadBalancerClass"]),
    }
}

fn kubelet(spec: &Value) -> Kubelet {
    let types = texts(&spec["kubelet"]["preferredAddressTypes"]);
    let defaults = || ["InternalIP", "ExternalIP", "Hostname"].map(str::to_owned).to_vec();
    Kubelet {
        preferred_address_types: if types.is_empty() { defaults() } else { types },
        cgroup_driver: spec["kubelet"]["cgroupfs"].as_str().unwrap_or("systemd").to_owned(),
    }
}

fn addons(world: &World, version: &KubeVersion) -> Addons {
    let addons = world.typed().spec.addons.clone().unwrap_or_default();
    Addons {
        core_dns: addons.core_dns.map(|image| AddonImage { repository: image.image_repository, tag: image.image_tag }),
        kube_proxy: addons
            .kube_proxy
            .map(|image| AddonImage { repository: image.image_repository, tag: image.image_tag }),
        // Without the program nothing would start; the status says so.
        konnectivity: addons
            .konnectivity
            .filter(|_| world.facts.konnectivity.is_ok())
            .map(|_| konnectivity(world.object().get("/spec/addons/konnectivity"), version)),
    }
}

/// Images follow Kubernetes: those of 1.34 are called v0.34.0.
fn konnectivity(spec: &Value, version: &KubeVersion) -> Konnectivity {
    let (server, agent) = (&spec["server"], &spec["agent"]);
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let image = |part: &Value, name: &str| {
        let tag = text(&part["version"]).unwrap_or_else(|| format!("v0.{}.0", version.minor));
        format!("{}:{tag}", text(&part["image"]).unwrap_or_else(|| name.to_owned()))
    };
    let critical = || json!([{ "key": "CriticalAddonsOnly", "operator": "Exists" }]);
    Konnectivity {
        port: server["port"].as_i64().filter(|port| *port > 0).unwrap_or(konnectivity::PORT),
        server_image: image(server, konnectivity::SERVER_IMAGE),
        server_args: texts(&server["extraArgs"]),
        server_resources: server["resources"].clone(),
        agent_image: image(agent, konnectivity::AGENT_IMAGE),
        agent_args: texts(&agent["extraArgs"]),
        tolerations: if agent["tolerations"].is_array() { agent["tolerations"].clone() } else { critical() },
        host_network: agent["hostNetwork"] == true,
        agent_replicas: (agent["mode"] == "Deployment")
            .then(|| agent["replicas"].as_i64().unwrap_or(1).clamp(0, i32::MAX.into()) as i32),
    }
}

/// Parts of the pod that are the user's alone.
fn placement(deployment: &Value) -> Value {
    const FIELDS: [&str; 6] = [
        "nodeSelector",
        "runtimeClassName",
        "serviceAccountName",
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
    ];
    let given = FIELDS.iter().filter(|field| !deployment[**field].is_null());
    let fields: Map<String, Value> = given.map(|field| ((*field).to_owned(), deployment[*field].clone())).collect();
    if fields.is_empty() { json!({}) } else { fields.into() }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn konnectivity_has_defaults_and_the_users_words_win() {
        let version = KubeVersion::parse("v1.28.10").unwrap();
        let plain = konnectivity(&json!({}), &version);
        assert_eq!((plain.port, plain.agent_replicas, plain.host_network), (8132, None, false));
        assert_eq!(plain.server_image, "registry.k8s.io/kas-network-proxy/proxy-server:v0.28.0");
        assert_eq!(plain.agent_image, "registry.k8s.io/kas-network-proxy/proxy-agent:v0.28.0");
        assert_eq!(plain.tolerations[0]["key"], "CriticalAddonsOnly");
        let spec = json!({
            "server": { "port": 9000, "image": "mirror/server", "version": "v0.30.1", "extraArgs": ["--v=4"] },
            "agent": { "mode": "Deployment", "replicas": 3, "hostNetwork": true, "tolerations": [] },
        });
        let chosen = konnectivity(&spec, &version);
        assert_eq!((chosen.port, chosen.agent_replicas, chosen.host_network), (9000, Some(3), true));
        assert_eq!((chosen.server_image.as_str(), chosen.server_args.len()), ("mirror/server:v0.30.1", 1));
        assert_eq!(chosen.tolerations, json!([]));
    }
}
