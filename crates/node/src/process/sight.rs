//! What a process of a pod sees of the machine.
//!
//! Three ways, the first that works: a root of its own ([`super::view`]); the machine's root with the pod's own `/etc/hosts`; everything as it is.
//! Holds: the process keeps its id and its group, since every step on the way replaces the one before; no root is needed where the system
//! lets users have namespaces of their own. Where a way is closed, pods run all the same and the node says what they lack.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::ground::Ground;
use super::identity::Identity;
use super::view::{View, Wanted};

/// How a process gets a view of its own.
#[derive(Debug, Clone, Default)]
pub(super) struct Sight {
    /// The flags of `unshare`, or none if there is no way.
    flags: Option<&'static str>,
    /// What the roots of containers are made of, if they can have their own.
    pub ground: Option<Ground>,
}

/// How a program enters its view.
#[derive(Default)]
pub(super) struct Entry<'a> {
    pub hostname: &'a str,
    pub working: &'a str,
    pub identity: Identity,
    /// The file into which it writes its id on the way, to be limited; or nothing.
    pub door: String,
}

const HOSTS: &str = r#"mount --bind "$0" /etc/hosts && exec "$@""#;

/// The input is a pipe to the node: what goes wrong is told there, and `ok` just before the program takes over.
const VIEW: &str = r#"
mount -T "$0/fstab" -a >&0 2>&0 || exit 125
{ echo "$1" >/proc/sys/kernel/hostname; } 2>/dev/null || hostname "$1" 2>&0 || exit 125
cd "$0/root" 2>&0 || exit 125
if test -n "$2"; then echo $$ >"$2" || exit 125; fi 2>&0
shift 2
echo ok >&0
exec "$@" </dev/null"#;

impl Sight {
    /// Tries the ways there are: as root, then as a user with a namespace of his own. `scratch` is a directory for the trial.
    pub async fn find(scratch: &Path) -> Self {
        for (flags, user) in [("-mu", false), ("-Urmu", true)] {
            let mut sight = Self { flags: Some(flags), ground: None };
            if !succeeds("unshare".into(), vec![flags.to_owned(), "true".to_owned()]).await {
                continue;
            }
            match Self::find_ground(flags, user, scratch).await {
                Ok(ground) => sight.ground = Some(ground),
                Err(error) => tracing::warn!(%error, "containers see the machine's files, paths are rewritten"),
            }
            let (program, args) = sight.with_names(Path::new("/etc/passwd"), PathBuf::from("true"), vec![]);
            // Over a machine's /etc/hosts that is not there, nothing can be mounted; a root of its own has one.
            if sight.ground.is_some() || succeeds(program, args).await {
                return sight;
            }
        }
        Self::default()
    }

    /// What this system gives; an older one does not know of volatile layers.
    async fn find_ground(flags: &'static str, user: bool, scratch: &Path) -> Result<Ground, String> {
        let ground = Ground::read(user).map_err(|error| error.to_string())?;
        match Self::try_view(flags, ground.clone(), scratch).await {
            Ok(ground) => Ok(ground),
            Err(_) => Self::try_view(flags, Ground { volatile: false, ..ground }, scratch).await,
        }
    }

    async fn try_view(flags: &'static str, ground: Ground, scratch: &Path) -> Result<Ground, String> {
        let directory = scratch.join(".trial");
        let trial = View { directory: directory.clone() };
        trial.remove();
        let sight = Self { flags: Some(flags), ground: Some(ground.clone()) };
        let wanted = Wanted { hostname: "trial".into(), ..Wanted::default() };
        let view = View::lay_out(&ground, &directory, &wanted).map_err(|error| error.to_string())?;
        let entry = Entry { hostname: "trial", working: "/", ..Entry::default() };
        let (program, args) = sight.with_view(&view, &entry, PathBuf::from("true"), vec![]);
        let run = super::child::Run {
            program,
            args,
            env: Default::default(),
            directory: scratch.to_owned(),
            log: directory.join("log"),
            kept: super::Kept::AsItCame,
            home: scratch.to_owned(),
        };
        let mut child = super::Child::start_announced(&run).await.map_err(|error| error.to_string())?;
        let status = child.wait().await.map_err(|error| error.to_string())?;
        let said = super::log_tail(&run.log, 5);
        trial.remove();
        if status.success() { Ok(ground) } else { Err(said) }
    }

    pub fn has_names(&self) -> bool {
        self.flags.is_some()
    }

    fn unshared(&self, script: &str) -> Option<(PathBuf, Vec<String>)> {
        let words = [self.flags?, "--propagation", "private", "sh", "-c", script];
        Some((PathBuf::from("unshare"), words.map(str::to_owned).into()))
    }

    /// The command that runs a program with this hosts file, for containers without a root of their own.
    pub fn with_names(&self, hosts: &Path, program: PathBuf, args: Vec<String>) -> (PathBuf, Vec<String>) {
        let Some((first, mut words)) = self.unshared(HOSTS) else { return (program, args) };
        words.extend([hosts.display().to_string(), program.display().to_string()]);
        words.extend(args);
        (first, words)
    }

