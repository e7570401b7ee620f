//! What a process of a pod sees of the machine: everything, but its pod's own `/etc/hosts`.
//!
//! Holds: the process keeps its id and its group, since every step on the way replaces the one before; no root is needed where the system
//! lets users have namespaces of their own. Where it does not, pods run all the same, without names, and the node says so.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

/// How a process gets a view of its own.
#[derive(Debug, Clone, Default)]
pub(super) struct Sight {
    /// The words before the script, or none if there is no way.
    prefix: Vec<String>,
}

const SCRIPT: &str = r#"mount --bind "$0" /etc/hosts && exec "$@""#;

impl Sight {
    /// Tries the ways there are: as root, then as a user with a namespace of his own.
    pub async fn find() -> Self {
        for flags in ["-m", "-Urm"] {
            let prefix: Vec<String> =
                ["unshare", flags, "--propagation", "private", "sh", "-c", SCRIPT].map(str::to_owned).into();
            let sight = Self { prefix };
            let (program, args) = sight.through(Path::new("/etc/passwd"), PathBuf::from("true"), vec![]);
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if command.status().await.is_ok_and(|status| status.success()) {
                return sight;
            }
        }
        Self::default()
    }

    pub fn has_names(&self) -> bool {
        !self.prefix.is_empty()
    }

    /// The command that runs a program with this hosts file.
    pub fn through(&self, hosts: &Path, program: PathBuf, args: Vec<String>) -> (PathBuf, Vec<String>) {
        let Some((first, rest)) = self.prefix.split_first() else { return (program, args) };
        let mut words = rest.to_vec();
        words.extend([hosts.display().to_string(), program.display().to_string()]);
        words.extend(args);
        (PathBuf::from(first), words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_sees_its_own_hosts_and_keeps_its_id() {
        let sight = Sight::find().await;
        if !sight.has_names() {
            println!("this system gives users no namespaces of their own: pods have no names here");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let hosts = directory.path().join("hosts");
        std::fs::write(&hosts, "127.0.0.2\tsomebody\n").unwrap();
        let script = "cat /etc/hosts; echo $$ \"$1\"";
        let args = ["-c", script, "sh", "a word"].map(str::to_owned).into();
        let (program, args) = sight.through(&hosts, "sh".into(), args);
        let child = Command::new(program).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let id = child.id().unwrap();
        let said = String::from_utf8(child.wait_with_output().await.unwrap().stdout).unwrap();
        assert_eq!(said, format!("127.0.0.2\tsomebody\n{id} a word\n"));
    }
}
