//! ClusterResourceSets: what users want in their clusters arrives there, once or for as long as it changes, and nothing else is touched.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_engine::pass::StepHook;
use hangar_kubesim::KubeApi;
use hangar_planner::Step;
use hangar_planner::step::TenantCall;
use hangar_simulation::{CAPI, NAMESPACE, Simulation, condition};
use serde_json::{Value, json};

use crate::rotation::once_at_each;

const ADDONS: &str = "addons.cluster.x-k8s.io";
const CLUSTER: &str = "capi-quickstart";

fn set(name: &str, strategy: &str, resources: &[(&str, &str)]) -> Value {
    let resources: Vec<Value> = resources.iter().map(|(kind, name)| json!({ "kind": kind, "name": name })).collect();
    json!({
        "apiVersion": "addons.cluster.x-k8s.io/v1beta2", "kind": "ClusterResourceSet",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "strategy": strategy, "resources": resources, "clusterSelector": { "matchLabels": { "team": "a" } } },
    })
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": NAMESPACE }, "data": data })
}

fn secret(name: &str, kind: &str, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": NAMESPACE },
        "type": kind, "data": { "manifest": STANDARD.encode(text) },
    })
}

fn document(kind: &str, name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: team}}\ndata: {{value: {value}}}\n---\n"
    )
}

fn namespace() -> String {
    "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n".to_owned()
}

fn tenant(simulation: &Simulation) -> KubeApi {
    simulation.tenants.apis().remove(0)
}

fn value(simulation: &Simulation, kind: &str, name: &str) -> Option<String> {
    let object = simulation.tenants.apis().first()?.get("", kind, "team", name)?;
    object["data"]["value"].as_str().map(str::to_owned)
}

fn label(simulation: &Simulation, team: &str) {
    let edited = simulation.management.edit(CAPI, "Cluster", NAMESPACE, CLUSTER, |cluster| {
        cluster["metadata"]["labels"]["team"] = team.into();
    });
    assert!(edited);
}

fn is_applied(simulation: &Simulation, name: &str) -> bool {
    let set = simulation.management.get(ADDONS, "ClusterResourceSet", NAMESPACE, name);
    set.is_some_and(|set| condition(&set, "ResourcesApplied"))
}

