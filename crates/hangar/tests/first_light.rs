//! One manifest, one command, a working cluster: everything real but the data centre.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use hangar_controllers::Etcd;
use plane::{Plane, condition};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

const EXAMPLE: &str = "examples/kamaji-openstack.yaml";
const CLUSTER: &str = "capi-quickstart";
const DEPLOYMENT: &str = "machinedeployment/capi-quickstart-md-0";

#[test]
fn from_a_manifest_to_a_working_cluster_and_back_to_nothing() {
    let plane = Plane::new();
    let said = plane.ok(&["up", EXAMPLE]);
    let substitute = said.split("requested v1.28.10, running ").nth(1).and_then(|rest| rest.split(':').next());
    the_substitution_is_in_an_event_and_a_condition(&plane, substitute.expect(&said));
    the_node_is_what_nova_and_neutron_gave(&plane);
    no_part_of_the_plane_may_do_more_than_its_work(&plane);
    who_may_reads_metrics(&plane);
    pods_run_in_the_tenant(&plane);
    many_may_ask_at_once(&plane);
    an_agent_of_konnectivity_is_let_in_by_its_token_alone(&plane);
    the_tenants_secrets_are_encrypted_in_the_shared_etcd(&plane);
    the_shared_etcd_uses_a_renewed_certificate_at_once(&plane);
    scale(&plane);
    wrong_user_data_keeps_a_node_out(&plane);
    the_clouds_words_are_shown_and_it_heals(&plane);
    down_and_up_brings_it_back(&plane);
    delete(&plane);
}

fn the_substitution_is_in_an_event_and_a_condition(plane: &Plane, runs: &str) {
    let (status, message) =
        condition(&plane.get("kamajicontrolplane/kamaji-quickstart-control-plane"), "VersionAsRequested");
    assert_eq!(status, "False", "{message}");
    let events =
        plane.kubectl(&["get", "events", "-o", "jsonpath={.items[?(@.reason=='VersionSubstituted')].message}"]);
    assert!(events.contains("1.28.10"), "{events}");
    let version: Value = serde_json::from_str(&plane.tenant(CLUSTER, &["version", "-o", "json"])).unwrap();
    assert_eq!(version["serverVersion"]["gitVersion"], runs);
}

fn nodes(plane: &Plane) -> Vec<Value> {
    let list: Value = serde_json::from_str(&plane.tenant(CLUSTER, &["get", "nodes", "-o", "json"])).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn the_node_is_what_nova_and_neutron_gave(plane: &Plane) {
    let nodes = nodes(plane);
    let inventory = plane.inventory();
    let server = inventory.iter().find(|item| item["kind"] == "server").unwrap();
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0]["spec"]["providerID"], format!("openstack:///{}", server["id"].as_str().unwrap()));
    assert_eq!(nodes[0]["metadata"]["name"], server["name"]);
    let machine = plane.get(&format!("openstackmachine/{}", server["name"].as_str().unwrap()));
    let given = machine["status"]["addresses"]
        .as_array()
        .unwrap()
        .iter()
        .find(|address| address["type"] == "InternalIP")
        .unwrap();
    let addresses = nodes[0]["status"]["addresses"].as_array().unwrap();
    assert!(addresses.iter().any(|address| address["type"] == "InternalIP" && address["address"] == given["address"]));
    let ready = nodes[0]["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .any(|c| c["type"] == "Ready" && c["status"] == "True");
    assert!(ready);
    plane::until("the last taint to go", || self::nodes(plane)[0]["spec"]["taints"].is_null());
}

/// The whole test runs with these identities; here is what they cannot do.
fn no_part_of_the_plane_may_do_more_than_its_work(plane: &Plane) {
    let as_user = |user: &str, words: &str| {
        let kubeconfig = format!("--kubeconfig={}", plane.home().join("pki").join(format!("{user}.conf")).display());
        let words: Vec<&str> = words.split_whitespace().collect();
        plane.run(&[&["kubectl", "--", &kubeconfig], &words[..]].concat())
    };
    for (user, words) in [
        ("hangar-controllers", "create clusterrolebinding all --clusterrole=cluster-admin --user=hangar-controllers"),
        ("hangar-controllers", "delete namespace kamaji-system"),
        ("hangar-controllers", "run pod --image=busybox"),
        ("hangar-controllers", "create token default"),
        ("hangar-controllers", "delete secrets --all --as=kubernetes-admin"),
        ("hangar-controllers", "get nodes"),
        ("hangar-node", "delete secret capi-quickstart-kubeconfig"),
        ("hangar-node", "create configmap x"),
        ("hangar-node", "get clusters"),
        ("hangar-cloud", "create secret generic x"),
        ("hangar-cloud", "get pods"),
    ] {
        let said = as_user(user, words);
        let errors = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && errors.to_lowercase().contains("forbidden"), "{user}: {words}: {said:?}");
    }
    for (user, words) in [
        ("hangar-controllers", "get clusters,secrets"),
        ("hangar-node", "get pods,secrets -A"),
        ("hangar-cloud", "get secrets"),
    ] {
        assert!(as_user(user, words).status.success(), "{user}: {words}");
    }
    let who = plane.ok(&["kubectl", "--", "auth", "whoami"]);
    assert!(who.contains("kubernetes-admin"), "{who}");
}

