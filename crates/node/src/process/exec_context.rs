//! Where each container runs right now, for those who want to run something beside it.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tokio::process::Command;

use super::identity::Identity;
use super::isolation::Isolation;
use super::mounts::Mounts;
use super::variable_names::Carried;

/// What a process needs to be in the same place as a container.
#[derive(Clone, Default)]
pub(super) struct ExecContext {
    pub env: BTreeMap<String, String>,
    pub mounts: Mounts,
    pub directory: PathBuf,
    pub hosts: PathBuf,
    pub home: PathBuf,
    pub identity: Identity,
    /// The process whose view is to be shared, if the container has one of its own.
    pub pid: Option<u32>,
    /// The file by which a process comes under the container's limit of memory, if it has one.
    pub cgroup_procs: Option<PathBuf>,
}

/// Under the limit first: what runs beside a container counts as part of it.
const JOIN_CGROUP: &str = r#"echo $$ >"$0" || exit 125; exec "$@""#;

impl ExecContext {
    /// A command as the container would run it; without a view of its own, the words are rewritten as those of the container are.
    pub fn command(&self, isolation: &Isolation, words: &[String]) -> Result<Command, String> {
        if words.is_empty() {
            return Err("there is no command".to_owned());
        }
        let carried = Carried::new(self.env.clone());
        let (program, args) = match self.pid {
            Some(pid) => {
                let (program, args) = carried.command(words[0].clone().into(), words[1..].to_vec());
                let words = [&[program.display().to_string()], &args[..]].concat();
                let cgroup_procs = self.cgroup_procs.iter().flat_map(|cgroup_procs| {
                    ["sh", "-c", JOIN_CGROUP].map(str::to_owned).into_iter().chain([cgroup_procs.display().to_string()])
                });
                let mut words = cgroup_procs.chain(isolation.enter(pid, &self.identity, &words));
                (PathBuf::from(words.next().unwrap_or_default()), words.collect())
            }
            None => {
                let mut words = words.iter().map(|word| self.mounts.rewrite(word));
                let program = PathBuf::from(words.next().unwrap_or_default());
                let (program, args) = carried.command(program, words.collect());
                isolation.with_hosts_file(&self.hosts, program, args)
            }
        };
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(super::child::base_env()).envs(&carried.env);
        command.envs(super::child::markers(&self.home)).current_dir(&self.directory);
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }
}

/// By pod and container.
#[derive(Default)]
pub(super) struct ExecContexts(Mutex<HashMap<(String, String), ExecContext>>);

impl ExecContexts {
    pub fn insert(&self, pod: &str, container: &str, context: ExecContext) {
        let mut exec_contexts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        exec_contexts.insert((pod.to_owned(), container.to_owned()), context);
    }

    pub fn remove(&self, pod: &str, container: &str) {
        let mut exec_contexts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        exec_contexts.remove(&(pod.to_owned(), container.to_owned()));
    }

    pub fn get(&self, pod: &str, container: &str) -> Option<ExecContext> {
        let exec_contexts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        exec_contexts.get(&(pod.to_owned(), container.to_owned())).cloned()
    }
}
