//! The disk of a guest, and the root that is mounted from it.
//!
//! Flows: the machine's programs, as layers below the guest's own -> directories that are the guest's alone -> programs of its image -> one tree. Holds: what
//! is written anywhere but below `/dev`, `/run` and `/tmp` is there again after the next start; nothing of the machine's homes is seen.

use std::io::{Error, Result};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use hangar_node::process::ImageFile;
use hangar_node::process::runtime::{Bind, HostRoot, RootEntry, Rootfs, RootfsSpec};

use super::{GuestSpec, PROGRAM};

/// Directories that begin empty and are kept.
const OWN: [&str; 7] = ["etc", "home", "mnt", "opt", "root", "srv", "var"];
/// Where programs put things, and where only the machine's root could make something otherwise.
const WRITABLE: [&str; 7] =
    ["usr", "usr/bin", "usr/lib", "usr/lib/hangar", "usr/local", "usr/local/bin", "usr/local/sbin"];
const BELOW_VAR: [&str; 9] =
    ["cache", "lib/cloud", "lib/cni", "lib/containerd", "lib/kubelet", "log/pods", "log/containers", "spool", "tmp"];
/// As the packages of Kubernetes have it: the files that kubeadm writes decide how it runs. What comes last is for machines like these.
const KUBELET_UNIT: &str = "\
[Unit]
Description=kubelet
ConditionPathExists=/var/lib/kubelet/config.yaml
[Service]
Environment=KUBELET_KUBECONFIG_ARGS=\"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf\"
Environment=KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
EnvironmentFile=-/run/hangar/kubelet.env
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_MACHINE_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
Restart=always
";
const UNITS: &str = "usr/lib/systemd/system";
/// A program that asks systemd for something.
const SYSTEMCTL: &str = "#!/bin/sh\nexec /usr/lib/hangar/hangar machine-process systemctl \"$@\"\n";
const SCRIPT_PATHS: [&str; 1] = ["/usr/bin/systemctl"];

/// Mounts everything in the namespace of this process; the path of the root.
pub fn mount(spec: &GuestSpec) -> Result<PathBuf> {
    let disk = &spec.disk;
    let is_new = !disk.join("own").exists();
    // Mount points, and what does not outlive a start.
    hangar_node::process::remove_tree(&disk.join("root"))?;
    for name in OWN {
        std::fs::create_dir_all(disk.join("own").join(name))?;
    }
    if is_new {
        furnish(disk)?;
        std::fs::write(disk.join("own/etc/hosts"), hosts(spec))?;
    }
    let host_root = layout()?;
    for path in WRITABLE {
        if Path::new("/").join(path).is_dir() || path == "usr/lib/hangar" {
            std::fs::create_dir_all(disk.join("up").join(path))?;
        }
    }
    let bind = |from: &Path, at: &Path| Bind { from: from.to_owned(), at: at.to_owned(), read_only: true };
    let mut binds: Vec<Bind> = spec.programs.iter().map(|(at, from)| bind(from, at)).collect();
    binds.push(bind(&std::env::current_exe()?, Path::new(PROGRAM)));
    if spec.components.is_dir() {
        binds.push(bind(&spec.components, &spec.components));
    }
    for at in SCRIPT_PATHS {
        let script = disk.join("systemctl");
        std::fs::write(&script, SYSTEMCTL)?;
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
        binds.push(bind(&script, Path::new(at)));
    }
    let files = vec![resolv_conf(spec)];
    let wanted = RootfsSpec { hostname: spec.instance.name.clone(), binds, files, ..RootfsSpec::default() };
    let rootfs = Rootfs::build(&host_root, disk, &wanted)?;
    let mounted = Command::new("mount").arg("-T").arg(rootfs.directory.join("fstab")).arg("-a").output()?;
    if !mounted.status.success() {
        return Err(Error::other(format!("could not mount its root: {}", String::from_utf8_lossy(&mounted.stderr))));
    }
    Ok(disk.join("root"))
}

