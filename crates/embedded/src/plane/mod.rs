//! The local management plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, real and supervised.
//!
//! Flows: leftovers ended -> components fetched -> network and ports (kept) -> keys and certificates (kept, renewed) -> etcd ->
//! API server ready -> controller manager and scheduler. Holds: at rest nothing of the plane writes to the API (no leases), so that
//! whatever is written was caused by someone; the caller holds the home's lock.

mod arguments;
mod certificates;
mod client;
mod diagnosis;
mod encryption;
mod initial_objects;
mod state;
pub mod version;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hangar_node::process::{LogFormat, Run};
use semver::Version;

use crate::disk_space;
use crate::home::Home;
use crate::net::{LoopbackNet, NetError};
use crate::orphan_processes::end_orphans;
use crate::store::{Component, Progress, Stage, Store, StoreError};
use crate::supervise::{ProcessStatus, Supervised};
use certificates::Certificates;
pub use certificates::first_to_expire;
pub use client::RenewableClient;
pub use encryption::encrypt_existing;
pub use initial_objects::InitialObject;
use state::State;

const READY_WITHIN: Duration = Duration::from_secs(120);
const PORTS_FREE_WITHIN: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const READY: &str = "/readyz";
/// Of an API server that was ready here before: the roles and priorities that it comes with are there, and it need not be waited for until it has
/// looked at each of them again.
const READY_AGAIN: &str = "/readyz?exclude=poststarthook/rbac/bootstrap-roles&exclude=poststarthook/scheduling/bootstrap-system-priority-classes";
/// An end or two during the start can be bad luck; more means that it will not come up.
const TOLERATED_ENDS: u32 = 3;

/// Programs that read their certificate once, by the name of the certificate.
const RESTARTED: [(&str, &str); 2] =
    [("controller-manager", "kube-controller-manager"), ("scheduler", "kube-scheduler")];

/// Which versions the plane runs.
#[derive(Debug, Clone)]
pub struct PlaneOptions {
    pub kubernetes: Version,
    pub etcd: Version,
}

impl Default for PlaneOptions {
    fn default() -> Self {
        Self { kubernetes: crate::default_version("kube-apiserver"), etcd: crate::default_version("etcd") }
    }
}

/// What the plane is doing while it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaneStage {
    Component(Component, Stage),
    EndedOrphans(usize),
    Starting(String),
    Ready,
}

/// Told about every step of a start.
pub trait PlaneProgress: Send + Sync {
    fn stage(&self, stage: PlaneStage);
}

/// Nobody watches.
#[derive(Debug, Clone, Copy)]
pub struct Quiet;

impl PlaneProgress for Quiet {
    fn stage(&self, _stage: PlaneStage) {}
}

