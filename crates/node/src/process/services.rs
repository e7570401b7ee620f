//! Services without a kube-proxy: their addresses are local, so each port is a listener that forwards to ready pods.
//!
//! Flows: Services and Pods -> wanted listeners with their backends -> differences to what listens. Services of type LoadBalancer
//! first get an address. Holds: an address that stands in a status is kept; two Services never share one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Node;
use super::proxy::Proxy;

const BIND_AGAIN: Duration = Duration::from_secs(5);

/// A listener that should be, and for whom.
struct Wanted {
    service: Arc<Service>,
    backends: Vec<SocketAddr>,
    /// Who may connect; nobody is named if everybody may.
    sources: Vec<IpNet>,
}

/// The class of the load balancers that are made here; a Service may also name none.
const CLASS: &str = "hangar.dev/loopback";

pub(super) async fn run(node: Arc<Node>) {
    let (mut services, mut pods) = (node.watched.services.bell(), node.watched.pods.bell());
    let mut listening: HashMap<SocketAddr, Proxy> = HashMap::new();
    let (mut refused, mut said) = (HashSet::new(), HashSet::new());
    loop {
        balance(&node, &mut said).await;
        follow(&node, &mut listening, &mut refused).await;
        let again = async {
            match refused.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep(BIND_AGAIN).await,
            }
        };
        tokio::select! {
            changed = services.changed() => if changed.is_err() { return },
            changed = pods.changed() => if changed.is_err() { return },
            () = again => {}
        }
    }
}

async fn follow(node: &Node, listening: &mut HashMap<SocketAddr, Proxy>, refused: &mut HashSet<SocketAddr>) {
    let pods = node.watched.pods.all();
    let mut wanted = BTreeMap::new();
    for service in node.watched.services.all() {
        for (address, port) in listeners(&service, node.options.address) {
            let backends =
                if is_kubernetes(&service) { vec![node.options.api_server] } else { backends(&service, port, &pods) };
            let sources =
                if balanced(&service).map(IpAddr::from) == Some(address.ip()) { sources(&service) } else { vec![] };
            wanted.insert(address, Wanted { service: service.clone(), backends, sources });
        }
    }
    listening.retain(|address, _| wanted.contains_key(address));
    refused.retain(|address| wanted.contains_key(address));
    for (address, Wanted { service, backends, sources }) in wanted {
        if let Some(proxy) = listening.get(&address) {
            proxy.backends.set(backends, sources);
            continue;
        }
        match Proxy::listen(address).await {
            Ok(proxy) => {
                proxy.backends.set(backends, sources);
                refused.remove(&address);
                listening.insert(address, proxy);
            }
            Err(error) if refused.insert(address) => {
                let note = format!("{address} cannot be listened on: {error}{}", advice(&error));
                node.events.warning(&*service, "ListenFailed", &note).await;
            }
            Err(_) => {}
        }
    }
}

fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "; choose a port above 1023, or lower net.ipv4.ip_unprivileged_port_start (pods find the API server without it)"
        }
        std::io::ErrorKind::AddrInUse => "; another program holds the port, perhaps on all addresses",
        _ => "",
    }
}

fn is_kubernetes(service: &Service) -> bool {
    service.name_any() == "kubernetes" && service.namespace().as_deref() == Some("default")
}

/// Every TCP port on every address that the Service has.
fn listeners(service: &Service, node: Ipv4Addr) -> Vec<(SocketAddr, &ServicePort)> {
    let Some(spec) = &service.spec else { return vec![] };
    if spec.type_.as_deref() == Some("ExternalName") || (spec.selector.is_none() && !is_kubernetes(service)) {
        return vec![];
    }
    let local = |text: &String| text.parse::<Ipv4Addr>().ok().filter(Ipv4Addr::is_loopback);
    let mut addresses: Vec<Ipv4Addr> = spec.cluster_ip.iter().filter_map(local).collect();
    addresses.extend(balanced(service));
    addresses.extend(spec.external_ips.iter().flatten().filter_map(local));
    let mut all = vec![];
    for port in spec.ports.iter().flatten().filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP") {
        let number = |number: i32| u16::try_from(number).ok().filter(|&number| number > 0);
        if let Some(number) = number(port.port) {
            all.extend(addresses.iter().map(|&address| ((address, number).into(), port)));
        }
        if let Some(number) = port.node_port.and_then(number) {
            all.push(((node, number).into(), port));
        }
    }
    all
}

