//! What a process of a pod sees of the machine.
//!
//! Three ways, the first that works: a root of its own ([`super::rootfs`]); the machine's root with the pod's own `/etc/hosts`; everything as it is.
//! Holds: the process keeps its id and its group, since every step on the way replaces the one before; no root is needed where the system
//! lets users have namespaces of their own. Where a way is closed, pods run all the same and the node says what they lack.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::host_root::HostRoot;
use super::identity::Identity;
use super::rootfs::{Rootfs, RootfsSpec};

/// How a process gets a view of its own.
#[derive(Debug, Clone, Default)]
pub struct Isolation {
    /// The flags of `unshare`, or none if there is no way.
    flags: Option<&'static str>,
    /// What the roots of containers are made of, if they can have their own.
    pub host_root: Option<HostRoot>,
    /// Whether variables with names that shells do not know can be passed on.
    pub has_env_split_string: bool,
    /// Whether what runs beside a process has to go into its network, too.
    own_network: bool,
}

/// How a program enters its view.
#[derive(Default)]
pub struct Entry<'a> {
    pub hostname: &'a str,
    pub working_directory: &'a str,
    pub identity: Identity,
    /// The file into which it writes its id on the way, to be limited; or nothing.
    pub cgroup_procs: String,
}

const MOUNT_HOSTS: &str = r#"mount --bind "$0" /etc/hosts && exec "$@""#;

/// The input is a pipe to the node: what goes wrong is told there, and `ok` just before the program takes over.
const ENTER_ROOTFS: &str = r#"
mount -T "$0/fstab" -a >&0 2>&0 || exit 125
{ echo "$1" >/proc/sys/kernel/hostname; } 2>/dev/null || hostname "$1" 2>&0 || exit 125
cd "$0/root" 2>&0 || exit 125
if test -n "$2"; then echo $$ >"$2" || exit 125; fi 2>&0
shift 2
echo ok >&0
exec "$@" </dev/null"#;

impl Isolation {
    /// Tries the ways there are: as root, then as a user with a namespace of his own. `scratch` is a directory for the trial.
    pub async fn detect(scratch: &Path) -> Self {
        let has_env_split_string = succeeds("env".into(), vec!["-Strue".to_owned()]).await;
        Self { has_env_split_string, ..Self::detect_namespaces(scratch).await }
    }

    /// For a process that may mount already, and whose containers have networks of their own.
    pub fn in_namespaces(host_root: HostRoot) -> Self {
        let host_root = Some(host_root);
        Self { flags: Some("-mu"), host_root, has_env_split_string: true, own_network: true }
    }

    async fn detect_namespaces(scratch: &Path) -> Self {
        for (flags, user) in [("-mu", false), ("-Urmu", true)] {
            let mut isolation = Self { flags: Some(flags), ..Self::default() };
            if !succeeds("unshare".into(), vec![flags.to_owned(), "true".to_owned()]).await {
                continue;
            }
            match Self::detect_host_root(flags, user, scratch).await {
                Ok(host_root) => isolation.host_root = Some(host_root),
                Err(error) => {
                    tracing::warn!(%error, "containers share the machine's file system, mount paths in commands are rewritten")
                }
            }
            let (program, args) = isolation.with_hosts_file(Path::new("/etc/passwd"), PathBuf::from("true"), vec![]);
            // Over a machine's /etc/hosts that is not there, nothing can be mounted; a root of its own has one.
            if isolation.host_root.is_some() || succeeds(program, args).await {
                return isolation;
            }
        }
        Self::default()
    }

    /// What this system gives; an older one does not know of volatile layers.
    async fn detect_host_root(flags: &'static str, user: bool, scratch: &Path) -> Result<HostRoot, String> {
        let host_root = HostRoot::read(user).map_err(|error| error.to_string())?;
        match Self::try_rootfs(flags, host_root.clone(), scratch).await {
            Ok(host_root) => Ok(host_root),
            Err(_) => Self::try_rootfs(flags, HostRoot { volatile: false, ..host_root }, scratch).await,
        }
    }

    async fn try_rootfs(flags: &'static str, host_root: HostRoot, scratch: &Path) -> Result<HostRoot, String> {
        let directory = scratch.join(".trial");
        let trial = Rootfs { directory: directory.clone() };
        trial.remove();
        let isolation = Self { flags: Some(flags), host_root: Some(host_root.clone()), ..Self::default() };
        let wanted = RootfsSpec { hostname: "trial".into(), ..RootfsSpec::default() };
        let rootfs = Rootfs::build(&host_root, &directory, &wanted).map_err(|error| error.to_string())?;
        let entry = Entry { hostname: "trial", working_directory: "/", ..Entry::default() };
        let (program, args) = isolation.in_rootfs(&rootfs, &entry, PathBuf::from("true"), vec![]);
        let run = super::child::Run {
            program,
            args,
            env: Default::default(),
            directory: scratch.to_owned(),
            log: directory.join("log"),
            log_format: super::LogFormat::Raw,
            home: scratch.to_owned(),
        };
        let mut child = super::Child::start_confirmed(&run).await.map_err(|error| error.to_string())?;
        let status = child.wait().await.map_err(|error| error.to_string())?;
        let said = super::log_tail(&run.log, 5);
        trial.remove();
        if status.success() { Ok(host_root) } else { Err(said) }
    }

    pub fn has_namespaces(&self) -> bool {
        self.flags.is_some()
    }

