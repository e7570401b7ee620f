//! A container: a program with a root of its own, in the network of its pod.
//!
//! Flows: what the kubelet wants -> program, root and variables -> process -> exit code. Holds: a container runs once; its layer goes with it, its log is the
//! kubelet's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hangar_node::process::runtime::{
    Bind, Carried, Chosen, Entry, Identity, Rootfs, RootfsSpec, base_env, choose, container_path, exit_code,
    program_paths,
};
use hangar_node::process::{Child, LogFormat, Run};
use tokio::process::Command;
use tokio::sync::watch;
use tonic::Status;

use super::generated as api;
use super::sandbox::{Sandbox, failed};
use super::{Runtime, new_id, now};

pub struct Container {
    pub id: String,
    pub sandbox: String,
    pub config: api::ContainerConfig,
    pub image_ref: String,
    pub log: PathBuf,
    created_at: i64,
    rootfs: Rootfs,
    run: Run,
    state: Mutex<Progress>,
    /// How long it may take to end.
    stop: watch::Sender<Option<Duration>>,
    ended: watch::Sender<bool>,
}

#[derive(Clone, Default)]
struct Progress {
    pid: Option<u32>,
    started_at: i64,
    finished_at: i64,
    exit_code: i32,
    message: String,
}

impl Container {
    fn progress(&self) -> Progress {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        let progress = self.progress();
        progress.pid.filter(|_| progress.finished_at == 0)
    }

    fn state(&self) -> i32 {
        let progress = self.progress();
        let state = match (progress.started_at, progress.finished_at) {
            (0, 0) => api::ContainerState::ContainerCreated,
            (_, 0) => api::ContainerState::ContainerRunning,
            _ => api::ContainerState::ContainerExited,
        };
        state as i32
    }

    /// Returns when it has ended.
    pub async fn stop(&self, grace: Duration) {
        if self.progress().started_at == 0 {
            return;
        }
        self.stop.send_modify(|wanted| *wanted = Some(wanted.map_or(grace, |before| before.min(grace))));
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    pub fn summary(&self) -> api::Container {
        api::Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: self.image_ref.clone(),
            state: self.state(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id: self.image_ref.clone(),
        }
    }

    pub fn status(&self) -> api::ContainerStatus {
        let progress = self.progress();
        let reason = match (progress.finished_at, progress.exit_code) {
            (0, _) => "",
            (_, 0) => "Completed",
            _ => "Error",
        };
        api::ContainerStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state(),
            created_at: self.created_at,
            started_at: progress.started_at,
            finished_at: progress.finished_at,
            exit_code: progress.exit_code,
            image: self.config.image.clone(),
            image_ref: self.image_ref.clone(),
            reason: reason.to_owned(),
            message: progress.message,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self.log.display().to_string(),
            image_id: self.image_ref.clone(),
            ..Default::default()
        }
    }
}

