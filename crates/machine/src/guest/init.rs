//! The first process of a guest: it goes into the guest's root, starts the agent, and reaps whoever has nobody else.
//!
//! Holds: when the agent ends the guest ends; when this process ends, the system ends all others of the guest.

use std::io::Result;
use std::path::Path;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, wait};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Signal, pivot_root, set_parent_process_death_signal};

use super::PROGRAM;
use crate::{WORD, chain};

/// What a guest's processes have in their environment from the beginning.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Settings of the whole machine that programs of a node insist on reading and writing, and what they are where users may not even read them. They are files here.
const SETTINGS: [(&str, &str); 7] = [
    ("proc/sys/net/netfilter/nf_conntrack_max", "262144"),
    ("sys/module/nf_conntrack/parameters/hashsize", "262144"),
    ("proc/sys/vm/overcommit_memory", "1"),
    ("proc/sys/vm/panic_on_oom", "0"),
    ("proc/sys/kernel/panic", "10"),
    ("proc/sys/kernel/panic_on_oops", "1"),
    ("proc/sys/vm/swappiness", "60"),
];

pub fn run(root: &Path) -> ExitCode {
    match start(root) {
        Ok(agent) => reap(agent),
        Err(error) => {
            eprintln!("init: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn start(root: &Path) -> Result<u32> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    mount("proc", root.join("proc"), "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)?;
    for (path, usual) in SETTINGS {
        // Not every kernel has all of them.
        if root.join(path).exists() {
            let file = root.join("run/hangar").join(path.replace('/', "."));
            std::fs::write(&file, std::fs::read(root.join(path)).unwrap_or_else(|_| usual.into()))?;
            rustix::mount::mount_bind(&file, root.join(path))?;
        }
    }
    std::env::set_current_dir(root)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")?;
    let mut agent = Command::new(PROGRAM);
    agent.args([WORD, "agent"]).env("PATH", PATH).env("HOME", "/root").env_remove("TMPDIR");
    Ok(agent.spawn()?.id())
}

fn reap(agent: u32) -> ExitCode {
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid.as_raw().cast_unsigned() == agent => {
                return ExitCode::from(u8::try_from(code).unwrap_or(1));
            }
            Ok(WaitStatus::Signaled(pid, ..)) if pid.as_raw().cast_unsigned() == agent => return ExitCode::FAILURE,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}