/// As a Prometheus would: with the token of a service account that may.
fn who_may_reads_metrics(plane: &Plane) {
    let status: Value = serde_json::from_str(&plane.ok(&["status", "-o", "json"])).unwrap();
    let url = status["metrics"].as_str().unwrap().to_owned();
    let ca = std::fs::read(plane.home().join("pki/ca.crt")).unwrap();
    let ca = CertificateDer::from_pem_slice(&ca).unwrap().to_vec();
    let read = |token: &str| {
        let mut config = kube::Config::new(url.trim_end_matches("/metrics").parse().unwrap());
        config.root_cert = Some(vec![ca.clone()]);
        config.auth_info.token = Some(token.to_owned().into());
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let client = kube::Client::try_from(config).unwrap();
            client.request_text(http::Request::get("/metrics").body(vec![]).unwrap()).await
        })
    };
    plane.kubectl(&["create", "serviceaccount", "prometheus"]);
    let token = plane.kubectl(&["create", "token", "prometheus"]);
    let refused = read(token.trim()).unwrap_err().to_string();
    assert!(refused.contains("system:serviceaccount:default:prometheus may not get /metrics"), "{refused}");
    let binding = ["create", "clusterrolebinding", "prometheus", "--clusterrole=hangar-metrics-reader"];
    plane.kubectl(&[&binding[..], &["--serviceaccount=default:prometheus"]].concat());
    let text = std::cell::RefCell::new(String::new());
    plane::until("metrics", || {
        read(token.trim()).is_ok_and(|read| {
            *text.borrow_mut() = read;
            true
        })
    });
    let text = text.into_inner();
    for line in [
        r#"controller_runtime_reconcile_total{controller="machine",result="success"} "#,
        r#"rest_client_requests_total{code="200",method="PATCH"} "#,
        r#"hangar_certificate_expiration_timestamp_seconds{kind="KamajiControlPlane",namespace="default",name="kamaji-quickstart-control-plane"} "#,
        "hangar_cloud_tokens_total 1",
    ] {
        assert!(text.lines().any(|one| one.starts_with(line)), "{line}\n{text}");
    }
    plane.kubectl(&["delete", "clusterrolebinding/prometheus", "serviceaccount/prometheus"]);
}

fn pods_run_in_the_tenant(plane: &Plane) {
    plane.tenant(CLUSTER, &["create", "deployment", "web", "--image=nginx", "--replicas=2"]);
    plane.tenant(CLUSTER, &["wait", "deployment/web", "--for=condition=Available", "--timeout=120s"]);
    let pods = plane.tenant(CLUSTER, &["get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}"]);
    assert_eq!(pods.split_whitespace().count(), 2, "{pods}");
    plane.tenant(
        CLUSTER,
        &["wait", "-n", "kube-system", "deployment/coredns", "--for=condition=Available", "--timeout=120s"],
    );
}

/// Each finds a whole kubeconfig, whoever writes it.
fn many_may_ask_at_once(plane: &Plane) {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| plane.tenant(CLUSTER, &["get", "nodes", "-o", "name"]));
        }
    });
}

/// What an agent says when no server takes it.
const REJECTED: [&str; 3] = ["lookup failure", "Unauthenticated", "cannot connect once"];