/// Pods of the selector that are ready, or merely there if the Service wants those as well.
pub(super) fn selected<'a>(service: &Service, pods: &'a [Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
    let Some(spec) = &service.spec else { return vec![] };
    let Some(selector) = spec.selector.as_ref().filter(|selector| !selector.is_empty()) else { return vec![] };
    let unready_too = spec.publish_not_ready_addresses == Some(true);
    let fits = |pod: &&Arc<Pod>| {
        pod.namespace() == service.namespace()
            && selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value))
            && (unready_too || is_ready(pod))
    };
    pods.iter().filter(fits).collect()
}

fn backends(service: &Service, port: &ServicePort, pods: &[Arc<Pod>]) -> Vec<SocketAddr> {
    let address = |pod: &&Arc<Pod>| {
        let ip: Ipv4Addr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
        Some((ip, target(pod, port)?).into())
    };
    selected(service, pods).iter().filter_map(address).collect()
}

/// A Service that has no address of its own: its name stands for its pods.
pub(super) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn target(pod: &Pod, port: &ServicePort) -> Option<u16> {
    let number = match &port.target_port {
        None => port.port,
        Some(IntOrString::Int(0)) => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => {
            let spec = pod.spec.as_ref()?;
            let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
            ports
                .find(|port| port.name.as_ref() == Some(name))
                .map(|port| port.container_port)
                .or_else(|| name.parse().ok())?
        }
    };
    u16::try_from(number).ok()
}

/// The load balancer's address, if the Service has a local one.
fn balanced(service: &Service) -> Option<Ipv4Addr> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.iter().find_map(|ingress| ingress.ip.as_ref()?.parse().ok()).filter(Ipv4Addr::is_loopback)
}

/// Networks that may use the load balancer; what is not a network was refused by the API server.
fn sources(service: &Service) -> Vec<IpNet> {
    let ranges = service.spec.iter().flat_map(|spec| spec.load_balancer_source_ranges.iter().flatten());
    ranges.filter_map(|range| range.trim().parse().ok()).collect()
}

/// Gives addresses to Services of type LoadBalancer, and takes them from those that no longer are.
async fn balance(node: &Node, said: &mut HashSet<String>) {
    let services = node.watched.services.all();
    let mut used: HashSet<Ipv4Addr> = services.iter().filter_map(|service| balanced(service)).collect();
    for service in services {
        let is_balancer = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
        let going = service.metadata.deletion_timestamp.is_some();
        let ingress = match (is_balancer && !going, balanced(&service)) {
            (true, None) if !is_of_class(&service) => {
                let class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.clone()).unwrap_or_default();
                if said.insert(service.uid().unwrap_or_default()) {
                    let note =
                        format!("no load balancer of class {class} is made here: leave the class out, or say {CLASS}");
                    node.events.warning(&*service, "UnknownLoadBalancerClass", &note).await;
                }
                continue;
            }
            (true, None) => {
                let asked = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.clone()).unwrap_or_default();
                let (address, complaint) = choose(&asked, node.options.load_balancer_network, &used);
                if let Some(complaint) = complaint {
                    node.events.warning(&*service, "LoadBalancerAddress", &complaint).await;
                }
                let Some(address) = address else { continue };
                used.insert(address);
                json!([{"ip": address.to_string(), "ipMode": "VIP"}])
            }
            (false, Some(_)) if !going => json!(null),
            _ => continue,
        };
        let api: Api<Service> = Api::namespaced(node.client.clone(), &service.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
        if let Err(error) = api.patch_status(&service.name_any(), &PatchParams::default(), &patch).await {
            tracing::warn!(service = %service.name_any(), %error, "the load balancer's address could not be written");
        }
    }
}

