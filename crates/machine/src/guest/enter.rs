//! The process between the fabric and a guest: it makes the guest's namespaces and stays until the guest ends.
//!
//! Flows: spec on standard input -> namespaces -> links from the fabric -> addresses -> mounts -> the guest's first process. Holds: one thread until
//! all namespaces are made; when the fabric ends this process ends, and the guest with it.

use std::io::{BufRead as _, Error, Result, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

use ipnet::Ipv4Net;
use nix::sched::{CloneFlags, unshare};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{GuestSpec, disk};
use crate::fabric::{accept_loopback, loopback_of, sysctl};
use crate::network::NetNamespace;
use crate::{WORD, chain};

/// Words go to the fabric by standard output, until the guest runs.
pub fn run() -> ExitCode {
    match boot() {
        Ok(mut first) => {
            println!("booted");
            let ended = first.wait();
            ExitCode::from(u8::from(!ended.is_ok_and(|status| status.success())))
        }
        Err(error) => {
            println!("{}", chain(&error).replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn boot() -> Result<std::process::Child> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut heard = std::io::stdin().lock().lines();
    let mut next = || heard.next().unwrap_or_else(|| Err(Error::other("the fabric said nothing")));
    let spec: GuestSpec = serde_json::from_str(&next()?)?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC)?;
    rustix::system::sethostname(spec.instance.name.as_bytes())?;
    println!("unshared");
    std::io::stdout().flush()?;
    next()?;
    let console = std::fs::OpenOptions::new().create(true).append(true).open(&spec.console)?;
    configure(&spec)?;
    let root = disk::mount(&spec)?;
    std::fs::create_dir_all(root.join("run/hangar"))?;
    hangar_node::small_file::keep(&root.join("run/hangar/guest.json"), &serde_json::to_vec(&spec)?)?;
    std::fs::write(root.join("run/hangar/kubelet.env"), kubelet_arguments(&spec))?;
    let mut init = Command::new(std::env::current_exe()?);
    init.args([WORD, "init"]).arg(&root).current_dir(&root).process_group(0);
    // From here on no thread can be started: the next process is the first in a namespace of its own.
    unshare(CloneFlags::CLONE_NEWPID)?;
    init.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console).spawn()
}

/// A guest has a part of this machine's disk: a tenth of the whole is no measure of what is left to it.
const EVICTION: &str = "--eviction-hard=memory.available<100Mi,nodefs.available<1Gi,imagefs.available<1Gi";

/// What a kubelet needs where there are no control groups of its own; and its address, which is that of the first interface.
fn kubelet_arguments(spec: &GuestSpec) -> String {
    let address = spec.interfaces.first().map(|interface| format!(" --node-ip={}", interface.address.addr()));
    format!(
        "KUBELET_MACHINE_ARGS=--feature-gates=KubeletInUserNamespace=true --cgroups-per-qos=false --enforce-node-allocatable= {EVICTION}{}\n",
        address.unwrap_or_default()
    )
}

/// Addresses and routes.
fn configure(spec: &GuestSpec) -> Result<()> {
    let own = NetNamespace::current()?;
    let configured = own.configure(async |links| {
        links.loopback().await?;
        for (number, interface) in spec.interfaces.iter().enumerate() {
            let name = format!("eth{number}");
            links.identify(&name, interface.mac, interface.mtu).await?;
            links.add_address(&name, interface.address).await?;
            if let Some(gateway) = interface.gateway.filter(|_| number == 0) {
                links.route(Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 0), gateway).await?;
                links.route_loopback(gateway, loopback_of(interface.address.addr())).await?;
            }
        }
        Ok(())
    });
    configured.map_err(|error| Error::other(chain(&error)))?;
    own.inside(|| {
        sysctl("ip_forward", "1")?;
        accept_loopback("all")?;
        accept_loopback("default")?;
        // A user without a terminal of root's may ask whether somebody is there, and serve on port 53.
        drop(sysctl("ping_group_range", "0 0"));
        sysctl("ip_unprivileged_port_start", "0")
    })
}