    fn unshare(&self, script: &str) -> Option<(PathBuf, Vec<String>)> {
        let words = [self.flags?, "--propagation", "private", "sh", "-c", script];
        Some((PathBuf::from("unshare"), words.map(str::to_owned).into()))
    }

    /// The command that runs a program with this hosts file, for containers without a root of their own.
    pub fn with_hosts_file(&self, hosts: &Path, program: PathBuf, args: Vec<String>) -> (PathBuf, Vec<String>) {
        let Some((first, mut words)) = self.unshare(MOUNT_HOSTS) else { return (program, args) };
        words.extend([hosts.display().to_string(), program.display().to_string()]);
        words.extend(args);
        (first, words)
    }

    /// The command that runs a program in a view; its input has to be the pipe on which it tells how far it came.
    pub fn in_rootfs(
        &self,
        rootfs: &Rootfs,
        entry: &Entry<'_>,
        program: PathBuf,
        args: Vec<String>,
    ) -> (PathBuf, Vec<String>) {
        let Some((first, mut words)) = self.unshare(ENTER_ROOTFS) else { return (program, args) };
        words.extend([rootfs.directory.display().to_string(), entry.hostname.to_owned(), entry.cgroup_procs.clone()]);
        words.extend(["unshare", "--root=.", &format!("--wd={}", entry.working_directory)].map(str::to_owned));
        words.extend(entry.identity.command_prefix());
        words.push(program.display().to_string());
        words.extend(args);
        (first, words)
    }

    /// The command that runs a program where a process already is.
    pub fn enter(&self, pid: u32, identity: &Identity, words: &[String]) -> Vec<String> {
        let mut all: Vec<String> =
            ["nsenter", "--target", &pid.to_string(), "--mount", "--uts", "--root", "--wd"].map(str::to_owned).into();
        if self.own_network {
            all.push("--net".to_owned());
        }
        if self.flags.is_some_and(|flags| flags.contains('U')) {
            all.extend(["--user", "--preserve-credentials"].map(str::to_owned));
        }
        all.extend(identity.command_prefix());
        all.extend(words.iter().cloned());
        all
    }
}

async fn succeeds(program: PathBuf, args: Vec<String>) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::super::rootfs::Bind;
    use super::super::{Child, LogFormat, Run};
    use super::*;

    #[tokio::test]
    async fn a_process_sees_its_own_hosts_and_keeps_its_id() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = Isolation::detect(directory.path()).await;
        if !isolation.has_namespaces() {
            println!("this system gives users no namespaces of their own: pods have no names here");
            return;
        }
        let hosts = directory.path().join("hosts");
        std::fs::write(&hosts, "127.0.0.2\tsomebody\n").unwrap();
        let script = "cat /etc/hosts; echo $$ \"$1\"";
        let args = ["-c", script, "sh", "a word"].map(str::to_owned).into();
        let (program, args) = isolation.with_hosts_file(&hosts, "sh".into(), args);
        let child = Command::new(program).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let id = child.id().unwrap();
        let said = String::from_utf8(child.wait_with_output().await.unwrap().stdout).unwrap();
        assert_eq!(said, format!("127.0.0.2\tsomebody\n{id} a word\n"));
    }

    /// Volumes at their paths, a name, a layer that does not reach the machine, a visitor who sees the same.
    #[tokio::test]
    async fn a_process_has_a_root_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let isolation = Isolation::detect(directory.path()).await;
        let Some(host_root) = isolation.host_root.clone() else {
            let why = Isolation::detect_host_root("-Urmu", true, directory.path()).await;
            println!("this system gives no layers over its directories, paths are rewritten here: {why:?}");
            return;
        };
        let volume = directory.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(volume.join("word"), "found").unwrap();
        let bind = Bind { from: volume.clone(), at: "/var/lib/of-a-test".into(), read_only: false };
        let wanted = RootfsSpec { hostname: "of-a-pod".into(), binds: vec![bind], ..RootfsSpec::default() };
        let rootfs = Rootfs::build(&host_root, &directory.path().join("view"), &wanted).unwrap();
        let script = "cat word; hostname; touch /etc/of-a-test.hangar; echo $$; touch began; while ! test -e end; do sleep 0.01; done";
        let args = ["-c", script].map(str::to_owned).into();
        let none = Identity::default();
        let entry = Entry { hostname: "of-a-pod", working_directory: "/var/lib/of-a-test", ..Entry::default() };
        let (program, args) = isolation.in_rootfs(&rootfs, &entry, "sh".into(), args);
        let log = directory.path().join("log");
        let run = Run {
            program,
            args,
            env: super::super::child::base_env(),
            directory: directory.path().to_owned(),
            log: log.clone(),
            log_format: LogFormat::Raw,
            home: directory.path().to_owned(),
        };
        let mut child = Child::start_confirmed(&run).await.unwrap();
        while !volume.join("began").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let words = ["sh", "-c", "ls /etc/of-a-test.hangar && pwd"].map(str::to_owned);
        let words = isolation.enter(child.pid(), &none, &words);
        let visit = Command::new(&words[0]).args(&words[1..]).output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&visit.stdout), "/etc/of-a-test.hangar\n/var/lib/of-a-test\n", "{visit:?}");
        std::fs::write(volume.join("end"), "").unwrap();
        assert!(child.wait().await.unwrap().success(), "{}", std::fs::read_to_string(&log).unwrap());
        assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("foundof-a-pod\n{}\n", child.pid()));
        assert!(!Path::new("/etc/of-a-test.hangar").exists() && !Path::new("/var/lib/of-a-test").exists());
        rootfs.remove();
        assert!(!rootfs.directory.exists());
    }
}
