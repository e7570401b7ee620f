//! What OpenStack's cloud controller manager does for Nodes: says which server a Node is and where, and takes away Nodes
//! whose server is gone.
//!
//! Flows: watch of Nodes, and changes of servers -> plan -> patch or delete. Holds: event-driven, no polling; a Node that
//! is as it should be is not written; a Node this cloud never knew is left alone.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use hangar_machine::PodRoute;
use hangar_openstack::wire::Server;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Simulator, compute};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const SCHEME: &str = "openstack:///";

/// Until `shutdown`.
pub async fn run(tenant: kube::Client, cloud: Simulator, shutdown: CancellationToken) {
    let nodes: Api<Node> = Api::all(tenant);
    let mut changes = cloud.changes();
    let mut events = watcher(nodes.clone(), watcher::Config::default()).default_backoff().boxed();
    let mut known: BTreeMap<String, Node> = BTreeMap::new();
    loop {
        let touched: Vec<String> = tokio::select! {
            () = shutdown.cancelled() => return,
            event = events.try_next() => match event {
                Ok(Some(event)) => remember(&mut known, event),
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "cloud controller: the watch of Nodes broke");
                    vec![]
                }
            },
            // A server that is gone takes its Node with it.
            changed = changes.changed() => match changed {
                Ok(()) => known.keys().cloned().collect(),
                Err(_) => return,
            },
        };
        for node in touched.iter().filter_map(|name| known.get(name)) {
            attend(&nodes, &cloud, node).await;
        }
        if !touched.is_empty() {
            route(&cloud, &known);
        }
    }
}

/// The names of Nodes to look at.
fn remember(known: &mut BTreeMap<String, Node>, event: watcher::Event<Node>) -> Vec<String> {
    match event {
        watcher::Event::Apply(node) | watcher::Event::InitApply(node) => {
            let name = node.name_any();
            known.insert(name.clone(), node);
            vec![name]
        }
        watcher::Event::Delete(node) => {
            known.remove(&node.name_any());
            vec![]
        }
        watcher::Event::Init => {
            known.clear();
            vec![]
        }
        watcher::Event::InitDone => vec![],
    }
}

async fn attend(nodes: &Api<Node>, cloud: &Simulator, node: &Node) {
    let name = node.name_any();
    let done = match plan(node, |wanted| cloud.find_server(wanted)) {
        Step::Nothing => return,
        Step::Delete => nodes.delete(&name, &DeleteParams::default()).await.map(drop),
        Step::Initialize(server) => initialize(nodes, &name, &server).await,
    };
    match done {
        // Gone, or changed meanwhile: then the watch brings the newer one.
        Err(kube::Error::Api(refused)) if matches!(refused.code, 404 | 409) => {}
        Err(error) => tracing::warn!(node = name, %error, "cloud controller: a Node could not be written"),
        Ok(()) => {}
    }
}

/// As a cloud's route controller: each of the nodes learns where the pods of all others are.
fn route(cloud: &Simulator, known: &BTreeMap<String, Node>) {
    let Some(driver) = cloud.guest_driver() else { return };
    let server = |node: &Node| Some(node.spec.as_ref()?.provider_id.as_ref()?.strip_prefix(SCHEME)?.to_owned());
    let places: Vec<(String, PodRoute)> =
        known.values().filter_map(|node| Some((server(node)?, pod_route(node)?))).collect();
    for (own, _) in &places {
        let others = places.iter().filter(|(server, _)| server != own).map(|(_, route)| route.clone());
        driver.routes(std::slice::from_ref(own), &others.collect::<Vec<_>>());
    }
}

fn pod_route(node: &Node) -> Option<PodRoute> {
    let spec = node.spec.as_ref()?;
    let ranges = spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr);
    let range = ranges.filter_map(|range| range.parse().ok()).next()?;
    let addresses = node.status.as_ref()?.addresses.iter().flatten();
    let own = addresses.filter(|address| address.type_ == "InternalIP").find_map(|one| one.address.parse().ok())?;
    Some(PodRoute { range, node: own })
}

/// Addresses first: once the taint is gone pods come, and they want an address.
async fn initialize(nodes: &Api<Node>, name: &str, server: &Server) -> Result<(), kube::Error> {
    let params = PatchParams::default();
    let fresh = nodes.patch_status(name, &params, &Patch::Strategic(status(name, server))).await?;
    nodes.patch(name, &params, &Patch::Merge(object(&fresh, server))).await.map(drop)
}

#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Delete,
    Initialize(Box<Server>),
}

