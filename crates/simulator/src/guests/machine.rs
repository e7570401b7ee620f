//! Guests that are machines: processes in namespaces that do what their user-data says.
//!
//! Flows: boot -> the networks that the server is plugged into -> disk, programs of its image -> the fabric starts it. Holds: what the guest writes is on the
//! server's console, and so is why it could not be started; a guest that still runs from before is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use hangar_machine::{
    Booted, Fabric, FabricError, FabricOptions, GuestSpec, Interface, Leg, Place, PodRoute, PortFilter, remove_disk,
};
use ipnet::Ipv4Net;
use tokio::net::TcpStream;

use super::outside::Outside;
use super::{Guest, GuestDriver, GuestPort};

/// Between an end and the next start; longer for a guest that ends again and again.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(60);

/// Which programs a guest has, by the paths where it sees them.
pub type Programs = Arc<dyn Fn(&Guest) -> BTreeMap<PathBuf, PathBuf> + Send + Sync>;

pub struct MachineOptions {
    /// Where disks, consoles and the fabric's socket are.
    pub directory: PathBuf,
    pub home: PathBuf,
    /// Its `main` calls [`hangar_machine::run_if_asked`].
    pub program: PathBuf,
    pub programs: Programs,
    /// Where images of containers are looked up.
    pub components: PathBuf,
    /// Addresses of this machine that guests reach as they are.
    pub outside: Vec<Ipv4Net>,
    /// Ranges that stand for others of this machine, of the same size, for those who may not name them.
    pub aliases: Vec<(Ipv4Net, Ipv4Net)>,
    /// On which ports.
    pub ports: tokio::sync::watch::Receiver<Vec<u16>>,
}

/// Boots every guest as a machine. Cheap to clone.
#[derive(Clone)]
pub struct MachineGuests(Arc<Inner>);

struct Inner {
    options: MachineOptions,
    fabric: Fabric,
    /// The process of the fabric that knows our places.
    process: Mutex<u32>,
    outside: Outside,
    /// Guests that are to run; each start has a number.
    wanted: Mutex<BTreeMap<String, u64>>,
    starts: AtomicU64,
    /// Servers that are gone for good.
    removed: Mutex<BTreeSet<String>>,
    /// What each guest was told last.
    routes: Mutex<BTreeMap<String, Vec<PodRoute>>>,
    /// What security groups allow each.
    filters: Mutex<BTreeMap<String, PortFilter>>,
    /// In which networks guests have which addresses.
    addresses: Mutex<BTreeMap<String, Vec<(String, Ipv4Addr)>>>,
}

impl MachineGuests {
    /// The error says why there can be none on this system.
    pub fn open(options: MachineOptions) -> Result<Self, FabricError> {
        let fabric = Fabric::open(&fabric_options(&options))?;
        let process = Mutex::new(fabric.process()?);
        let ranges = options.outside.iter().map(|range| (*range, *range)).chain(options.aliases.iter().copied());
        let outside = Outside::new(fabric.clone(), ranges.collect(), options.ports.clone());
        Ok(Self(Arc::new(Inner {
            options,
            fabric,
            process,
            outside,
            wanted: Mutex::default(),
            starts: AtomicU64::new(0),
            removed: Mutex::default(),
            routes: Mutex::default(),
            filters: Mutex::default(),
            addresses: Mutex::default(),
        })))
    }

    pub fn fabric(&self) -> &Fabric {
        &self.0.fabric
    }
}

fn fabric_options(options: &MachineOptions) -> FabricOptions {
    FabricOptions {
        directory: options.directory.join("fabric"),
        home: options.home.clone(),
        program: options.program.clone(),
    }
}

impl GuestDriver for MachineGuests {
    fn boot(&self, guest: Guest) {
        let number = {
            let number = self.0.starts.fetch_add(1, Ordering::Relaxed);
            self.0.wanted().insert(guest.server_id.clone(), number);
            number
        };
        tokio::spawn(keep_running(self.0.clone(), guest, number));
    }

    fn retain(&self, server_ids: &BTreeSet<String>) {
        let disks = self.0.options.directory.join("disks").read_dir().into_iter().flatten().flatten();
        let found = disks.map(|entry| entry.file_name().to_string_lossy().into_owned());
        found.filter(|id| !server_ids.contains(id)).for_each(|id| self.shut_down(&id));
    }

