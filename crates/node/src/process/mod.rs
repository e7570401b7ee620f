//! A small kubelet: the pods of one Node become local processes of a plain user.
//!
//! Flows: watches of Pods, Services, Secrets, ConfigMaps and claims -> one worker per pod (volumes as files, an address of its own,
//! processes, probes) -> status and events; Services -> listeners on their addresses that forward to ready pods. Holds: where the system
//! allows it a container has a view of the file system of its own, elsewhere paths in commands are rewritten to where the volumes really
//! lie; nothing is written unless something changed; what is on disk can be lost at any time except volumes of claims, for everything
//! starts again from what the API says.

pub mod access;
mod address_verdict;
mod addresses;
mod admission;
mod balancer_addresses;
mod child;
mod claims;
mod cleanup;
mod client_hello;
mod container;
mod container_logs;
mod container_states;
mod empty_dir;
mod environment;
mod events;
mod exec;
mod exec_context;
mod expand;
mod files;
mod forward;
mod grpc_health;
mod hooks;
mod host_root;
mod hosts_file;
mod identity;
mod isolation;
mod kubelet;
mod kubelet_authorizer;
mod launch;
mod listeners;
mod lo;
mod log;
mod memory;
mod mounts;
mod pod;
mod pods;
mod probe;
mod probe_loop;
mod program;
mod proxy;
mod pull;
mod register;
mod restart;
mod rootfs;
mod sequence;
mod service_settings;
mod services;
mod sni;
mod spdy;
mod status;
mod terminal;
mod tokens;
mod upgrade;
mod variable_names;
mod volumes;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use ipnet::Ipv4Net;
use tokio_util::sync::CancellationToken;

/// What runs a container as a process, for whoever has containers of his own.
pub mod runtime {
    pub use super::child::{base_env, exit_code};
    pub use super::exec::{ExecRequest, refuse, serve as serve_exec};
    pub use super::forward::{Connect, serve as serve_forward};
    pub use super::host_root::{HostRoot, RootEntry};
    pub use super::identity::Identity;
    pub use super::isolation::{Entry, Isolation};
    pub use super::program::{Chosen, choose, container_path, program_paths};
    pub use super::rootfs::{Bind, Rootfs, RootfsSpec};
    pub use super::spdy::Stream;
    pub use super::upgrade::{Body, EXEC, PORT_FORWARD, text_response, upgraded};
    pub use super::variable_names::Carried;
}

pub use child::{Child, Run, markers};
pub use cleanup::{clean_up, remove_pods, remove_tree};
pub use log::{LIMIT as LOG_LIMIT, LogFormat, RotatingLog, older as older_log, tail as log_tail};
pub use sni::install_gateway_api;

/// Finds the program that an image stands for.
pub trait Images: Send + Sync {
    fn resolve(&self, image: &str) -> Result<Program, ImageError>;

    /// Gets what an image stands for while its pod waits, unless it is at hand or something else may run in its place. An error says why it could
    /// not be had and what to do.
    fn pull(&self, _image: &str, _news: tokio::sync::watch::Sender<Pulling>) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Makes arguments fit a program that stands in for another version.
    fn adapt(&self, program: Program, args: Vec<String>) -> (Program, Vec<String>) {
        (program, args)
    }
}

/// What a pull is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pulling {
    /// A sentence for each step, with how long it usually takes.
    pub step: String,
    /// How far it is.
    pub progress: String,
}

/// A program that an image stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    /// What really runs, such as `v1.34.4`.
    pub version: String,
    /// What was asked for, if that is something else.
    pub substituted_for: Option<String>,
    /// Flags that were removed because this version does not know them.
    pub dropped_flags: Vec<String>,
    /// The words it is started with if the container gives neither command nor arguments.
    pub default_args: Vec<String>,
    /// Where containers with a root of their own find it; it is run by the first of these paths. Empty: in `/usr/local/bin`, or where it is if
    /// it is the machine's.
    pub container_paths: Vec<PathBuf>,
    /// Files of the image, by path.
    pub files: Vec<ImageFile>,
    /// Not a program of its own: the image stands for the machine's shell and tools.
    pub is_host_shell: bool,
}

