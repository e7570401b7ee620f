//! The background process: plane, webhook, controllers, node and simulated cloud in one.
//!
//! Flows: lock -> webhook -> plane with our definitions -> datastore, node, simulated cloud, engine -> ready. Holds: what it is doing stands in
//! `daemon.json` in the home, so that `up` and `status` can show it; on SIGTERM everything ends in reverse order.

mod access;
mod cloud;
mod definitions;
mod guests;
mod log_file;
mod progress;
mod renewal;
mod stored_definitions;
mod tenant_endpoint;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hangar_controllers::{Context, Site, all};
use hangar_embedded::{Home, HomeLock, Plane, PlaneOptions, Prepared, Store, ports};
use hangar_engine::monitoring::{self, Monitored, Slot};
use hangar_engine::webhook;
use hangar_node::process::{KubeletTls, NodeOptions};
use hangar_openstack::HostPolicy;
use kube::Client;
use semver::Version;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use cloud::ADMIN_TOKEN;
pub use guests::{OF_MACHINES, OF_TENANTS};
pub use log_file::LogFile;
pub use progress::{DaemonState, Reporter, log_path, state_path};
use renewal::Clients;

use crate::cli::PlaneGuests;
use crate::manager;

const NODE_NAME: &str = "hangar";
const WORKERS: usize = 8;
/// How often a lock that may only be asked about is tried again.
const LOCK_ATTEMPTS: usize = 50;

/// A session of its own: a closed terminal must not end it.
pub fn detach() {
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "this process is already a session leader");
    }
}

/// What a plane is to be.
pub struct DaemonOptions {
    /// Without one, the version that this home ran before.
    pub kubernetes: Option<Version>,
    pub gateway_api: bool,
    pub guests: PlaneGuests,
}

/// Whoever asks whether somebody is here holds the lock for a moment.
async fn lock(home: &Home) -> Result<HomeLock> {
    for _ in 0..LOCK_ATTEMPTS {
        if let Ok(lock) = home.lock() {
            return Ok(lock);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(home.lock()?)
}

/// Runs until a signal comes.
pub async fn run(home: Home, store: Store, options: DaemonOptions) -> Result<()> {
    let _lock = lock(&home).await?;
    let reporter = Reporter::new(&home);
    let outcome = serve(&home, &store, &options, &reporter).await;
    match &outcome {
        Ok(()) => reporter.remove(),
        Err(error) => reporter.failed(&format!("{error:#}")),
    }
    outcome
}

async fn serve(home: &Home, store: &Store, options: &DaemonOptions, reporter: &Reporter) -> Result<()> {
    let shutdown = CancellationToken::new();
    stop_on_signal(shutdown.clone())?;
    let mut asked_for_counts = signal(SignalKind::user_defined1())?;
    reporter.stage("starting the management plane");
    let kubernetes = hangar_embedded::choose_version(home, options.kubernetes.as_ref())?;
    let versions = PlaneOptions { kubernetes, ..PlaneOptions::default() };
    let prepared = Plane::prepare(home, store, &versions, reporter).await?;
    let mut tasks = JoinSet::new();
    let monitored = Slot::default();
    let (address, webhook) = webhook_server(&prepared, monitored.clone(), &mut tasks, &shutdown).await?;
    reporter.monitored_at(&address.url);
    let (initial_objects, given) =
        if prepared.is_new() { definitions::initial_objects(&address) } else { Default::default() };
    let unchanged = tokio::task::spawn_blocking({
        let (home, address) = (home.clone(), address.clone());
        move || definitions::unchanged(&home, &address)
    });
    let plane = prepared.start(&initial_objects, reporter).await?;
    drop(initial_objects);
    if plane.wrote_initial_objects() {
        definitions::record(home, &given)?;
    }
    let clients = Clients::open(&plane).await?;
    let client = clients.administrator();
    // Before anybody uses them; a plane that was just made has them.
    if !plane.wrote_initial_objects() {
        access::install(&client).await.context("could not install the roles of the plane's parts")?;
    }
    let content = PlaneContent { home: home.clone(), client: client.clone(), address, versions: versions.clone() };
    match unchanged.await? && !plane.wrote_initial_objects() {
        // Everything is there from the last time. Whether somebody changed it since can be seen when all else runs.
        true => drop(
            tasks.spawn(log_failure("upkeep", until(shutdown.clone(), async move { content.install(false).await }))),
        ),
        false => {
            reporter.stage("installing the definitions");
            content.install(plane.wrote_initial_objects()).await?;
            wait_for_default_service_account(&client).await;
        }
    }
    let pki = plane.pki().to_owned();
    let encrypting = {
        let client = client.clone();
        async move { hangar_embedded::encrypt_existing(&client, &pki).await }
    };
    tasks.spawn(log_failure("encryption of existing Secrets", until(shutdown.clone(), encrypting)));
    if options.gateway_api {
        crate::apply::gateway_api(&client).await?;
    }

    reporter.stage("starting the cloud, the node and the controllers");
    let surroundings = cloud::Surroundings { home, network: plane.network(), store, guests: options.guests };
    let simulated = cloud::start(&surroundings, &clients.cloud(), &mut tasks, &shutdown).await?;
    let node = node_options(home, &plane);
    tasks.spawn(log_failure(
        "node",
        hangar_node::process::run(clients.node(), Arc::new(store.clone()), node, shutdown.clone()),
    ));
    let context = start_engine(clients.controllers(), site(store), &mut tasks, &shutdown);
    monitor(&monitored, clients.controllers(), context.clone());
    let substitution = format!("{:?}", store.options().substitution).to_lowercase();
    // Pods of the plane, the shared etcd among them, are on their way; whoever needs one waits for that one.
    reporter.ready(&simulated.url, &simulated.guests, &versions.kubernetes.to_string(), &substitution);

    let mut looks = renewal::looks();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            _ = asked_for_counts.recv() => reporter.counts(home, &context),
            _ = looks.tick() => renewal::look(&plane, &clients, &webhook, jiff::Timestamp::now()).await,
        }
    }
    reporter.stopping();
    while tasks.join_next().await.is_some() {}
    hangar_embedded::end_machines(home.path(), hangar_machine::MARK).await;
    simulated.cloud.close().context("could not save the state of the simulated cloud")?;
    plane.stop().await;
    Ok(())
}

