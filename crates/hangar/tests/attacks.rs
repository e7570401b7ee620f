//! Somebody with the usual rights in one namespace of a running plane tries to get further. Nothing of it works, and a cluster in another namespace stays available.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plane::{Plane, condition, until};
use serde_json::{Value, json};

const VICTIM: &str = "capi-quickstart";
const NAMESPACE: &str = "attacker";

/// What a namespace's users get: the built-in role, and our kinds.
const RIGHTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: attacker}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: mallory, namespace: attacker}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: clusters, namespace: attacker}
rules:
- apiGroups: [cluster.x-k8s.io, infrastructure.cluster.x-k8s.io, controlplane.cluster.x-k8s.io, bootstrap.cluster.x-k8s.io, kamaji.clastix.io]
  resources: ["*"]
  verbs: ["*"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: edit, namespace: attacker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{kind: ServiceAccount, name: mallory, namespace: attacker}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: clusters, namespace: attacker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: clusters}
subjects: [{kind: ServiceAccount, name: mallory, namespace: attacker}]
"#;

/// A plane, its victim, and who attacks it.
struct Scene {
    plane: Plane,
    kubeconfig: String,
    daemon: Value,
}

impl Scene {
    fn new() -> Self {
        let plane = Plane::new();
        let example = std::fs::read_to_string(plane::repository().join("examples/kamaji-openstack.yaml")).unwrap();
        // A name that somebody else could know.
        let named =
            example.replace("dataStoreName: default", "dataStoreUsername: payments\n  dataStoreSchema: payments");
        let up = plane.run_with(&["up", "-"], &named);
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        assert!(plane.run_with(&["kubectl", "--", "apply", "-f", "-"], RIGHTS).status.success());
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(plane.home().join("kubeconfig")).unwrap()).unwrap();
        let token = plane.kubectl(&["create", "token", "mallory", "-n", NAMESPACE]);
        config["users"][0]["user"] = json!({ "token": token.trim() });
        let path = plane.home().join("mallory.conf");
        std::fs::write(&path, config.to_string()).unwrap();
        let daemon = plane.state()["pid"].clone();
        Self { kubeconfig: format!("--kubeconfig={}", path.display()), daemon, plane }
    }

    /// As the attacker.
    fn tries(&self, words: &[&str], input: &str) -> Output {
        self.plane.run_with(&[&["kubectl", "--", &self.kubeconfig, "-n", NAMESPACE], words].concat(), input)
    }

    fn applies(&self, manifest: &str) {
        let output = self.tries(&["apply", "-f", "-"], manifest);
        assert!(output.status.success(), "{}\n{manifest}", String::from_utf8_lossy(&output.stderr));
    }

    fn is_refused(&self, what: &str, manifest: &str, words: &str) {
        let output = self.tries(&["apply", "-f", "-"], manifest);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{what}: {said}\n{manifest}");
        self.is_well(what);
    }

    /// An object of the attacker, as it is said to be.
    fn own(&self, what: &str) -> Value {
        let output =
            self.plane.run(&["kubectl", "--", "get", "-n", NAMESPACE, what, "-o", "json", "--ignore-not-found"]);
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Waits until a condition of an object says some words.
    fn until_said(&self, what: &str, words: &str) {
        until(words, || self.own(what)["status"]["conditions"].to_string().contains(words));
        self.is_well(what);
    }

    fn clears(&self) {
        let kinds = "clusters,openstackclusters,kamajicontrolplanes,machinedeployments,secrets";
        let output = self.tries(&["delete", kinds, "--all", "--timeout=120s"], "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// The other cluster is available and answers, and nothing of the plane has ended.
    fn is_well(&self, after: &str) {
        let cluster = self.plane.get(&format!("cluster/{VICTIM}"));
        assert_eq!(condition(&cluster, "Available").0, "True", "after {after}: {cluster:#}");
        assert_eq!(self.plane.tenant(VICTIM, &["get", "--raw", "/readyz"]), "ok", "after {after}");
        assert_eq!(self.plane.state()["pid"], self.daemon, "after {after}");
    }
}

/// A cluster of the attacker with this control plane and this credential, each in a Secret of its own: what was read is kept for half a minute.
fn cluster(control_plane: &str, clouds: Option<&str>) -> String {
    let credential = format!("trap-cloud-{}", clouds.map_or(0, str::len));
    let mut text = format!(
        r#"
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {{name: trap, namespace: {NAMESPACE}}}
spec:
  controlPlaneRef: {{apiVersion: controlplane.cluster.x-k8s.io/v1alpha1, kind: KamajiControlPlane, name: trap}}
  infrastructureRef: {{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: OpenStackCluster, name: trap}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta1
kind: OpenStackCluster
metadata: {{name: trap, namespace: {NAMESPACE}}}
spec:
  disableAPIServerFloatingIP: true
  disableExternalNetwork: true
  apiServerFixedIP: ""
  network: {{id: d3c7a2b4-8e5f-4a0c-9b92-3f4e5d6c7a83}}
  identityRef: {{name: {credential}, cloudName: openstack}}
"#
    );
    if !control_plane.is_empty() {
        text.push_str(&format!(
            "---\napiVersion: controlplane.cluster.x-k8s.io/v1alpha1\nkind: KamajiControlPlane\n\
             metadata: {{name: trap, namespace: {NAMESPACE}}}\nspec: {{replicas: 1, version: 1.34.4, {control_plane}}}\n"
        ));
    }
    if let Some(clouds) = clouds {
        text.push_str(&format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {credential}, namespace: {NAMESPACE}}}\ndata: {{clouds.yaml: {}}}\n",
            STANDARD.encode(clouds)
        ));
    }
    text
}

