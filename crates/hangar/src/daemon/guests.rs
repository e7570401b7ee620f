//! What runs on the servers of the simulated cloud: machines, hollow nodes, or both.
//!
//! Holds: whoever asked for machines gets them or the reason why not; `auto` takes machines as long as the system allows them and lasts, and says so. A server
//! stays what it was at its first start.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use hangar_embedded::{Store, default_version};
use hangar_machine::{PodRoute, PortFilter};
use hangar_simulator::guests::{HollowGuests, MachineGuests, MachineOptions};
use hangar_simulator::{Guest, GuestDriver, Simulator};
use semver::Version;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cloud::Surroundings;
use crate::cli::PlaneGuests;

/// What machines have from their image.
pub const OF_MACHINES: [&str; 3] = ["kubelet", "kubeadm", "kubectl"];
/// What pods of every tenant are made of.
pub const OF_TENANTS: [&str; 3] = ["kube-proxy", "coredns", "konnectivity-agent"];
/// What guests may want of this machine: API servers, agents of konnectivity, web servers.
const PORTS: [u16; 5] = [80, 443, 6443, 8132, 8443];
/// A worker with its kubelet and the pods that every tenant has, measured.
const MACHINE_MEMORY: u64 = 250 << 20;
/// inotify instances of a worker, measured; and what is left to others.
const INOTIFY_EACH: u64 = 8;
const INOTIFY_REST: u64 = 24;

/// The ports on which guests reach this machine.
pub fn ports(cloud_url: &str) -> watch::Sender<Vec<u16>> {
    let ports = watch::Sender::new(PORTS.to_vec());
    add_port(&ports, cloud_url);
    ports
}

/// Guests that join want to reach their API server.
pub fn add_port(ports: &watch::Sender<Vec<u16>>, url: &str) {
    let Some(port) = url.trim_end_matches('/').rsplit(':').next().and_then(|port| port.parse().ok()) else { return };
    ports.send_if_modified(|known| {
        let is_new = !known.contains(&port);
        if is_new {
            known.push(port);
        }
        is_new
    });
}

/// The driver, and a sentence about it.
pub async fn choose(
    surroundings: &Surroundings<'_>,
    cloud: &Simulator,
    ports: watch::Receiver<Vec<u16>>,
    shutdown: &CancellationToken,
) -> Result<(Arc<dyn GuestDriver>, String)> {
    let hollow = HollowGuests::new(cloud.guests_dir(), shutdown.clone());
    if surroundings.guests == PlaneGuests::Hollow {
        // Of a plane that was killed, and wanted them.
        hangar_embedded::end_machines(surroundings.home.path(), hangar_machine::MARK).await;
        return Ok((Arc::new(hollow), "hollow nodes, whose pods do not run (--guests=machine: real ones)".into()));
    }
    let opened = open(surroundings, ports).await;
    match (opened, surroundings.guests) {
        (Ok(machines), PlaneGuests::Machine) => {
            Ok((Arc::new(machines), "machines: processes with the real kubelet".into()))
        }
        (Ok(machines), _) => {
            let (most, why) = capacity(|name| std::fs::read_to_string(name).ok());
            let said = format!("up to {most} machines with the real kubelet, hollow nodes beyond that ({why})");
            let directory = surroundings.home.path().join("machines/disks");
            Ok((Arc::new(Mixed { machines, hollow, most, directory, identities: cloud.guests_dir() }), said))
        }
        (Err(error), PlaneGuests::Machine) => Err(error),
        (Err(error), _) => Ok((Arc::new(hollow), format!("hollow nodes, whose pods do not run: {error:#}"))),
    }
}

async fn open(surroundings: &Surroundings<'_>, ports: watch::Receiver<Vec<u16>>) -> Result<MachineGuests> {
    let store = surroundings.store.clone();
    for name in OF_MACHINES {
        let version = default_version(name);
        store
            .nearest(name, &version)
            .with_context(|| format!("{name} is not installed: run `hangar components fetch {name}`"))?;
    }
    let net = surroundings.network;
    let own = ipnet::Ipv4Net::new(net.plane(), 16)?.trunc();
    let options = MachineOptions {
        directory: surroundings.home.path().join("machines"),
        home: surroundings.home.path().to_owned(),
        program: std::env::current_exe().context("could not find the hangar executable")?,
        components: store.options().directory.clone(),
        programs: Arc::new(move |guest| programs(&store, guest)),
        aliases: vec![(super::tenant_endpoint::ALIASES, own)],
        outside: vec![own, hangar_simulator::starter::LOCAL_PUBLIC_CIDR],
        ports,
    };
    let runtime = tokio::runtime::Handle::current();
    let opened = tokio::task::spawn_blocking(move || {
        let _entered = runtime.enter();
        MachineGuests::open(options)
    });
    Ok(opened.await??)
}