/// The real agent, started here as a node would: hollow nodes only say that theirs runs.
fn an_agent_of_konnectivity_is_let_in_by_its_token_alone(plane: &Plane) {
    let object = plane.get("kamajicontrolplane/kamaji-quickstart-control-plane");
    assert_eq!(condition(&object, "KonnectivityReady"), ("True".to_owned(), String::new()));
    let service = plane.get("service/kamaji-quickstart-control-plane");
    let host = service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let kubeconfig = plane.ok(&["get", "kubeconfig", CLUSTER]);
    std::fs::write(path("ca.crt"), authority(&kubeconfig)).unwrap();
    for (audience, let_in) in [("somebody-else", false), ("system:konnectivity-server", true)] {
        let audience = format!("--audience={audience}");
        let words = ["create", "token", "konnectivity-agent", "-n", "kube-system", &audience];
        std::fs::write(path("token"), plane.tenant(CLUSTER, &words).trim()).unwrap();
        let agent = Agent::start(host, &path("ca.crt"), &path("token"));
        let rejected = || REJECTED.iter().any(|words| agent.log().contains(words));
        plane::until("the agent to be let in or not", || agent.is_ready() || rejected());
        assert_eq!(agent.is_ready(), let_in, "{}", agent.log());
    }
}

fn authority(kubeconfig: &str) -> Vec<u8> {
    use base64::Engine as _;
    let text = kubeconfig.split("certificate-authority-data").nth(1).unwrap();
    let text = text.trim_start_matches(['"', ':', ' ']).split(['"', '\n', ',']).next().unwrap();
    base64::engine::general_purpose::STANDARD.decode(text.trim()).unwrap()
}

/// A konnectivity-agent until it is dropped.
struct Agent {
    process: std::process::Child,
    health: u16,
    log: std::path::PathBuf,
}

impl Agent {
    /// Where nobody else looks for free ports.
    const HERE: &str = "127.77.0.1";

    fn start(host: &str, ca: &std::path::Path, token: &std::path::Path) -> Self {
        let version = hangar_embedded::default_version("konnectivity-agent");
        let store = hangar_embedded::Store::new(hangar_embedded::StoreOptions::default());
        let program = store.installed("konnectivity-agent", &version).expect("run `cargo xtask fetch` first");
        let free = || std::net::TcpListener::bind((Self::HERE, 0)).unwrap().local_addr().unwrap().port();
        let (health, admin, log) = (free(), free(), token.with_extension("log"));
        let file = std::fs::File::create(&log).unwrap();
        let mut command = std::process::Command::new(program);
        command.args([format!("--proxy-server-host={host}"), "--proxy-server-port=8132".into()]);
        command.args([format!("--health-server-port={health}"), format!("--admin-server-port={admin}")]);
        command.args([format!("--health-server-host={}", Self::HERE), format!("--admin-bind-address={}", Self::HERE)]);
        command.arg("--ca-cert").arg(ca).arg("--service-account-token-path").arg(token);
        let process = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        Self { process, health, log }
    }