impl Runtime {
    /// Asks programs for their versions and lays out a root: not for a thread that others wait for.
    pub fn create_container(&self, sandbox: &Sandbox, config: api::ContainerConfig) -> Result<Arc<Container>, Status> {
        let id = new_id().map_err(failed)?;
        let image = config.image.as_ref().map(|image| image.image.clone()).unwrap_or_default();
        // The kubelet names an image as the status named it.
        let named =
            config.image.as_ref().map(|image| image.user_specified_image.clone()).filter(|name| !name.is_empty());
        let image = named.unwrap_or(image);
        let mut binds = binds(&config)?;
        let mounted = |path: &Path| config.mounts.iter().any(|mount| path.starts_with(&mount.container_path));
        let chosen = choose(&*self.images, &image, config.command.clone(), config.args.clone(), mounted);
        let (path, args, program): Chosen = chosen.map_err(Status::not_found)?;
        let first = config.command.first().map(String::as_str);
        let path = container_path(path, program.as_ref(), first);
        if let Some(program) = &program {
            let seen = program_paths(program).into_iter();
            binds.extend(seen.map(|at| Bind { from: program.path.clone(), at, read_only: false }));
        }
        let mut files = program.as_ref().map(|program| program.files.clone()).unwrap_or_default();
        files.extend(sandbox.resolv_conf());
        let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let wanted = RootfsSpec {
            hostname: sandbox.hostname(),
            binds,
            files,
            read_only_root: security.is_some_and(|security| security.readonly_rootfs),
        };
        let rootfs = Rootfs::build(&self.host_root, &self.directory.join(&id), &wanted).map_err(failed)?;
        furnish(&rootfs).map_err(failed)?;
        let mut env = BTreeMap::from([("HOSTNAME".to_owned(), wanted.hostname.clone())]);
        env.extend(config.envs.iter().map(|pair| (pair.key.clone(), pair.value.clone())));
        let address = sandbox.address().unwrap_or_default();
        let args = args.iter().map(|word| word.replace("$(HANGAR_POD_IP)", &address)).collect::<Vec<_>>();
        let carried = Carried::new(env);
        let (path, args) = carried.command(path, args);
        let working_directory = if config.working_dir.is_empty() { "/" } else { &config.working_dir };
        let entry =
            Entry { hostname: &wanted.hostname, working_directory, identity: identity(), cgroup_procs: String::new() };
        let (path, args) = self.isolation.in_rootfs(&rootfs, &entry, path, args);
        let (program_, args) = in_network(sandbox, path, args);
        let log = Path::new(&sandbox.config.log_directory).join(&config.log_path);
        let run = Run {
            program: program_,
            args,
            env: carried.env,
            directory: "/".into(),
            log: log.clone(),
            log_format: LogFormat::Timestamped,
            home: std::env::var_os("HANGAR_HOME").unwrap_or_default().into(),
        };
        let container = Arc::new(Container {
            id: id.clone(),
            sandbox: sandbox.id.clone(),
            image_ref: super::images::reference(&image, program.as_ref()),
            config,
            log,
            created_at: now(),
            rootfs,
            run,
            state: Mutex::default(),
            stop: watch::Sender::new(None),
            ended: watch::Sender::new(false),
        });
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, container.clone());
        Ok(container)
    }

    /// What runs beside a container.
    pub fn exec_command(&self, container: &Container, words: &[String]) -> Result<Command, String> {
        let pid = container.pid().ok_or("the container does not run")?;
        let (first, rest) = words.split_first().ok_or("there is no command")?;
        let carried = Carried::new(container.run.env.clone());
        let (program, args) = carried.command(first.into(), rest.to_vec());
        let words = [&[program.display().to_string()], &args[..]].concat();
        let words = self.isolation.enter(pid, &identity(), &words);
        let (first, rest) = words.split_first().ok_or("there is no command")?;
        let mut command = Command::new(first);
        command.args(rest).env_clear().envs(base_env()).envs(&carried.env).process_group(0).kill_on_drop(true);
        Ok(command)
    }

    pub fn forget_container(&self, id: &str) {
        let found = self.containers.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(container) = found {
            container.rootfs.remove();
        }
    }
}

/// Starts it, and watches it until it ends.
pub async fn start(container: Arc<Container>) -> Result<(), Status> {
    let mut child = match Child::start_confirmed(&container.run).await {
        Ok(child) => child,
        Err(error) => {
            finish(&container, 128, &error.to_string());
            return Err(failed(error));
        }
    };
    {
        let mut progress = container.state.lock().unwrap_or_else(PoisonError::into_inner);
        (progress.pid, progress.started_at) = (Some(child.pid()), now());
    }
    tokio::spawn(async move {
        let mut stop = container.stop.subscribe();
        let status = tokio::select! {
            status = child.wait() => status.ok(),
            grace = async { stop.wait_for(Option::is_some).await.ok().and_then(|grace| *grace).unwrap_or_default() } => {
                child.end(grace).await
            }
        };
        let rootfs = container.rootfs.clone();
        finish(&container, status.map_or(137, exit_code), "");
        tokio::task::spawn_blocking(move || rootfs.remove());
    });
    Ok(())
}

fn finish(container: &Container, code: i32, message: &str) {
    {
        let mut progress = container.state.lock().unwrap_or_else(PoisonError::into_inner);
        progress.started_at = progress.started_at.max(1);
        (progress.finished_at, progress.exit_code, progress.message) = (now(), code, message.to_owned());
    }
    container.ended.send_replace(true);
}

/// What images have in `/var`.
fn furnish(rootfs: &Rootfs) -> std::io::Result<()> {
    let var = rootfs.directory.join("root/var");
    for (to, at) in [("../run", "run"), ("../run/lock", "lock")] {
        std::os::unix::fs::symlink(to, var.join(at))?;
    }
    std::fs::create_dir_all(var.join("tmp"))?;
    std::fs::create_dir_all(var.join("log"))
}

/// One user is all there is in a guest, so nobody can become another one.
fn identity() -> Identity {
    Identity::default()
}

fn in_network(sandbox: &Sandbox, program: PathBuf, args: Vec<String>) -> (PathBuf, Vec<String>) {
    let Some(namespace) = sandbox.namespace() else { return (program, args) };
    let mut words = vec![format!("--net={}", namespace.display()), program.display().to_string()];
    words.extend(args);
    ("nsenter".into(), words)
}

fn binds(config: &api::ContainerConfig) -> Result<Vec<Bind>, Status> {
    let mut binds = vec![];
    for mount in &config.mounts {
        let from = PathBuf::from(&mount.host_path);
        if !from.exists() {
            // As container runtimes do for paths of the host that are not there.
            std::fs::create_dir_all(&from).map_err(failed)?;
        }
        binds.push(Bind { from, at: (&mount.container_path).into(), read_only: mount.readonly });
    }
    Ok(binds)
}
