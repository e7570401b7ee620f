//! Where each container runs right now, for those who want to run something beside it.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tokio::process::Command;

use super::identity::Identity;
use super::mounts::Mounts;
use super::sight::Sight;

/// What a process needs to be in the same place as a container.
#[derive(Clone, Default)]
pub(super) struct Place {
    pub env: BTreeMap<String, String>,
    pub mounts: Mounts,
    pub directory: PathBuf,
    pub hosts: PathBuf,
    pub home: PathBuf,
    pub identity: Identity,
    /// The process whose view is to be shared, if the container has one of its own.
    pub inside: Option<u32>,
    /// The file by which a process comes under the container's limit of memory, if it has one.
    pub door: Option<PathBuf>,
}

/// Under the limit first: what runs beside a container counts as part of it.
const THROUGH_THE_DOOR: &str = r#"echo $$ >"$0" || exit 125; exec "$@""#;

impl Place {
    /// A command as the container would run it; without a view of its own, the words are rewritten as those of the container are.
    pub fn command(&self, sight: &Sight, words: &[String]) -> Result<Command, String> {
        if words.is_empty() {
            return Err("there is no command".to_owned());
        }
        let (program, args) = match self.inside {
            Some(pid) => {
                let door = self.door.iter().flat_map(|door| {
                    ["sh", "-c", THROUGH_THE_DOOR].map(str::to_owned).into_iter().chain([door.display().to_string()])
                });
                let mut words = door.chain(sight.beside(pid, &self.identity, words));
                (PathBuf::from(words.next().unwrap_or_default()), words.collect())
            }
            None => {
                let mut words = words.iter().map(|word| self.mounts.rewrite(word));
                let program = PathBuf::from(words.next().unwrap_or_default());
                sight.with_names(&self.hosts, program, words.collect())
            }
        };
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(super::child::base_env()).envs(&self.env);
        command.envs(super::child::markers(&self.home)).current_dir(&self.directory);
        command.process_group(0).kill_on_drop(true);
        Ok(command)
    }
}

/// By pod and container.
#[derive(Default)]
pub(super) struct Places(Mutex<HashMap<(String, String), Place>>);

impl Places {
    pub fn enter(&self, pod: &str, container: &str, place: Place) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.insert((pod.to_owned(), container.to_owned()), place);
    }

    pub fn leave(&self, pod: &str, container: &str) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.remove(&(pod.to_owned(), container.to_owned()));
    }

    pub fn get(&self, pod: &str, container: &str) -> Option<Place> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.get(&(pod.to_owned(), container.to_owned())).cloned()
    }
}
