//! The order in which waiting keys are handed out.
//!
//! Holds: news come before routine, and routine is never forgotten; within each, clusters take turns, so that one with thousands of keys cannot keep
//! the others waiting; keys of one cluster come in order of arrival. The same calls give the same order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hangar_api::ObjectKey;
use tokio::time::Instant;

/// Whose turn it is: namespace and name of a cluster; without a name, everything else of a namespace.
pub type Group = Arc<(String, String)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody or something changed.
    News,
    /// Looked at because time has passed, because it failed before, or because this process has just started.
    Routine,
}

/// After so many news in a row one routine key is handed out.
const NEWS_IN_A_ROW: u32 = 8;

#[derive(Default)]
pub(super) struct Turns {
    news: Lane,
    routine: Lane,
    /// Each waiting key once, with the lane in which it counts; a lane may hold keys that do not count any more.
    queued: HashMap<ObjectKey, Priority>,
    in_a_row: u32,
}

#[derive(Default)]
struct Lane {
    turns: VecDeque<Group>,
    keys: HashMap<Group, VecDeque<Waiting>>,
}

pub(super) struct Waiting {
    pub key: ObjectKey,
    pub group: Group,
    pub since: Instant,
}

impl Turns {
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.queued.keys()
    }

    /// Whether it was not waiting yet. What waits as routine and is in the news moves up.
    pub fn push(&mut self, waiting: Waiting, priority: Priority) -> bool {
        let before = self.queued.get(&waiting.key).copied();
        if before.is_some_and(|before| before <= priority) {
            return false;
        }
        self.queued.insert(waiting.key.clone(), priority);
        match priority {
            Priority::News => self.news.push(waiting),
            Priority::Routine => self.routine.push(waiting),
        }
        before.is_none()
    }

    /// Of groups that are full nothing is handed out.
    pub fn pop(&mut self, is_full: impl Fn(&Group) -> bool) -> Option<Waiting> {
        let routine_first = self.in_a_row >= NEWS_IN_A_ROW;
        let order =
            if routine_first { [Priority::Routine, Priority::News] } else { [Priority::News, Priority::Routine] };
        order.into_iter().find_map(|priority| self.pop_of(priority, &is_full))
    }

    fn pop_of(&mut self, priority: Priority, is_full: &impl Fn(&Group) -> bool) -> Option<Waiting> {
        let lane = match priority {
            Priority::News => &mut self.news,
            Priority::Routine => &mut self.routine,
        };
        while let Some(next) = lane.pop(is_full) {
            if self.queued.get(&next.key) == Some(&priority) {
                self.queued.remove(&next.key);
                self.in_a_row = if priority == Priority::News { self.in_a_row + 1 } else { 0 };
                return Some(next);
            }
        }
        None
    }
}

impl Lane {
    fn push(&mut self, waiting: Waiting) {
        let keys = self.keys.entry(waiting.group.clone()).or_default();
        if keys.is_empty() {
            self.turns.push_back(waiting.group.clone());
        }
        keys.push_back(waiting);
    }

    fn pop(&mut self, is_full: &impl Fn(&Group) -> bool) -> Option<Waiting> {
        let place = self.turns.iter().position(|group| !is_full(group))?;
        // Those that are full are next when they are not.
        let group = self.turns.remove(place)?;
        let keys = self.keys.get_mut(&group)?;
        let next = keys.pop_front();
        if keys.is_empty() {
            self.keys.remove(&group);
        } else {
            self.turns.push_back(group);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(name: &str) -> Waiting {
        let cluster = name.split('/').next().unwrap();
        let group = Arc::new(("default".to_owned(), cluster.to_owned()));
        Waiting { key: ObjectKey::new("", "Machine", "default", name), group, since: Instant::now() }
    }

    fn rest(turns: &mut Turns) -> Vec<String> {
        std::iter::from_fn(|| turns.pop(|_| false)).map(|next| next.key.name).collect()
    }

    #[tokio::test]
    async fn clusters_take_turns_and_each_keeps_its_order() {
        let mut turns = Turns::default();
        for name in ["a/1", "a/2", "a/3", "b/1", "c/1", "b/2"] {
            assert!(turns.push(waiting(name), Priority::News));
        }
        assert!(!turns.push(waiting("a/3"), Priority::News), "each once");
        assert_eq!(turns.keys().count(), 6);
        assert_eq!(rest(&mut turns), ["a/1", "b/1", "c/1", "a/2", "b/2", "a/3"]);
        assert!(turns.is_empty());
    }

    #[tokio::test]
    async fn news_come_first_and_routine_is_not_forgotten() {
        let mut turns = Turns::default();
        for number in 0..20 {
            turns.push(waiting(&format!("a/{number}")), Priority::Routine);
        }
        turns.push(waiting("b/1"), Priority::News);
        assert_eq!(turns.pop(|_| false).unwrap().key.name, "b/1");
        for number in 0..20 {
            turns.push(waiting(&format!("b/{number}")), Priority::News);
        }
        let first: Vec<String> = rest(&mut turns).into_iter().take(9).collect();
        assert_eq!(first.iter().filter(|name| name.starts_with("a/")).count(), 1, "{first:?}");
    }

    #[tokio::test]
    async fn what_is_in_the_news_moves_up_and_is_handed_out_once() {
        let mut turns = Turns::default();
        for name in ["a/1", "b/1", "c/1"] {
            turns.push(waiting(name), Priority::Routine);
        }
        assert!(!turns.push(waiting("c/1"), Priority::News), "it waits already");
        assert!(!turns.push(waiting("c/1"), Priority::Routine), "it does not move back");
        assert_eq!(rest(&mut turns), ["c/1", "a/1", "b/1"]);
        turns.push(waiting("c/1"), Priority::Routine);
        assert_eq!(rest(&mut turns), ["c/1"], "what did not count any more is not in the way");
    }
}