#[test]
fn nobody_gets_out_of_a_namespace_and_others_stay_available() {
    let scene = Scene::new();
    scene.is_well("the start");
    rights_end_at_the_namespace(&scene);
    no_control_plane_takes_the_place_of_another(&scene);
    a_kubeconfig_runs_nothing_and_reads_nothing(&scene);
    a_credential_names_no_files_and_multiplies_nothing(&scene);
    a_cloud_that_asks_for_patience_is_not_obeyed_for_ever(&scene);
    another_namespaces_credential_is_not_used(&scene);
    numbers_are_bounded(&scene);
    scene.clears();
    scene.is_well("everything");
}

fn rights_end_at_the_namespace(scene: &Scene) {
    for words in [
        "get secrets -n default",
        "get clusters -A",
        "get secret etcd-certs -n kamaji-system",
        "get datastores",
        "delete datastore default",
        "get nodes",
        "create clusterrolebinding x --clusterrole=cluster-admin --serviceaccount=attacker:mallory",
        "create rolebinding x --clusterrole=cluster-admin --serviceaccount=attacker:mallory",
        "get customresourcedefinitions",
    ] {
        let output = scene.tries(&words.split(' ').collect::<Vec<_>>(), "");
        let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(!output.status.success() && said.contains("forbidden"), "{words}: {said}");
    }
}

fn no_control_plane_takes_the_place_of_another(scene: &Scene) {
    let uid = scene.plane.get("kamajicontrolplane/kamaji-quickstart-control-plane")["metadata"]["uid"].clone();
    let uid = uid.as_str().unwrap();
    for name in ["root", "hangar", uid] {
        for field in ["dataStoreUsername", "dataStoreSchema"] {
            scene.is_refused(name, &cluster(&format!("{field}: \"{name}\""), None), field);
        }
    }
    for argument in [
        "--etcd-servers=https://127.0.0.1:2379",
        "--etcd-prefix=/payments",
        "--etcd_prefix=/payments",
        "--etcd-certfile=/etc/kubernetes/pki/ca.crt",
        "--client-ca-file=/etc/kubernetes/pki/etcd/ca.crt",
        "--bind-address=0.0.0.0",
    ] {
        let control_plane = format!("apiServer: {{extraArgs: [\"{argument}\"]}}");
        let name = argument.split('=').next().unwrap().trim_start_matches("--").replace('_', "-");
        scene.is_refused(argument, &cluster(&control_plane, None), &name);
    }
    // What somebody else is registered under in the store.
    let clouds = std::fs::read_to_string(scene.plane.home().join("clouds.yaml")).unwrap();
    scene.applies(&cluster("dataStoreUsername: payments, dataStoreSchema: payments", Some(&clouds)));
    scene.until_said("kamajicontrolplane/trap", "is the name of another tenant");
    // A false record of what is one's own, and then everything is deleted.
    let record = json!({ "store": "default", "user": "payments", "schema": "payments" }).to_string();
    let annotation = format!("hangar.dev/data-store-tenant={record}");
    assert!(scene.tries(&["annotate", "--overwrite", "kamajicontrolplane", "trap", &annotation], "").status.success());
    scene.clears();
    scene.plane.tenant(VICTIM, &["get", "namespace", "kube-system"]);
    scene.is_well("a false record");
}

/// What a kubeconfig of a Secret could do to whoever uses it.
fn a_kubeconfig_runs_nothing_and_reads_nothing(scene: &Scene) {
    let proof = scene.plane.home().join("executed");
    let (asked, address) = listener("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let server = json!({ "server": "https://127.0.0.1:1" });
    let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [proof], "interactiveMode": "Never" });
    let rows = [
        (server.clone(), json!({ "exec": exec })),
        (
            server.clone(),
            json!({ "client-certificate": scene.plane.home().join("pki/admin.crt"), "client-key": scene.plane.home().join("pki/admin.key") }),
        ),
        (server.clone(), json!({ "tokenFile": scene.plane.home().join("cloud/admin-token") })),
        (json!({ "server": "https://127.0.0.1:1", "proxy-url": format!("http://{address}") }), json!({ "token": "t" })),
        (json!({ "server": format!("http://{address}") }), json!({ "token": "t" })),
        (server, json!({ "as": "kubernetes-admin", "token": "t" })),
    ];
    scene.applies(&cluster("", None));
    for (cluster, user) in rows {
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": cluster }], "users": [{ "name": "u", "user": user }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        });
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": { "name": "trap-kubeconfig", "namespace": NAMESPACE, "labels": { "cluster.x-k8s.io/cluster-name": "trap" } },
            "data": { "value": STANDARD.encode(kubeconfig.to_string()) },
        });
        scene.applies(&secret.to_string());
        let output = scene.plane.run(&["kubectl", "-n", NAMESPACE, "--cluster", "trap", "--", "get", "nodes"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("is refused"), "{user}: {said}");
        scene.is_well("a kubeconfig");
    }
    assert!(!proof.exists(), "a program of the Secret was run");
    assert_eq!(asked.load(Ordering::Relaxed), 0, "a host of the Secret was asked");
    scene.clears();
}

