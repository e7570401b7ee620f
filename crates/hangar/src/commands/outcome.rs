//! What `hangar up` came to, for people and for programs.

use std::time::Duration;

use anyhow::Result;
use hangar_api::Object;
use hangar_embedded::Home;
use kube::Client;
use serde_json::{Value, json};

use crate::daemon::DaemonState;
use crate::management;

/// A cluster of the manifest.
pub struct ClusterOutcome {
    pub cluster: Object,
    /// Why it is not ready; nothing if it is, or if nobody waited.
    pub why: Vec<String>,
    pub notes: Vec<String>,
}

pub struct Outcome<'a> {
    pub home: &'a Home,
    pub state: &'a DaemonState,
    pub clusters: Vec<ClusterOutcome>,
    pub waited: bool,
    pub components: Duration,
    pub plane: Duration,
    pub rest: Duration,
}

/// What the control plane of a cluster has to say although it works: another version than the one asked for, for one.
pub async fn notes(client: &Client, cluster: &Object) -> Result<Vec<String>> {
    let snapshot = management::snapshot(client, cluster.namespace(), cluster.name()).await?;
    let Some(plane) = snapshot.and_then(|snapshot| snapshot.control_plane) else { return Ok(vec![]) };
    let conditions = plane.get("/status/conditions").as_array().cloned().unwrap_or_default();
    let mut notes = vec![];
    for condition in conditions.iter().filter(|condition| condition["status"] == "False" && condition["message"] != "")
    {
        notes.push(format!("{}: {}", plane.key(), condition["message"].as_str().unwrap_or_default()));
        if condition["reason"] == "VersionSubstituted" {
            let way = "to run the requested version instead: hangar down, then hangar up --substitute-versions=never";
            notes.push(way.to_owned());
        }
    }
    Ok(notes)
}

impl Outcome<'_> {
    pub fn is_good(&self) -> bool {
        self.clusters.iter().all(|outcome| outcome.why.is_empty())
    }

    pub fn json(&self) -> Value {
        let clusters = self.clusters.iter().map(|outcome| {
            json!({
                "namespace": outcome.cluster.namespace(), "name": outcome.cluster.name(),
                "ready": if self.waited { json!(outcome.why.is_empty()) } else { Value::Null },
                "why": outcome.why, "notes": outcome.notes,
            })
        });
        json!({
            "home": self.home.path(), "kubeconfig": self.home.kubeconfig(), "kubernetes": self.state.kubernetes,
            "cloud": self.state.cloud_url, "guests": self.state.guests, "clouds": self.clouds(), "clusters": clusters.collect::<Vec<_>>(),
            "seconds": {
                "components": self.components.as_secs_f64(), "plane": self.plane.as_secs_f64(),
                "clusters": self.rest.as_secs_f64(),
            },
        })
    }

    pub fn print(&self) {
        let waited = self.waited && !self.clusters.is_empty();
        let cluster = if waited { format!(", cluster {:.1} s", self.rest.as_secs_f64()) } else { String::new() };
        let (components, plane) = (self.components.as_secs_f64(), self.plane.as_secs_f64());
        anstream::println!("\ncomponents {components:.1} s, management plane {plane:.1} s{cluster}");
        for outcome in &self.clusters {
            let lines = outcome.notes.iter().enumerate();
            lines.for_each(|(index, line)| anstream::println!("{} {line}", if index == 0 { "note:" } else { "     " }));
        }
        anstream::println!("\nmanagement plane   hangar kubectl -- get clusters");
        anstream::println!("                   export KUBECONFIG={}", self.home.kubeconfig().display());
        anstream::println!("simulated cloud    {} (clouds.yaml: {})", self.state.cloud_url, self.clouds().display());
        anstream::println!("servers            {}", self.state.guests);
        for ClusterOutcome { cluster, .. } in &self.clusters {
            let namespace = match cluster.namespace() {
                "default" => String::new(),
                other => format!("-n {other} "),
            };
            anstream::println!(
                "cluster            hangar {namespace}kubectl --cluster {} -- get nodes",
                cluster.name()
            );
        }
        anstream::println!("stop               hangar down");
    }

    fn clouds(&self) -> std::path::PathBuf {
        self.home.path().join("clouds.yaml")
    }
}
