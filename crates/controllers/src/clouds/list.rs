//! One project's resources of one sort, by owner.
//!
//! Holds: a list counts from the moment in which it began; what we did a short while ago counts more than a list that may be older.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hangar_openstack::Error;
use hangar_planner::cloud::Owned;
use tokio::time::Instant;

/// Resources that carry a key of ours.
pub struct List<T> {
    /// The epoch and the moment in which it began.
    pub(super) read: Option<(u64, Instant)>,
    by_owner: BTreeMap<String, BTreeMap<String, Arc<T>>>,
    owners: BTreeMap<String, String>,
    /// What we made or saw gone a short while ago, by id: a list may show how it was before.
    pub(super) own: BTreeMap<String, Own<T>>,
    /// Of those that we made: what the last list does not have.
    pub(super) unlisted: BTreeSet<String>,
    /// Why it could not be read.
    failure: Option<(Instant, Error)>,
}

/// The outcome of a call of ours.
pub struct Own<T> {
    pub(super) at: Instant,
    /// In which it was called.
    epoch: u64,
    /// Nothing if it is gone.
    resource: Option<Arc<T>>,
}

/// How old a list may be.
#[derive(Debug, Clone, Copy)]
pub enum Age {
    /// Older if the project is large: else lists would be read as often as before and be ever longer, for thousands of clusters at once.
    Paced(Duration),
    /// Not older, whatever it costs.
    Strict(Duration),
}

/// A list of a thousand resources is read every two seconds at most.
const PACE: Duration = Duration::from_millis(2);
const LONGEST_PACE: Duration = Duration::from_secs(30);

/// How long a list may lag behind our own calls.
const LAG: Duration = Duration::from_secs(60);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            read: None,
            by_owner: BTreeMap::new(),
            owners: BTreeMap::new(),
            own: BTreeMap::new(),
            unlisted: BTreeSet::new(),
            failure: None,
        }
    }
}

impl<T: Owned> List<T> {
    pub(super) fn is_fresh(&self, epoch: u64, age: Age) -> bool {
        let age = match age {
            Age::Strict(age) => age,
            Age::Paced(age) => {
                let count = u32::try_from(self.owners.len()).unwrap_or(u32::MAX);
                age.max(PACE.saturating_mul(count).min(LONGEST_PACE))
            }
        };
        self.read.is_some_and(|(of, at)| of == epoch && at.elapsed() < age)
    }

    pub(super) fn failed(&mut self, error: &Error) {
        self.failure = Some((Instant::now(), error.clone()));
    }

    /// Whoever waited while somebody else tried in vain does not try the same again: a cloud that hangs would be waited for once for each object.
    pub(super) fn failure_since(&self, asked: Instant) -> Option<Error> {
        self.failure.as_ref().filter(|(at, _)| *at > asked).map(|(_, error)| error.clone())
    }

    pub(super) fn fill(&mut self, epoch: u64, began: Instant, listed: Vec<T>) {
        let mut own = std::mem::take(&mut self.own);
        own.retain(|_, own| own.at.elapsed() < LAG);
        *self = Self { read: Some((epoch, began)), ..Self::default() };
        for resource in listed {
            match own.get(resource.id()) {
                // Deleted since.
                Some(Own { resource: None, .. }) => {}
                _ => self.put(Arc::new(resource)),
            }
        }
        for (id, own) in &own {
            match &own.resource {
                Some(made) if !self.owners.contains_key(id) => {
                    self.put(made.clone());
                    self.unlisted.insert(id.clone());
                }
                _ => {}
            }
        }
        self.own = own;
    }

    /// Made or changed by us. Only what is new may be missing in the next list: what was there before and is missing then is gone.
    pub(super) fn made(&mut self, epoch: u64, resource: Arc<T>) {
        let id = resource.id();
        match self.own.get_mut(id) {
            Some(own) => own.resource = Some(resource.clone()),
            None if self.owners.contains_key(id) => {}
            None => {
                let own = Own { at: Instant::now(), epoch, resource: Some(resource.clone()) };
                self.own.insert(id.to_owned(), own);
            }
        }
        self.put(resource);
    }

    /// Everything of this owner was made by us not longer ago than `age`, and the fate of no call since is unknown: a list has no news.
    pub(super) fn is_all_new(&self, owner: &str, epoch: u64, age: Age) -> bool {
        let (Age::Paced(age) | Age::Strict(age)) = age;
        let is_new = |id: &String| self.own.get(id).is_some_and(|own| own.epoch == epoch && own.at.elapsed() < age);
        self.by_owner.get(owner).is_some_and(|resources| resources.keys().all(is_new))
    }

    /// Deleted by us, or found to be gone.
    pub(super) fn gone(&mut self, epoch: u64, id: &str) {
        self.own.insert(id.to_owned(), Own { at: Instant::now(), epoch, resource: None });
        self.remove(id);
    }

    pub(super) fn put(&mut self, resource: Arc<T>) {
        let Some(key) = resource.owner_key() else { return };
        self.owners.insert(resource.id().to_owned(), key.object_uid.clone());
        self.by_owner.entry(key.object_uid).or_default().insert(resource.id().to_owned(), resource);
    }

    pub(super) fn get(&self, id: &str) -> Option<&Arc<T>> {
        self.by_owner.get(self.owners.get(id)?)?.get(id)
    }

    fn remove(&mut self, id: &str) {
        let Some(owner) = self.owners.remove(id) else { return };
        if let Some(resources) = self.by_owner.get_mut(&owner) {
            resources.remove(id);
            if resources.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_owner.values().flat_map(BTreeMap::values)
    }

    pub(super) fn of(&self, owner: &str) -> BTreeMap<String, Arc<T>> {
        self.by_owner.get(owner).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hangar_openstack::Port;

    const DAY: Duration = Duration::from_secs(86_400);

    #[tokio::test(start_paused = true)]
    async fn long_lists_are_read_less_often_unless_it_matters() {
        let ms = Duration::from_millis;
        for (count, age, passed, fresh) in [
            (0, Age::Paced(ms(700)), 699, true),
            (0, Age::Paced(ms(700)), 700, false),
            (1_000, Age::Paced(ms(700)), 1_999, true),
            (1_000, Age::Paced(ms(700)), 2_000, false),
            (1_000, Age::Strict(ms(700)), 700, false),
            (1_000_000, Age::Paced(ms(700)), 30_000, false),
            (10, Age::Paced(DAY), 30_000, true),
        ] {
            let owners = (0..count).map(|number| (number.to_string(), "owner".to_owned())).collect();
            let list: List<Port> = List { read: Some((0, Instant::now())), owners, ..List::default() };
            tokio::time::advance(ms(passed)).await;
            assert_eq!(list.is_fresh(0, age), fresh, "{count} {age:?} {passed}");
            assert!(!list.is_fresh(1, age), "nothing of an earlier epoch counts");
        }
    }
}