/// The versions that its image names, or the nearest ones that are installed.
fn programs(store: &Store, guest: &Guest) -> BTreeMap<PathBuf, PathBuf> {
    let named = guest.image_properties.get("kube_version").and_then(|text| text.trim_start_matches('v').parse().ok());
    let found = OF_MACHINES.into_iter().filter_map(|name| {
        let version: Version = named.clone().unwrap_or_else(|| default_version(name));
        let (found, path) = store.nearest(name, &version)?;
        if found != version && name == "kubelet" {
            guest.console.line(format!(
                "image: requested Kubernetes {version}, running {found}: the requested version is not installed"
            ));
        }
        Some((Path::new("/usr/bin").join(name), path))
    });
    found.collect()
}

/// How many machines this system has room for, and what limits them.
fn capacity(read: impl Fn(&str) -> Option<String>) -> (u64, String) {
    let field = |text: &str| text.split_whitespace().find_map(|word| word.parse::<u64>().ok());
    let meminfo = read("/proc/meminfo").unwrap_or_default();
    let available = meminfo.lines().find(|line| line.starts_with("MemAvailable")).and_then(field).unwrap_or(0) << 10;
    // The rest is for control planes and for everybody else.
    let by_memory = available / 2 / MACHINE_MEMORY;
    let instances = read("/proc/sys/fs/inotify/max_user_instances").as_deref().and_then(field).unwrap_or(u64::MAX);
    let by_inotify = instances.saturating_sub(INOTIFY_REST) / INOTIFY_EACH;
    if by_inotify < by_memory {
        let why = format!("fs.inotify.max_user_instances is {instances}; 8192 would be enough for 1000 machines");
        return (by_inotify, why);
    }
    (by_memory, format!("{} MiB of memory are available", available >> 20))
}

/// Machines while they last.
struct Mixed {
    machines: MachineGuests,
    hollow: HollowGuests,
    most: u64,
    /// Disks of machines, by the ids of their servers.
    directory: PathBuf,
    identities: Option<PathBuf>,
}

impl GuestDriver for Mixed {
    fn boot(&self, guest: Guest) {
        let is_hollow =
            self.identities.as_ref().is_some_and(|dir| dir.join(format!("{}.json", guest.server_id)).exists());
        let is_machine = self.directory.join(&guest.server_id).exists();
        let count = self.directory.read_dir().map_or(0, Iterator::count) as u64;
        if is_machine || !is_hollow && count < self.most {
            // Before the next one counts.
            let _ = std::fs::create_dir_all(self.directory.join(&guest.server_id));
            return self.machines.boot(guest);
        }
        guest.console.line("there is no room for another machine: this is a hollow node, whose pods do not run");
        self.hollow.boot(guest);
    }

    fn shut_down(&self, server_id: &str) {
        self.machines.shut_down(server_id);
        self.hollow.shut_down(server_id);
    }

    fn retain(&self, server_ids: &BTreeSet<String>) {
        self.machines.retain(server_ids);
    }

    fn routes(&self, server_ids: &[String], routes: &[PodRoute]) {
        self.machines.routes(server_ids, routes);
    }

    fn filter(&self, server_id: &str, filter: Option<PortFilter>) {
        self.machines.filter(server_id, filter);
    }

    fn connect(&self, to: SocketAddrV4) -> Option<BoxFuture<'static, std::io::Result<TcpStream>>> {
        self.machines.connect(to)
    }

    fn stop(&self, server_id: &str) {
        self.machines.stop(server_id);
        self.hollow.stop(server_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_names_what_limits_it() {
        let system = |memory: &'static str, inotify: &'static str| {
            capacity(|name| Some(if name.ends_with("meminfo") { memory } else { inotify }.to_owned()))
        };
        let (most, why) = system("MemTotal: 9 kB\nMemAvailable:   4096000 kB\n", "8192\n");
        assert_eq!((most, why.as_str()), (8, "4000 MiB of memory are available"));
        let (most, why) = system("MemAvailable:   40960000 kB\n", "128\n");
        assert!(most == 13 && why.contains("fs.inotify.max_user_instances is 128"), "{most} {why}");
    }

    #[test]
    fn ports_are_those_of_urls_too() {
        let ports = ports("http://127.9.0.1:5000");
        add_port(&ports, "https://127.9.64.1:7443/");
        add_port(&ports, "https://127.9.64.1:6443");
        assert_eq!(*ports.borrow(), [&PORTS[..], &[5000, 7443]].concat());
    }
}
