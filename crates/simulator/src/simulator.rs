//! The door: options, and everything a test or a program can do to the cloud besides talking HTTP to it.

use std::path::{Path, PathBuf};
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

use crate::access::Access;
use crate::faults::{Call, CallInfo, Fault, FaultRule};
use crate::forward::Forward;
use crate::front::Sent;
use crate::guests::{Console, GuestDriver};
use crate::image::{Upload, is_upload};
use crate::inventory::Inventory;
use crate::observers::{CloudObserver, Stopwatch};
use crate::state::{ApplicationCredential, Ids, World};
use crate::{save, starter};

const TOKEN_LIFE: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone)]
pub struct Options {
    /// Where the state is kept; `None` forgets everything.
    pub state_file: Option<PathBuf>,
    /// From the request to ACTIVE.
    pub build_time: Duration,
    /// From the request to 404.
    pub delete_time: Duration,
    /// Whether a new cloud has the resources of [`starter`]; without them it has its users and nothing else.
    pub starter: bool,
    /// How many times faster than agreed things happen; also tokens end earlier.
    pub speed: f64,
    /// Whether subnets get the port of a DHCP agent, as most clouds have it.
    pub dhcp_ports: bool,
    /// Whether tenants may ask for a certain floating IP, which most clouds forbid.
    pub floating_ip_by_address: bool,
    /// Whether the load balancers of this cloud refuse health monitors, as those of some providers do.
    pub no_health_monitors: bool,
    /// The range of the starter's external network. Addresses in 127/8 are really there: what floats there can be reached.
    pub public_cidr: ipnet::Ipv4Net,
    /// The range of the starter's own network: how many servers it has addresses for.
    pub private_cidr: ipnet::Ipv4Net,
    /// Whether floating IPs and virtual IPs answer on this machine and lead to what stands behind them.
    pub forward: bool,
    /// What time it is at the beginning; nothing: that of this machine.
    pub time: Option<Timestamp>,
    pub access: Access,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            state_file: None,
            build_time: Duration::from_secs(1),
            delete_time: Duration::from_millis(300),
            starter: true,
            speed: 1.0,
            dhcp_ports: true,
            floating_ip_by_address: false,
            no_health_monitors: false,
            public_cidr: starter::PUBLIC_CIDR,
            private_cidr: starter::PRIVATE_CIDR,
            forward: false,
            time: None,
            access: Access::default(),
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
    pub resumed: AtomicBool,
    pub log: Mutex<Option<save::Log>>,
    /// Once closed, nothing changes any more and the file belongs to whoever opens it next.
    pub closed: CancellationToken,
    pub observers: Mutex<Vec<CloudObserver>>,
    pub stopwatch: Mutex<Option<Stopwatch>>,
    /// Sent after every change of a server, for those who wait for one.
    pub changes: tokio::sync::watch::Sender<u64>,
    /// Sent after every change of what leads where.
    pub plumbing: tokio::sync::watch::Sender<u64>,
    pub forwards: tokio::sync::watch::Sender<Vec<Forward>>,
    /// Sent after every change of what may reach a server.
    pub security: tokio::sync::watch::Sender<u64>,
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
        let is_new = loaded.is_none();
        let state = match loaded {
            Some(state) => state,
            None if options.starter => starter::state(options.public_cidr, options.private_cidr),
            None => starter::bare(),
        };
        let mut world = World { state, ..World::default() };
        if is_new {
            for id in [starter::USER_ID, starter::ADMIN_ID] {
                if let Some(user) = world.state.users.get_mut(id) {
                    user.password = options.access.first_password().to_owned();
                }
            }
        }
        let began = (options.time.unwrap_or_else(Timestamp::now), Instant::now());
        world.sequence = world.state.servers.values().map(|record| record.sequence).max().unwrap_or(0);
        Ok(Self(Arc::new(Inner {
            options,
            world: Mutex::new(world),
            guests: Mutex::new(None),
            resumed: AtomicBool::new(false),
            log: Mutex::new(None),
            closed: CancellationToken::new(),
            observers: Mutex::default(),
            stopwatch: Mutex::default(),
            changes: tokio::sync::watch::Sender::new(0),
            plumbing: tokio::sync::watch::Sender::new(0),
            forwards: tokio::sync::watch::Sender::new(vec![]),
            security: tokio::sync::watch::Sender::new(0),
            began,
        })))
    }

    /// Every path of every service; needs no socket.
    pub fn router(&self) -> axum::Router {
        self.router_at("http")
    }

    pub(crate) fn router_at(&self, scheme: &'static str) -> axum::Router {
        let simulator = self.clone();
        axum::Router::new().fallback(move |mut request: axum::extract::Request| {
            let simulator = simulator.clone();
            // The catalog is made of the address that the client came by.
            request.headers_mut().entry("x-forwarded-proto").or_insert(http::HeaderValue::from_static(scheme));
            async move { simulator.answer_http(request).await }
        })
    }

    /// The same without HTTP in between; a lost reply is an error of the transport.
    pub fn transport(&self) -> Transport {
        let simulator = self.clone();
        BoxCloneSyncService::new(service_fn(move |request: http::Request<bytes::Bytes>| {
            let simulator = simulator.clone();
            async move {
                let upload = is_upload(request.method(), request.uri()).then(|| Upload::of(request.body()));
                match simulator.answer(request, upload).await {
                    Sent::Whole(answer) => Ok(answer),
                    Sent::Nothing => {
                        Err(hangar_openstack::BoxError::from("connection closed before the answer was complete"))
                    }
                    Sent::Endless => std::future::pending().await,
                }
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

    /// The same for a task of its own.
    pub async fn serve_owned(self, listener: TcpListener, shutdown: CancellationToken) -> std::io::Result<()> {
        self.serve(listener, shutdown).await
    }

    /// The cloud entry `openstack`: the starter's user by password.
    pub fn clouds_yaml(&self, base_url: &str) -> String {
        self.clouds_yaml_of(base_url, &[("openstack", starter::USER)], None)
    }

    /// One entry for each (cloud, user); a user's project has the user's name.
    pub fn clouds_yaml_of(&self, base_url: &str, entries: &[(&str, &str)], cacert: Option<&Path>) -> String {
        let base = base_url.trim_end_matches('/');
        let mut text = "clouds:\n".to_owned();
        for (cloud, user) in entries {
            let (region, password) = (starter::REGION, self.password_of(user));
            text.push_str(&format!("  {cloud}:\n    region_name: {region}\n"));
            if let Some(path) = cacert {
                text.push_str(&format!("    cacert: {}\n", path.display()));
            }
            text.push_str(&format!(
                "    auth:\n      auth_url: {base}/identity/v3\n      username: {user}\n      password: {password}\n"
            ));
            text.push_str(&format!(
                "      project_name: {user}\n      user_domain_name: Default\n      project_domain_name: Default\n"
            ));
        }
        text
    }

    pub fn inventory(&self) -> Inventory {
        Inventory::of(&self.world().state)
    }

    /// Boots the guests of servers that are already ACTIVE.
    pub fn set_guests(&self, driver: Arc<dyn GuestDriver>) {
        *self.0.guests.lock().unwrap_or_else(PoisonError::into_inner) = Some(driver.clone());
        // A server may have gone while there was no driver to be told.
        driver.retain(&self.world().state.servers.keys().cloned().collect());
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
        // Neutron names its limits in the singular, people often do not.
        let plural =
            ["ports", "networks", "subnets", "routers", "floatingips", "security_groups", "security_group_rules"];
        let name = if plural.contains(&name) { name.trim_end_matches('s') } else { name };
        self.change(|world| {
            let id = world.state.project(project).map_or_else(|| project.to_owned(), |known| known.id.clone());
            let mut known = world.state.quotas.get(&id).cloned().unwrap_or_default();
            known.insert(name.to_owned(), limit);
            world.state.quotas.insert(id, known);
        });
    }

    /// As in Keystone, the user's tokens end with the old password.
    pub fn set_password(&self, user: &str, password: &str) {
        self.change(|world| {
            for id in world.state.users.ids(|known| known.name == user || known.id == user) {
                if let Some(known) = world.state.users.get_mut(&id) {
                    known.password = password.to_owned();
                }
                world.tokens.retain(|_, token| token.user_id != id);
            }
        });
    }

    /// A credential of a user's own; its id.
    pub fn add_application_credential(&self, user: &str, name: &str, secret: &str) -> Option<String> {
        let mut made = None;
        self.change(|world| {
            let id = world.ids.uuid().simple().to_string();
            let found = world.state.users.ids(|known| known.name == user || known.id == user).into_iter().next();
            let Some(known) = found.and_then(|id| world.state.users.get_mut(&id)) else { return };
            let project_id = known.projects.first().cloned().unwrap_or_default();
            known.application_credentials.push(ApplicationCredential {
                id: id.clone(),
                name: name.to_owned(),
                secret: secret.to_owned(),
                project_id,
                description: None,
            });
            made = Some(id);
        });
        made
    }

    /// Another network of the demo project; its id. Counts as the cloud's, not as a tenant's.
    pub fn add_network(&self, name: &str, cidr: ipnet::Ipv4Net) -> String {
        let mut id = String::new();
        self.change(|world| id = starter::add_network(&mut world.state, &mut world.ids, name, cidr));
        id
    }

    /// Another availability zone.
    pub fn add_zone(&self, name: &str, available: bool) {
        self.change(|world| world.state.zones.insert(name, starter::zone(name, available)));
    }

    /// What really answers at an address and port of the simulated networks, such as `127.0.0.1:6443`; `None` takes it back.
    pub fn set_backend(&self, address: &str, port: u16, target: Option<&str>) {
        let key = (address.to_owned(), port);
        match target {
            Some(target) => self.world().backends.insert(key, target.to_owned()),
            None => self.world().backends.remove(&key),
        };
        self.0.plumbing.send_modify(|count| *count += 1);
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut World)) {
        let mut world = self.world();
        change(&mut world);
        self.record(&mut world, "");
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

    /// As Octavia writes moments: no zone, no fraction.
    pub(crate) fn now_seconds(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S").to_string()
    }

    /// As Cinder writes moments: no zone, microseconds.
    pub(crate) fn now_micros(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()
    }

    pub(crate) fn token_life(&self) -> Duration {
        TOKEN_LIFE.div_f64(self.0.options.speed.max(0.001))
    }

    fn password_of(&self, user: &str) -> String {
        let world = self.world();
        let known = world.state.users.values().find(|known| known.name == user);
        known.map_or_else(|| starter::PASSWORD.to_owned(), |known| known.password.clone())
    }
}
