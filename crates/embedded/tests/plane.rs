//! The plane for real: components from the store, a Deployment with a claim and a load balancer, a crash, a restart, an end.

// A test says what went wrong by panicking, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use hangar_embedded::{Home, Plane, PlaneOptions, Quiet, Store, StoreOptions};
use hangar_node::process::{KubeletTls, NodeError, NodeOptions};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Generous, because a machine may be busy; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(180);

struct Node {
    task: JoinHandle<Result<(), NodeError>>,
    shutdown: CancellationToken,
}

impl Node {
    async fn start(plane: &Plane, home: &Home, store: &Store) -> Self {
        let (network, shutdown) = (plane.network(), CancellationToken::new());
        let pki = plane.pki();
        let options = NodeOptions {
            name: "local".into(),
            address: network.plane(),
            pods_dir: home.pods(),
            volumes_dir: home.volumes(),
            pod_network: network.pods(),
            load_balancer_network: network.load_balancers(),
            api_server: plane.api_server(),
            home: home.path().to_owned(),
            kubelet: Some(KubeletTls {
                port: hangar_embedded::ports::KUBELET,
                certificate: pki.join("kubelet.crt"),
                key: pki.join("kubelet.key"),
                client_ca: pki.join("ca.crt"),
            }),
        };
        let client = plane.client().await.unwrap();
        allow_kubelet_client(&client).await;
        let task = tokio::spawn(hangar_node::process::run(client, Arc::new(store.clone()), options, shutdown.clone()));
        Self { task, shutdown }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// The API server asks the node for logs as a user of its own, which whoever installs the plane has to allow.
async fn allow_kubelet_client(client: &Client) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "kubelet-client"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": hangar_embedded::identities::KUBELET_CLIENT}],
    });
    let api: Api<ClusterRoleBinding> = Api::all(client.clone());
    api.patch("kubelet-client", &PatchParams::apply("test"), &Patch::Apply(binding)).await.unwrap();
}

/// Waits until some object of a kind is as wanted, and returns it.
async fn until<K>(api: Api<K>, what: &str, wanted: impl Fn(&K) -> bool) -> K
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let stream = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    let mut stream = std::pin::pin!(stream);
    let mut last = None;
    let found = async {
        loop {
            match stream.try_next().await {
                Ok(Some(object)) if wanted(&object) => return object,
                Ok(Some(object)) => last = Some(object),
                Ok(None) => panic!("the watch ended"),
                Err(_) => {}
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await.ok();
    found.unwrap_or_else(|| panic!("gave up waiting for {what}; the last was {last:?}"))
}

async fn until_gone<K>(api: Api<K>, what: &str)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let gone = async {
        while !api.list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap_or_else(|_| panic!("{what} did not go"));
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap_or_default();
    statuses.iter().map(|status| status.restart_count).sum()
}

fn deployment() -> Deployment {
    let urls = |port: u16| format!("http://$(POD_IP):{port}");
    serde_json::from_value(json!({
        "metadata": {"name": "store", "labels": {"app": "store"}},
        "spec": {
            "replicas": 1, "strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"app": "store"}},
            "template": {
                "metadata": {"labels": {"app": "store"}},
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{
                        "name": "etcd", "image": "registry.k8s.io/etcd:3.6.16", "command": ["etcd"],
                        "args": [
                            "--name=$(NAME)", "--data-dir=/var/lib/etcd/data",
                            format!("--listen-client-urls={}", urls(2379)), format!("--advertise-client-urls={}", urls(2379)),
                            format!("--listen-peer-urls={}", urls(2380)), format!("--initial-advertise-peer-urls={}", urls(2380)),
                            format!("--initial-cluster=$(NAME)={}", urls(2380)), "--initial-cluster-token=$(TOKEN)",
                        ],
                        "env": [
                            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                            {"name": "NAME", "value": "store"},
                            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}},
                        ],
                        "ports": [{"name": "client", "containerPort": 2379}],
                        "readinessProbe": {"httpGet": {"path": "/health", "port": "client"}, "periodSeconds": 1},
                        "livenessProbe": {"tcpSocket": {"port": 2379}, "initialDelaySeconds": 10},
                        "volumeMounts": [
                            {"name": "data", "mountPath": "/var/lib/etcd"}, {"name": "settings", "mountPath": "/etc/settings"},
                        ],
                    }],
                    "volumes": [
                        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                        {"name": "settings", "configMap": {"name": "settings"}},
                    ],
                },
            },
        },
    }))
    .unwrap()
}

async fn create(client: &Client) {
    let post = PostParams::default();
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))
    .unwrap();
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "store"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "store"}, "ports": [{"port": 12379, "targetPort": "client"}]},
    }))
    .unwrap();
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "token"}, "stringData": {"token": "t0"}})).unwrap();
    let settings: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "settings"}, "data": {"level": "one"}})).unwrap();
    // The deployment comes first: the pod has to wait for all that it needs, and says so.
    Api::default_namespaced(client.clone()).create(&post, &deployment()).await.unwrap();
    Api::default_namespaced(client.clone()).create(&post, &claim).await.unwrap();
    Api::default_namespaced(client.clone()).create(&post, &service).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let is_complaint = |event: &Event| {
        let said = event.message.as_deref().unwrap_or_default();
        event.reason.as_deref() == Some("FailedMount") && said.contains("ConfigMap settings not found")
    };
    until(events.clone(), "a complaint about the ConfigMap", is_complaint).await;
    Api::default_namespaced(client.clone()).create(&post, &settings).await.unwrap();
    let is_complaint = |event: &Event| event.message.as_deref() == Some("Secret token not found");
    until(events, "a complaint about the Secret", is_complaint).await;
    Api::default_namespaced(client.clone()).create(&post, &secret).await.unwrap();
}