    /// The command that runs a program in a view; its input has to be the pipe on which it tells how far it came.
    pub fn with_view(
        &self,
        view: &View,
        entry: &Entry<'_>,
        program: PathBuf,
        args: Vec<String>,
    ) -> (PathBuf, Vec<String>) {
        let Some((first, mut words)) = self.unshared(VIEW) else { return (program, args) };
        words.extend([view.directory.display().to_string(), entry.hostname.to_owned(), entry.door.clone()]);
        words.extend(["unshare", "--root=.", &format!("--wd={}", entry.working)].map(str::to_owned));
        words.extend(entry.identity.words());
        words.push(program.display().to_string());
        words.extend(args);
        (first, words)
    }

    /// The command that runs a program where a process already is.
    pub fn beside(&self, pid: u32, identity: &Identity, words: &[String]) -> Vec<String> {
        let mut all: Vec<String> =
            ["nsenter", "--target", &pid.to_string(), "--mount", "--uts", "--root", "--wd"].map(str::to_owned).into();
        if self.ground.as_ref().is_some_and(|ground| ground.user) {
            all.extend(["--user", "--preserve-credentials"].map(str::to_owned));
        }
        all.extend(identity.words());
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
    use super::super::view::Bind;
    use super::super::{Child, Kept, Run};
    use super::*;

    #[tokio::test]
    async fn a_process_sees_its_own_hosts_and_keeps_its_id() {
        let directory = tempfile::tempdir().unwrap();
        let sight = Sight::find(directory.path()).await;
        if !sight.has_names() {
            println!("this system gives users no namespaces of their own: pods have no names here");
            return;
        }
        let hosts = directory.path().join("hosts");
        std::fs::write(&hosts, "127.0.0.2\tsomebody\n").unwrap();
        let script = "cat /etc/hosts; echo $$ \"$1\"";
        let args = ["-c", script, "sh", "a word"].map(str::to_owned).into();
        let (program, args) = sight.with_names(&hosts, "sh".into(), args);
        let child = Command::new(program).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let id = child.id().unwrap();
        let said = String::from_utf8(child.wait_with_output().await.unwrap().stdout).unwrap();
        assert_eq!(said, format!("127.0.0.2\tsomebody\n{id} a word\n"));
    }

    /// Volumes at their paths, a name, a layer that does not reach the machine, a visitor who sees the same.
    #[tokio::test]
    async fn a_process_has_a_root_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let sight = Sight::find(directory.path()).await;
        let Some(ground) = sight.ground.clone() else {
            let why = Sight::find_ground("-Urmu", true, directory.path()).await;
            println!("this system gives no layers over its directories, paths are rewritten here: {why:?}");
            return;
        };
        let volume = directory.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::write(volume.join("word"), "found").unwrap();
        let bind = Bind { from: volume.clone(), at: "/var/lib/of-a-test".into(), read_only: false };
        let wanted = Wanted { hostname: "of-a-pod".into(), binds: vec![bind], ..Wanted::default() };
        let view = View::lay_out(&ground, &directory.path().join("view"), &wanted).unwrap();
        let script = "cat word; hostname; touch /etc/of-a-test.hangar; echo $$; touch began; while ! test -e end; do sleep 0.01; done";
        let args = ["-c", script].map(str::to_owned).into();
        let none = Identity::default();
        let entry = Entry { hostname: "of-a-pod", working: "/var/lib/of-a-test", ..Entry::default() };
        let (program, args) = sight.with_view(&view, &entry, "sh".into(), args);
        let log = directory.path().join("log");
        let run = Run {
            program,
            args,
            env: super::super::child::base_env(),
            directory: directory.path().to_owned(),
            log: log.clone(),
            kept: Kept::AsItCame,
            home: directory.path().to_owned(),
        };
        let mut child = Child::start_announced(&run).await.unwrap();
        while !volume.join("began").exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let words = ["sh", "-c", "ls /etc/of-a-test.hangar && pwd"].map(str::to_owned);
        let words = sight.beside(child.pid(), &none, &words);
        let visit = Command::new(&words[0]).args(&words[1..]).output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&visit.stdout), "/etc/of-a-test.hangar\n/var/lib/of-a-test\n", "{visit:?}");
        std::fs::write(volume.join("end"), "").unwrap();
        assert!(child.wait().await.unwrap().success(), "{}", std::fs::read_to_string(&log).unwrap());
        assert_eq!(std::fs::read_to_string(&log).unwrap(), format!("foundof-a-pod\n{}\n", child.pid()));
        assert!(!Path::new("/etc/of-a-test.hangar").exists() && !Path::new("/var/lib/of-a-test").exists());
        view.remove();
        assert!(!view.directory.exists());
    }
}
