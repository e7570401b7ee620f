//! Whoever wants to see each write as it happens: the laws of a simulation, its "other controllers", benchmarks.
//!
//! Flows: a request -> the store's commits -> each observer, in order, before the request is answered. Holds: every commit is seen exactly
//! once and in the order of versions, within the same poll that made it; the lock is not held, so an observer may look at the cluster.

use std::sync::{Arc, PoisonError};

use hangar_api::ObjectKey;
use serde_json::Value;

use super::KubeApi;
use super::store::Event;

/// One committed change of one object.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// Whose client it came through; empty for [`KubeApi::put`], [`KubeApi::edit`], [`KubeApi::delete`] and plain clients.
    pub user: &'a str,
    /// The verb of the request.
    pub verb: &'static str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    /// The garbage collector's work: it follows from the request, which was about another object.
    pub collected: bool,
    pub key: &'a ObjectKey,
    /// `None` for a new object.
    pub before: Option<&'a Value>,
    /// `None` if it is gone.
    pub after: Option<&'a Value>,
}

pub type Observer = Arc<dyn Fn(&Write<'_>) + Send + Sync>;

impl KubeApi {
    /// From now on called after each commit.
    pub fn observe(&self, observer: Observer) {
        self.0.observers.lock().unwrap_or_else(PoisonError::into_inner).push(observer);
    }

    /// Tells watches and observers what has been committed since the last time; whether there was anything.
    pub(super) fn tell(&self, user: &str, verb: &'static str, subresource: &str) {
        let fresh = std::mem::take(&mut self.store().fresh);
        if fresh.is_empty() {
            return;
        }
        let observers = self.0.observers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for Event { key, old, object, gone, collected, .. } in &fresh {
            let after = if *gone { None } else { Some(&**object) };
            let before = old.as_deref();
            let write = Write { user, verb, subresource, collected: *collected, key, before, after };
            observers.iter().for_each(|observer| observer(&write));
        }
        self.wake();
    }
}
