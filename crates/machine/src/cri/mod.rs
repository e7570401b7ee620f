//! The container runtime of a guest: the API that kubelets speak, with containers that are processes.
//!
//! Flows: kubelet -> `/run/containerd/containerd.sock` -> [`service`] -> [`sandbox`] (network of a pod), [`container`] (root, process, log),
//! [`images`] (names of programs), [`streaming`] (exec, port-forward). Holds: what a container is run with is what the local plane's node runs its
//! containers with; nothing is remembered when the guest stops, since everything stops with it.

mod container;
#[allow(clippy::all, clippy::pedantic, reason = "generated: tests/generated.rs")]
#[rustfmt::skip]
mod generated;
mod images;
mod network;
mod sandbox;
mod service;
mod streaming;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hangar_node::process::Images;
use hangar_node::process::runtime::{HostRoot, Isolation, RootEntry};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;

use container::Container;
use generated::image_service_server::ImageServiceServer;
use generated::runtime_service_server::RuntimeServiceServer;
use network::PodNetwork;
use sandbox::Sandbox;
use streaming::Streams;

/// Where kubeadm and people look for containerd.
const SOCKET: &str = "/run/containerd/containerd.sock";
const DIRECTORY: &str = "/var/lib/containerd/hangar";

/// What all calls share.
struct Runtime {
    images: Arc<dyn Images>,
    isolation: Isolation,
    host_root: HostRoot,
    directory: PathBuf,
    network: PodNetwork,
    streams: Streams,
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
}

impl Runtime {
    fn sandbox(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn container(&self, id: &str) -> Option<Arc<Container>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn all_sandboxes(&self) -> Vec<Arc<Sandbox>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn all_containers(&self) -> Vec<Arc<Container>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Serves until it cannot any more.
pub fn serve(images: Arc<dyn Images>) -> std::io::Result<JoinHandle<Result<(), tonic::transport::Error>>> {
    let directory = PathBuf::from(DIRECTORY);
    // Of the start before.
    hangar_node::process::remove_tree(&directory)?;
    std::fs::create_dir_all(&directory)?;
    let host_root = host_root()?;
    let runtime = Arc::new(Runtime {
        images,
        isolation: Isolation::in_namespaces(host_root.clone()),
        host_root,
        directory,
        network: PodNetwork::default(),
        streams: Streams::start()?,
        sandboxes: Mutex::default(),
        containers: Mutex::default(),
    });
    let socket = Path::new(SOCKET);
    if let Some(parent) = socket.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let incoming = UnixListenerStream::new(UnixListener::bind(socket)?);
    let server = tonic::transport::Server::builder()
        .add_service(RuntimeServiceServer::new(service::Service(runtime.clone())))
        .add_service(ImageServiceServer::new(images::Service(runtime)));
    Ok(tokio::spawn(server.serve_with_incoming(incoming)))
}

/// What becomes of the guest's directories in a container: its programs and settings are there, what it keeps is not.
fn host_root() -> std::io::Result<HostRoot> {
    let mut host_root = HostRoot::read(true)?;
    for (name, entry) in &mut host_root.entries {
        *entry = match (name.as_str(), &*entry) {
            (_, RootEntry::Link(to)) => RootEntry::Link(to.clone()),
            ("proc" | "sys", _) => RootEntry::Bind,
            ("bin" | "etc" | "lib" | "lib32" | "lib64" | "libx32" | "sbin" | "usr", _) => RootEntry::Overlay,
            _ => RootEntry::Private,
        };
    }
    Ok(host_root)
}

/// 64 hexadecimal digits, as container runtimes have them.
fn new_id() -> std::io::Result<String> {
    let uuid = || std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    Ok(format!("{}{}", uuid()?, uuid()?).chars().filter(char::is_ascii_hexdigit).collect())
}

/// Nanoseconds since 1970.
fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