    /// Its own word: it is ready when a server has let it in.
    fn is_ready(&self) -> bool {
        use std::io::{Read as _, Write as _};
        let Ok(mut stream) = std::net::TcpStream::connect((Self::HERE, self.health)) else { return false };
        let mut answer = String::new();
        let sent = stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n");
        sent.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// As the plane renews it: in its Secret, and nobody is restarted.
fn the_shared_etcd_uses_a_renewed_certificate_at_once(plane: &Plane) {
    use base64::Engine as _;
    use rustls_pki_types::pem::PemObject as _;
    let base64 = base64::engine::general_purpose::STANDARD;
    let read = |what: &str| plane.kubectl(&["get", "-n", "kamaji-system", what, "-o", "json"]);
    let read = |what: &str| serde_json::from_str::<Value>(&read(what)).unwrap();
    let (secret, service) = (read("secret/etcd-certs"), read("service/etcd"));
    let text = |name: &str| String::from_utf8(base64.decode(secret["data"][name].as_str().unwrap()).unwrap()).unwrap();
    let address = service["spec"]["clusterIP"].as_str().unwrap();
    let authority = hangar_pki::Authority::load(&text("ca.crt"), &text("ca.key")).unwrap();
    let leaf = hangar_pki::Leaf::server("etcd-server", [address.to_owned()]);
    let leaf = hangar_pki::Leaf { usage: hangar_pki::Usage::ServerAndClient, ..leaf };
    let issued = authority.issue(&hangar_pki::SystemKeys, &leaf, jiff::Timestamp::now()).unwrap();
    let data = json!({ "data": {
        "server.crt": base64.encode(&issued.certificate_pem), "server.key": base64.encode(&issued.key_pem),
    } });
    plane.kubectl(&["patch", "-n", "kamaji-system", "secret/etcd-certs", "--type=merge", "-p", &data.to_string()]);
    let wanted = rustls_pki_types::CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shown = || {
        runtime.block_on(async {
            let config = std::sync::Arc::new(hangar_pki::unverified_client().unwrap());
            let address: std::net::SocketAddr = format!("{address}:2379").parse().unwrap();
            let stream = tokio::net::TcpStream::connect(address).await.ok()?;
            let stream = tokio_rustls::TlsConnector::from(config).connect(address.ip().into(), stream).await.ok()?;
            Some(stream.get_ref().1.peer_certificates()?.first()?.clone().into_owned())
        })
    };
    plane::until("the shared etcd to show its new certificate", || shown().as_ref() == Some(&wanted));
    let pods = read("pods");
    assert_eq!(pods["items"][0]["status"]["containerStatuses"][0]["restartCount"], 0);
    plane.tenant(CLUSTER, &["get", "namespaces"]);
}

fn scale(plane: &Plane) {
    for size in [3, 1] {
        plane.kubectl(&["scale", DEPLOYMENT, &format!("--replicas={size}")]);
        plane.until(DEPLOYMENT, |deployment| {
            let status = &deployment["status"];
            status["replicas"] == size
                && status["availableReplicas"] == size
                && status["observedGeneration"] == deployment["metadata"]["generation"]
        });
        assert_eq!(nodes(plane).len(), size);
        assert_eq!(plane.inventory().iter().filter(|item| item["kind"] == "server").count(), size);
        assert_eq!(plane.inventory().iter().filter(|item| item["kind"] == "port").count(), size);
    }
}

/// The same user-data with one thing wrong: the server runs, its console says why, and no node joins.
fn wrong_user_data_keeps_a_node_out(plane: &Plane) {
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD;
    let machine = plane.get("machines")["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let secret = plane.get(&format!("secret/{machine}"));
    let right = String::from_utf8(base64.decode(secret["data"]["value"].as_str().unwrap()).unwrap()).unwrap();
    let after = |mark: &str| {
        right.split(mark).nth(1).unwrap().split_whitespace().next().unwrap().trim_matches(['"', '\'']).to_owned()
    };
    let (hash, token) = (after("sha256:"), after("token: "));
    let (_, token_secret) = token.split_once('.').unwrap();
    let reversed = |text: &str| text.chars().rev().collect::<String>();
    let wrong = [right.replace(&hash, &reversed(&hash)), right.replace(token_secret, &reversed(token_secret))];
    let clouds = std::fs::read(plane.home().join("clouds.yaml")).unwrap();
    let config = hangar_openstack::CloudConfig::parse(&clouds, "openstack", None, None).unwrap();
    let cloud = hangar_openstack::Cloud::new(config, hangar_openstack::http_transport(None).unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let flavor = cloud.flavors().await.unwrap().remove(0).id;
        let network = cloud
            .networks(&hangar_openstack::NetworkQuery { external: Some(false), ..Default::default() })
            .await
            .unwrap()
            .remove(0)
            .id;
        for (index, user_data) in wrong.iter().enumerate() {
            assert_ne!(*user_data, right);
            let id = cloud
                .create_server(&hangar_openstack::CreateServer {
                    name: format!("intruder-{index}"),
                    flavor_id: flavor.clone(),
                    image_id: "c81cf709-d3a4-4f51-8ae7-8e9daca0cfd8".into(),
                    networks: vec![hangar_openstack::ServerNetwork {
                        uuid: Some(network.clone()),
                        ..Default::default()
                    }],
                    user_data: Some(base64.encode(user_data)),
                    ..Default::default()
                })
                .await
                .unwrap();
            let console = loop {
                let console = cloud.console_output(&id).await.unwrap_or_default();
                // The first line says that it tries, the second what came of it.
                if console.lines().filter(|line| line.starts_with("kubeadm:")).count() > 1 {
                    break console;
                }
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            };
            assert!(!console.contains("has joined"), "{console}");
            assert!(["none of caCertHashes", "token"].iter().any(|words| console.contains(words)), "{console}");
            assert!(!plane.tenant(CLUSTER, &["get", "nodes", "-o", "name"]).contains("intruder"));
            cloud.delete_server(&id).await.unwrap();
        }
    });
}

fn the_clouds_words_are_shown_and_it_heals(plane: &Plane) {
    plane.admin("PUT", "/admin/quotas/demo", &json!({ "instances": 1 }));
    plane.kubectl(&["scale", DEPLOYMENT, "--replicas=2"]);
    let unready = |machine: &Value| {
        condition(machine, "Ready").0 != "True"
            && condition(machine, "Ready").1.contains("leaves no room: servers: 1 needed, 1 of 1 used")
    };
    plane.until("machines", |list| list["items"].as_array().is_some_and(|machines| machines.iter().any(unready)));
    let tree = plane.run(&["describe", "cluster", CLUSTER]);
    let tree = String::from_utf8_lossy(&tree.stdout).replace(['│', '\n'], " ");
    let words: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("openstack quota set --instances 2"), "{words}");
    plane.admin("PUT", "/admin/quotas/demo", &json!({ "instances": -1 }));
    plane.until(DEPLOYMENT, |deployment| deployment["status"]["availableReplicas"] == 2);
}

fn down_and_up_brings_it_back(plane: &Plane) {
    let before = plane.get("cluster/capi-quickstart");
    plane.ok(&["down"]);
    plane.ok(&["up"]);
    let after = plane.until("cluster/capi-quickstart", |cluster| condition(cluster, "Available").0 == "True");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"]["controlPlaneEndpoint"], before["spec"]["controlPlaneEndpoint"]);
    // What was available before the plane stopped looks so until its pods are seen again.
    let asked = ["kubectl", "--cluster", CLUSTER, "--", "version"];
    plane::until("the tenant's API after a restart", || plane.run(&asked).status.success());
    plane.tenant(CLUSTER, &["wait", "deployment/web", "--for=condition=Available", "--timeout=180s"]);
    plane.tenant(CLUSTER, &["wait", "nodes", "--all", "--for=condition=Ready", "--timeout=180s"]);
    assert_eq!(nodes(plane).len(), 2);
}

fn delete(plane: &Plane) {
    plane.kubectl(&["delete", "cluster", CLUSTER, "--timeout=180s"]);
    assert_eq!(plane.inventory(), Vec::<Value>::new());
    let kinds = "machinedeployments,machinesets,machines,openstackclusters,openstackmachines,openstackmachinetemplates,\
                 kubeadmconfigs,kubeadmconfigtemplates,kamajicontrolplanes,deployments,services,secrets,configmaps";
    plane.until(kinds, |list| {
        // What the user applied (the credentials) and what every namespace has is left.
        let left = list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
        left.filter(|name| ![CLUSTER, "kubernetes", "kube-root-ca.crt"].contains(name)).count() == 0
    });
    nothing_is_left_in_etcd(plane);
}

/// The shared etcd, as whoever runs it sees it.
fn shared_etcd(plane: &Plane) -> Etcd {
    use base64::Engine as _;
    let read = |what: &str| {
        serde_json::from_str::<Value>(&plane.kubectl(&["get", "-n", "kamaji-system", what, "-o", "json"])).unwrap()
    };
    let certificates = read("secret/etcd-certs");
    let text = |name: &str| {
        let encoded = certificates["data"][name].as_str().unwrap();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).unwrap()).unwrap()
    };
    let address = format!("{}:2379", read("service/etcd")["spec"]["clusterIP"].as_str().unwrap());
    Etcd::new(&[address], &text("ca.crt"), &text("root.crt"), &text("root.key")).unwrap()
}