    fn routes(&self, server_ids: &[String], routes: &[PodRoute]) {
        for id in server_ids {
            let mut known = self.0.routes.lock().unwrap_or_else(PoisonError::into_inner);
            if known.get(id).is_some_and(|before| before == routes) {
                continue;
            }
            known.insert(id.clone(), routes.to_vec());
            let (inner, id) = (self.0.clone(), id.clone());
            tokio::task::spawn_blocking(move || {
                inner.tell_routes(&id);
                inner.tell_filter(&id);
            });
        }
    }

    fn filter(&self, server_id: &str, filter: Option<PortFilter>) {
        let mut known = self.0.filters.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(filter) = filter else { return drop(known.remove(server_id)) };
        if known.get(server_id) == Some(&filter) {
            return;
        }
        known.insert(server_id.to_owned(), filter);
        let (inner, id) = (self.0.clone(), server_id.to_owned());
        tokio::task::spawn_blocking(move || inner.tell_filter(&id));
    }

    fn connect(&self, to: SocketAddrV4) -> Option<BoxFuture<'static, std::io::Result<TcpStream>>> {
        let addresses = self.0.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let (network, _) = addresses.values().flatten().find(|(_, address)| address == to.ip())?;
        let (fabric, network) = (self.0.fabric.clone(), network.clone());
        Some(Box::pin(async move { fabric.connect(&network, to).await.map_err(std::io::Error::other) }))
    }

    fn stop(&self, server_id: &str) {
        self.0.wanted().remove(server_id);
        if let Err(error) = self.0.fabric.power_off(server_id) {
            tracing::warn!(server_id, %error, "a machine could not be stopped");
        }
    }

    fn shut_down(&self, server_id: &str) {
        self.stop(server_id);
        self.0.routes.lock().unwrap_or_else(PoisonError::into_inner).remove(server_id);
        self.0.addresses.lock().unwrap_or_else(PoisonError::into_inner).remove(server_id);
        self.0.filters.lock().unwrap_or_else(PoisonError::into_inner).remove(server_id);
        self.0.removed.lock().unwrap_or_else(PoisonError::into_inner).insert(server_id.to_owned());
        let Some(disk) = self.0.disk(server_id) else { return };
        let _ = std::fs::remove_file(self.0.console(server_id));
        tokio::task::spawn_blocking(move || {
            if let Err(error) = remove_disk(&disk) {
                tracing::warn!(path = %disk.display(), %error, "the disk of a server could not be removed");
            }
        });
    }
}