/// What a plane has inside before anybody uses it: definitions, the registration of the webhook, and the shared etcd.
struct PlaneContent {
    home: Home,
    client: Client,
    address: hangar_api::crds::WebhookAddress,
    versions: PlaneOptions,
}

impl PlaneContent {
    /// Makes it so. One that has just been given its definitions has them.
    async fn install(&self, has_definitions: bool) -> Result<()> {
        if !has_definitions {
            definitions::install(&self.home, &self.client, &self.address).await?;
        }
        definitions::register(&self.home, &self.client, &self.address).await?;
        let etcd = self.versions.etcd.to_string();
        Ok(hangar_embedded::datastore::install(&self.client, &etcd, jiff::Timestamp::now()).await?)
    }
}

/// Something that may be cut off: it is done again at the next start.
async fn until<E>(shutdown: CancellationToken, work: impl Future<Output = Result<(), E>>) -> Result<(), E> {
    tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        done = work => done,
    }
}

/// A pod needs the account that the controller manager makes a moment after the namespace; whoever is told that the plane is ready may make pods.
async fn wait_for_default_service_account(client: &Client) {
    let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> = kube::Api::default_namespaced(client.clone());
    if matches!(accounts.get_opt("default").await, Ok(Some(_))) {
        return;
    }
    let made = kube::runtime::wait::await_condition(accounts, "default", |account: Option<&_>| account.is_some());
    if !matches!(tokio::time::timeout(Duration::from_secs(30), made).await, Ok(Ok(_))) {
        tracing::warn!("namespace default has no service account yet: see the log of kube-controller-manager");
    }
}

/// A part that ends by itself says so; the others go on.
async fn log_failure<E: std::fmt::Display>(name: &'static str, part: impl Future<Output = Result<(), E>>) {
    if let Err(error) = part.await {
        tracing::error!(part = name, "{error:#}");
    }
}

/// SIGTERM and SIGINT.
pub fn stop_on_signal(shutdown: CancellationToken) -> Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        shutdown.cancel();
    });
    Ok(())
}

/// On the preferred port, or on any that is free.
async fn listen(address: Ipv4Addr, preferred: u16) -> std::io::Result<TcpListener> {
    let ports: [SocketAddr; 2] = [(address, preferred).into(), (address, 0).into()];
    TcpListener::bind(&ports[..]).await
}

/// The same address and authority at each start, so that the definitions need not be written again.
async fn webhook_server(
    plane: &Prepared,
    monitored: Slot,
    tasks: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) -> Result<(hangar_api::crds::WebhookAddress, watch::Sender<webhook::WebhookIdentity>)> {
    let host = plane.network().plane();
    let listener = listen(host, ports::WEBHOOK).await.context("could not listen for the webhook")?;
    let identity = renewal::webhook_identity(plane.pki())?;
    let address = hangar_api::crds::WebhookAddress {
        url: format!("https://{}", listener.local_addr()?),
        ca_bundle: identity.ca_bundle(),
    };
    let shutdown = shutdown.clone();
    let (renewed, identity) = watch::channel(identity);
    tasks.spawn(async move {
        log_failure("webhook", webhook::serve(listener, identity, monitoring::router(monitored), shutdown)).await
    });
    Ok((address, renewed))
}

fn node_options(home: &Home, plane: &Plane) -> NodeOptions {
    let (network, pki): (_, PathBuf) = (plane.network(), plane.pki().to_owned());
    NodeOptions {
        name: NODE_NAME.into(),
        address: network.plane(),
        pods_dir: home.pods(),
        volumes_dir: home.volumes(),
        pod_network: network.pods(),
        load_balancer_network: network.load_balancers(),
        api_server: plane.api_server(),
        home: home.path().to_owned(),
        kubelet: Some(KubeletTls {
            port: ports::KUBELET,
            certificate: pki.join("kubelet.crt"),
            key: pki.join("kubelet.key"),
            client_ca: pki.join("ca.crt"),
        }),
    }
}

/// What control planes can have on this machine.
fn site(store: &Store) -> Site {
    let version = hangar_embedded::default_version("konnectivity-server");
    let fix = "run `hangar components fetch konnectivity-server`, then `hangar down` and `hangar up`";
    Site { konnectivity: store.installed("konnectivity-server", &version).map(drop).ok_or_else(|| fix.to_owned()) }
}

fn start_engine(client: Client, site: Site, tasks: &mut JoinSet<()>, shutdown: &CancellationToken) -> Arc<Context> {
    // The plane and its Secrets have one user, and its simulated cloud is on loopback.
    let hosts = HostPolicy::everything();
    let engine = manager::engine(manager::Parts { client, site, hosts, workers: WORKERS, controllers: all() });
    let (context, shutdown) = (engine.context.clone(), shutdown.clone());
    tasks.spawn(async move {
        let _ = engine.run(shutdown).await;
    });
    context
}

/// From now on there is something to tell.
fn monitor(slot: &Slot, client: Client, context: Arc<Context>) {
    let is_ready = {
        let context = context.clone();
        Box::new(move || context.passes.metrics.is_ready())
    };
    drop(slot.set(Monitored { client, is_ready, metrics: Box::new(move || context.metrics()) }));
}
