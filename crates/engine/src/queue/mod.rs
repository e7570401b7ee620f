//! Which objects to look at next: what changed before what is only looked at again, clusters in turn, each key once, with a delay of its own after a failure.
//!
//! Holds: a key that is being worked on is not handed out again; what arrives meanwhile is worked on once more afterwards; the order follows from the
//! order of arrival ([`turns`]), so that two runs with the same events do the same; of one cluster only so many are worked on at a time, so that one whose
//! cloud is slow does not keep the others waiting.

mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hangar_api::ObjectKey;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use turns::Group;
use turns::{Priority, Turns, Waiting};

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// So many keys of one cluster are worked on at a time.
const MOST_OF_A_GROUP: usize = 16;
/// Who asks to be looked at again sooner waits for something that is under way.
const ROUTINE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Queue {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    /// Somebody has begun to work: what came before is what there is after a start, and no news.
    opened: bool,
    waiting: Turns,
    working: HashMap<ObjectKey, Group>,
    /// How many of each group are worked on.
    at_work: HashMap<Group, usize>,
    /// Being worked on, and to be worked on once more.
    again: HashMap<ObjectKey, Priority>,
    later: BTreeSet<(Instant, ObjectKey)>,
    /// When each delayed key is due: one entry for each.
    due: HashMap<ObjectKey, (Instant, Group, Priority)>,
    failures: HashMap<ObjectKey, u32>,
    added: u64,
    retried: u64,
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

/// How much there is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Depth {
    /// Waiting keys by kind.
    pub waiting: BTreeMap<String, usize>,
    /// Keys that are worked on, by kind.
    pub working: BTreeMap<String, usize>,
    pub added: u64,
    pub retried: u64,
}