/// A file that an image brings along.
#[derive(Clone, PartialEq, Eq)]
pub struct ImageFile {
    pub at: PathBuf,
    pub content: Vec<u8>,
}

impl std::fmt::Debug for ImageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // It may be a key.
        write!(f, "ImageFile({}, {} bytes)", self.at.display(), self.content.len())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no program is installed for image {image}: run `hangar components fetch`, or name a directory with --components"
)]
pub struct ImageError {
    pub image: String,
}

/// What a node is told about itself.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    pub name: String,
    /// The node's own loopback address; NodePorts listen here.
    pub address: Ipv4Addr,
    pub pods_dir: PathBuf,
    pub volumes_dir: PathBuf,
    pub pod_network: Ipv4Net,
    pub load_balancer_network: Ipv4Net,
    /// Where the Service `kubernetes` leads.
    pub api_server: SocketAddr,
    /// Written into the environment of every process.
    pub home: PathBuf,
    /// With it, `kubectl logs` works.
    pub kubelet: Option<KubeletTls>,
}

/// What the log server shows and whom it believes; all PEM files.
#[derive(Debug, Clone)]
pub struct KubeletTls {
    /// Where it listens; another port is taken if this one is not free.
    pub port: u16,
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_ca: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error("could not register node {name}")]
    Register { name: String, source: Box<kube::Error> },
    #[error("could not prepare {path}")]
    Directory { path: PathBuf, source: std::io::Error },
    #[error("could not serve logs: {0}")]
    Kubelet(String),
    #[error("a watch of the node ended unexpectedly")]
    WatchEnded,
}

/// What all parts of the node share.
pub(crate) struct Node {
    client: kube::Client,
    images: Arc<dyn Images>,
    options: NodeOptions,
    events: events::Events,
    watched: watch::Watched,
    addresses: addresses::Addresses,
    balancers: balancer_addresses::BalancerAddresses,
    hosts_files: hosts_file::HostsFiles,
    exec_contexts: exec_context::ExecContexts,
    isolation: isolation::Isolation,
    memory: memory::Memory,
}

/// Runs the node until `shutdown`; its processes are ended before this returns, its pods stay in the API.
pub async fn run(
    client: kube::Client,
    images: Arc<dyn Images>,
    options: NodeOptions,
    shutdown: CancellationToken,
) -> Result<(), NodeError> {
    for path in [&options.pods_dir, &options.volumes_dir] {
        std::fs::create_dir_all(path).map_err(|source| NodeError::Directory { path: path.clone(), source })?;
    }
    let mut tasks = tokio::task::JoinSet::new();
    let watched = watch::Watched::start(&client, &options.name, &mut tasks);
    let events = events::Events::new(client.clone(), &options.name);
    let addresses = addresses::Addresses::open(options.pod_network, &options.pods_dir);
    let lo = lo::Lo::open(&options.home, lo::Ip::find());
    let balancers = balancer_addresses::BalancerAddresses::new(options.load_balancer_network, lo);
    let (hosts_files, isolation) =
        (hosts_file::HostsFiles::default(), isolation::Isolation::detect(&options.pods_dir).await);
    let exec_contexts = exec_context::ExecContexts::default();
    let memory = memory::Memory::find(&options.home);
    // What is still there is of a node that was killed.
    memory.remove_groups();
    let node = Arc::new(Node {
        client,
        images,
        options,
        events,
        watched,
        addresses,
        balancers,
        hosts_files,
        exec_contexts,
        isolation,
        memory,
    });
    let kubelet_port = kubelet::start(&node, &mut tasks).await?;
    register::register(&node, kubelet_port).await?;
    claims::ensure_storage_class(&node.client).await;
    node.watched.until_ready().await?;
    tasks.spawn(services::run(node.clone()));
    tasks.spawn(sni::run(node.clone()));
    tasks.spawn(claims::run(node.clone()));
    tasks.spawn(hosts_file::run(node.clone()));
    // Returns when all processes are ended; then the rest may go as well.
    pods::run(node.clone(), shutdown).await;
    tasks.shutdown().await;
    node.balancers.leave();
    node.memory.remove_groups();
    Ok(())
}
