//! Services without a kube-proxy: their addresses are local, so each port is a listener that forwards to ready pods.
//!
//! Flows: Services and Pods -> wanted listeners with their backends -> differences to what listens. Services of type LoadBalancer
//! first get an address. Holds: an address that stands in a status is kept unless another one is asked for; two Services never share one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::Node;
use super::balancer_addresses::{Choice, Owners};
use super::listeners::Listeners;
use super::proxy::{Pool, Rules, Way};
use super::service_settings::{requested_address, sources, unsupported_settings};

/// The class of the load balancers that are made here; a Service may also name none.
const CLASS: &str = "hangar.dev/loopback";

pub(super) async fn run(node: Arc<Node>) {
    let (mut services, mut pods) = (node.watched.services.changes(), node.watched.pods.changes());
    let (mut listening, mut said) = (Listeners::default(), HashSet::new());
    loop {
        report_unsupported(&node, &mut said).await;
        let balanced = balance(&node, &mut said).await;
        follow(&node, &balanced, &mut listening).await;
        tokio::select! {
            changed = services.changed() => if changed.is_err() { return },
            changed = pods.changed() => if changed.is_err() { return },
            () = listening.again() => {}
        }
    }
}

/// Says once what a Service asks for in vain.
async fn report_unsupported(node: &Node, said: &mut HashSet<(String, String)>) {
    let services = node.watched.services.all();
    let uids: HashSet<String> = services.iter().filter_map(|service| service.uid()).collect();
    said.retain(|(uid, _)| uids.contains(uid));
    for service in services.iter().filter(|service| !is_kubernetes(service)) {
        for (reason, note) in unsupported_settings(service) {
            if said.insert((service.uid().unwrap_or_default(), note.clone())) {
                node.events.warning(&**service, reason, &note).await;
            }
        }
    }
}

async fn follow(node: &Node, balanced: &Balanced, listening: &mut Listeners) {
    let pods = node.watched.pods.all();
    let (mut wanted, mut whose) = (BTreeMap::new(), HashMap::new());
    for service in node.watched.services.all() {
        // What nobody was told of yet is not listened on.
        let told = current_address(&service)
            .filter(|address| balanced.get(&service.uid().unwrap_or_default()) == Some(address));
        for (address, port) in listeners(&service, told, node.options.address) {
            let way = Way::Any(pool(node, &service, port, &pods));
            let sources = if told.map(IpAddr::from) == Some(address.ip()) { sources(&service) } else { vec![] };
            wanted.insert(address, Rules { way, sources });
            whose.insert(address, service.clone());
        }
    }
    for address in listening.follow(wanted).await {
        if let (Some(service), Some(why)) = (whose.get(&address), listening.refusal(&address)) {
            node.events.warning(&**service, "ListenFailed", why).await;
        }
    }
}

/// The pods behind one port of a Service.
pub(super) fn pool(node: &Node, service: &Service, port: &ServicePort, pods: &[Arc<Pod>]) -> Pool {
    if is_kubernetes(service) {
        return Pool::new(vec![node.options.api_server], false);
    }
    let sticky = service.spec.as_ref().and_then(|spec| spec.session_affinity.as_deref()) == Some("ClientIP");
    Pool::new(backends(service, port, pods), sticky)
}

fn is_kubernetes(service: &Service) -> bool {
    service.name_any() == "kubernetes" && service.namespace().as_deref() == Some("default")
}

/// Every TCP port on every address that the Service has, its load balancer's among them.
fn listeners(service: &Service, balanced: Option<Ipv4Addr>, node: Ipv4Addr) -> Vec<(SocketAddr, &ServicePort)> {
    let Some(spec) = &service.spec else { return vec![] };
    if spec.type_.as_deref() == Some("ExternalName") || (spec.selector.is_none() && !is_kubernetes(service)) {
        return vec![];
    }
    let local = |text: &String| text.parse::<Ipv4Addr>().ok().filter(Ipv4Addr::is_loopback);
    let mut addresses: Vec<Ipv4Addr> = spec.cluster_ip.iter().filter_map(local).collect();
    addresses.extend(balanced);
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

/// The load balancer's address that the Service tells.
fn current_address(service: &Service) -> Option<Ipv4Addr> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.iter().find_map(|ingress| ingress.ip.as_ref()?.parse().ok())
}

/// The addresses of load balancers by the uid of their Service.
type Balanced = HashMap<String, Ipv4Addr>;

/// Gives addresses to Services of type LoadBalancer, and takes them from those that no longer are.
async fn balance(node: &Node, said: &mut HashSet<(String, String)>) -> Balanced {
    let services = node.watched.services.all();
    let uids: HashSet<String> =
        services.iter().filter(|service| wants_balancer(service)).filter_map(|s| s.uid()).collect();
    node.balancers.retain(Owners::Services, |uid| uids.contains(uid));
    for service in services.iter().filter(|service| wants_balancer(service)) {
        if let (Some(address), Some(uid)) = (current_address(service).filter(Ipv4Addr::is_loopback), service.uid()) {
            node.balancers.keep(Owners::Services, &uid, address);
        }
    }
    let mut balanced = Balanced::new();
    for service in services {
        let wanted = match wants_balancer(&service) {
            true => {
                let Some(address) = address_for(node, &service, said).await else { continue };
                balanced.insert(service.uid().unwrap_or_default(), address);
                Some(address)
            }
            false if service.metadata.deletion_timestamp.is_some() => continue,
            false => None,
        };
        if wanted != current_address(&service) {
            write_status(node, &service, wanted).await;
        }
    }
    balanced
}

async fn write_status(node: &Node, service: &Service, address: Option<Ipv4Addr>) {
    let ingress = address.map(|address| json!([{"ip": address.to_string(), "ipMode": "VIP"}]));
    let api: Api<Service> = Api::namespaced(node.client.clone(), &service.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
    if let Err(error) = api.patch_status(&service.name_any(), &PatchParams::default(), &patch).await {
        tracing::warn!(service = %service.name_any(), %error, "could not write the load balancer address");
    }
}

/// The Service's address, if it can have one; what there is to say about that is said once.
async fn address_for(node: &Node, service: &Service, said: &mut HashSet<(String, String)>) -> Option<Ipv4Addr> {
    let (uid, class) = (service.uid().unwrap_or_default(), service.spec.as_ref()?.load_balancer_class.as_deref());
    let (reason, choice) = match class.filter(|class| *class != CLASS) {
        Some(class) => {
            let note = format!(
                "load balancer class {class} is not supported on the local plane: remove loadBalancerClass, or use {CLASS}"
            );
            ("UnknownLoadBalancerClass", Choice { complaint: Some(note), ..Choice::default() })
        }
        None => ("LoadBalancerAddress", node.balancers.choose(Owners::Services, &uid, requested_address(service))),
    };
    if let Some(note) = choice.complaint
        && said.insert((uid, note.clone()))
    {
        node.events.warning(service, reason, &note).await;
    }
    if let Some(note) = choice.added {
        node.events.normal(service, "AddressAdded", &note).await;
    }
    choice.address
}

fn wants_balancer(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
        && service.metadata.deletion_timestamp.is_none()
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
            let (address, port) = listeners(service, None, Ipv4Addr::new(127, 1, 0, 1))[0];
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
            let found: Vec<String> =
                listeners(&service, None, node).iter().map(|(address, _)| address.to_string()).collect();
            assert_eq!(found, expected);
        }
    }
}
