//! The Nodes of one cluster as its watch brings them, and whether it still does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hangar_api::Object;
use hangar_planner::cluster::Connection;
use hangar_planner::machine::UNREACHABLE_GRACE;
use tokio::time::Instant;

/// As many attempts in a row, over as long, say that a cluster is away.
const MOST_FAILURES: u32 = 5;
const AWAY: Duration = Duration::from_secs(50);

const SHORTEST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The Nodes of one cluster, by name and by provider id.
#[derive(Default)]
pub(super) struct Nodes {
    pub state: WatchState,
    failing_since: Option<Instant>,
    /// In a row.
    failures: u32,
    /// How much of it those who look were told.
    told: News,
    pub by_name: BTreeMap<String, Arc<Object>>,
    /// A node that registers under another name has its provider id twice for a while.
    names: BTreeMap<String, BTreeSet<String>>,
}

/// Whom it concerns that a watch has failed again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum News {
    #[default]
    None,
    /// It is away.
    OfCluster,
    /// It is the first that is heard of the cluster, or it has lasted: Machines say it, too.
    OfAll,
}

/// How far the watch of a cluster's Nodes has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum WatchState {
    /// The first answer is still to come: nothing is known, good or bad.
    #[default]
    Connecting,
    /// The first list was refused or lost; it is tried again.
    Failing,
    Listed,
}

impl Nodes {
    pub fn put(&mut self, node: Arc<Object>) -> Option<Arc<Object>> {
        let old = self.remove(node.name());
        let id = node.text("/spec/providerID");
        if !id.is_empty() {
            self.names.entry(id.to_owned()).or_default().insert(node.name().to_owned());
        }
        self.by_name.insert(node.name().to_owned(), node);
        old
    }

    pub fn remove(&mut self, name: &str) -> Option<Arc<Object>> {
        let gone = self.by_name.remove(name)?;
        let id = gone.text("/spec/providerID");
        if let Some(names) = self.names.get_mut(id) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(id);
            }
        }
        Some(gone)
    }

    /// A whole list.
    pub fn list(&mut self, nodes: impl Iterator<Item = Arc<Object>>) {
        *self = Self { state: WatchState::Listed, ..Self::default() };
        nodes.for_each(|node| drop(self.put(node)));
    }

    /// The watch was refused or lost.
    pub fn failed(&mut self) -> News {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        self.failures = self.failures.saturating_add(1);
        if self.state == WatchState::Connecting {
            self.state = WatchState::Failing;
            return News::OfAll;
        }
        let stage = match since.elapsed() {
            lasts if lasts >= UNREACHABLE_GRACE => News::OfAll,
            _ if self.is_away() => News::OfCluster,
            _ => News::None,
        };
        if std::mem::replace(&mut self.told, stage) < stage { stage } else { News::None }
    }

    /// C8: a control plane that restarts is not away.
    fn is_away(&self) -> bool {
        self.failures >= MOST_FAILURES && self.silent_for().is_some_and(|time| time >= AWAY)
    }

    pub fn connection(&self) -> Connection {
        match (self.state, self.failing_since) {
            (WatchState::Listed, None) => Connection::Answers,
            _ if self.is_away() => Connection::Away,
            _ => Connection::Unknown,
        }
    }

    pub fn silent_for(&self) -> Option<Duration> {
        self.failing_since.map(|since| since.elapsed())
    }

    /// A control plane that restarts is asked again at once; one that stays away, ever less often.
    pub fn retry_after(&self) -> Duration {
        (self.silent_for().unwrap_or_default() / 8).clamp(SHORTEST_RETRY, LONGEST_RETRY)
    }

    pub fn with_provider_id(&self, id: &str) -> Option<&Arc<Object>> {
        self.by_name.get(self.names.get(id)?.first()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_stays_away_is_asked_ever_less_often() {
        let mut nodes = Nodes::default();
        let seconds = |nodes: &Nodes| nodes.retry_after().as_secs();
        assert_eq!(seconds(&nodes), 1);
        nodes.failed();
        for (passed, expected) in [(0, 1), (8, 1), (32, 5), (120, 20), (3600, 30)] {
            tokio::time::advance(Duration::from_secs(passed)).await;
            assert_eq!(seconds(&nodes), expected, "after another {passed} s");
        }
        nodes.list(std::iter::empty());
        assert_eq!(seconds(&nodes), 1, "it has answered");
    }
}
