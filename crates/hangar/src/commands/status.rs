//! `hangar status`: what runs in this home.

use anyhow::Result;
use hangar_api::{Kind as _, Object, kinds};
use hangar_embedded::Home;
use hangar_engine::management::api_of;
use hangar_engine::received::Received;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cli::{Global, Output};
use crate::daemon::DaemonState;
use crate::{health, management};

/// Who ends by itself takes its last word along, unless that is an error.
const KILLED: &str =
    "the background process was killed: `hangar up` restarts it, `hangar down` stops its orphaned processes";

pub async fn run(global: &Global, home: &Home) -> Result<()> {
    let (running, state, last) = (home.is_held(), DaemonState::now(home), DaemonState::last(home));
    let was_killed = !running && last.as_ref().is_some_and(|last| last.error.is_none());
    let stage = match (running, &state) {
        (true, state) => state.as_ref().map_or("starting", |state| &state.stage),
        (false, _) if was_killed => "killed",
        (false, _) => "stopped",
    };
    let error = if was_killed { Some(KILLED.to_owned()) } else { last.and_then(|last| last.error) };
    let mut report = json!({
        "home": home.path(),
        "running": running,
        "stage": stage,
        "error": error,
        "pid": state.as_ref().map(|state| state.pid),
        "cloud": state.as_ref().map(|state| state.cloud_url.clone()),
        "metrics": state.as_ref().map(|state| state.monitoring_url.as_str()).filter(|url| !url.is_empty()).map(|url| format!("{url}/metrics")),
        "kubeconfig": home.kubeconfig(),
        "logs": home.logs(),
        "certificates": certificates(home),
    });
    if running && state.is_some_and(|state| state.ready) {
        match health::check(home).await {
            Ok(()) => report["clusters"] = clusters(home).await?,
            Err(error) => {
                report["stage"] = "in trouble".into();
                report["error"] = format!("{error:#}").into();
            }
        }
    }
    if global.output == Output::Json {
        anstream::println!("{report:#}");
    } else {
        print(&report);
    }
    Ok(())
}

async fn clusters(home: &Home) -> Result<Value> {
    let client = management::client_for(home).await?;
    let probe =
        Object::named(&format!("{}/{}", kinds::Cluster::GROUP, kinds::Cluster::VERSION), kinds::Cluster::KIND, "", "x");
    let list = api_of(&client, &probe).list(&ListParams::default()).await?;
    let rows = list.items.into_iter().map(Received::into_object).map(|cluster| {
        let conditions = cluster.get("/status/conditions").as_array().cloned().unwrap_or_default();
        let available = conditions.iter().find(|condition| condition["type"] == "Available").map(|condition| condition["status"].clone());
        json!({
            "namespace": cluster.namespace(), "name": cluster.name(), "phase": cluster.get("/status/phase"), "available": available,
            "endpoint": format!("{}:{}", cluster.text("/spec/controlPlaneEndpoint/host"), cluster.get("/spec/controlPlaneEndpoint/port")),
        })
    });
    Ok(rows.collect())
}

/// They are renewed while the plane runs, and when it starts.
fn certificates(home: &Home) -> Value {
    hangar_embedded::first_to_expire(home).map_or(Value::Null, |(name, end)| json!({ "next": name, "expires": end }))
}

fn print(report: &Value) {
    let text = |key: &str| report[key].as_str().unwrap_or("-").to_owned();
    let rows = [
        ("home", text("home")),
        ("state", text("stage")),
        ("pid", report["pid"].as_u64().map_or_else(|| "-".to_owned(), |pid| pid.to_string())),
        ("cloud", text("cloud")),
        ("metrics", text("metrics")),
        ("kubeconfig", text("kubeconfig")),
        ("logs", text("logs")),
        ("certificates", certificates_line(&report["certificates"])),
    ];
    for (name, value) in rows {
        anstream::println!("{name:<14}{value}");
    }
    if let Some(error) = report["error"].as_str() {
        anstream::println!("{:<14}{error}", "error");
    }
    let clusters = report["clusters"].as_array().cloned().unwrap_or_default();
    if !clusters.is_empty() {
        let cell = |cluster: &Value, key: &str| cluster[key].as_str().unwrap_or("-").to_owned();
        let rows: Vec<Vec<String>> = clusters
            .iter()
            .map(|cluster| {
                ["namespace", "name", "phase", "available", "endpoint"].iter().map(|key| cell(cluster, key)).collect()
            })
            .collect();
        anstream::print!(
            "\n{}",
            hangar_views::table(&["NAMESPACE", "CLUSTER", "PHASE", "AVAILABLE", "ENDPOINT"], &rows)
        );
    } else if report["clusters"].is_array() {
        anstream::println!("\nno clusters; apply a manifest with `hangar up FILE`");
    }
}

fn certificates_line(certificates: &Value) -> String {
    match (certificates["next"].as_str(), certificates["expires"].as_str()) {
        (Some(name), Some(end)) => {
            format!("valid until {} ({name}); renewed by the running plane", end.get(..10).unwrap_or(end))
        }
        _ => "-".to_owned(),
    }
}
