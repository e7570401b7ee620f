//! The Nodes of one cluster as its watch brings them, and whether it still does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hangar_api::Object;
use hangar_planner::machine::UNREACHABLE_GRACE;
use tokio::time::Instant;

/// The Nodes of one cluster, by name and by provider id.
#[derive(Default)]
pub(super) struct Nodes {
    pub state: WatchState,
    failing_since: Option<Instant>,
    /// Whoever has Machines there was told.
    told: bool,
    pub by_name: BTreeMap<String, Arc<Object>>,
    /// A node that registers under another name has its provider id twice for a while.
    names: BTreeMap<String, BTreeSet<String>>,
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

    /// The watch was refused or lost; whether that changes what Machines say: it is the first that is heard of the cluster, or it has lasted.
    pub fn is_news_that_it_fails(&mut self) -> bool {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        if self.state == WatchState::Connecting {
            self.state = WatchState::Failing;
            return true;
        }
        !self.told && since.elapsed() >= UNREACHABLE_GRACE && !std::mem::replace(&mut self.told, true)
    }

    pub fn silent_for(&self) -> Option<Duration> {
        self.failing_since.map(|since| since.elapsed())
    }

    pub fn with_provider_id(&self, id: &str) -> Option<&Arc<Object>> {
        self.by_name.get(self.names.get(id)?.first()?)
    }
}
