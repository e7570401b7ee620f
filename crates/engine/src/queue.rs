//! Which objects to look at next: in order of arrival, each once, with a delay of its own after a failure.
//!
//! Holds: a key that is being worked on is not handed out again; what arrives meanwhile is worked on once more afterwards; order is the order
//! of arrival, so that two runs with the same events do the same.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hangar_api::ObjectKey;
use tokio::sync::Notify;
use tokio::time::Instant;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<ObjectKey>,
    queued: HashSet<ObjectKey>,
    working: HashSet<ObjectKey>,
    again: HashSet<ObjectKey>,
    later: BTreeSet<(Instant, ObjectKey)>,
    /// When each delayed key is due: one entry for each.
    due: HashMap<ObjectKey, Instant>,
    failures: HashMap<ObjectKey, u32>,
}

/// What became of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing more until something changes.
    Settled,
    /// Look again after this time.
    After(Duration),
    /// It failed: look again, ever later.
    Failed,
}

impl Queue {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, key: ObjectKey) {
        let mut inner = self.inner();
        if inner.working.contains(&key) {
            inner.again.insert(key);
        } else if inner.queued.insert(key.clone()) {
            inner.waiting.push_back(key);
            drop(inner);
            self.changed.notify_one();
        }
    }

    /// The next key, as soon as there is one.
    pub async fn next(&self) -> ObjectKey {
        loop {
            let changed = self.changed.notified();
            let sleep = {
                let mut inner = self.inner();
                inner.ripen(Instant::now());
                if let Some(key) = inner.waiting.pop_front() {
                    inner.queued.remove(&key);
                    inner.working.insert(key.clone());
                    if !inner.waiting.is_empty() {
                        // One notification may stand for several keys: pass it on.
                        self.changed.notify_one();
                    }
                    return key;
                }
                inner.later.first().map(|(at, _)| *at)
            };
            match sleep {
                Some(at) => tokio::select! { biased; () = changed => {}, () = tokio::time::sleep_until(at) => {} },
                None => changed.await,
            }
        }
    }

    pub fn done(&self, key: &ObjectKey, outcome: Outcome) {
        let mut inner = self.inner();
        inner.working.remove(key);
        let delay = match outcome {
            Outcome::Settled => {
                inner.failures.remove(key);
                None
            }
            Outcome::After(time) => {
                inner.failures.remove(key);
                Some(time)
            }
            Outcome::Failed => {
                let count = inner.failures.entry(key.clone()).or_default();
                *count += 1;
                Some(LAST_RETRY.min(FIRST_RETRY * 2_u32.saturating_pow(*count - 1)))
            }
        };
        if inner.again.remove(key) {
            inner.queued.insert(key.clone());
            inner.waiting.push_back(key.clone());
        }
        inner.postpone(key, delay);
        drop(inner);
        self.changed.notify_one();
    }

    /// Whether nothing is waiting or being worked on; delayed keys do not count.
    pub fn is_idle(&self) -> bool {
        let inner = self.inner();
        inner.waiting.is_empty() && inner.working.is_empty()
    }
}

impl Inner {
    fn postpone(&mut self, key: &ObjectKey, delay: Option<Duration>) {
        if let Some(at) = self.due.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
        if let Some(delay) = delay {
            let at = Instant::now() + delay;
            self.due.insert(key.clone(), at);
            self.later.insert((at, key.clone()));
        }
    }

    fn ripen(&mut self, now: Instant) {
        while let Some((at, key)) = self.later.first().cloned() {
            if at > now {
                return;
            }
            self.later.pop_first();
            self.due.remove(&key);
            if self.working.contains(&key) {
                self.again.insert(key);
            } else if self.queued.insert(key.clone()) {
                self.waiting.push_back(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("", "Secret", "default", name)
    }

    #[tokio::test]
    async fn keys_come_once_and_in_order() {
        let queue = Queue::default();
        for name in ["b", "a", "b"] {
            queue.add(key(name));
        }
        assert_eq!(queue.next().await, key("b"));
        assert_eq!(queue.next().await, key("a"));
        assert!(queue.inner().waiting.is_empty());
    }

    #[tokio::test]
    async fn news_during_work_means_work_again() {
        let queue = Queue::default();
        queue.add(key("a"));
        let first = queue.next().await;
        queue.add(key("a"));
        assert!(queue.inner().waiting.is_empty());
        queue.done(&first, Outcome::Settled);
        assert_eq!(queue.next().await, key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_ever_longer_and_success_forgets_them() {
        let queue = Queue::default();
        queue.add(key("a"));
        let start = Instant::now();
        for _ in 0..3 {
            let taken = queue.next().await;
            queue.done(&taken, Outcome::Failed);
        }
        queue.next().await;
        assert_eq!(start.elapsed().as_millis(), 500 + 1000 + 2000);
        queue.done(&key("a"), Outcome::Settled);
        queue.add(key("a"));
        queue.next().await;
        queue.done(&key("a"), Outcome::Failed);
        let again = Instant::now();
        queue.next().await;
        assert_eq!(again.elapsed().as_millis(), 500);
    }
}
