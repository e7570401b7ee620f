//! The rules in deny.toml, as far as they are checked here.
//!
//! Holds: only the part of TOML that the file uses is read (tables, texts, flags, lists of texts or of inline tables, comments); anything else is an error, so
//! that no rule is passed over. Advisories need a database and are left to `cargo deny check`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

const CRATES_IO: [&str; 2] =
    ["registry+https://github.com/rust-lang/crates.io-index", "sparse+https://index.crates.io/"];

#[derive(Debug)]
pub struct DenyRules {
    pub targets: Vec<String>,
    pub licences: BTreeSet<String>,
    /// Crates that must not be used, with the reason.
    pub banned: BTreeMap<String, String>,
    pub multiple_versions: String,
    pub denies_wildcards: bool,
    denies_registries: bool,
    denies_git: bool,
}

impl DenyRules {
    pub fn read(text: &str) -> Result<Self> {
        let settings = settings(text)?;
        let get = |key: &str| settings.get(key).map(String::as_str).unwrap_or_default();
        let banned = get("bans.deny").split('{').filter_map(|table| {
            let field = |name: &str| texts(table.split(&format!("{name} =")).nth(1)?).into_iter().next();
            Some((field("crate")?, field("reason").unwrap_or_default()))
        });
        let rules = Self {
            targets: texts(get("graph.targets")),
            licences: texts(get("licenses.allow")).into_iter().collect(),
            banned: banned.collect(),
            multiple_versions: texts(get("bans.multiple-versions")).concat(),
            denies_wildcards: get("bans.wildcards") == "\"deny\"",
            denies_registries: get("sources.unknown-registry") == "\"deny\"",
            denies_git: get("sources.unknown-git") == "\"deny\"",
        };
        if rules.licences.is_empty() {
            bail!("deny.toml allows no licence at all");
        }
        Ok(rules)
    }

    pub fn allows_source(&self, source: &str) -> bool {
        match source.starts_with("git+") {
            true => !self.denies_git,
            false => !self.denies_registries || CRATES_IO.contains(&source),
        }
    }
}

/// Values by `table.key`, as they are written, without comments and line breaks.
fn settings(text: &str) -> Result<BTreeMap<String, String>> {
    let (mut settings, mut table, mut open) = (BTreeMap::new(), String::new(), None::<(String, String)>);
    for line in text.lines().map(without_comment) {
        if let Some((key, value)) = open.take() {
            open = Some((key, format!("{value} {line}")));
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = name.to_owned();
        } else if let Some((key, value)) = line.split_once('=') {
            open = Some((format!("{table}.{}", key.trim()), value.trim().to_owned()));
        } else if !line.is_empty() {
            bail!("deny.toml: {line:?} is not understood here: extend xtask/src/dependencies/deny_rules.rs");
        }
        if let Some((key, value)) = open.take_if(|(_, value)| !value.starts_with('[') || value.ends_with(']')) {
            settings.insert(key, value);
        }
    }
    if let Some((key, _)) = open {
        bail!("deny.toml: the list {key} does not end");
    }
    Ok(settings)
}

/// A `#` inside of a text is no comment.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let end = line.find(|c: char| {
        quoted ^= c == '"';
        c == '#' && !quoted
    });
    line[..end.unwrap_or(line.len())].trim()
}

/// Everything between quotes.
fn texts(value: &str) -> Vec<String> {
    value.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_an_error() {
        let read = |text: &str| DenyRules::read(text).map(drop).map_err(|error| error.to_string());
        assert_eq!(read("[licenses]\nallow = [\n\"MIT\", # \"GPL\"\n]\n"), Ok(()));
        assert!(read("[licenses]\nallow = [\"MIT\"").unwrap_err().contains("does not end"));
        assert!(read("[licenses]\nwhatever\n").unwrap_err().contains("not understood"));
        assert!(read("").unwrap_err().contains("no licence"));
    }
}
