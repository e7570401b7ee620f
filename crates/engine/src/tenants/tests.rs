use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use hangar_kubesim::{KubeApi, KubeApiOptions};
use serde_json::{Value, json};

use super::*;

/// Every kubeconfig leads to the same cluster, except `away`.
struct Connections {
    api: KubeApi,
    made: AtomicUsize,
}

#[async_trait]
impl Connector for Connections {
    async fn connect(&self, kubeconfig: &str) -> Result<Client, String> {
        self.made.fetch_add(1, Ordering::SeqCst);
        if kubeconfig.contains("away") { Err("connection refused".into()) } else { Ok(self.api.client()) }
    }
}

fn name() -> ClusterName {
    ClusterName { namespace: "default".into(), name: "c".into() }
}

struct Fixture {
    connections: Arc<Connections>,
    cache: Cache,
    tenants: Tenants,
    woken: mpsc::UnboundedReceiver<ObjectKey>,
}

fn fixture() -> Fixture {
    let api = KubeApi::new(KubeApiOptions { version: "v1.34.4".into(), ..KubeApiOptions::default() });
    let connections = Arc::new(Connections { api, made: AtomicUsize::new(0) });
    let (cache, (wakes, woken)) = (Cache::default(), mpsc::unbounded_channel());
    let tenants = Tenants::new(connections.clone(), cache.clone(), wakes);
    Fixture { connections, cache, tenants, woken }
}

