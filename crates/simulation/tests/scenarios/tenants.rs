//! Control planes of different people in one data store.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_pki::{Authority, SystemKeys, service_account_keys};
use hangar_simulation::{CLUSTER, NAMESPACE, Simulation};
use serde_json::{Value, json};

const CONTROL_PLANES: (&str, &str) = ("controlplane.cluster.x-k8s.io", "KamajiControlPlane");

/// The second one is told so, gets no certificate with that name, and takes nothing along when it goes.
#[tokio::test(start_paused = true)]
async fn a_name_in_the_data_store_belongs_to_whoever_had_it_first() {
    let mut simulation = Simulation::new(101);
    simulation.start(None);
    simulation.apply_cluster("one").await;
    simulation.all_become_available(&["one"], 1).await;
    let (group, kind) = CONTROL_PLANES;
    let first = simulation.management.list(group, kind).remove(0);
    let taken = simulation.datastores.users().remove(0);
    let (name, uid) = (first["metadata"]["name"].as_str().unwrap(), first["metadata"]["uid"].as_str().unwrap());
    assert_eq!(taken, uid);
    // The first one gives itself a name: it is another user from the start.
    simulation.delete_clusters(&["one"]).await;
    simulation.apply_named_tenant("one", "team").await;
    simulation.all_become_available(&["one"], 1).await;
    assert_eq!(simulation.datastores.users(), ["team"]);
    simulation.apply_named_tenant("two", "team").await;
    let second = name.replace("one", "two");
    simulation
        .until("the second is told", || {
            let plane = simulation.management.get(group, kind, NAMESPACE, &second);
            plane.is_some_and(|plane| plane["status"].to_string().contains("team is the name of another tenant"))
        })
        .await;
    let certificate = format!("{second}-datastore-certificate");
    assert!(simulation.management.get("", "Secret", NAMESPACE, &certificate).is_none());
    simulation.management.delete("cluster.x-k8s.io", "Cluster", NAMESPACE, "two");
    simulation
        .until("the second is gone", || simulation.management.get(group, kind, NAMESPACE, &second).is_none())
        .await;
    assert_eq!(simulation.datastores.users(), ["team"], "the first one's user is still there");
    simulation.all_become_available(&["one"], 1).await;
    simulation.delete_clusters(&["one"]).await;
    simulation.stop().await;
}

/// A Secret by Cluster API's convention; the label says to this world that it is not Hangar's.
fn provided(suffix: &str, certificate: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": format!("{CLUSTER}{suffix}"), "namespace": NAMESPACE,
            "labels": { "cluster.x-k8s.io/cluster-name": CLUSTER, "example.org/foreign": "true" },
        },
        "data": { "tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key) },
    })
}

#[tokio::test(start_paused = true)]
async fn authorities_of_users_are_used_and_outlive_their_cluster_untouched() {
    let mut simulation = Simulation::new(102);
    let [ca, proxy] = ["mine", "my proxy"].map(|name| Authority::create(&SystemKeys, name, simulation.now()).unwrap());
    let (public, private) = service_account_keys(&SystemKeys).unwrap();
    let secrets = [
        provided("-ca", ca.certificate_pem(), ca.key_pem()),
        provided("-proxy", proxy.certificate_pem(), proxy.key_pem()),
        provided("-sa", &public, &private),
    ];
    for secret in &secrets {
        simulation.apply(secret).await;
    }
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    let text = |name: &str, key: &str| {
        let secret = simulation.management.get("", "Secret", NAMESPACE, name).unwrap();
        String::from_utf8(STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
    };
    let plane = simulation.management.list(CONTROL_PLANES.0, CONTROL_PLANES.1).remove(0);
    let plane = plane["metadata"]["name"].as_str().unwrap();
    let hash = |pem: &str| hangar_pki::ca_hash(pem).unwrap();
    assert_eq!(hash(&text(&format!("{plane}-ca"), "ca.crt")), hash(ca.certificate_pem()));
    assert_eq!(text(&format!("{plane}-sa-certificate"), "sa.key"), private);
    let kubeconfig: Value = serde_json::from_str(&text(&format!("{CLUSTER}-kubeconfig"), "value")).unwrap();
    let trusted = kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"].as_str().unwrap();
    assert_eq!(hash(&String::from_utf8(STANDARD.decode(trusted).unwrap()).unwrap()), hash(ca.certificate_pem()));
    simulation.delete_cluster().await;
    simulation.stop().await;
    for secret in secrets {
        let name = secret["metadata"]["name"].as_str().unwrap();
        let left = simulation.management.get("", "Secret", NAMESPACE, name).unwrap();
        assert_eq!(left["data"], secret["data"], "{name}");
        assert!(left["metadata"]["ownerReferences"].is_null() && left["metadata"]["finalizers"].is_null(), "{name}");
    }
}