fn said(simulation: &Simulation, name: &str) -> String {
    let set = simulation.management.get(ADDONS, "ClusterResourceSet", NAMESPACE, name).unwrap();
    let all = set["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == "ResourcesApplied");
    found.map(|condition| format!("{} {}", condition["reason"], condition["message"])).unwrap_or_default()
}

fn binding(simulation: &Simulation) -> Option<Arc<Value>> {
    simulation.management.get(ADDONS, "ClusterResourceSetBinding", NAMESPACE, CLUSTER)
}

async fn started(seed: u64, hook: Option<StepHook>) -> Simulation {
    let mut simulation = Simulation::new(seed);
    simulation.start(hook);
    let both = format!("{}{}", document("ConfigMap", "once", "first"), namespace());
    simulation.apply(&config_map("once", &json!({ "b.yaml": both }))).await;
    let secret_text = document("Secret", "again", "Zmlyc3Q=");
    simulation.apply(&secret("again", "addons.cluster.x-k8s.io/resource-set", &secret_text)).await;
    simulation.apply(&set("once", "ApplyOnce", &[("ConfigMap", "once")])).await;
    simulation.apply(&set("again", "Reconcile", &[("Secret", "again")])).await;
    simulation.apply_example().await;
    label(&simulation, "a");
    simulation
}

async fn writes_at_rest(simulation: &Simulation, time: Duration) {
    simulation.wait(Duration::from_secs(60)).await;
    simulation.management.clear_requests();
    tenant(simulation).clear_requests();
    simulation.wait(time).await;
    for api in [simulation.management.clone(), tenant(simulation)] {
        let writes: Vec<_> =
            api.requests().into_iter().filter(|call| call.is_write() && call.resource != "leases").collect();
        assert!(writes.is_empty(), "at rest: {writes:#?}");
    }
}

async fn goes(mut simulation: Simulation) {
    for name in ["once", "again"] {
        simulation.management.delete(ADDONS, "ClusterResourceSet", NAMESPACE, name);
    }
    simulation
        .until("the sets and their entries are gone", || {
            simulation.management.list(ADDONS, "ClusterResourceSet").is_empty() && binding(&simulation).is_none()
        })
        .await;
    assert!(value(&simulation, "ConfigMap", "once").is_some(), "nothing goes from clusters");
    for (kind, name) in [("ConfigMap", "once"), ("Secret", "again")] {
        assert!(simulation.management.delete("", kind, NAMESPACE, name), "what users made stays theirs");
    }
    simulation.delete_cluster().await;
    simulation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r4_manifests_arrive_once_or_whenever_they_change_and_stay() {
    let simulation = started(301, None).await;
    simulation.until("all is applied", || is_applied(&simulation, "once") && is_applied(&simulation, "again")).await;
    assert_eq!(value(&simulation, "ConfigMap", "once").as_deref(), Some("first"));
    let entries = binding(&simulation).unwrap()["spec"]["bindings"].clone();
    assert_eq!(entries.as_array().map(Vec::len), Some(2), "{entries:#}");
    assert!(entries[0]["resources"][0]["hash"].as_str().unwrap().starts_with("sha256:"));
    writes_at_rest(&simulation, Duration::from_secs(1800)).await;
    // Both change; one of them arrives.
    simulation.apply(&config_map("once", &json!({ "b.yaml": document("ConfigMap", "once", "second") }))).await;
    let second = document("Secret", "again", "c2Vjb25k");
    simulation.apply(&secret("again", "addons.cluster.x-k8s.io/resource-set", &second)).await;
    let soon = Duration::from_secs(10);
    simulation
        .until_within(soon, "the change arrives", || {
            value(&simulation, "Secret", "again").as_deref() == Some("c2Vjb25k")
        })
        .await;
    simulation.wait(Duration::from_secs(600)).await;
    assert_eq!(value(&simulation, "ConfigMap", "once").as_deref(), Some("first"));
    // What somebody changes in the cluster is theirs, unless a repair was asked for.
    let drift =
        || tenant(&simulation).edit("", "Secret", "team", "again", |it| it["data"]["value"] = "ZHJpZnQ=".into());
    assert!(drift());
    writes_at_rest(&simulation, Duration::from_secs(1800)).await;
    assert_eq!(value(&simulation, "Secret", "again").as_deref(), Some("ZHJpZnQ="));
    simulation.management.edit(ADDONS, "ClusterResourceSet", NAMESPACE, "again", |set| {
        set["metadata"]["annotations"]["hangar.dev/repair-drift"] = "5m".into();
    });
    for _ in 0..2 {
        simulation
            .until_within(Duration::from_secs(330), "it is repaired", || {
                value(&simulation, "Secret", "again").as_deref() == Some("c2Vjb25k")
            })
            .await;
        assert!(drift());
    }
    goes(simulation).await;
}

#[tokio::test(start_paused = true)]
async fn r5_what_is_wrong_with_one_resource_is_said_and_stops_no_other() {
    let simulation = started(302, None).await;
    let stolen = secret("credentials", "Opaque", &document("ConfigMap", "stolen", "x"));
    simulation.apply(&stolen).await;
    let unknown = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: team}\n";
    simulation.apply(&config_map("unknown", &json!({ "a": unknown }))).await;
    let resources =
        [("ConfigMap", "missing"), ("Secret", "credentials"), ("ConfigMap", "unknown"), ("ConfigMap", "late")];
    simulation.apply(&set("mixed", "Reconcile", &resources)).await;
    simulation.apply(&config_map("late", &json!({ "a": document("ConfigMap", "late", "here") }))).await;
    let elsewhere = json!({ "metadata": { "namespace": "other", "name": "mixed" } });
    let mut other = set("mixed", "Reconcile", &[("ConfigMap", "late")]);
    other["metadata"] = elsewhere["metadata"].clone();
    simulation.apply(&other).await;
    simulation.until("what can be applied is", || value(&simulation, "ConfigMap", "late").is_some()).await;
    simulation.until("what cannot is said", || said(&simulation, "mixed").contains("Widget")).await;
    let words = said(&simulation, "mixed");
    for expected in
        ["there is no ConfigMap default/missing", "Secret default/credentials is of type Opaque", "Widget team/w: "]
    {
        assert!(words.contains(expected), "{expected}\n{words}");
    }
    assert_eq!(value(&simulation, "ConfigMap", "stolen"), None);
    // The kind comes, and the missing ConfigMap.
    tenant(&simulation).put(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "widgets.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "names": { "kind": "Widget", "plural": "widgets" }, "versions": [{ "name": "v1" }] },
    }));
    simulation.apply(&config_map("missing", &json!({ "a": document("ConfigMap", "found", "x") }))).await;
    let both = || {
        value(&simulation, "ConfigMap", "found").is_some()
            && tenant(&simulation).get("example.com", "Widget", "team", "w").is_some()
    };
    simulation.until_within(Duration::from_secs(130), "they arrive", both).await;
    simulation.management.edit(ADDONS, "ClusterResourceSet", NAMESPACE, "mixed", |set| {
        let resources = set["spec"]["resources"].as_array_mut().unwrap();
        resources.retain(|resource| resource["name"] != "credentials");
    });
    simulation.until("nothing is wrong any more", || is_applied(&simulation, "mixed")).await;
    assert!(!is_applied_in(&simulation, "other"), "a set of another namespace is none of this cluster's");
    for (kind, name) in
        [("ConfigMap", "unknown"), ("ConfigMap", "late"), ("ConfigMap", "missing"), ("Secret", "credentials")]
    {
        assert!(simulation.management.delete("", kind, NAMESPACE, name));
    }
    simulation.management.delete(ADDONS, "ClusterResourceSet", NAMESPACE, "mixed");
    simulation.management.delete(ADDONS, "ClusterResourceSet", "other", "mixed");
    goes(simulation).await;
}