impl Fixture {
    /// A kubeconfig whose token is the text.
    fn kubeconfig(&self, text: &str, version: &str) {
        let text = json!({
            "clusters": [{"name": "c", "cluster": {"server": "https://c.test", "certificate-authority-data": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="}}],
            "users": [{"name": "u", "user": {"token": text}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        })
        .to_string();
        let mut secret = Object::named("v1", "Secret", "default", "c-kubeconfig");
        secret.0["metadata"]["uid"] = "s".into();
        secret.0["metadata"]["resourceVersion"] = version.into();
        secret.0["data"] = json!({ "value": base64::engine::general_purpose::STANDARD.encode(text) });
        self.cache.put(secret);
    }

    fn machine(&self, name: &str, fields: Value) {
        let mut machine = Object::named("cluster.x-k8s.io/v1beta2", "Machine", "default", name);
        machine.0["metadata"]["uid"] = name.into();
        machine.0["metadata"]["resourceVersion"] = "1".into();
        machine.0["metadata"]["labels"] = json!({ "cluster.x-k8s.io/cluster-name": "c" });
        for (field, value) in fields.as_object().into_iter().flatten() {
            machine.0[field] = value.clone();
        }
        self.cache.put(machine);
    }

    fn made(&self) -> usize {
        self.connections.made.load(Ordering::SeqCst)
    }

    fn watches(&self) -> usize {
        let calls = self.connections.api.requests();
        calls.iter().filter(|call| call.verb == "watch" && call.resource == "certificatesigningrequests").count()
    }

    async fn woken(&mut self) -> Vec<String> {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut names: Vec<String> = std::iter::from_fn(|| self.woken.try_recv().ok()).map(|key| key.name).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn node(name: &str, fields: Value) -> Value {
    let mut node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": { "providerID": format!("p://{name}") } });
    for (field, value) in fields.as_object().into_iter().flatten() {
        node[field] = value.clone();
    }
    node
}

#[tokio::test(start_paused = true)]
async fn one_connection_for_each_kubeconfig() {
    let it = fixture();
    assert_eq!(it.tenants.client(&name()).await.err().unwrap(), "there is no Secret c-kubeconfig yet");
    it.kubeconfig("one", "1");
    for _ in 0..3 {
        it.tenants.client(&name()).await.unwrap();
    }
    assert_eq!(it.made(), 1);
    it.kubeconfig("two", "2");
    it.tenants.client(&name()).await.unwrap();
    assert_eq!(it.made(), 2, "a new kubeconfig means a new connection");
    it.tenants.forget(&name());
    it.tenants.client(&name()).await.unwrap();
    assert_eq!(it.made(), 3);
    it.kubeconfig("away", "3");
    assert_eq!(it.tenants.client(&name()).await.err().unwrap(), "connection refused");
}

#[tokio::test(start_paused = true)]
async fn a_node_is_found_by_its_provider_id_once_the_cluster_has_answered() {
    let mut it = fixture();
    assert!(matches!(it.tenants.node(&name(), "p://a").await, NodeView::Unreachable), "no kubeconfig");
    it.connections.api.put(node("a", json!({})));
    it.kubeconfig("one", "1");
    assert!(matches!(it.tenants.node(&name(), "p://a").await, NodeView::Connecting), "not listed yet");
    it.woken().await;
    assert!(matches!(it.tenants.node(&name(), "p://a").await, NodeView::Node(node) if node.name() == "a"));
    assert!(matches!(it.tenants.node(&name(), "p://b").await, NodeView::None));
    it.connections.api.delete("", "Node", "", "a");
    it.woken().await;
    assert!(matches!(it.tenants.node(&name(), "p://a").await, NodeView::None));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_refuses_its_first_list_is_unreachable_and_says_so_once() {
    let mut it = fixture();
    it.machine("a", json!({ "spec": { "providerID": "p://a" } }));
    it.connections.api.set_fault_hook(Arc::new(|_| hangar_kubesim::Fault::Before(503)));
    it.kubeconfig("one", "1");
    assert!(matches!(it.tenants.node(&name(), "p://a").await, NodeView::Connecting));
    assert_eq!(it.woken().await, ["a"], "the failure is news");
    assert!(matches!(it.tenants.node(&name(), "p://a").await, NodeView::Unreachable));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(it.woken().await, [] as [&str; 0], "the next failures are not");
    it.connections.api.clear_fault_hook();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(it.woken().await, ["a"], "it answers again");
    assert!(matches!(it.tenants.node(&name(), "p://a").await, NodeView::None));
}

/// M3: a blip is no news; five minutes are, and so is the first answer after them.
#[tokio::test(start_paused = true)]
async fn m3_a_cluster_that_stops_answering_is_news_after_five_minutes() {
    let mut it = fixture();
    it.machine("a", json!({ "spec": { "providerID": "p://a" } }));
    it.connections.api.put(node("a", json!({})));
    it.kubeconfig("one", "1");
    it.tenants.client(&name()).await.unwrap();
    assert_eq!(it.woken().await, ["a"]);
    assert_eq!(it.tenants.silent_for(&name()), None);
    it.connections.api.set_fault_hook(Arc::new(|_| hangar_kubesim::Fault::Before(503)));
    it.connections.api.compact();
    it.connections.api.drop_watches();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(it.woken().await, [] as [&str; 0]);
    assert!(it.tenants.silent_for(&name()).is_some_and(|time| time < Duration::from_secs(61)));
    tokio::time::sleep(Duration::from_secs(250)).await;
    assert_eq!(it.woken().await, ["a"], "once");
    tokio::time::sleep(Duration::from_secs(250)).await;
    assert_eq!(it.woken().await, [] as [&str; 0]);
    assert!(matches!(it.tenants.node(&name(), "p://a").await, NodeView::Node(_)), "what was known last");
    it.connections.api.clear_fault_hook();
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(it.woken().await, ["a"], "it answers again");
    assert_eq!(it.tenants.silent_for(&name()), None);
}

#[tokio::test(start_paused = true)]
async fn what_we_have_just_written_is_seen_before_the_watch_brings_it() {
    let mut it = fixture();
    it.kubeconfig("one", "1");
    it.tenants.client(&name()).await.unwrap();
    it.woken().await;
    it.tenants.absorb(&name(), Arc::new(Object(node("w", json!({})))));
    assert!(matches!(it.tenants.node(&name(), "p://w").await, NodeView::Node(_)));
    it.tenants.absorb(&ClusterName::default(), Arc::new(Object(node("w", json!({})))));
}

#[tokio::test(start_paused = true)]
async fn a_nodes_change_wakes_its_machine_and_nobody_else() {
    let mut it = fixture();
    it.machine("a", json!({ "spec": { "providerID": "p://a" } }));
    it.machine("b", json!({ "status": { "nodeRef": { "name": "b" } } }));
    it.machine("c", json!({}));
    it.kubeconfig("one", "1");
    it.tenants.client(&name()).await.unwrap();
    assert_eq!(it.woken().await, ["a", "b", "c"], "the first list");
    let api = it.connections.api.clone();
    api.put(node("a", json!({})));
    assert_eq!(it.woken().await, ["a"], "by provider id");
    api.put(node("b", json!({ "spec": {} })));
    assert_eq!(it.woken().await, ["b"], "by name");
    let ready = |status: &str, beat: &str| json!([{ "type": "Ready", "status": status, "lastHeartbeatTime": beat }]);
    api.edit("", "Node", "", "a", |node| node["status"] = json!({ "conditions": ready("False", "1") }));
    assert_eq!(it.woken().await, ["a"], "a condition");
    api.edit("", "Node", "", "a", |node| node["status"] = json!({ "conditions": ready("False", "2") }));
    assert_eq!(it.woken().await, [] as [&str; 0], "heartbeats are no news");
    api.delete("", "Node", "", "b");
    assert_eq!(it.woken().await, ["b"], "gone");
}

#[tokio::test(start_paused = true)]
async fn the_version_is_asked_once_for_each_rollout_that_is_complete() {
    let it = fixture();
    assert_eq!(it.tenants.version(&name(), "r1", true).await, None);
    it.kubeconfig("one", "1");
    it.tenants.client(&name()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let api = &it.connections.api;
    let mut before = api.request_count();
    for (what, rollout, complete, asked) in [
        ("while it rolls", "r1", false, 1),
        ("still", "r1", false, 1),
        ("complete", "r1", true, 1),
        ("known", "r1", true, 0),
        ("another rollout", "r2", true, 1),
    ] {
        assert_eq!(it.tenants.version(&name(), rollout, complete).await.as_deref(), Some("v1.34.4"), "{what}");
        assert_eq!(api.request_count() - before, asked, "{what}");
        before = api.request_count();
    }
}

#[test]
fn nodes_are_found_by_provider_id_as_long_as_they_are_there() {
    let mut nodes = Nodes::default();
    let plain = Arc::new(Object(node("a", json!({ "spec": {} }))));
    assert!(nodes.put(plain).is_none());
    assert!(nodes.with_provider_id("p://a").is_none(), "it has none yet");
    assert!(nodes.put(Arc::new(Object(node("a", json!({}))))).is_some());
    assert!(nodes.with_provider_id("p://a").is_some());
    nodes.remove("a");
    nodes.remove("a");
    assert!(nodes.with_provider_id("p://a").is_none());
}

/// A node that registers under another name keeps its server, and so its provider id.
#[test]
fn of_two_nodes_with_one_provider_id_the_one_that_is_left_is_found() {
    let of = |name: &str, id: &str| Arc::new(Object(node(name, json!({ "spec": { "providerID": id } }))));
    for (what, order) in [("the newer goes", ["a", "b"]), ("the older goes", ["b", "a"])] {
        let mut nodes = Nodes::default();
        order.iter().for_each(|name| drop(nodes.put(of(name, "p://x"))));
        nodes.remove("b");
        assert_eq!(nodes.with_provider_id("p://x").map(|node| node.name()), Some("a"), "{what}");
    }
    let mut nodes = Nodes::default();
    nodes.put(of("a", "p://x"));
    nodes.put(of("a", "p://y"));
    assert!(nodes.with_provider_id("p://x").is_none(), "it has another one now");
}

fn request(name: &str, user: &str, status: Value) -> Value {
    json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": name },
        "spec": { "username": user }, "status": status,
    })
}

#[tokio::test(start_paused = true)]
async fn requests_for_certificates_are_watched_while_somebody_waits_and_wake_whoever_it_is() {
    const USER: &str = "system:bootstrap:abcdef";
    let mut fixture = fixture();
    fixture.kubeconfig("one", "1");
    let api = &fixture.connections.api;
    let own = |name: &str| ObjectKey::new("g", "KubeadmConfig", "default", name);
    fixture.tenants.node(&name(), "x").await;
    let approved = json!({ "conditions": [{ "type": "Approved" }] });
    api.put(request("old", USER, approved.clone()));
    assert!(fixture.tenants.requests(&name(), own("a"), USER).await.is_empty(), "the first answer is still to come");
    fixture.tenants.requests(&name(), own("b"), "system:bootstrap:ghijkl").await;
    assert_eq!(fixture.woken().await, [] as [&str; 0], "what was decided concerns nobody");
    let api = &fixture.connections.api;
    api.put(request("mine", USER, json!({})));
    api.put(request("kubelet", "system:node:n", json!({})));
    assert_eq!(fixture.woken().await, ["a"]);
    let found = fixture.tenants.requests(&name(), own("a"), USER).await;
    assert_eq!(found.iter().map(|it| it.name()).collect::<Vec<_>>(), ["mine"]);
    fixture.tenants.decided(&name(), "mine");
    assert!(fixture.tenants.requests(&name(), own("a"), USER).await.is_empty());
    assert_eq!(fixture.watches(), 1, "one watch for all who wait");
    fixture.tenants.leave_requests(&name(), &own("a"));
    fixture.connections.api.put(request("theirs", "system:bootstrap:ghijkl", json!({})));
    assert_eq!(fixture.woken().await, ["b"]);
    fixture.tenants.leave_requests(&name(), &own("b"));
    fixture.connections.api.put(request("late", "system:bootstrap:ghijkl", json!({})));
    assert_eq!(fixture.woken().await, [] as [&str; 0], "nobody waits any more");
    fixture.tenants.requests(&name(), own("c"), USER).await;
    fixture.woken().await;
    assert_eq!(fixture.watches(), 2);
}
