//! The door: options, and everything a test or a program can do to the cloud besides talking HTTP to it.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hangar_openstack::Transport;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use crate::faults::{Call, CallInfo, Fault, FaultRule};
use crate::guests::{Console, GuestDriver};
use crate::inventory::Inventory;
use crate::state::{ApplicationCredential, Ids, World};
use crate::{save, starter};

#[derive(Debug, Clone)]
pub struct Options {
    /// Where the state is kept; `None` forgets everything.
    pub state_file: Option<PathBuf>,
    /// From the request to ACTIVE.
    pub build_time: Duration,
    /// From the request to 404.
    pub delete_time: Duration,
    /// Whether a new cloud has the resources of [`starter`].
    pub starter: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            state_file: None,
            build_time: Duration::from_secs(1),
            delete_time: Duration::from_millis(300),
            starter: true,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    #[error("the state file {path} cannot be read: move it away to begin with a new cloud")]
    Load { path: PathBuf, source: std::io::Error },
    #[error("the state file {path} is not the simulator's: move it away to begin with a new cloud")]
    Format { path: PathBuf, source: serde_json::Error },
}

/// A cloud; clones are the same cloud.
#[derive(Clone)]
pub struct Simulator(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub options: Options,
    pub world: Mutex<World>,
    pub guests: Mutex<Option<Arc<dyn GuestDriver>>>,
    pub save_pending: AtomicBool,
    pub resumed: AtomicBool,
    /// One writer of the state file at a time.
    pub saving: Mutex<()>,
    /// Once closed, nothing changes any more and the file belongs to whoever opens it next.
    pub closed: CancellationToken,
    /// Sent after every change of a server, for those who wait for one.
    pub changes: tokio::sync::watch::Sender<u64>,
    began: (Timestamp, Instant),
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Simulator").field(&self.0.options).finish()
    }
}

impl Simulator {
    /// Loads the state file if there is one.
    pub fn new(options: Options) -> Result<Self, SimulatorError> {
        let loaded = options.state_file.as_deref().map(save::load).transpose()?.flatten();
        let mut world = World::default();
        world.state = match loaded {
            Some(state) => state,
            None if options.starter => starter::state(),
            None => Default::default(),
        };
        world.sequence = world.state.servers.values().map(|record| record.sequence).max().unwrap_or(0);
        Ok(Self(Arc::new(Inner {
            options,
            world: Mutex::new(world),
            guests: Mutex::new(None),
            save_pending: AtomicBool::new(false),
            resumed: AtomicBool::new(false),
            saving: Mutex::new(()),
            closed: CancellationToken::new(),
            changes: tokio::sync::watch::Sender::new(0),
            began: (Timestamp::now(), Instant::now()),
        })))
    }

    /// Every path of every service; needs no socket.
    pub fn router(&self) -> axum::Router {
        let simulator = self.clone();
        axum::Router::new().fallback(move |request: axum::extract::Request| {
            let simulator = simulator.clone();
            async move { simulator.answer_http(request).await }
        })
    }

    /// The same without HTTP in between; a lost reply is an error of the transport.
    pub fn transport(&self) -> Transport {
        let simulator = self.clone();
        BoxCloneSyncService::new(service_fn(move |request: http::Request<bytes::Bytes>| {
            let simulator = simulator.clone();
            async move {
                let answer = simulator.answer(request).await;
                answer
                    .ok_or_else(|| hangar_openstack::BoxError::from("connection closed before the answer was complete"))
            }
        }))
    }

    /// Until `shutdown`; then the state is saved.
    pub async fn serve(&self, listener: TcpListener, shutdown: CancellationToken) -> std::io::Result<()> {
        self.resume();
        let served = axum::serve(listener, self.router()).with_graceful_shutdown(shutdown.cancelled_owned()).await;
        self.close()?;
        served
    }

    /// For the cloud entry `openstack`: the starter's user by password.
    pub fn clouds_yaml(&self, base_url: &str) -> String {
        let base = base_url.trim_end_matches('/');
        format!(
            "\
clouds:
  openstack:
    region_name: {region}
    auth:
      auth_url: {base}/identity/v3
      username: {user}
      password: {password}
      project_name: {project}
      user_domain_name: Default
      project_domain_name: Default
",
            region = starter::REGION,
            user = starter::USER,
            password = self.password_of(starter::USER),
            project = starter::PROJECT,
        )
    }

