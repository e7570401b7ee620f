use base64::Engine as _;
use serde_json::json;

use super::*;

/// Keeps what it was asked to connect with, and connects to nobody.
#[derive(Default)]
struct Recorder(Mutex<Vec<String>>);

#[async_trait]
impl Connector for Recorder {
    async fn connect(&self, kubeconfig: &str) -> Result<Client, String> {
        self.0.lock().unwrap().push(kubeconfig.to_owned());
        Err("nobody there".to_owned())
    }
}

fn cluster() -> ClusterName {
    ClusterName { namespace: "team".to_owned(), name: "demo".to_owned() }
}

fn tenants(user: serde_json::Value) -> (Tenants, Arc<Recorder>) {
    let pem = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==";
    let kubeconfig = json!({
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": pem}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        "extensions": [{"name": "left-out"}],
    });
    let mut secret = Object::named("v1", "Secret", "team", "demo-kubeconfig");
    let value = base64::engine::general_purpose::STANDARD.encode(kubeconfig.to_string());
    secret.0["data"] = json!({ "value": value });
    let cache = Cache::new([]);
    cache.put(secret);
    let recorder: Arc<Recorder> = Arc::default();
    let (wakes, _) = mpsc::unbounded_channel();
    (Tenants::new(recorder.clone(), cache, wakes), recorder)
}

#[tokio::test]
async fn a_program_named_by_a_kubeconfig_in_a_secret_is_never_run() {
    let (tenants, recorder) = tenants(json!({"exec": {"command": "sh", "args": ["-c", "id"]}}));
    let expected = "the kubeconfig in Secret team/demo-kubeconfig is refused: users[u].user.exec is not accepted";
    let refused = tenants.client(&cluster()).await.err().unwrap();
    assert!(refused.starts_with(expected), "{refused}");
    assert!(matches!(tenants.node(&cluster(), "x").await, NodeView::Refused(why) if why == refused));
    assert!(recorder.0.lock().unwrap().is_empty(), "nothing was connected to");
}

#[tokio::test]
async fn a_client_is_made_from_what_was_accepted_only() {
    let (tenants, recorder) = tenants(json!({"token": "abc"}));
    assert_eq!(tenants.client(&cluster()).await.err().unwrap(), "nobody there");
    let text = recorder.0.lock().unwrap()[0].clone();
    assert!(text.contains("abc") && !text.contains("left-out"), "{text}");
}

#[tokio::test]
async fn a_hosted_control_plane_is_called_with_hangars_own_kubeconfig_and_any_other_with_that_of_the_cluster() {
    let kubeconfig = |token: &str| {
        let text = json!({
            "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        });
        base64::engine::general_purpose::STANDARD.encode(text.to_string())
    };
    for (kind, expected) in [("KamajiControlPlane", "own-token"), ("KubeadmControlPlane", "everybodys-token")] {
        let (tenants, recorder) = tenants(json!({"token": "everybodys-token"}));
        let mut own = Object::named("v1", "Secret", "team", "plane-admin-kubeconfig");
        own.0["data"] =
            json!({ "super-admin.conf": kubeconfig("own-token"), "admin.conf": kubeconfig("admins-token") });
        tenants.0.cache.put(own);
        let mut cluster_object = Object::named("cluster.x-k8s.io/v1beta2", "Cluster", "team", "demo");
        cluster_object.0["spec"]["controlPlaneRef"] =
            json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": kind, "name": "plane" });
        tenants.0.cache.put(cluster_object);
        drop(tenants.client(&cluster()).await);
        let text = recorder.0.lock().unwrap()[0].clone();
        assert!(text.contains(expected), "{kind}: {text}");
    }
}