fn is_applied_in(simulation: &Simulation, namespace: &str) -> bool {
    simulation.management.get(ADDONS, "ClusterResourceSetBinding", namespace, CLUSTER).is_some()
}

/// A tenant that is away costs nothing, and gets everything when it is back.
#[tokio::test(start_paused = true)]
async fn r5_a_cluster_that_does_not_answer_gets_everything_when_it_is_back() {
    let simulation = started(303, None).await;
    simulation.until("all is applied", || is_applied(&simulation, "again")).await;
    let api = tenant(&simulation);
    simulation.tenants.set_faults(Some(Arc::new(|_| hangar_kubesim::Fault::Before(503))));
    api.drop_watches();
    simulation.wait(Duration::from_secs(60)).await;
    let second = document("Secret", "again", "c2Vjb25k");
    simulation.apply(&secret("again", "addons.cluster.x-k8s.io/resource-set", &second)).await;
    simulation.wait(Duration::from_secs(60)).await;
    api.clear_requests();
    simulation.wait(Duration::from_secs(60)).await;
    let writes = api.requests().into_iter().filter(hangar_kubesim::ApiCall::is_write).count();
    assert_eq!(writes, 0);
    simulation.tenants.set_faults(None);
    simulation
        .until_within(Duration::from_secs(20), "it arrives", || {
            value(&simulation, "Secret", "again").as_deref() == Some("c2Vjb25k")
        })
        .await;
    goes(simulation).await;
}

/// Killed before or after each step that concerns sets.
#[tokio::test(start_paused = true)]
async fn r4_it_ends_well_whenever_the_process_dies() {
    for after in [false, true] {
        let (count, decide) = (Arc::new(AtomicUsize::new(0)), once_at_each(after));
        let seen = count.clone();
        let hook: StepHook = Arc::new(move |step, now| {
            let what = match step {
                Step::Tenant { call: TenantCall::Install(it), .. } => format!("{it:?}"),
                Step::Create(object) => format!("create {}", object.key()),
                // Not with its times: they are never the same twice.
                Step::Patch { key, fields, .. } => {
                    format!("patch {key} {}", fields["spec"]["bindings"].as_array().map_or(0, Vec::len))
                }
                Step::Delete { key, .. } => format!("delete {key}"),
                _ => return false,
            };
            let dies = (what.contains("ClusterResourceSet") || what.starts_with("Install")) && decide(&what, now);
            seen.fetch_add(usize::from(dies), Ordering::SeqCst);
            dies
        });
        let simulation = started(304, Some(hook)).await;
        simulation
            .until("all is applied", || is_applied(&simulation, "once") && is_applied(&simulation, "again"))
            .await;
        writes_at_rest(&simulation, Duration::from_secs(600)).await;
        goes(simulation).await;
        let deaths = count.load(Ordering::SeqCst);
        assert!(deaths >= 6, "{deaths}");
    }
}
