//! Objects that are not watched: Secrets that nobody labelled for us (a cloud's credentials, a datastore's keys), shared identities, namespaces.
//! They are read when needed, and kept for a while.
//!
//! Holds: many passes cost one request; what somebody mended is seen after the time that its reader names, and at once after a refusal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hangar_api::{Object, ObjectKey};
use hangar_engine::management::{ApiError, Management};
use tokio::time::Instant;

/// Long enough for the passes of one cluster's creation, short enough that nobody waits for a change to be seen.
pub const AGE: Duration = Duration::from_secs(30);
/// For what is needed in every pass, and asked for again at once when a cloud refuses it.
pub const CREDENTIALS_AGE: Duration = Duration::from_secs(300);

#[derive(Default)]
pub struct Unwatched(Mutex<BTreeMap<ObjectKey, (Instant, Arc<Object>)>>);

impl Unwatched {
    fn known(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, (Instant, Arc<Object>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, if it is there; one that is not there is asked for each time.
    pub async fn get(
        &self,
        management: &Management,
        key: &ObjectKey,
        age: Duration,
    ) -> Result<Option<Arc<Object>>, ApiError> {
        self.known().retain(|_, (at, _)| at.elapsed() < CREDENTIALS_AGE);
        let known = self.known().get(key).filter(|(at, _)| at.elapsed() < age).map(|(_, object)| object.clone());
        if known.is_some() {
            return Ok(known);
        }
        let read_at = Instant::now();
        let found = management.get(key).await?.map(Arc::new);
        if let Some(object) = &found {
            self.known().insert(key.clone(), (read_at, object.clone()));
        }
        Ok(found)
    }

    /// Whoever was refused reads again: somebody may have mended it.
    pub fn forget(&self) {
        self.known().clear();
    }
}