fn is_of_class(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref()).is_none_or(|class| class == CLASS)
}

/// The address asked for if it is local and free, else the next free one, and what is to be said about it.
fn choose(asked: &str, network: Ipv4Net, used: &HashSet<Ipv4Addr>) -> (Option<Ipv4Addr>, Option<String>) {
    let free = network.hosts().find(|address| !used.contains(address));
    if asked.is_empty() {
        let complaint = free.is_none().then(|| format!("all addresses of {network} are in use"));
        return (free, complaint);
    }
    match asked.parse::<Ipv4Addr>() {
        Ok(address) if address.is_loopback() && !used.contains(&address) => (Some(address), None),
        Ok(address) if address.is_loopback() => (None, Some(format!("{address} is in use by another Service"))),
        _ => (free, Some(format!("{asked} is not an address of this machine (127.0.0.0/8), another one is taken"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: serde_json::Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "s", "namespace": "n"}, "spec": spec})).unwrap()
    }

    fn pod(name: &str, app: &str, ip: &str, ready: &str) -> Arc<Pod> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "namespace": "n", "labels": {"app": app}},
                "spec": {"containers": [{"name": "c", "ports": [{"name": "api", "containerPort": 6443}]}]},
                "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap(),
        )
    }

    #[test]
    fn ready_pods_of_the_selector_are_backends() {
        let pods = [
            pod("a", "x", "127.1.0.16", "True"),
            pod("b", "x", "127.1.0.17", "False"),
            pod("c", "y", "127.1.0.18", "True"),
        ];
        let ports = json!([{"port": 443, "targetPort": "api"}]);
        let mut one = service(json!({"clusterIP": "127.1.128.7", "selector": {"app": "x"}, "ports": ports}));
        let found = |service: &Service| {
            let (address, port) = listeners(service, Ipv4Addr::new(127, 1, 0, 1))[0];
            (address.to_string(), backends(service, port, &pods).iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(found(&one), ("127.1.128.7:443".into(), vec!["127.1.0.16:6443".into()]));
        one.spec.as_mut().unwrap().publish_not_ready_addresses = Some(true);
        assert_eq!(found(&one).1.len(), 2);
    }

    #[test]
    fn listeners_are_on_local_addresses_only() {
        let node = Ipv4Addr::new(127, 1, 0, 1);
        let rows = [
            (json!({"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 1}]}), vec![]),
            (json!({"clusterIP": "10.0.0.1", "selector": {"a": "b"}, "ports": [{"port": 1}]}), vec![]),
            (json!({"clusterIP": "127.1.128.1", "ports": [{"port": 1}]}), vec![]),
            (
                json!({"clusterIP": "127.1.128.1", "selector": {"a": "b"}, "ports": [{"port": 1, "protocol": "UDP"}]}),
                vec![],
            ),
            (
                json!({"clusterIP": "127.1.128.1", "selector": {"a": "b"}, "ports": [{"port": 1, "nodePort": 30001}]}),
                vec!["127.1.128.1:1", "127.1.0.1:30001"],
            ),
        ];
        for (spec, expected) in rows {
            let service = service(spec);
            let found: Vec<String> = listeners(&service, node).iter().map(|(address, _)| address.to_string()).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_load_balancer_gets_what_it_asks_for_if_that_is_local() {
        let network: Ipv4Net = "127.1.64.0/18".parse().unwrap();
        let used = HashSet::from([Ipv4Addr::new(127, 1, 64, 1)]);
        let rows = [
            ("", Some("127.1.64.2"), false),
            ("127.8.0.9", Some("127.8.0.9"), false),
            ("127.1.64.1", None, true),
            ("172.18.255.200", Some("127.1.64.2"), true),
        ];
        for (asked, address, complains) in rows {
            let (found, complaint) = choose(asked, network, &used);
            assert_eq!(
                (found.map(|ip| ip.to_string()).as_deref(), complaint.is_some()),
                (address, complains),
                "{asked}"
            );
        }
    }
}