#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    #[error("could not install the components of the plane")]
    Components(#[from] StoreError),
    #[error(transparent)]
    NotEnoughSpace(#[from] disk_space::NotEnoughSpace),
    #[error(transparent)]
    Version(#[from] version::VersionError),
    #[error("could not choose a loopback network")]
    Network(#[from] NetError),
    #[error(
        "port {port} of {address} is already in use: stop the program that listens there, or remove {state_file} to choose other ports"
    )]
    PortTaken { address: std::net::Ipv4Addr, port: u16, state_file: PathBuf },
    #[error("{path} is not a valid state file: repair it, or remove it to choose a new network and ports")]
    BadState { path: PathBuf, source: serde_json::Error },
    #[error("could not read or write {path}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("could not create a key or certificate in {path}")]
    Pki { path: PathBuf, source: hangar_pki::PkiError },
    #[error("{name} keeps exiting: {output}\n  its log: {log}")]
    DoesNotStart { name: String, log: PathBuf, output: String },
    #[error("the API server was not ready within {seconds} seconds; its log is {log}\n{output}")]
    NotReady { seconds: u64, log: PathBuf, output: String },
    #[error("etcd refused {what}: {message}; its log is etcd.log in the home's logs")]
    Etcd { what: String, message: String },
    #[error("could not create a client from {path}")]
    Client { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

/// A plane that has its programs, network, ports and keys, and does not run yet.
pub struct Prepared {
    home: Home,
    programs: [PathBuf; 4],
    kubernetes: Version,
    was_ready: bool,
    plane: Plane,
}

impl Prepared {
    pub fn network(&self) -> LoopbackNet {
        self.plane.network()
    }

    pub fn pki(&self) -> &Path {
        self.plane.pki()
    }

    /// Whether it never ran before.
    pub fn is_new(&self) -> bool {
        is_new(&self.home)
    }

    /// Starts everything and returns when the API server is ready and the controllers are started. A new plane has `initial_objects` from the
    /// beginning.
    pub async fn start(
        mut self,
        initial_objects: &[InitialObject],
        progress: &dyn PlaneProgress,
    ) -> Result<Plane, PlaneError> {
        match self.bring_up(initial_objects, progress).await {
            Ok(()) => Ok(self.plane),
            Err(error) => {
                self.plane.stop().await;
                Err(error)
            }
        }
    }

    async fn bring_up(
        &mut self,
        initial_objects: &[InitialObject],
        progress: &dyn PlaneProgress,
    ) -> Result<(), PlaneError> {
        let Self { home, programs, plane, .. } = self;
        let [etcd, api_server, controller_manager, scheduler] = &*programs;
        plane.launch(home, etcd, arguments::etcd(home, &plane.state, &plane.certificates), progress);
        plane.until_listening(plane.state.etcd_port).await?;
        if !initial_objects.is_empty() {
            let endpoint = format!("https://{}:{}", plane.state.network.plane(), plane.state.etcd_port);
            plane.wrote_initial_objects = initial_objects::put(&endpoint, &plane.pki, initial_objects).await?;
        }
        plane.launch(home, api_server, arguments::api_server(&plane.state, &plane.certificates, api_server), progress);
        // A controller manager beside a fresh API server exits, for its roles are not there yet.
        plane.until_ready(if self.was_ready { READY_AGAIN } else { READY }).await?;
        if !self.was_ready {
            version::was_ready(home, &self.kubernetes)?;
        }
        plane.launch(
            home,
            controller_manager,
            arguments::controller_manager(&plane.state, &plane.certificates),
            progress,
        );
        plane.launch(home, scheduler, arguments::scheduler(&plane.state, &plane.certificates), progress);
        progress.stage(PlaneStage::Ready);
        Ok(())
    }
}

/// A running plane.
pub struct Plane {
    kubeconfig: PathBuf,
    pki: PathBuf,
    state: State,
    certificates: Certificates,
    wrote_initial_objects: bool,
    /// In the order of their start.
    processes: Vec<Supervised>,
}

impl Plane {
    /// Everything that can be done before a process runs.
    pub async fn prepare(
        home: &Home,
        store: &Store,
        options: &PlaneOptions,
        progress: &dyn PlaneProgress,
    ) -> Result<Prepared, PlaneError> {
        match end_orphans(home.path()).await {
            0 => {}
            count => progress.stage(PlaneStage::EndedOrphans(count)),
        }
        let programs = programs(store, options, progress).await?;
        disk_space::check(home.path(), if is_new(home) { disk_space::FOR_NEW_PLANE } else { disk_space::TO_RUN })?;
        // Somebody may have removed the data and left the rest.
        let was_ready = version::keep(home, &options.kubernetes)? && !is_new(home);
        let state = state_with_free_ports(home).await?;
        let certificates = Certificates::prepare(home, &state)?;
        encryption::configuration(&home.pki())?;
        let (kubeconfig, pki) = (home.kubeconfig(), home.pki());
        let plane = Plane { kubeconfig, pki, state, certificates, wrote_initial_objects: false, processes: vec![] };
        let kubernetes = options.kubernetes.clone();
        Ok(Prepared { home: home.clone(), programs, kubernetes, was_ready, plane })
    }

    /// A plane with nothing in it but what an API server makes for itself.
    pub async fn start(
        home: &Home,
        store: &Store,
        options: &PlaneOptions,
        progress: &dyn PlaneProgress,
    ) -> Result<Plane, PlaneError> {
        Self::prepare(home, store, options, progress).await?.start(&[], progress).await
    }

    /// Whether this start was its first, with what a new plane is given.
    pub fn wrote_initial_objects(&self) -> bool {
        self.wrote_initial_objects
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub fn network(&self) -> LoopbackNet {
        self.state.network
    }

    /// Where the API server listens.
    pub fn api_server(&self) -> SocketAddr {
        (self.state.network.plane(), self.state.api_port).into()
    }

    /// The directory with keys and certificates: `ca.crt`, `ca.key`, `kubelet.crt`, `webhook.crt` and others.
    pub fn pki(&self) -> &Path {
        &self.pki
    }

    /// A client with the administrator's rights.
    pub async fn client(&self) -> Result<kube::Client, PlaneError> {
        client::from_file(&self.kubeconfig).await
    }

    /// A client of one of the plane's [`crate::identities`], or with the administrator's rights, that can be told of renewed certificates.
    pub async fn renewable_client(&self, user: Option<&str>) -> Result<RenewableClient, PlaneError> {
        let kubeconfig = user.map_or_else(|| self.kubeconfig.clone(), |user| self.pki.join(format!("{user}.conf")));
        RenewableClient::open(&kubeconfig).await
    }

    /// Issues certificates anew that are due, and has everybody use them who does not read files again by itself: etcd and the API server do. Says which
    /// they were; clients of the plane have to be told by whoever has them.
    pub fn renew(&self, now: jiff::Timestamp) -> Result<Vec<String>, PlaneError> {
        let renewed = self.certificates.renew(&self.state, now)?;
        for (certificate, program) in RESTARTED {
            if renewed.iter().any(|name| name == certificate) {
                self.processes.iter().filter(|process| process.is(program)).for_each(Supervised::restart);
            }
        }
        Ok(renewed)
    }

    /// What runs, in the order of the start.
    pub fn processes(&self) -> Vec<ProcessStatus> {
        self.processes.iter().filter_map(Supervised::status).collect()
    }

    /// Ends everything, last started first, so that nothing talks to what is gone.
    pub async fn stop(mut self) {
        while let Some(process) = self.processes.pop() {
            process.stop().await;
        }
    }

    fn launch(&mut self, home: &Home, program: &Path, args: Vec<String>, progress: &dyn PlaneProgress) {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        progress.stage(PlaneStage::Starting(name.clone()));
        let run = Run {
            program: program.to_owned(),
            args,
            env: Default::default(),
            directory: home.path().to_owned(),
            log: home.logs().join(format!("{name}.log")),
            log_format: LogFormat::Raw,
            home: home.path().to_owned(),
        };
        self.processes.push(Supervised::start(&name, run));
    }

    async fn until_listening(&self, port: u16) -> Result<(), PlaneError> {
        while tokio::net::TcpStream::connect((self.state.network.plane(), port)).await.is_err() {
            self.check_alive()?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn until_ready(&self, question: &str) -> Result<(), PlaneError> {
        let client = self.client().await?;
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        loop {
            let request = http::Request::get(question).body(vec![]);
            if let Ok(request) = request
                && client.request_text(request).await.is_ok()
            {
                return Ok(());
            }
            self.check_alive()?;
            if tokio::time::Instant::now() > deadline {
                let log = self.processes.last().map(|process| process.log().to_owned()).unwrap_or_default();
                let output = self.processes.last().map(|process| self.why(process)).unwrap_or_default();
                return Err(PlaneError::NotReady { seconds: READY_WITHIN.as_secs(), log, output });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn why(&self, process: &Supervised) -> String {
        let home = self.pki.parent().unwrap_or(&self.pki);
        diagnosis::explain(home, process.program(), process.log())
    }

    fn check_alive(&self) -> Result<(), PlaneError> {
        for process in &self.processes {
            if let Some(status) = process.status().filter(|status| status.restarts >= TOLERATED_ENDS) {
                let log = process.log().to_owned();
                let output = self.why(process);
                return Err(PlaneError::DoesNotStart { name: status.name, log, output });
            }
        }
        Ok(())
    }
}

fn is_new(home: &Home) -> bool {
    !home.etcd().join("member").exists()
}

/// A listener of an earlier run may still be closing, so a taken port is looked at again for a while.
async fn state_with_free_ports(home: &Home) -> Result<State, PlaneError> {
    let deadline = tokio::time::Instant::now() + PORTS_FREE_WITHIN;
    loop {
        match State::load_or_choose(home) {
            Err(PlaneError::PortTaken { .. }) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            other => return other,
        }
    }
}

async fn programs(
    store: &Store,
    options: &PlaneOptions,
    progress: &dyn PlaneProgress,
) -> Result<[PathBuf; 4], PlaneError> {
    struct Forward<'a>(&'a dyn PlaneProgress);
    impl Progress for Forward<'_> {
        fn stage(&self, component: &Component, stage: Stage) {
            self.0.stage(PlaneStage::Component(component.clone(), stage));
        }
    }
    let kubernetes = |name: &str| Component { name: name.to_owned(), version: options.kubernetes.clone() };
    let components = [
        Component { name: "etcd".into(), version: options.etcd.clone() },
        kubernetes("kube-apiserver"),
        kubernetes("kube-controller-manager"),
        kubernetes("kube-scheduler"),
    ];
    let paths = store.fetch(&components, &Forward(progress)).await?;
    <[PathBuf; 4]>::try_from(paths).map_err(|_| StoreError::Unknown(components[0].clone()).into())
}
