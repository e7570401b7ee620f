//! One token per credential, asked for by one caller at a time.
//!
//! Flows: no or old token -> lock -> `POST auth/tokens` -> token, catalog, project. Holds: callers that waited while an
//! attempt failed get that failure and do not knock again (many wrong passwords lock accounts); age is counted from the
//! service's own two dates, so a skewed clock on this side does not matter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::endpoint;
use crate::error::{ErrorKind, Target};
use crate::wire::{CatalogEntry, TokenReply};
use crate::{CloudConfig, Error, Service};

/// How long before its end a token is no longer used.
const MARGIN: Duration = Duration::from_secs(300);

/// A token that claims to live longer is renewed all the same.
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 3600);

pub(crate) struct Session {
    pub(crate) token: String,
    pub(crate) project_id: String,
    catalog: Vec<CatalogEntry>,
    good_until: Instant,
}

impl Session {
    pub(crate) fn read(token: String, reply: TokenReply, asked_at: Instant) -> Result<Self, String> {
        let project_id = CloudConfig::check_scope(&reply)?;
        let lifetime = lifetime(&reply.token.issued_at, &reply.token.expires_at)?;
        let lifetime = lifetime.min(LONGEST_LIFE);
        let good_until = asked_at.checked_add(lifetime.saturating_sub(MARGIN.min(lifetime / 5))).unwrap_or(asked_at);
        Ok(Self { token, project_id, catalog: reply.token.catalog, good_until })
    }

    pub(crate) fn endpoint(&self, service: Service, config: &CloudConfig) -> Result<String, String> {
        endpoint::find(&self.catalog, service, &config.interface, config.region.as_deref())
    }
}

fn lifetime(issued_at: &str, expires_at: &str) -> Result<Duration, String> {
    let read = |text: &str| {
        // Keystone always says UTC; some releases leave the Z out.
        let text = if text.ends_with('Z') || text.contains('+') { text.to_owned() } else { format!("{text}Z") };
        text.parse::<jiff::Timestamp>().map_err(|error| format!("date of the token: {error}"))
    };
    let lifetime = read(expires_at)?.duration_since(read(issued_at)?);
    Duration::try_from(lifetime).map_err(|_| "the token expires before it was issued".to_owned())
}

/// The place where the current session is kept.
#[derive(Default)]
pub(crate) struct SessionCache {
    state: tokio::sync::Mutex<State>,
    attempts: AtomicU64,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    failure: Option<Error>,
}

impl SessionCache {
    /// The current session, or a new one by `open` if there is none, it is old, or it is `refused`.
    pub(crate) async fn session<F>(&self, refused: Option<&Arc<Session>>, open: F) -> Result<Arc<Session>, Error>
    where
        F: AsyncFnOnce() -> Result<Session, Error>,
    {
        let seen = self.attempts.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        let refused = |session: &Arc<Session>| refused.is_some_and(|refused| Arc::ptr_eq(refused, session));
        if let Some(session) = &state.session
            && Instant::now() < session.good_until
            && !refused(session)
        {
            return Ok(session.clone());
        }
        if self.attempts.load(Ordering::Acquire) != seen
            && let Some(failure) = &state.failure
        {
            return Err(failure.clone());
        }
        let opened = open().await;
        self.attempts.fetch_add(1, Ordering::AcqRel);
        match opened {
            Ok(session) => {
                let session = Arc::new(session);
                *state = State { session: Some(session.clone()), failure: None };
                Ok(session)
            }
            Err(error) => {
                *state = State { session: None, failure: Some(error.clone()) };
                Err(error)
            }
        }
    }
}

pub(crate) fn target() -> Target {
    Target { service: Service::Keystone, method: Method::POST, path: "/auth/tokens".to_owned() }
}

pub(crate) fn unusable(why: String) -> Error {
    target().error(ErrorKind::Malformed, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_a_token_is_the_distance_of_its_dates() {
        let hour = Duration::from_secs(3600);
        assert_eq!(lifetime("2026-01-01T00:00:00.000000Z", "2026-01-01T01:00:00.000000Z").unwrap(), hour);
        assert_eq!(lifetime("2026-01-01T00:00:00", "2026-01-01T01:00:00").unwrap(), hour);
        assert!(lifetime("2026-01-01T01:00:00Z", "2026-01-01T00:00:00Z").is_err());
        assert!(lifetime("", "").is_err());
    }
}