/// Which server to look for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Wanted<'a> {
    Id(&'a str),
    Name(&'a str),
}

fn plan(node: &Node, find: impl Fn(Wanted<'_>) -> Option<Server>) -> Step {
    let spec = node.spec.as_ref();
    let provider_id = spec.and_then(|spec| spec.provider_id.as_deref());
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let uninitialized = taints.iter().any(|taint| taint.key == UNINITIALIZED);
    let name = node.name_any();
    let server = match provider_id.and_then(|id| id.strip_prefix(SCHEME)) {
        Some(id) => find(Wanted::Id(id)),
        None => find(Wanted::Name(&name)),
    };
    match server {
        Some(server) if uninitialized => Step::Initialize(Box::new(server)),
        // Only a Node that says it is ours, and was looked at before, can have lost its server.
        None if provider_id.is_some_and(|id| id.starts_with(SCHEME)) && !uninitialized => Step::Delete,
        _ => Step::Nothing,
    }
}

fn status(name: &str, server: &Server) -> Value {
    let fixed = server.addresses.values().flatten().filter(|address| address.kind == "fixed");
    let mut addresses: Vec<Value> =
        fixed.map(|address| json!({"type": "InternalIP", "address": address.addr})).collect();
    addresses.push(json!({"type": "Hostname", "address": name}));
    json!({"status": {"addresses": addresses}})
}

/// The taints are replaced as a whole, so the patch holds for this very version of the Node only.
fn object(node: &Node, server: &Server) -> Value {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let kept: Vec<_> = taints.iter().filter(|taint| taint.key != UNINITIALIZED).collect();
    let mut labels = serde_json::Map::new();
    if let Some(flavor) = &server.flavor.original_name {
        labels.insert("node.kubernetes.io/instance-type".to_owned(), json!(flavor));
    }
    if let Some(zone) = &server.availability_zone {
        labels.insert("topology.kubernetes.io/zone".to_owned(), json!(zone));
    }
    json!({
        "metadata": {"labels": labels, "resourceVersion": node.resource_version()},
        "spec": {"providerID": format!("{SCHEME}{}", server.id), "taints": kept},
    })
}

impl Simulator {
    /// A server of any project; of two with the same name the newer one.
    pub(crate) fn find_server(&self, wanted: Wanted<'_>) -> Option<Server> {
        let world = self.world();
        let fits = |server: &Server| match wanted {
            Wanted::Id(id) => server.id == id,
            Wanted::Name(name) => server.name == name,
        };
        let found = world.state.servers.values().filter(|record| fits(&record.server));
        found.max_by_key(|record| record.sequence).map(|record| compute::show(&world.state, record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hangar_openstack::wire::{Address, ServerFlavor};

    fn node(provider_id: Option<&str>, taints: &[&str]) -> Node {
        let taints: Vec<Value> = taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        serde_json::from_value(
            json!({"metadata": {"name": "w"}, "spec": {"providerID": provider_id, "taints": taints}}),
        )
        .unwrap()
    }

    fn server() -> Server {
        let address = Address { addr: "10.6.0.2".into(), version: 4, kind: "fixed".into(), mac_address: String::new() };
        Server {
            id: "1f".into(),
            name: "w".into(),
            addresses: BTreeMap::from([("net".to_owned(), vec![address])]),
            availability_zone: Some("nova".into()),
            flavor: ServerFlavor { original_name: Some("m1.medium".into()), ..ServerFlavor::default() },
            ..Server::default()
        }
    }

    #[test]
    fn an_uninitialized_node_learns_who_it_is_and_keeps_other_taints() {
        let node = node(None, &[UNINITIALIZED, "other"]);
        let step = plan(&node, |wanted| {
            assert_eq!(wanted, Wanted::Name("w"));
            Some(server())
        });
        assert_eq!(step, Step::Initialize(Box::new(server())));
        let (status, object) = (status("w", &server()), object(&node, &server()));
        assert_eq!(status["status"]["addresses"][0], json!({"type": "InternalIP", "address": "10.6.0.2"}));
        assert_eq!(object["spec"]["providerID"], "openstack:///1f");
        assert_eq!(object["spec"]["taints"].as_array().unwrap().len(), 1);
        assert_eq!(object["metadata"]["labels"]["topology.kubernetes.io/zone"], "nova");
    }

    #[test]
    fn a_node_is_written_once_and_deleted_with_its_server() {
        let table = [
            (node(Some("openstack:///1f"), &[]), true, Step::Nothing),
            (node(Some("openstack:///1f"), &[]), false, Step::Delete),
            (node(Some("openstack:///1f"), &[UNINITIALIZED]), false, Step::Nothing),
            (node(None, &[UNINITIALIZED]), false, Step::Nothing),
            (node(Some("aws:///x"), &[]), false, Step::Nothing),
            (node(None, &[]), false, Step::Nothing),
        ];
        for (node, there, step) in table {
            assert_eq!(plan(&node, |_| there.then(server)), step);
        }
    }
}
