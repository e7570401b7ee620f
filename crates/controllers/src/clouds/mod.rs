//! Sessions with clouds, and what we know of their projects.
//!
//! Flows: identity -> Secret -> session -> project -> resources of one owner; a call -> the cloud -> the project's lists. Holds: one session, hence one token, for
//! each credential, and one set of lists for each project, whichever credential it was read with; sessions that nobody uses are dropped.

mod calls;
mod everything;
pub mod instance;
mod list;
mod lookup;
mod project;
mod quota;
mod sorts;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hangar_api::{Object, ObjectKey};
use hangar_engine::metrics::{Collector, Counters};
use hangar_openstack::{
    CallCounts, Cloud, CloudConfig, Error, ErrorKind, Flavor, HostPolicy, Transport, transport_for,
};
use hangar_planner::cloud::quota::{Needs, Quota};
use hangar_planner::cloud::{CloudAnswer, CloudCall, CloudIdentity};
use hangar_planner::{Reason, Wake};
use tokio::time::Instant;

pub use lookup::{network, router, security_group, server_group, subnets};
pub use project::{Age, Project};
pub use sorts::OfOwner;

use crate::Context;
use crate::unwatched::CREDENTIALS_AGE;

/// Makes a transport for a cloud; a simulation has its own.
pub type Transports = Arc<dyn Fn(&CloudConfig) -> Result<Transport, String> + Send + Sync>;

/// Over the network, to hosts that the policy allows.
pub fn over_network(policy: HostPolicy) -> Transports {
    Arc::new(move |config| {
        // Said before anything is tried, with the field that is wrong; whatever else is called is checked by the transport.
        policy.check_url(config.auth_url()).map_err(|error| format!("auth_url: {error}"))?;
        transport_for(config, &policy).map_err(|error| error.to_string())
    })
}

/// More credentials than this at once are one that somebody changes over and over: the one that was not used for longest goes.
const MOST_SESSIONS: usize = 1_000;
/// Flavors and zones hardly ever change.
const FLAVORS_AGE: Duration = Duration::from_secs(600);
/// A credential that was not used for so long is forgotten, with its token.
const IDLE: Duration = Duration::from_secs(3600);

pub struct Clouds {
    transports: Transports,
    /// By fingerprint of the credential.
    sessions: Mutex<BTreeMap<String, (Instant, Arc<Session>)>>,
    /// Fingerprints of credentials as they were read: a clouds.yaml is parsed once for each version of its Secret.
    fingerprints: Mutex<BTreeMap<Source, String>>,
    /// By project, for as long as a session of it is there.
    projects: Mutex<BTreeMap<String, Weak<Project>>>,
}

/// Where a credential comes from: UID and version of a Secret, the cloud's name and the region.
type Source = (String, String, String, Option<String>);

/// One credential's session.
pub struct Session {
    pub cloud: Cloud,
    project: tokio::sync::OnceCell<Arc<Project>>,
    flavors: tokio::sync::Mutex<Option<(Instant, Arc<Vec<Flavor>>)>>,
    zones: tokio::sync::Mutex<Option<(Instant, Arc<Vec<String>>)>>,
}

impl Clouds {
    pub fn new(transports: Transports) -> Self {
        let (sessions, fingerprints, projects) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { transports, sessions, fingerprints, projects }
    }

    /// The session of a credential that was read before, if it is still open.
    fn open_session(&self, source: &Source) -> Option<Arc<Session>> {
        let fingerprints = self.fingerprints.lock().unwrap_or_else(PoisonError::into_inner);
        self.used(fingerprints.get(source)?)
    }

    fn used(&self, fingerprint: &str) -> Option<Arc<Session>> {
        let now = Instant::now();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, (used, _)| now.duration_since(*used) < IDLE);
        let (used, session) = sessions.get_mut(fingerprint)?;
        *used = now;
        Some(session.clone())
    }

    fn remember(&self, source: Source, fingerprint: String) {
        let mut fingerprints = self.fingerprints.lock().unwrap_or_else(PoisonError::into_inner);
        if fingerprints.len() >= MOST_SESSIONS {
            fingerprints.clear();
        }
        fingerprints.insert(source, fingerprint);
    }

    fn session(&self, config: CloudConfig) -> Result<Arc<Session>, String> {
        let now = Instant::now();
        let fingerprint = config.fingerprint();
        if let Some(session) = self.used(&fingerprint) {
            return Ok(session);
        }
        let cloud = Cloud::new(config.clone(), (self.transports)(&config)?);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= MOST_SESSIONS
            && let Some(oldest) = sessions.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone())
        {
            sessions.remove(&oldest);
        }
        let (project, flavors, zones) = (tokio::sync::OnceCell::new(), Default::default(), Default::default());
        let session = Arc::new(Session { cloud, project, flavors, zones });
        sessions.insert(fingerprint, (now, session.clone()));
        Ok(session)
    }

    /// The project that a session is in; credentials of one project share it.
    pub async fn project(&self, session: &Session) -> Result<Arc<Project>, Error> {
        // Who waits for a token that cannot be had is told so together with the others, not one after the other.
        let id = session.cloud.project_id().await?;
        let project = session.project.get_or_init(|| async {
            let config = session.cloud.config();
            let region = config.region().unwrap_or_default();
            let name = format!("{id}@{} {region}", config.auth_url()).trim_end().to_owned();
            let mut projects = self.projects.lock().unwrap_or_else(PoisonError::into_inner);
            projects.retain(|_, project| project.strong_count() > 0);
            if let Some(project) = projects.get(&name).and_then(Weak::upgrade) {
                session.cloud.share(project.allowance.clone());
                return project;
            }
            let project = Arc::new(Project::new(name.clone(), id, session.cloud.allowance()));
            projects.insert(name, Arc::downgrade(&project));
            project
        });
        Ok(project.await.clone())
    }

    /// Every session's calls so far, for benchmarks and metrics.
    pub fn calls(&self) -> Vec<CallCounts> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().map(|(_, session)| session.cloud.calls()).collect()
    }
}

