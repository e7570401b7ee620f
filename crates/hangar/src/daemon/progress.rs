//! What the background process is doing, in a file that anybody may read.

use std::path::PathBuf;
use std::sync::Mutex;

use hangar_controllers::Context;
use hangar_embedded::{Home, PlaneProgress, PlaneStage, Stage};
use serde::{Deserialize, Serialize};

/// The content of `daemon.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DaemonState {
    pub pid: u32,
    pub stage: String,
    pub ready: bool,
    pub error: Option<String>,
    /// Where the simulated cloud answers.
    pub cloud_url: String,
    /// What runs on its servers.
    #[serde(default)]
    pub guests: String,
    /// Where metrics and health are served.
    #[serde(default)]
    pub monitoring_url: String,
    /// The version that the plane runs.
    #[serde(default)]
    pub kubernetes: String,
    /// When the nearest version runs in the place of one that is not at hand.
    #[serde(default)]
    pub substitution: String,
}

impl DaemonState {
    /// The last word of whoever worked in a home; it may be gone.
    pub fn last(home: &Home) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(state_path(home)).ok()?).ok()
    }

    /// What whoever works in a home now says.
    pub fn now(home: &Home) -> Option<Self> {
        let state = Self::last(home)?;
        (home.is_held() && home.holder()? == state.pid.to_string()).then_some(state)
    }
}

pub fn state_path(home: &Home) -> PathBuf {
    home.path().join("daemon.json")
}

/// Where the background process says what it does.
pub fn log_path(home: &Home) -> PathBuf {
    home.logs().join("hangar.log")
}

pub struct Reporter {
    path: PathBuf,
    state: Mutex<DaemonState>,
}

impl Reporter {
    pub fn new(home: &Home) -> Self {
        let state = DaemonState { pid: std::process::id(), stage: "starting".into(), ..DaemonState::default() };
        let reporter = Self { path: state_path(home), state: Mutex::new(state) };
        reporter.change(|_| {});
        reporter
    }

    pub fn stage(&self, text: &str) {
        tracing::info!("{text}");
        self.change(|state| state.stage = text.to_owned());
    }

    /// Probes may ask from now on.
    pub fn monitored_at(&self, url: &str) {
        self.change(|state| state.monitoring_url = url.to_owned());
    }

    pub fn ready(&self, cloud_url: &str, guests: &str, kubernetes: &str, substitution: &str) {
        self.change(|state| {
            state.guests = guests.to_owned();
            state.substitution = substitution.to_owned();
            state.kubernetes = kubernetes.to_owned();
            state.stage = "running".into();
            state.ready = true;
            state.cloud_url = cloud_url.to_owned();
        });
    }

    /// Whoever wants it must start it again.
    pub fn stopping(&self) {
        self.change(|state| {
            state.stage = "stopping".into();
            state.ready = false;
        });
    }

    pub fn failed(&self, error: &str) {
        tracing::error!("{error}");
        self.change(|state| {
            state.ready = false;
            state.error = Some(error.to_owned());
        });
    }

    pub fn remove(&self) {
        drop(std::fs::remove_file(&self.path));
    }

    /// How many requests there were so far, for whoever measures.
    pub fn counts(&self, home: &Home, context: &Context) {
        let (by_verb, conflicts) = context.passes.management.counts().snapshot();
        let calls = context.clouds.calls().into_iter();
        let clouds: Vec<_> =
            calls.map(|counts| serde_json::json!({ "calls": counts.calls, "tokens": counts.tokens })).collect();
        let counts = serde_json::json!({ "management": by_verb, "conflicts": conflicts, "clouds": clouds });
        drop(hangar_node::small_file::note(&home.path().join("counts.json"), counts.to_string().as_bytes()));
    }

    fn change(&self, change: impl FnOnce(&mut DaemonState)) {
        let Ok(mut state) = self.state.lock() else { return };
        change(&mut state);
        let text = serde_json::to_vec(&*state).unwrap_or_default();
        if hangar_node::small_file::note(&self.path, &text).is_err() {
            tracing::warn!(path = %self.path.display(), "could not write the state of the background process");
        }
    }
}

impl PlaneProgress for Reporter {
    fn stage(&self, stage: PlaneStage) {
        match stage {
            PlaneStage::Starting(name) => self.stage(&format!("starting {name}")),
            PlaneStage::EndedOrphans(count) if count > 0 => {
                self.stage(&format!("stopped {count} orphaned processes of an earlier run"))
            }
            // What is at hand is over before anybody could read it.
            PlaneStage::EndedOrphans(_) | PlaneStage::Ready | PlaneStage::Component(_, Stage::Found(_)) => {}
            PlaneStage::Component(component, stage) => {
                self.change(|state| state.stage = format!("{component}: {stage}"))
            }
        }
    }
}