/// The gateway is asked, as a network without name servers of its own has it. It says at once if nobody is there to answer.
fn resolv_conf(spec: &GuestSpec) -> ImageFile {
    let gateway = spec.interfaces.iter().find_map(|interface| interface.gateway);
    let content = gateway.map(|gateway| format!("nameserver {gateway}\noptions timeout:1 attempts:1\n"));
    ImageFile { at: "/etc/resolv.conf".into(), content: content.unwrap_or_default().into_bytes() }
}

/// A machine knows its own name.
fn hosts(spec: &GuestSpec) -> String {
    let address = spec.interfaces.first().map(|interface| interface.address.addr().to_string());
    let own = format!("{} {}\n", address.unwrap_or_else(|| "127.0.1.1".into()), spec.instance.name);
    format!("127.0.0.1 localhost\n{own}::1 localhost ip6-localhost ip6-loopback\n")
}

/// What becomes of each directory of `/`.
fn layout() -> Result<HostRoot> {
    let mut host_root = HostRoot::read(true)?;
    // The layers of a disk are kept.
    host_root.volatile = false;
    host_root.entries.retain(|name, entry| {
        let is_program = ["bin", "lib", "lib32", "lib64", "libx32", "sbin", "usr"].contains(&name.as_str());
        is_program || matches!(name.as_str(), "dev" | "proc" | "run" | "sys" | "tmp") || matches!(entry, RootEntry::Own)
    });
    for name in OWN {
        host_root.entries.insert(name.to_owned(), RootEntry::Own);
    }
    for (name, entry) in [("proc", RootEntry::Private), ("dev", RootEntry::Private), ("tmp", RootEntry::Private)] {
        host_root.entries.insert(name.to_owned(), entry);
    }
    Ok(host_root)
}

/// A disk as an image has it.
fn furnish(disk: &Path) -> Result<()> {
    let own = disk.join("own");
    copy_readable(Path::new("/etc"), &own.join("etc"))?;
    for path in BELOW_VAR {
        std::fs::create_dir_all(own.join("var").join(path))?;
    }
    for (to, at) in [("../run", "var/run"), ("../run/lock", "var/lock")] {
        symlink(to, own.join(at))?;
    }
    std::fs::create_dir_all(own.join("etc/kubernetes/manifests"))?;
    let wanted = own.join("etc/systemd/system/multi-user.target.wants");
    std::fs::create_dir_all(&wanted)?;
    // The services of the machine that it is copied from are not the guest's.
    for entry in wanted.read_dir()?.flatten() {
        std::fs::remove_file(entry.path())?;
    }
    let units = disk.join("up").join(UNITS);
    std::fs::create_dir_all(&units)?;
    std::fs::write(units.join("kubelet.service"), KUBELET_UNIT)?;
    symlink("/usr/lib/systemd/system/kubelet.service", wanted.join("kubelet.service"))?;
    // Each machine has its own.
    let _ = std::fs::remove_file(own.join("etc/machine-id"));
    Ok(())
}

/// Files that others may not read are not for guests either; the rest is the guest's from now on.
fn copy_readable(from: &Path, to: &Path) -> Result<()> {
    let Ok(entries) = from.read_dir() else { return Ok(()) };
    for entry in entries.flatten() {
        let (source, target, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type()?);
        let mode = entry.metadata()?.permissions().mode();
        if kind.is_symlink() {
            symlink(std::fs::read_link(&source)?, &target)?;
        } else if kind.is_dir() && mode & 0o005 == 0o005 {
            std::fs::create_dir_all(&target)?;
            copy_readable(&source, &target)?;
        } else if kind.is_file() && mode & 0o004 != 0 {
            std::fs::write(&target, std::fs::read(&source)?)?;
            std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode & 0o755 | 0o600))?;
        }
    }
    Ok(())
}