/// For Prometheus: calls of all sessions together.
pub(crate) fn collectors(sessions: &[CallCounts]) -> Vec<Box<dyn Collector>> {
    let sum = |of: fn(&CallCounts) -> &BTreeMap<String, u64>| {
        let mut sum: BTreeMap<&str, u64> = BTreeMap::new();
        sessions.iter().flat_map(of).for_each(|(call, count)| *sum.entry(call).or_default() += count);
        sum.into_iter().map(|(call, count)| ([("call", call.to_owned())], count)).collect::<Vec<_>>()
    };
    let tokens = vec![([], sessions.iter().map(|session| session.tokens).sum())];
    vec![
        Box::new(Counters {
            name: "hangar_cloud_calls",
            help: "Calls to clouds",
            values: sum(|session| &session.calls),
        }),
        Box::new(Counters {
            name: "hangar_cloud_call_failures",
            help: "Calls to clouds that failed",
            values: sum(|session| &session.failures),
        }),
        Box::new(Counters { name: "hangar_cloud_tokens", help: "Tokens that clouds were asked for", values: tokens }),
    ]
}

impl Session {
    pub async fn flavors(&self) -> Result<Arc<Vec<Flavor>>, Error> {
        let mut known = self.flavors.lock().await;
        if let Some((_, flavors)) = known.as_ref().filter(|(at, _)| at.elapsed() < FLAVORS_AGE) {
            return Ok(flavors.clone());
        }
        let mut flavors = self.cloud.flavors().await?;
        flavors.sort_by(|one, other| one.name.cmp(&other.name));
        let flavors = Arc::new(flavors);
        *known = Some((Instant::now(), flavors.clone()));
        Ok(flavors)
    }

    /// Names of the availability zones in which something may be made.
    pub async fn zones(&self) -> Result<Arc<Vec<String>>, Error> {
        let mut known = self.zones.lock().await;
        if let Some((_, zones)) = known.as_ref().filter(|(at, _)| at.elapsed() < FLAVORS_AGE) {
            return Ok(zones.clone());
        }
        let zones = self.cloud.availability_zones().await?.into_iter();
        let zones = Arc::new(zones.filter(|zone| zone.state.available).map(|zone| zone.name).collect::<Vec<_>>());
        *known = Some((Instant::now(), zones.clone()));
        Ok(zones)
    }

    /// They are looked up anew: an operator may just have mended them.
    pub async fn forget_flavors(&self) {
        *self.flavors.lock().await = None;
    }
}

/// The session that an identity names.
pub async fn session(context: &Context, identity: &CloudIdentity) -> Result<Arc<Session>, Reason> {
    let secret = secret(context, &secret_key(context, identity).await?, identity).await?;
    let version = (secret.uid().to_owned(), secret.resource_version().to_owned());
    let source = (version.0, version.1, identity.cloud.clone(), identity.region.clone());
    if let Some(session) = context.clouds.open_session(&source) {
        return Ok(session);
    }
    let place = place(identity, &secret.key());
    let invalid = |why: String| Reason::retry("InvalidIdentity", why);
    let yaml = secret.secret_text("clouds.yaml");
    let yaml = yaml.ok_or_else(|| invalid(format!("{place} has no key clouds.yaml")))?;
    let cacert = secret.secret_text("cacert").filter(|text| text.contains("BEGIN CERTIFICATE"));
    let cacert = cacert.as_deref().map(str::as_bytes);
    let config = CloudConfig::parse(yaml.as_bytes(), &identity.cloud, cacert, identity.region.as_deref());
    let config = config.map_err(|error| invalid(format!("{place}: {error}")))?;
    let fingerprint = config.fingerprint();
    let session = context.clouds.session(config).map_err(|error| invalid(format!("{place}: {error}")))?;
    context.clouds.remember(source, fingerprint);
    Ok(session)
}

