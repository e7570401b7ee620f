//! From a container as it is described to a command that can be run: variables, volumes, the program, and the view it runs in.
//!
//! Holds: whatever keeps a container from starting is said with the reason that a kubelet gives for it; a view is laid out anew for each run, so
//! what a run wrote outside of its volumes is gone with it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::VolumeMount;
use kube::ResourceExt as _;

use super::child::Run;
use super::container::ContainerRunner;
use super::environment::{environment, quantity};
use super::exec_context::ExecContext;
use super::expand::expand;
use super::identity::Identity;
use super::isolation::Entry;
use super::log::LogFormat;
use super::memory::MemoryGroup;
use super::mounts::Mounts;
use super::program::{Chosen, choose, container_path, program_paths};
use super::rootfs::{Bind, Rootfs, RootfsSpec};
use super::variable_names::{Carried, NEEDS};
use super::{Program, files};

/// Reason and message, as they stand in a waiting state.
pub(super) type LaunchError = (&'static str, String);

/// A container that is ready to go.
pub(super) struct Launch {
    pub run: Run,
    pub context: ExecContext,
    pub program: Option<Program>,
    /// Its own view, which goes with it.
    pub rootfs: Option<Rootfs>,
    /// Where it may leave its last words.
    pub termination_log: PathBuf,
    /// What it may hold of the memory, if that is limited.
    pub memory_group: Option<MemoryGroup>,
}

/// What the words of an image may refer to: `$(HANGAR_POD_IP)`.
const POD_IP: &str = "HANGAR_POD_IP";
const TERMINATION_LOG: &str = "/dev/termination-log";

impl ContainerRunner {
    pub(super) async fn launch(&self) -> Result<Launch, LaunchError> {
        let config = |message: String| ("CreateContainerConfigError", message);
        let broken = |error: std::io::Error| config(error.to_string());
        let identity = Identity::of(&self.pod, &self.container).map_err(config)?;
        let env = environment(&self.node, &self.pod, &self.container, self.ip).map_err(|e| config(e.to_string()))?;
        let binds = self.binds(&env).map_err(config)?;
        let mounts = match self.node.isolation.host_root {
            Some(_) => Mounts::default(),
            None => Mounts::new(binds.iter().map(|bind| (bind.at.display().to_string(), bind.from.clone()))),
        };
        let (path, args, program) = self.program(&env, &mounts, &binds).await.map_err(|said| ("ErrImagePull", said))?;
        let address = BTreeMap::from([(POD_IP.to_owned(), self.ip.to_string())]);
        let args = if program.as_ref().is_some_and(|one| !one.is_host_shell) {
            args.iter().map(|word| expand(word, &address)).collect()
        } else {
            args
        };
        let own = self.directory.join(&self.container.name);
        files::private_directory(&own).map_err(broken)?;
        let restarts = self.states.snapshot().get(self.index).map_or(0, |record| record.restarts);
        let number = next_run(&own, restarts);
        let termination_log = own.join(format!("{number}.last"));
        empty_for_all(&termination_log).map_err(broken)?;
        let env: BTreeMap<String, String> =
            env.into_iter().map(|(name, value)| (name, mounts.rewrite(&value))).collect();
        let first = self.container.command.iter().flatten().next().map(String::as_str);
        let path = match self.node.isolation.host_root {
            Some(_) => container_path(path, program.as_ref(), first),
            None => path,
        };
        let carried = Carried::new(env.clone());
        if carried.is_needed() && !self.node.isolation.has_env_split_string {
            return Err(config(format!("a variable's name is not one for shells, and to pass it on needs {NEEDS}")));
        }
        let (path, args) = carried.command(path, args);
        let hosts = self.node.hosts_files.of(&self.node, &self.pod).map_err(broken)?;
        let home = self.node.options.home.clone();
        let memory_group = self.memory_limit().map(|limit| {
            // Without a view nobody is there who could join a group in time.
            let memory = self.node.isolation.host_root.as_ref().map(|_| self.node.memory.clone()).unwrap_or_default();
            memory.group(&format!("{}-{}-{number}", self.pod.uid().unwrap_or_default(), self.container.name), limit)
        });
        let (pid, directory, cgroup_procs) =
            (None, own.clone(), memory_group.as_ref().and_then(MemoryGroup::cgroup_procs));
        let mut context =
            ExecContext { env, mounts, directory, hosts, home: home.clone(), identity, pid, cgroup_procs };
        let (rootfs, path, args) = match &self.node.isolation.host_root {
            Some(host_root) => {
                let rootfs_spec = self.rootfs_spec(binds, &context.hosts, &termination_log, program.as_ref());
                let rootfs =
                    Rootfs::build(host_root, &own.join(format!("view-{number}")), &rootfs_spec).map_err(broken)?;
                let working_directory =
                    self.container.working_dir.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
                let cgroup_procs = context
                    .cgroup_procs
                    .as_ref()
                    .map(|cgroup_procs| cgroup_procs.display().to_string())
                    .unwrap_or_default();
                let entry = Entry {
                    hostname: &rootfs_spec.hostname,
                    working_directory,
                    identity: context.identity.clone(),
                    cgroup_procs,
                };
                let (path, args) = self.node.isolation.in_rootfs(&rootfs, &entry, path, args);
                (Some(rootfs), path, args)
            }
            None => {
                let working_directory = self.container.working_dir.as_deref().map(|path| context.mounts.real(path));
                context.directory = working_directory.filter(|path| path.is_dir()).unwrap_or(own.clone());
                let (path, args) = self.node.isolation.with_hosts_file(&context.hosts, path, args);
                (None, path, args)
            }
        };
        let run = Run {
            program: path,
            args,
            env: carried.env,
            directory: context.directory.clone(),
            log: own.join(format!("{number}.log")),
            log_format: LogFormat::Timestamped,
            home,
        };
        Ok(Launch { run, context, program, rootfs, termination_log, memory_group })
    }

    fn memory_limit(&self) -> Option<u64> {
        let limits = self.container.resources.as_ref()?.limits.as_ref()?;
        let bytes = quantity(&limits.get("memory")?.0)?;
        (bytes >= 1.0).then_some(bytes as u64)
    }

    fn rootfs_spec(
        &self,
        mut binds: Vec<Bind>,
        hosts: &Path,
        termination_log: &Path,
        program: Option<&Program>,
    ) -> RootfsSpec {
        let spec = self.pod.spec.as_ref();
        let said_at = self.container.termination_message_path.as_deref().filter(|path| !path.is_empty());
        let said_at = PathBuf::from(said_at.unwrap_or(TERMINATION_LOG));
        for (from, at) in [(hosts.to_owned(), PathBuf::from("/etc/hosts")), (termination_log.to_owned(), said_at)] {
            // A volume of the pod goes before what every container has.
            if !binds.iter().any(|bind| bind.at == at) {
                binds.push(Bind { from, at, read_only: false });
            }
        }
        if let Some(program) = program {
            let from = &program.path;
            binds.extend(program_paths(program).into_iter().map(|at| Bind {
                from: from.clone(),
                at,
                read_only: false,
            }));
        }
        let security = self.container.security_context.as_ref();
        let name = spec.and_then(|spec| spec.hostname.clone()).unwrap_or_else(|| self.pod.name_any());
        RootfsSpec {
            hostname: name.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_owned(),
            binds,
            files: program.map(|program| program.files.clone()).unwrap_or_default(),
            read_only_root: security.and_then(|security| security.read_only_root_filesystem) == Some(true),
        }
    }

    /// The image's program, unless the command names one of the machine's.
    async fn program(&self, env: &BTreeMap<String, String>, mounts: &Mounts, binds: &[Bind]) -> Result<Chosen, String> {
        let word = |word: &String| mounts.rewrite(&expand(word, env));
        let command: Vec<String> = self.container.command.iter().flatten().map(word).collect();
        let args: Vec<String> = self.container.args.iter().flatten().map(word).collect();
        let image = self.container.image.clone().unwrap_or_default();
        let images = self.node.images.clone();
        let volumes: Vec<PathBuf> = binds.iter().map(|bind| bind.at.clone()).collect();
        // Asks programs for their version and their flags, which takes a moment.
        let work = tokio::task::spawn_blocking(move || {
            choose(&*images, &image, command, args, |path| volumes.iter().any(|volume| path.starts_with(volume)))
        });
        work.await.map_err(|error| error.to_string())?
    }

    fn binds(&self, env: &BTreeMap<String, String>) -> Result<Vec<Bind>, String> {
        let mut binds = vec![];
        for mount in self.container.volume_mounts.iter().flatten() {
            let Some(volume) = self.volumes.get(&mount.name) else { continue };
            let from = match sub_path(mount, env) {
                Some(sub_path) => inside(volume, &sub_path).map_err(|why| format!("volume {}: {why}", mount.name))?,
                None => volume.clone(),
            };
            let read_only = mount.read_only == Some(true) || self.is_written_by_node(&mount.name);
            binds.push(Bind { from, at: Path::new("/").join(&mount.mount_path), read_only });
        }
        Ok(binds)
    }

    /// Files that come from the API are not for containers to write.
    fn is_written_by_node(&self, name: &str) -> bool {
        let volumes = self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        volumes.filter(|volume| volume.name == name).any(|volume| {
            volume.secret.is_some()
                || volume.config_map.is_some()
                || volume.downward_api.is_some()
                || volume.projected.is_some()
        })
    }
}

fn sub_path(mount: &VolumeMount, env: &BTreeMap<String, String>) -> Option<String> {
    let expanded = mount.sub_path_expr.as_ref().map(|text| expand(text, env));
    expanded.or_else(|| mount.sub_path.clone()).filter(|path| !path.is_empty())
}

/// A path of a volume, made if it is not there; it must not lead out of the volume, not even by a link.
fn inside(volume: &Path, sub_path: &str) -> Result<PathBuf, String> {
    let said = |error: std::io::Error| format!("subPath {sub_path}: {error}");
    if Path::new(sub_path).is_absolute() || Path::new(sub_path).components().any(|part| part.as_os_str() == "..") {
        return Err(format!("subPath {sub_path} must be a path inside of the volume"));
    }
    let (root, path) = (volume.canonicalize().map_err(said)?, volume.join(sub_path));
    let existing = path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    if !existing.is_some_and(|existing| existing.starts_with(&root)) || path.is_symlink() && !path.exists() {
        return Err(format!("subPath {sub_path} is outside of the volume"));
    }
    if !path.exists() {
        std::fs::create_dir_all(&path).map_err(said)?;
        let mode = root.metadata().map_err(said)?.permissions();
        std::fs::set_permissions(&path, mode).map_err(said)?;
    }
    path.canonicalize().map_err(said)
}

fn empty_for_all(path: &Path) -> std::io::Result<()> {
    std::fs::write(path, "")?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
}

/// Each run has a number and a log of its own; the log before is kept for `logs --previous`, older ones go.
fn next_run(directory: &Path, restarts: i32) -> i32 {
    let numbers = directory.read_dir().into_iter().flatten().flatten();
    let mut numbers: Vec<i32> =
        numbers.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()).collect();
    numbers.sort_unstable();
    for old in numbers.iter().rev().skip(1) {
        let path = directory.join(format!("{old}.log"));
        let _ = std::fs::remove_file(super::log::older(&path));
        let _ = std::fs::remove_file(path.with_extension("last"));
        let _ = std::fs::remove_file(path);
    }
    let next = numbers.last().map_or(restarts, |last| (last + 1).max(restarts));
    // A node that was killed leaves layers behind.
    for entry in directory.read_dir().into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("view-") {
            Rootfs { directory: entry.path() }.remove();
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sub_path_is_made_and_stays_in_its_volume() {
        let directory = tempfile::tempdir().unwrap();
        let volume = directory.path().join("v");
        std::fs::create_dir(&volume).unwrap();
        std::os::unix::fs::symlink("/etc", volume.join("out")).unwrap();
        std::os::unix::fs::symlink("in", volume.join("near")).unwrap();
        assert_eq!(inside(&volume, "in/deep").unwrap(), volume.join("in/deep"));
        assert_eq!(inside(&volume, "near").unwrap(), volume.join("in"));
        for bad in ["out", "out/passwd", "../x", "/etc"] {
            assert!(inside(&volume, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_last_run_and_the_one_before_keep_their_logs() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..3 {
            assert_eq!(next_run(directory.path(), 0), number);
            std::fs::write(directory.path().join(format!("{number}.log")), "").unwrap();
        }
        assert_eq!(next_run(directory.path(), 7), 7);
        assert!(!directory.path().join("1.log").exists() && directory.path().join("2.log").exists());
    }
}