/// Asks etcd's JSON gateway until it answers: the node hears of a ready pod at another moment than we do.
async fn etcd(address: &str, path: &str, body: &Value) -> Value {
    let answered = async {
        loop {
            if let Some(answer) = ask(address, path, body).await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{address} does not lead to etcd"))
}

async fn ask(address: &str, path: &str, body: &Value) -> Option<Value> {
    let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// The process of a pod: the one whose command line names the pod's directory.
fn pid_of(home: &Path, address: &str) -> Option<i32> {
    let mark = format!("--listen-client-urls=http://{address}:2379");
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = String::from_utf8(std::fs::read(entry.path().join("cmdline")).ok()?).ok()?;
        let environ = String::from_utf8_lossy(&std::fs::read(entry.path().join("environ")).ok()?).into_owned();
        let ours = environ.contains(&format!("HANGAR_HOME={}\0", home.display()));
        (ours && line.split('\0').any(|word| word == mark)).then_some(pid)
    })
}

async fn file_says(path: &Path, text: &str) {
    let says = async {
        while std::fs::read_to_string(path).ok().as_deref() != Some(text) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, says).await.unwrap_or_else(|_| panic!("{} never said {text}", path.display()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_lives_through_a_crash_and_a_restart_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::open(directory.path().join("home")).unwrap();
    let _lock = home.lock().unwrap();
    let store = Store::new(StoreOptions::default());
    let plane = Plane::start(&home, &store, &PlaneOptions::default(), &Quiet).await.unwrap();
    let node = Node::start(&plane, &home, &store).await;
    let client = plane.client().await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());

    create(&client).await;
    let pod = until(pods.clone(), "the pod to be ready", is_ready).await;
    let address = pod.status.clone().unwrap().pod_ip.unwrap();
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let balanced =
        |service: &Service| -> Option<String> { service.status.clone()?.load_balancer?.ingress?.first()?.ip.clone() };
    let service =
        until(services.clone(), "a load balancer", |s| s.name_any() == "store" && balanced(s).is_some()).await;
    let (external, cluster) = (balanced(&service).unwrap(), service.spec.clone().unwrap().cluster_ip.unwrap());
    assert!(plane.network().load_balancers().contains(&external.parse::<std::net::Ipv4Addr>().unwrap()));

    // "a" = "1", in base64 as the gateway wants it.
    etcd(&format!("{external}:12379"), "/v3/kv/put", &json!({"key": "YQ==", "value": "MQ=="})).await;
    let get = etcd(&format!("{cluster}:12379"), "/v3/kv/range", &json!({"key": "YQ=="})).await;
    assert_eq!(get["kvs"][0]["value"], "MQ==");

    let logs = pods.logs(&pod.name_any(), &LogParams { tail_lines: Some(3), ..Default::default() }).await.unwrap();
    assert_eq!(logs.lines().count(), 3, "{logs}");

    let settings = home.pods().join(pod.uid().unwrap()).join("volumes/settings/level");
    file_says(&settings, "one").await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let change = Patch::Merge(json!({"data": {"level": "two"}}));
    maps.patch("settings", &PatchParams::default(), &change).await.unwrap();
    file_says(&settings, "two").await;

    let pid = pid_of(home.path(), &address).expect("etcd runs");
    let killed = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    let pod = until(pods.clone(), "a restart", |pod| is_ready(pod) && restarts(pod) == 1).await;
    let state = pod.status.clone().unwrap().container_statuses.unwrap()[0].clone();
    assert_eq!(state.last_state.unwrap().terminated.unwrap().exit_code, 137);
    assert!(state.image_id.ends_with("@v3.6.16"), "{}", state.image_id);

    node.stop().await;
    assert_eq!(pid_of(home.path(), &address), None, "processes outlived their node");
    plane.stop().await;
    let plane = Plane::start(&home, &store, &PlaneOptions::default(), &Quiet).await.unwrap();
    let node = Node::start(&plane, &home, &store).await;
    let client = plane.client().await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let again = until(pods.clone(), "the pod after a restart", |pod| is_ready(pod) && restarts(pod) == 2).await;
    assert_eq!((again.uid(), again.status.unwrap().pod_ip), (pod.uid(), Some(address.clone())));
    let get = etcd(&format!("{external}:12379"), "/v3/kv/range", &json!({"key": "YQ=="})).await;
    assert_eq!(get["kvs"][0]["value"], "MQ==", "the claim lost its data");

    let events: Api<Event> = Api::default_namespaced(client.clone());
    let reasons: Vec<String> =
        events.list(&ListParams::default()).await.unwrap().into_iter().filter_map(|event| event.reason).collect();
    for reason in ["Pulled", "Started", "ProvisioningSucceeded"] {
        assert!(reasons.iter().any(|known| known == reason), "no event {reason} among {reasons:?}");
    }

    let delete = DeleteParams::foreground();
    Api::<Deployment>::default_namespaced(client.clone()).delete("store", &delete).await.unwrap();
    until_gone(pods, "the pod").await;
    assert_eq!(pid_of(home.path(), &address), None, "the process outlived its pod");
    Api::<PersistentVolumeClaim>::default_namespaced(client.clone()).delete("data", &delete).await.unwrap();
    until_gone(Api::<PersistentVolume>::all(client.clone()), "the volume").await;
    assert_eq!(home.volumes().read_dir().unwrap().count(), 0, "a directory was left");
    let services: Api<Service> = Api::default_namespaced(client.clone());
    services.delete("store", &DeleteParams::default()).await.unwrap();
    let closed = async {
        while tokio::net::TcpStream::connect(format!("{external}:12379")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("the listener closed");
    node.stop().await;
    plane.stop().await;
}
