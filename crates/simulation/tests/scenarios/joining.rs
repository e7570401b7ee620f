//! Nodes join by a token that is good for their own name only, and Hangar is who says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_engine::pass::StepHook;
use hangar_kubesim::{ApiCall, Fault};
use hangar_planner::Step;
use hangar_planner::step::TenantCall;
use hangar_simulation::Simulation;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::encryption::tenant;

/// Requests to tenants about what nodes ask for, from now on.
fn count(simulation: &Simulation) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let calls: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let counted = calls.clone();
    simulation.tenants.set_faults(Some(Arc::new(move |call: &ApiCall| {
        if call.resource == "certificatesigningrequests" {
            *counted.lock().unwrap().entry(format!("{} {}", call.verb, call.subresource)).or_default() += 1;
        }
        Fault::None
    })));
    calls
}

#[tokio::test(start_paused = true)]
async fn a_node_costs_one_approval_and_a_cluster_one_watch_for_as_long_as_somebody_joins() {
    let mut simulation = Simulation::new(161);
    let calls = count(&simulation);
    simulation.start(None);
    simulation.apply_example().await;
    simulation.becomes_available(1).await;
    let taken = || std::mem::take(&mut *calls.lock().unwrap());
    let expected = |nodes: usize| {
        BTreeMap::from(
            [("list ", 1), ("patch approval", nodes), ("watch ", 1)].map(|(what, count)| (what.to_owned(), count)),
        )
    };
    assert_eq!(taken(), expected(1));
    // Nobody joins: nothing is watched.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(taken(), BTreeMap::new());
    simulation.scale(5);
    simulation.becomes_available(5).await;
    assert_eq!(taken(), expected(4));
    simulation.tenants.set_faults(None);
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// Before and after each decision; nothing else is disturbed.
#[tokio::test(start_paused = true)]
async fn a_death_at_a_decision_keeps_no_node_out() {
    for after in [false, true] {
        let mut simulation = Simulation::new(162);
        let deaths: Arc<Mutex<usize>> = Arc::default();
        let counted = deaths.clone();
        let hook: StepHook = Arc::new(move |step, is_after| {
            let is_decision = matches!(step, Step::Tenant { call: TenantCall::DecideRequest { .. }, .. });
            let mut deaths = counted.lock().unwrap();
            let dies = is_decision && is_after == after && *deaths < 3;
            *deaths += usize::from(dies);
            dies
        });
        simulation.start(Some(hook));
        simulation.apply_example().await;
        simulation.becomes_available(1).await;
        simulation.scale(3);
        simulation.becomes_available(3).await;
        assert_eq!(*deaths.lock().unwrap(), 3);
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}

/// Somebody who has read the user-data of a machine before it joined.
#[tokio::test(start_paused = true)]
async fn a_stolen_token_opens_no_other_name() {
    let mut simulation = Simulation::new(163);
    simulation.start(None);
    simulation.apply_example().await;
    let token = |simulation: &Simulation| {
        let secrets = simulation.management.list("", "Secret");
        let id = |secret: &Value| {
            Some(secret["metadata"]["annotations"]["hangar.dev/bootstrap-token-id"].as_str()?.to_owned())
        };
        secrets.iter().find_map(id)
    };
    simulation.until("there is a token", || token(&simulation).is_some()).await;
    let client = tenant(&simulation).await;
    let (_, pem) =
        hangar_pki::request::create(&hangar_pki::SystemKeys, "system:node:intruder", &["system:nodes"]).unwrap();
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": "intruder" },
        "spec": {
            "request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "username": format!("system:bootstrap:{}", token(&simulation).unwrap()), "usages": ["digital signature", "client auth"],
        },
    });
    let kind = GroupVersionKind::gvk("certificates.k8s.io", "v1", "CertificateSigningRequest");
    let requests: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    requests.patch("intruder", &PatchParams::apply("thief"), &Patch::Apply(&request)).await.unwrap();
    simulation.becomes_available(1).await;
    let decided = requests.list(&ListParams::default()).await.unwrap();
    let answer = |request: &DynamicObject| {
        let condition = &request.data["status"]["conditions"][0];
        (condition["type"].as_str().unwrap().to_owned(), condition["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(decided.items.len(), 2);
    for request in &decided.items {
        let (kind, message) = answer(request);
        let is_intruder = request.metadata.name.as_deref() == Some("intruder");
        assert_eq!(kind, if is_intruder { "Denied" } else { "Approved" }, "{message}");
        assert_eq!(message.contains("\"system:node:intruder\" is asked for"), is_intruder, "{message}");
    }
    simulation.delete_cluster().await;
    simulation.stop().await;
}
