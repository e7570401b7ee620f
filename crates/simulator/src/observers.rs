//! Whoever looks on: the laws of a simulation, which see each change as it happens, and benchmarks, which measure what this cloud costs.

use std::sync::{Arc, PoisonError};

use serde_json::Value;

use crate::{Simulator, lifecycle};

/// One committed change of one resource.
#[derive(Debug, Clone, Copy)]
pub struct CloudWrite<'a> {
    /// The id of the user who asked for it; empty for what the cloud does by itself.
    pub by: &'a str,
    /// `servers`, `ports`, `security_groups`, `networks`, ...
    pub table: &'a str,
    pub id: &'a str,
    /// As it is now, or `None` if it is gone.
    pub row: Option<&'a Value>,
}

/// Called with the lock held: it must not call this cloud.
pub type CloudObserver = Arc<dyn Fn(&CloudWrite<'_>) + Send + Sync>;

/// Runs what it is given, and measures it.
pub type Stopwatch = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

impl Simulator {
    /// From now on called after each change.
    pub fn observe(&self, observer: CloudObserver) {
        self.0.observers.lock().unwrap_or_else(PoisonError::into_inner).push(observer);
    }

    /// For what happens after a request was answered: whoever measures requests cannot see that.
    pub fn set_stopwatch(&self, stopwatch: Stopwatch) {
        *self.0.stopwatch.lock().unwrap_or_else(PoisonError::into_inner) = Some(stopwatch);
    }

    /// How many requests there were.
    pub fn call_count(&self) -> u64 {
        self.world().faults.calls
    }

    /// Somebody else deletes a resource, at once and without asking: `("network", "ports", id)`.
    pub fn delete_behind(&self, service: &str, collection: &str, id: &str) {
        lifecycle::vanish(self, service, &[collection, id]);
    }

    /// A load balancer ends in this status by itself, such as `ERROR`.
    pub fn set_load_balancer_status(&self, id: &str, status: &str) {
        self.settle(|world| {
            if let Some(balancer) = world.state.load_balancers.get_mut(id) {
                balancer.provisioning_status = status.to_owned();
            }
        });
    }

    pub(crate) fn measured(&self, mut work: impl FnMut()) {
        let stopwatch = self.0.stopwatch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match stopwatch {
            Some(stopwatch) => stopwatch(&mut work),
            None => work(),
        }
    }
}