/// Until it is not wanted any more. A guest that ends by itself, or with its fabric, is started again.
async fn keep_running(inner: Arc<Inner>, guest: Guest, number: u64) {
    let mut pause = FIRST_PAUSE;
    while inner.wanted().get(&guest.server_id) == Some(&number) {
        let began = tokio::time::Instant::now();
        let (booting, of, runtime) = (inner.clone(), guest.clone(), tokio::runtime::Handle::current());
        let booted = tokio::task::spawn_blocking(move || {
            let _entered = runtime.enter();
            let booted = booting.boot(&of);
            // Whoever switched it off meanwhile did not meet it; nor did whoever removed its disk.
            if !booting.wanted().contains_key(&of.server_id) {
                let _ = booting.fabric.power_off(&of.server_id);
                if booting.removed.lock().unwrap_or_else(PoisonError::into_inner).contains(&of.server_id)
                    && let Some(disk) = booting.disk(&of.server_id)
                {
                    let _ = remove_disk(&disk);
                }
            }
            booted
        });
        let why = match booted.await {
            Ok(Ok(booted)) => match booted.ended().await {
                Ok(()) => "it ended".to_owned(),
                Err(error) => error.to_string(),
            },
            Ok(Err(why)) => why,
            Err(error) => error.to_string(),
        };
        if inner.wanted().get(&guest.server_id) != Some(&number) {
            return;
        }
        tracing::warn!(server = guest.name, why, "a machine does not run and is started again");
        guest.console.line(format!("machine: {why}"));
        pause = if began.elapsed() > LONG { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        tokio::time::sleep(pause).await;
    }
}

impl Inner {
    fn disk(&self, server_id: &str) -> Option<PathBuf> {
        // Ids are ours, but a file name is no place for surprises.
        let safe = server_id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        safe.then(|| self.options.directory.join("disks").join(server_id))
    }

    fn console(&self, server_id: &str) -> PathBuf {
        self.options.directory.join("consoles").join(format!("{server_id}.log"))
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that was killed is replaced, and knows nothing of what was there before.
    fn ensure_fabric(&self) -> Result<(), FabricError> {
        let mut known = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let process = Fabric::open(&fabric_options(&self.options))?.process()?;
        if std::mem::replace(&mut *known, process) != process {
            self.outside.forget();
        }
        Ok(())
    }

    fn boot(&self, guest: &Guest) -> Result<Booted, String> {
        self.ensure_fabric().map_err(|error| error.to_string())?;
        let disk = self.disk(&guest.server_id).ok_or("its id is no name for a disk")?;
        let console = self.console(&guest.server_id);
        for directory in [Some(disk.as_path()), console.parent()].into_iter().flatten() {
            std::fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        let ports: Vec<_> = guest.ports.iter().filter_map(interface).collect();
        for interface in &ports {
            self.ensure_place(interface)?;
        }
        guest.console.follow(console.clone());
        let own = ports.iter().map(|interface| (interface.network.clone(), interface.address.addr())).collect();
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).insert(guest.server_id.clone(), own);
        let spec = GuestSpec {
            id: guest.server_id.clone(),
            disk,
            console,
            interfaces: ports,
            outside: self.options.outside.clone(),
            instance: guest.instance(),
            programs: (self.options.programs)(guest),
            components: self.options.components.clone(),
            program: self.options.program.clone(),
        };
        let booted = self.fabric.boot(spec).map_err(|error| error.to_string())?;
        self.tell_routes(&guest.server_id);
        self.tell_filter(&guest.server_id);
        Ok(booted)
    }

    fn tell_filter(&self, server_id: &str) {
        let known = self.filters.lock().unwrap_or_else(PoisonError::into_inner).get(server_id).cloned();
        let Some(mut filter) = known else { return };
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner).get(server_id).cloned();
        filter.pods = routes.into_iter().flatten().map(|route| route.range).collect();
        if let Err(error) = self.fabric.filter(server_id, filter) {
            tracing::warn!(server_id, %error, "security groups are not enforced for a machine");
        }
    }

    fn tell_routes(&self, server_id: &str) {
        let known = self.routes.lock().unwrap_or_else(PoisonError::into_inner).get(server_id).cloned();
        if let Some(routes) = known.filter(|routes| !routes.is_empty())
            && let Err(error) = self.fabric.route(server_id, routes)
        {
            tracing::warn!(server_id, %error, "a machine does not know where the pods of other nodes are");
        }
    }

    /// The gateway of a network, where connections to the outside arrive.
    fn ensure_place(&self, interface: &Interface) -> Result<(), String> {
        let Some(gateway) = interface.gateway else { return Ok(()) };
        let address = Ipv4Net::new(gateway, interface.address.prefix_len()).map_err(|error| error.to_string())?;
        let leg = Leg { network: interface.network.clone(), address, mtu: interface.mtu };
        let options = &self.options;
        let aliases = options.aliases.iter().map(|(alias, _)| *alias);
        let answers_for = options.outside.iter().copied().chain(aliases).collect();
        let place = Place { name: interface.network.clone(), legs: vec![leg], answers_for };
        self.fabric.ensure_place(place).map_err(|error| error.to_string())?;
        self.outside.serve(&interface.network);
        Ok(())
    }
}

/// None for what has no IPv4 address.
fn interface(port: &GuestPort) -> Option<Interface> {
    let address: Ipv4Addr = port.address.parse().ok()?;
    let range: Ipv4Net = port.cidr.parse().ok()?;
    let mac: Vec<u8> = port.mac_address.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
    Some(Interface {
        network: port.network_id.clone(),
        mac: mac.try_into().ok(),
        address: Ipv4Net::new(address, range.prefix_len()).ok()?,
        gateway: port.gateway.as_ref().and_then(|gateway| gateway.parse().ok()),
        mtu: port.mtu,
    })
}