async fn secret_key(context: &Context, identity: &CloudIdentity) -> Result<ObjectKey, Reason> {
    if !identity.is_shared() {
        return identity.secret();
    }
    let shared = unwatched(context, &identity.cluster_identity()).await?;
    let namespace = unwatched(context, &ObjectKey::new("", "Namespace", "", &identity.namespace)).await?;
    identity.shared_secret(shared.as_deref(), namespace.as_deref())
}

async fn secret(context: &Context, key: &ObjectKey, identity: &CloudIdentity) -> Result<Arc<Object>, Reason> {
    let missing = || {
        let text = format!("there is no {}: create it with the key clouds.yaml", place(identity, key));
        Reason::retry("IdentityNotFound", text)
    };
    unwatched(context, key).await?.ok_or_else(missing)
}

/// Users of a shared identity need not know where its Secret is.
fn place(identity: &CloudIdentity, secret: &ObjectKey) -> String {
    match identity.is_shared() {
        true => format!("the Secret of {}", identity.cluster_identity()),
        false => format!("Secret {}/{}", secret.namespace, secret.name),
    }
}

async fn unwatched(context: &Context, key: &ObjectKey) -> Result<Option<Arc<Object>>, Reason> {
    let found = context.unwatched.get(context.management(), key, CREDENTIALS_AGE).await;
    found.map_err(|error| Reason::retry("APIServerUnreachable", error.to_string()))
}

/// Makes one call.
pub async fn call(context: &Context, identity: &CloudIdentity, call: CloudCall) -> Result<CloudAnswer, Reason> {
    let session = session(context, identity).await?;
    let project = context.clouds.project(&session).await.map_err(|error| refusal(context, &error))?;
    calls::carry_out(&session, &project, call).await.map_err(|error| refusal(context, &error))
}

/// What the quota leaves for an owner that is about to make all this. One that needs nothing any more says so, and costs no call.
pub async fn quota(context: &Context, identity: &CloudIdentity, owner: &str, needs: &Needs) -> Result<Quota, Reason> {
    let session = session(context, identity).await?;
    let project = context.clouds.project(&session).await.map_err(|error| refusal(context, &error))?;
    let left = project.quota.left(&session, project.id(), owner, needs).await;
    left.map_err(|error| refusal(context, &error))
}

/// What a failed call means for a condition.
pub fn refusal(context: &Context, error: &Error) -> Reason {
    let code = match error.kind {
        ErrorKind::Unauthorized => {
            // Somebody may have mended the credential.
            context.unwatched.forget();
            "OpenStackAuthenticationFailed"
        }
        ErrorKind::Quota => "QuotaExceeded",
        ErrorKind::NotFound => "OpenStackNotFound",
        ErrorKind::Conflict => "OpenStackConflict",
        ErrorKind::BadRequest | ErrorKind::Forbidden => "OpenStackRefused",
        _ => "OpenStackError",
    };
    let wake = match error.kind {
        ErrorKind::TooManyRequests { retry_after: Some(time) } => Wake::After(time),
        _ => Wake::Retry,
    };
    Reason { code, message: format!("{error}{}", advice(error.kind)), wake }
}

/// What a person can do where the cloud's words do not say it.
fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unauthorized => {
            "; the credential is wrong, expired or revoked: replace it in the Secret that identityRef leads to"
        }
        ErrorKind::Forbidden => "; the credential may not do this: give its user the role that the cloud asks for",
        ErrorKind::Quota => "; have the quota raised, or delete what is not needed",
        ErrorKind::Unreachable => "; check auth_url, and the way to the cloud from here",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(auth_url: &str, password: usize) -> CloudConfig {
        let yaml = format!(
            "clouds: {{openstack: {{auth: {{auth_url: '{auth_url}', username: u, password: p{password}, project_id: p, user_domain_id: d}}}}}}"
        );
        CloudConfig::parse(yaml.as_bytes(), "openstack", None, None).unwrap()
    }

    #[tokio::test]
    async fn a_cloud_on_a_host_that_is_not_allowed_gets_no_session() {
        let clouds = Clouds::new(over_network(HostPolicy::shared(&["10.96.0.1"], &[])));
        for inside in ["http://169.254.169.254/v3", "https://10.96.0.1", "http://127.0.0.1:5000"] {
            let refused = clouds.session(config(inside, 0)).err().unwrap();
            assert!(refused.starts_with("auth_url: host ") && refused.contains("not allowed"), "{refused}");
        }
        clouds.session(config("https://keystone.example.org", 0)).unwrap();
        Clouds::new(over_network(HostPolicy::everything())).session(config("http://127.0.0.1:5000", 0)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_are_bounded_and_the_oldest_goes() {
        let transport = hangar_openstack::http_transport(None).unwrap();
        let clouds = Clouds::new(Arc::new(move |_| Ok(transport.clone())));
        for number in 0..MOST_SESSIONS + 10 {
            clouds.session(config("http://k", number)).unwrap();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let sessions = clouds.sessions.lock().unwrap();
        assert_eq!(sessions.len(), MOST_SESSIONS);
        assert!(!sessions.contains_key(&config("http://k", 9).fingerprint()));
        assert!(sessions.contains_key(&config("http://k", 10).fingerprint()));
    }
}