fn a_credential_names_no_files_and_multiplies_nothing(scene: &Scene) {
    let key = scene.plane.home().join("pki/ca.key");
    let with_file = format!(
        "clouds:\n  openstack:\n    auth: {{auth_url: 'https://127.0.0.1:1', username: u, password: p, project_name: p}}\n    cacert: {}\n",
        key.display()
    );
    scene.applies(&cluster("", Some(&with_file)));
    scene.until_said("openstackcluster/trap", "cacert");
    assert!(!scene.own("openstackcluster/trap").to_string().contains("PRIVATE KEY"));
    scene.clears();
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let above = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", above.trim_end_matches(", ")));
    }
    bomb.push_str("clouds: *a11\n");
    scene.applies(&cluster("", Some(&bomb)));
    scene.until_said("openstackcluster/trap", "alias");
    scene.clears();
}

fn a_cloud_that_asks_for_patience_is_not_obeyed_for_ever(scene: &Scene) {
    let answer =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 99999999999999999999999\r\nContent-Length: 0\r\n\r\n";
    let (asked, address) = listener(answer);
    let clouds = format!(
        "clouds:\n  openstack:\n    auth: {{auth_url: 'http://{address}/v3', username: u, password: p, project_name: p, user_domain_name: d, project_domain_name: d}}\n"
    );
    scene.applies(&cluster("", Some(&clouds)));
    until("the attacker's cloud to be asked", || asked.load(Ordering::Relaxed) > 0);
    scene.until_said("openstackcluster/trap", "503");
    // Clouds of others are asked as before.
    let deployment = "machinedeployment/capi-quickstart-md-0";
    scene.plane.kubectl(&["scale", deployment, "--replicas=2"]);
    scene.plane.until(deployment, |deployment| deployment["status"]["availableReplicas"] == 2);
    scene.plane.kubectl(&["scale", deployment, "--replicas=1"]);
    scene.plane.until(deployment, |deployment| deployment["status"]["replicas"] == 1);
    scene.clears();
}

/// The victim's credential has the name of its cluster.
fn another_namespaces_credential_is_not_used(scene: &Scene) {
    let before = scene.plane.inventory().len();
    let reference = "identityRef: {name: trap-cloud-0, cloudName: openstack}";
    let named = cluster("", None).replace(reference, "identityRef: {name: capi-quickstart, cloudName: openstack}");
    scene.applies(&named);
    scene.until_said("openstackcluster/trap", "attacker/capi-quickstart");
    let elsewhere = named.replace("{name: capi-quickstart,", "{namespace: default, name: capi-quickstart,");
    scene.is_refused("a namespace in identityRef", &elsewhere, "namespace");
    let path = named.replace("{name: capi-quickstart,", "{name: ../default/capi-quickstart,");
    scene.tries(&["apply", "-f", "-"], &path);
    scene.is_well("a path in identityRef");
    assert_eq!(scene.plane.inventory().len(), before, "nothing was made in the victim's cloud");
    scene.clears();
}

fn numbers_are_bounded(scene: &Scene) {
    let deployment = |replicas: &str, surge: &str| {
        format!(
            r#"
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {{name: trap, namespace: {NAMESPACE}}}
spec:
  clusterName: trap
  replicas: {replicas}
  strategy: {{type: RollingUpdate, rollingUpdate: {{maxSurge: {surge}}}}}
  selector: {{matchLabels: {{}}}}
  template:
    spec:
      clusterName: trap
      bootstrap: {{configRef: {{apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: trap}}}}
      infrastructureRef: {{apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: OpenStackMachineTemplate, name: trap}}
"#
        )
    };
    scene.is_refused("2^31 - 1 replicas", &deployment("2147483647", "1"), "replicas");
    scene.is_refused("2^31 replicas", &deployment("2147483648", "1"), "replicas");
    // Whether a percentage is refused or bounded, nothing must come to an end.
    for surge in ["\"99999999999999999999%\"", "2147483647", "\"-1%\""] {
        scene.tries(&["apply", "-f", "-"], &deployment("3", surge));
        scene.is_well(surge);
    }
}

/// Answers everybody the same, and counts them.
fn listener(answer: &'static str) -> (Arc<AtomicUsize>, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            count.fetch_add(1, Ordering::Relaxed);
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (asked, address)
}
