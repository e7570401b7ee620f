//! How much of a cloud one project may use: so many calls at once, so many in a second, and none while the cloud asks for
//! patience.
//!
//! Holds: a service that answered with Retry-After is not called again before that time; who asks meanwhile is told at
//! once how long it still is. Nothing is dropped: who is above the budget waits for its turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::Service;
use crate::error::LONGEST_PATIENCE;

/// What one project may ask of its cloud.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Calls under way.
    pub at_once: usize,
    /// Calls in a second, in the long run.
    pub per_second: f64,
    /// Calls that may be made without waiting after a quiet time.
    pub burst: f64,
    /// One call, waiting for its turn included.
    pub deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { at_once: 8, per_second: 100.0, burst: 200.0, deadline: Duration::from_secs(30) }
    }
}

/// What one project may use of its cloud, whoever calls. Clones are the same.
#[derive(Clone)]
pub struct Allowance(Arc<Budget>);

struct Budget {
    limits: Limits,
    places: Arc<Semaphore>,
    /// When it was last looked at, and how many calls were free then; may be below zero, which is a queue.
    free: Mutex<(Option<Instant>, f64)>,
    quiet_until: Mutex<BTreeMap<Service, Instant>>,
}

impl Allowance {
    pub fn new(limits: Limits) -> Self {
        let free = Mutex::new((None, limits.burst));
        let places = Arc::new(Semaphore::new(limits.at_once.max(1)));
        Self(Arc::new(Budget { limits, places, free, quiet_until: Mutex::default() }))
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.0.limits.deadline
    }

    /// How long the service still wants to be left alone.
    pub(crate) fn paused_for(&self, service: Service) -> Option<Duration> {
        let mut paused_for = self.0.quiet_until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = paused_for.get(&service)?.saturating_duration_since(Instant::now());
        if left.is_zero() {
            paused_for.remove(&service);
            return None;
        }
        Some(left)
    }

    pub(crate) fn pause(&self, service: Service, time: Duration) {
        // The header is the cloud's: whatever it says, the sum must be a time.
        let now = Instant::now();
        let until = now.checked_add(time.min(LONGEST_PATIENCE)).unwrap_or(now);
        let mut paused_for = self.0.quiet_until.lock().unwrap_or_else(PoisonError::into_inner);
        let known = paused_for.entry(service).or_insert(until);
        *known = until.max(*known);
    }

    /// Waits for a turn, then for a place. `None` never happens: the places are never closed.
    pub(crate) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        let wait = self.take();
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        self.0.places.clone().acquire_owned().await.ok()
    }

    fn take(&self) -> Duration {
        let now = Instant::now();
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let since = free.0.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let filled = (free.1 + since.as_secs_f64() * self.0.limits.per_second).min(self.0.limits.burst) - 1.0;
        *free = (Some(now), filled);
        if filled >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64(-filled / self.0.limits.per_second.max(0.001))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_the_rest_waits_for_its_turn() {
        let budget = Allowance::new(Limits { per_second: 10.0, burst: 5.0, ..Limits::default() });
        let began = Instant::now();
        for _ in 0..5 {
            drop(budget.enter().await);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            drop(budget.enter().await);
        }
        let took = began.elapsed().as_millis();
        assert!((990..=1020).contains(&took), "{took}");
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_and_is_not_shortened() {
        let budget = Allowance::new(Limits::default());
        budget.pause(Service::Nova, Duration::from_secs(7));
        budget.pause(Service::Nova, Duration::from_secs(2));
        assert_eq!(budget.paused_for(Service::Nova), Some(Duration::from_secs(7)));
        assert_eq!(budget.paused_for(Service::Neutron), None);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(budget.paused_for(Service::Nova), None);
        budget.pause(Service::Nova, Duration::MAX);
        assert_eq!(budget.paused_for(Service::Nova), Some(LONGEST_PATIENCE));
    }
}
