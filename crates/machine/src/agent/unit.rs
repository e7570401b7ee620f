//! Unit files of systemd, as far as services of nodes need them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where they are looked for, the first first.
const DIRECTORIES: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"];

/// A service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unit {
    pub exec_start: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub environment_files: Vec<(PathBuf, bool)>,
    pub restarts: bool,
    pub is_oneshot: bool,
    /// Without this file it is not started.
    pub condition: Option<PathBuf>,
    pub working_directory: Option<PathBuf>,
}

impl Unit {
    pub fn read(name: &str) -> Option<Self> {
        let text = DIRECTORIES.iter().find_map(|at| std::fs::read_to_string(Path::new(at).join(name)).ok())?;
        let mut unit = Self::default();
        unit.take(&text);
        let mut drop_ins: Vec<PathBuf> = DIRECTORIES
            .iter()
            .filter_map(|at| Path::new(at).join(format!("{name}.d")).read_dir().ok())
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
            .collect();
        drop_ins.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
        for path in drop_ins {
            unit.take(&std::fs::read_to_string(path).unwrap_or_default());
        }
        Some(unit)
    }

    fn take(&mut self, text: &str) {
        let joined = text.replace("\\\n", " ");
        for line in joined.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';', '['])) {
            let Some((key, value)) = line.split_once('=') else { continue };
            let value = value.trim();
            match key.trim() {
                // Nothing takes back what was said before.
                "ExecStart" if value.is_empty() => self.exec_start.clear(),
                "ExecStart" => self.exec_start.push(value.trim_start_matches(['-', '@', '+', '!', ':']).to_owned()),
                "Environment" => self.environment.extend(
                    words(value).iter().filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())),
                ),
                "EnvironmentFile" => {
                    let optional = value.starts_with('-');
                    self.environment_files.push((value.trim_start_matches('-').into(), optional));
                }
                "Restart" => self.restarts = value != "no",
                "Type" => self.is_oneshot = value == "oneshot",
                "ConditionPathExists" => self.condition = Some(value.into()),
                "WorkingDirectory" => self.working_directory = Some(value.trim_start_matches('-').into()),
                _ => {}
            }
        }
    }

    /// The variables that its commands see.
    pub fn variables(&self) -> Result<BTreeMap<String, String>, String> {
        let mut all = self.environment.clone();
        for (path, optional) in &self.environment_files {
            match std::fs::read_to_string(path) {
                Ok(text) => {
                    let pairs = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
                    let pairs = pairs.filter_map(|line| line.split_once('='));
                    all.extend(pairs.map(|(name, value)| (name.trim().to_owned(), unquoted(value.trim()))));
                }
                Err(_) if *optional => {}
                Err(error) => return Err(format!("{}: {error}", path.display())),
            }
        }
        Ok(all)
    }
}

/// The words of a command, with variables put in: `$NAME` as a word of its own becomes several words, `${NAME}` is one.
pub fn command(line: &str, variables: &BTreeMap<String, String>) -> Vec<String> {
    let value = |name: &str| variables.get(name).cloned().unwrap_or_default();
    let mut all = vec![];
    for word in words(line) {
        match word.strip_prefix('$').filter(|name| !name.starts_with('{')) {
            Some(name) => all.extend(words(&value(name))),
            None => {
                let mut text = word;
                for name in variables.keys() {
                    text = text.replace(&format!("${{{name}}}"), &value(name));
                }
                all.push(text);
            }
        }
    }
    all
}

/// Split at spaces, outside of quotes.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote, mut any) = (vec![], String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (None, '"' | '\'') => (quote, any) = (Some(c), true),
            (Some(open), c) if c == open => quote = None,
            (None, c) if c.is_whitespace() => {
                if any || !word.is_empty() {
                    all.push(std::mem::take(&mut word));
                }
                any = false;
            }
            (_, c) => word.push(c),
        }
    }
    if any || !word.is_empty() {
        all.push(word);
    }
    all
}

fn unquoted(value: &str) -> String {
    let inner = ['"', '\''].iter().find_map(|&quote| value.strip_prefix(quote)?.strip_suffix(quote));
    inner.unwrap_or(value).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_in_replaces_the_command_and_adds_variables() {
        let mut unit = Unit::default();
        unit.take("[Unit]\nDescription=x\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n");
        unit.take("[Service]\nEnvironment=\"A=--one=1 --two\" B=x\nEnvironmentFile=-/nowhere/env\nExecStart=\nExecStart=/usr/bin/kubelet $A \\\n  ${B}y $NONE\n");
        assert!(unit.restarts && !unit.is_oneshot);
        assert_eq!(unit.exec_start.len(), 1);
        let variables = unit.variables().unwrap();
        assert_eq!(command(&unit.exec_start[0], &variables), ["/usr/bin/kubelet", "--one=1", "--two", "xy"]);
        unit.take("EnvironmentFile=/nowhere/env");
        assert!(unit.variables().unwrap_err().contains("/nowhere/env"));
    }
}