    pub fn inventory(&self) -> Inventory {
        Inventory::of(&self.world().state)
    }

    /// Boots the guests of servers that are already ACTIVE.
    pub fn set_guests(&self, driver: Arc<dyn GuestDriver>) {
        *self.0.guests.lock().unwrap_or_else(PoisonError::into_inner) = Some(driver);
        self.boot_active();
    }

    /// Where guests keep what a disk would keep.
    pub fn guests_dir(&self) -> Option<PathBuf> {
        let mut name = self.0.options.state_file.clone()?.into_os_string();
        name.push(".guests");
        Some(name.into())
    }

    pub fn set_faults(&self, rules: Vec<FaultRule>) {
        self.world().faults.set(rules);
    }

    pub fn set_fault_hook(&self, hook: Arc<dyn Fn(&CallInfo) -> Fault + Send + Sync>) {
        self.world().faults.hook = Some(hook);
    }

    pub fn journal(&self) -> Vec<Call> {
        self.world().journal.iter().cloned().collect()
    }

    pub fn clear_journal(&self) {
        self.world().journal.clear();
    }

    /// `project` is an id or a name, `limit` -1 is none.
    pub fn set_quota(&self, project: &str, name: &str, limit: i64) {
        {
            let mut world = self.world();
            let known = world.state.projects.iter().find(|known| known.id == project || known.name == project);
            let id = known.map_or_else(|| project.to_owned(), |known| known.id.clone());
            world.state.quotas.entry(id).or_default().insert(name.to_owned(), limit);
        }
        self.save_soon();
    }

    /// As in Keystone, the user's tokens end with the old password.
    pub fn set_password(&self, user: &str, password: &str) {
        {
            let World { state, tokens, .. } = &mut *self.world();
            for known in state.users.iter_mut().filter(|known| known.name == user || known.id == user) {
                known.password = password.to_owned();
                tokens.retain(|_, token| token.user_id != known.id);
            }
        }
        self.save_soon();
    }

    /// A credential of a user's own; its id.
    pub fn add_application_credential(&self, user: &str, name: &str, secret: &str) -> Option<String> {
        let id = {
            let World { state, ids, .. } = &mut *self.world();
            let known = state.users.iter_mut().find(|known| known.name == user || known.id == user)?;
            let id = ids.uuid().simple().to_string();
            let credential = ApplicationCredential { id: id.clone(), name: name.to_owned(), secret: secret.to_owned() };
            known.application_credentials.push(credential);
            id
        };
        self.save_soon();
        Some(id)
    }

    /// Another network of the demo project; its id. Counts as the cloud's, not as a tenant's.
    pub fn add_network(&self, name: &str, cidr: ipnet::Ipv4Net) -> String {
        let id = {
            let World { state, ids, .. } = &mut *self.world();
            starter::add_network(state, ids, name, cidr)
        };
        self.save_soon();
        id
    }

    /// From now on ids follow from the seed, so that the same calls make the same cloud.
    pub fn set_seed(&self, seed: u64) {
        self.world().ids = Ids(Some(seed));
    }

    /// Every token ends at once, as after a change of Keystone's keys.
    pub fn revoke_tokens(&self) {
        self.world().tokens.clear();
    }

    /// What the guest wrote so far; empty for a server that never booted.
    pub fn console(&self, server_id: &str) -> String {
        self.world().consoles.get(server_id).map(Console::text).unwrap_or_default()
    }

    /// Changes with every change of a server.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn millis(&self) -> u64 {
        u64::try_from(self.0.began.1.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Wall clock as far as tokio's clock has run.
    pub(crate) fn now(&self) -> Timestamp {
        self.0.began.0.checked_add(self.0.began.1.elapsed()).unwrap_or(self.0.began.0)
    }

    pub(crate) fn now_text(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn password_of(&self, user: &str) -> String {
        let world = self.world();
        let known = world.state.users.iter().find(|known| known.name == user);
        known.map_or_else(|| starter::PASSWORD.to_owned(), |known| known.password.clone())
    }
}