impl Queue {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, key: ObjectKey, group: Group) {
        let mut inner = self.inner();
        let priority = if inner.opened { Priority::News } else { Priority::Routine };
        if inner.push(key, group, priority) {
            drop(inner);
            self.changed.notify_one();
        }
    }

    /// The next key, as soon as there is one, and how long it waited.
    pub async fn next(&self) -> (ObjectKey, Duration) {
        loop {
            let changed = self.changed.notified();
            let sleep = {
                let mut inner = self.inner();
                inner.opened = true;
                inner.ripen(Instant::now());
                if let Some(Waiting { key, since, .. }) = inner.pop() {
                    if !inner.waiting.is_empty() {
                        // One notification may stand for several keys: pass it on.
                        self.changed.notify_one();
                    }
                    return (key, since.elapsed());
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
        let Some(group) = inner.leave(key) else { return };
        let delay = match outcome {
            Outcome::Settled => {
                inner.failures.remove(key);
                None
            }
            Outcome::After(time) => {
                inner.failures.remove(key);
                Some((time, if time < ROUTINE { Priority::News } else { Priority::Routine }))
            }
            Outcome::Failed => {
                inner.retried += 1;
                let count = inner.failures.entry(key.clone()).or_default();
                *count += 1;
                Some((LAST_RETRY.min(FIRST_RETRY * 2_u32.saturating_pow(*count - 1)), Priority::Routine))
            }
        };
        if let Some(priority) = inner.again.remove(key) {
            inner.push(key.clone(), group.clone(), priority);
        }
        inner.postpone(key, group, delay);
        drop(inner);
        self.changed.notify_one();
    }

    /// Whether nothing is waiting or being worked on; delayed keys do not count.
    pub fn is_idle(&self) -> bool {
        let inner = self.inner();
        inner.waiting.is_empty() && inner.working.is_empty()
    }

    pub fn depth(&self) -> Depth {
        let inner = self.inner();
        let mut depth = Depth { added: inner.added, retried: inner.retried, ..Depth::default() };
        inner.waiting.keys().for_each(|key| *depth.waiting.entry(key.kind.clone()).or_default() += 1);
        inner.working.keys().for_each(|key| *depth.working.entry(key.kind.clone()).or_default() += 1);
        depth
    }
}

impl Inner {
    fn pop(&mut self) -> Option<Waiting> {
        let Self { waiting, at_work, .. } = self;
        let next = waiting.pop(|group| at_work.get(group).is_some_and(|count| *count >= MOST_OF_A_GROUP))?;
        self.working.insert(next.key.clone(), next.group.clone());
        *self.at_work.entry(next.group.clone()).or_default() += 1;
        Some(next)
    }

    fn leave(&mut self, key: &ObjectKey) -> Option<Group> {
        let group = self.working.remove(key)?;
        if let Some(count) = self.at_work.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.at_work.remove(&group);
            }
        }
        Some(group)
    }

    /// Whether it was neither waiting nor being worked on.
    fn push(&mut self, key: ObjectKey, group: Group, priority: Priority) -> bool {
        if self.working.contains_key(&key) {
            let again = self.again.entry(key).or_insert(priority);
            *again = priority.min(*again);
            return false;
        }
        let is_new = self.waiting.push(Waiting { key, group, since: Instant::now() }, priority);
        self.added += u64::from(is_new);
        is_new
    }

    fn postpone(&mut self, key: &ObjectKey, group: Group, delay: Option<(Duration, Priority)>) {
        if let Some((at, ..)) = self.due.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
        if let Some((delay, priority)) = delay {
            let at = Instant::now() + delay;
            self.due.insert(key.clone(), (at, group, priority));
            self.later.insert((at, key.clone()));
        }
    }

    fn ripen(&mut self, now: Instant) {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.later.pop_first() else { return };
            if let Some((_, group, priority)) = self.due.remove(&key) {
                self.push(key, group, priority);
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

    fn add(queue: &Queue, name: &str) {
        queue.add(key(name), Group::default());
    }

    #[tokio::test]
    async fn keys_come_once_and_in_order() {
        let queue = Queue::default();
        for name in ["b", "a", "b"] {
            add(&queue, name);
        }
        assert_eq!(queue.next().await.0, key("b"));
        assert_eq!(queue.next().await.0, key("a"));
        assert!(queue.inner().waiting.is_empty());
    }

    #[tokio::test]
    async fn news_during_work_means_work_again() {
        let queue = Queue::default();
        add(&queue, "a");
        let (first, _) = queue.next().await;
        add(&queue, "a");
        assert!(queue.inner().waiting.is_empty());
        queue.done(&first, Outcome::Settled);
        assert_eq!(queue.next().await.0, key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_ever_longer_and_success_forgets_them() {
        let queue = Queue::default();
        add(&queue, "a");
        let start = Instant::now();
        for _ in 0..3 {
            let (taken, _) = queue.next().await;
            queue.done(&taken, Outcome::Failed);
        }
        queue.next().await;
        assert_eq!(start.elapsed().as_millis(), 500 + 1000 + 2000);
        queue.done(&key("a"), Outcome::Settled);
        add(&queue, "a");
        queue.next().await;
        queue.done(&key("a"), Outcome::Failed);
        let again = Instant::now();
        queue.next().await;
        assert_eq!(again.elapsed().as_millis(), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_is_looked_at_before_what_failed_and_what_was_there_at_the_start() {
        let queue = Queue::default();
        ["a", "b", "c"].into_iter().for_each(|name| add(&queue, name));
        let (failed, _) = queue.next().await;
        queue.done(&failed, Outcome::Failed);
        tokio::time::advance(FIRST_RETRY).await;
        ["c", "d"].into_iter().for_each(|name| add(&queue, name));
        for name in ["c", "d", "b", "a"] {
            assert_eq!(queue.next().await.0, key(name));
        }
    }

    #[tokio::test]
    async fn a_cluster_that_takes_long_keeps_nobody_else_waiting() {
        let queue = Queue::default();
        let group = |name: &str| Group::new(("default".to_owned(), name.to_owned()));
        for number in 0..MOST_OF_A_GROUP + 5 {
            queue.add(key(&format!("slow-{number}")), group("slow"));
        }
        let mut taken = vec![];
        for _ in 0..MOST_OF_A_GROUP {
            taken.push(queue.next().await.0);
        }
        queue.add(key("other"), group("other"));
        assert_eq!(queue.next().await.0, key("other"), "its own are not handed out before one of them is done");
        assert!(queue.inner().pop().is_none());
        queue.done(&taken[0], Outcome::Settled);
        assert_eq!(queue.next().await.0, key(&format!("slow-{MOST_OF_A_GROUP}")));
        taken.iter().for_each(|key| queue.done(key, Outcome::Settled));
        queue.done(&key("other"), Outcome::Settled);
        assert_eq!(queue.inner().at_work.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn how_long_keys_wait_and_how_many_there_are_is_known() {
        let queue = Queue::default();
        ["a", "b"].into_iter().for_each(|name| add(&queue, name));
        tokio::time::advance(Duration::from_secs(3)).await;
        let (first, waited) = queue.next().await;
        assert_eq!(waited, Duration::from_secs(3));
        let one = BTreeMap::from([("Secret".to_owned(), 1)]);
        assert_eq!(queue.depth(), Depth { waiting: one.clone(), working: one, added: 2, retried: 0 });
        queue.done(&first, Outcome::Failed);
        assert_eq!(queue.depth().retried, 1);
    }
}