fn the_tenants_secrets_are_encrypted_in_the_shared_etcd(plane: &Plane) {
    plane.tenant(CLUSTER, &["create", "secret", "generic", "password", "--from-literal=password=s3cr3t"]);
    plane.tenant(CLUSTER, &["create", "configmap", "plain", "--from-literal=password=s3cr3t"]);
    let uid = plane.get("kamajicontrolplane/kamaji-quickstart-control-plane")["metadata"]["uid"].clone();
    let prefix = format!("/{}", uid.as_str().unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let stored = |key: &str| {
        let etcd = shared_etcd(plane);
        runtime.block_on(async { etcd.value(&format!("{prefix}/{key}")).await.unwrap().unwrap() })
    };
    let secret = stored("secrets/default/password");
    assert!(secret.starts_with("k8s:enc:secretbox:v1:") && !secret.contains("s3cr3t"), "{secret}");
    // The same eyes see what is not encrypted.
    assert!(stored("configmaps/default/plain").contains("s3cr3t"));
    let read = plane.tenant(CLUSTER, &["get", "secret", "password", "-o", "jsonpath={.data.password}"]);
    assert_eq!(read.trim(), "czNjcjN0");
}

fn nothing_is_left_in_etcd(plane: &Plane) {
    let etcd = shared_etcd(plane);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        assert_eq!(etcd.users().await.unwrap(), ["root"]);
        assert_eq!(etcd.roles().await.unwrap(), ["root"]);
        assert_eq!(etcd.count("/").await.unwrap(), 0);
        // What is admitted is seen by the same calls: they are not blind.
        etcd.add_user("probe").await.unwrap();
        assert_eq!(etcd.users().await.unwrap().len(), 2);
    });
}
