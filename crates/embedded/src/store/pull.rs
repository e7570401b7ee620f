//! A version that is not at hand: fetched in the background while its pods wait, or replaced by the nearest one.
//!
//! Flows: image -> component -> at hand, substitute or fetch -> one flight for each component, whoever asks for it -> news for everybody who waits.
//! Holds: a flight goes on although a pod that waited for it is gone; one that failed is tried again after a pause that grows, and everybody who
//! asks in between hears its reason.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hangar_node::process::Pulling;
use tokio::sync::watch;

use super::{Component, NAMES, Progress, Stage, Store, StoreError};

/// Whether the nearest version may run in the place of one that is not at hand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Substitution {
    /// Never: pods wait until the version is there.
    Never,
    /// Whenever there is one.
    Always,
    /// Where the version cannot be downloaded, so that it would have to be built, which takes minutes.
    #[default]
    Auto,
}

const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Every report is a write to the API for each pod that waits.
const REPORT_AGAIN: Duration = Duration::from_secs(10);
/// How long it is remembered that a version cannot be downloaded.
const ASK_AGAIN: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Default)]
struct PullState {
    pulling: Pulling,
    done: Option<Result<(), String>>,
}

#[derive(Debug, Clone)]
struct Failure {
    reason: String,
    pause: Duration,
    at: Instant,
}

/// What is under way, what failed, and what is not offered for download.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    running: Mutex<HashMap<Component, watch::Receiver<PullState>>>,
    failures: Mutex<HashMap<Component, Failure>>,
    not_published: Mutex<HashMap<Component, Instant>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Returns when the component is at hand, or another version may run instead.
    pub(super) async fn pull_component(self, component: Component, news: watch::Sender<Pulling>) -> Result<(), String> {
        if !NAMES.contains(&component.name.as_str())
            || self.find_installed(&component).await.is_some()
            || self.may_substitute(&component).await
        {
            return Ok(());
        }
        let mut pull = self.join_pull(&component)?;
        loop {
            let PullState { pulling, done } = pull.borrow_and_update().clone();
            if let Some(done) = done {
                return done;
            }
            news.send_if_modified(|known| std::mem::replace(known, pulling.clone()) != pulling);
            if pull.changed().await.is_err() {
                return Err(format!("fetching {component} was interrupted"));
            }
        }
    }

    async fn may_substitute(&self, component: &Component) -> bool {
        let (store, wanted) = (self.clone(), component.clone());
        let has_nearest = async {
            let search = tokio::task::spawn_blocking(move || store.nearest(&wanted.name, &wanted.version).is_some());
            search.await.unwrap_or(false)
        };
        match self.options.substitution {
            Substitution::Never => false,
            Substitution::Always => has_nearest.await,
            Substitution::Auto => has_nearest.await && !self.is_published(component).await,
        }
    }

    /// Whether a site has it. A site that is not there is not asked at every start of a container.
    async fn is_published(&self, component: &Component) -> bool {
        let Some(url) = super::download::url(&self.options, component) else { return false };
        let known = locked(&self.pulls.not_published).get(component).is_some_and(|at| at.elapsed() < ASK_AGAIN);
        if known {
            return false;
        }
        let offered = super::download::is_published(&url, self.options.insecure_mirror).await;
        if !offered {
            locked(&self.pulls.not_published).insert(component.clone(), Instant::now());
        }
        offered
    }

    /// The flight of this component, started if there is none and it is not too early for another one.
    fn join_pull(&self, component: &Component) -> Result<watch::Receiver<PullState>, String> {
        let mut running = locked(&self.pulls.running);
        if let Some(pull) = running.get(component) {
            return Ok(pull.clone());
        }
        let failed = locked(&self.pulls.failures).get(component).cloned();
        if let Some(failure) = failed.filter(|failure| failure.at.elapsed() < failure.pause) {
            return Err(failure.reason);
        }
        let (sender, receiver) = watch::channel(PullState::default());
        running.insert(component.clone(), receiver.clone());
        let (store, component) = (self.clone(), component.clone());
        tokio::spawn(async move { store.run_pull(component, sender).await });
        Ok(receiver)
    }

    async fn run_pull(&self, component: Component, sender: watch::Sender<PullState>) {
        let reporter = Reporter { site: self.site(), sender, last: Mutex::new(None) };
        let fetched = self.fetch(std::slice::from_ref(&component), &reporter).await;
        let done = fetched.map(drop).map_err(|error| with_advice(&component, &error));
        {
            let mut failures = locked(&self.pulls.failures);
            let before = failures.remove(&component);
            if let Err(reason) = &done {
                let pause = before.map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
                failures.insert(component.clone(), Failure { reason: reason.clone(), pause, at: Instant::now() });
            }
        }
        locked(&self.pulls.running).remove(&component);
        reporter.sender.send_modify(|pull| pull.done = Some(done));
    }

    fn site(&self) -> String {
        self.options.mirror.clone().unwrap_or_else(|| super::download::OFFICIAL.to_owned())
    }
}

/// The whole chain of causes, and the ways out.
fn with_advice(component: &Component, error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    format!(
        "{text}; retrying automatically; alternatives: `hangar components fetch {}@{}`, a download site with --mirror, \
         or the nearest installed version with `hangar up --substitute-versions`",
        component.name, component.version
    )
}

/// Turns stages into sentences: a new step at once, how far it is only now and then.
struct Reporter {
    site: String,
    sender: watch::Sender<PullState>,
    last: Mutex<Option<Instant>>,
}

impl Progress for Reporter {
    fn stage(&self, component: &Component, stage: Stage) {
        let Some(pulling) = self.sentence(component, &stage) else { return };
        let mut last = locked(&self.last);
        let is_new = self.sender.borrow().pulling.step != pulling.step;
        if is_new || last.is_none_or(|last| last.elapsed() >= REPORT_AGAIN) {
            *last = Some(Instant::now());
            self.sender.send_modify(|pull| pull.pulling = pulling);
        }
    }
}

impl Reporter {
    fn sentence(&self, component: &Component, stage: &Stage) -> Option<Pulling> {
        let told = |step: String, progress: String| Some(Pulling { step, progress });
        match stage {
            Stage::Found(_) | Stage::Done { .. } => None,
            Stage::Downloading { done, total } => {
                let total = total.map(|total| format!(" of {}", total / 1_000_000)).unwrap_or_default();
                let step = format!("downloading {component} from {}, which usually takes a minute", self.site);
                told(step, format!(" ({}{total} MB)", done / 1_000_000))
            }
            Stage::DownloadFailed { reason } => {
                told(format!("{reason}; building it from Go modules instead"), String::new())
            }
            Stage::Building { package_lines } => told(
                format!("building {component} from Go modules, which usually takes 4 to 7 minutes"),
                format!(" ({package_lines} packages so far)"),
            ),
            Stage::Waiting { holder } => {
                told(format!("waiting for process {holder}, which is fetching {component}"), String::new())
            }
        }
    }
}
