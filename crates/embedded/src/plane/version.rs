//! Which Kubernetes a home's plane runs: what was asked for, else what it ran before, else the default.
//!
//! Holds: data that a newer API server has written is never given to an older one, and no minor is left out on the way up, since the API
//! server promises to read what its predecessor wrote and no more.

use std::path::PathBuf;

use semver::Version;
use serde::{Deserialize, Serialize};

use crate::home::Home;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("this home ran Kubernetes {before}; a downgrade to {asked} is not supported: use another home (--home)")]
    Older { before: Version, asked: Version },
    #[error(
        "this home ran Kubernetes {before}; upgrade one minor version at a time: run `hangar up --kubernetes {next}` first, or the latest patch release of it"
    )]
    Skips { before: Version, next: String },
    #[error("{path} cannot be read or written: {why}")]
    File { path: PathBuf, why: String },
}

#[derive(Serialize, Deserialize)]
struct Kept {
    kubernetes: Version,
    /// Whether an API server of this version has been ready here: the roles and priorities that it comes with are there.
    #[serde(default)]
    was_ready: bool,
}

fn path(home: &Home) -> PathBuf {
    home.path().join("plane.json")
}

/// The version to run in this home.
pub fn choose(home: &Home, asked: Option<&Version>) -> Result<Version, VersionError> {
    decide(kept(home)?.map(|kept| kept.kubernetes), asked)
}

/// Writes down what runs from now on, and says whether it was ready here before; called before the first process of that version is started.
pub fn keep(home: &Home, version: &Version) -> Result<bool, VersionError> {
    let was_ready = kept(home)?.is_some_and(|kept| kept.was_ready && kept.kubernetes == *version);
    write(home, &Kept { kubernetes: version.clone(), was_ready })?;
    Ok(was_ready)
}

/// Writes down that this version has been ready.
pub fn was_ready(home: &Home, version: &Version) -> Result<(), VersionError> {
    write(home, &Kept { kubernetes: version.clone(), was_ready: true })
}

fn kept(home: &Home) -> Result<Option<Kept>, VersionError> {
    match std::fs::read(path(home)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| broken(home, &error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(broken(home, &error)),
    }
}

fn write(home: &Home, kept: &Kept) -> Result<(), VersionError> {
    let text = serde_json::to_vec(kept).map_err(|error| broken(home, &error))?;
    hangar_node::small_file::keep(&path(home), &text).map_err(|error| broken(home, &error))
}

fn broken(home: &Home, error: &dyn std::error::Error) -> VersionError {
    VersionError::File { path: path(home), why: error.to_string() }
}

fn decide(before: Option<Version>, asked: Option<&Version>) -> Result<Version, VersionError> {
    let (Some(before), Some(asked)) = (&before, asked) else {
        let default = || crate::default_version("kube-apiserver");
        return Ok(asked.cloned().or(before).unwrap_or_else(default));
    };
    let (had, wants) = ((before.major, before.minor), (asked.major, asked.minor));
    if wants < had {
        return Err(VersionError::Older { before: before.clone(), asked: asked.clone() });
    }
    if wants.0 == had.0 && wants.1 > had.1 + 1 {
        let next = format!("{}.{}.0", had.0, had.1 + 1);
        return Err(VersionError::Skips { before: before.clone(), next });
    }
    Ok(asked.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_been_ready_only_if_it_says_so_itself() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::open(directory.path().join("home")).unwrap();
        let (old, new): (Version, Version) = ("1.33.13".parse().unwrap(), "1.34.4".parse().unwrap());
        assert!(!keep(&home, &old).unwrap(), "it never ran");
        assert!(!keep(&home, &old).unwrap(), "it ran, but was never ready");
        was_ready(&home, &old).unwrap();
        assert!(keep(&home, &old).unwrap());
        assert!(!keep(&home, &new).unwrap(), "another version brings other roles");
        std::fs::write(path(&home), r#"{"kubernetes":"1.34.4"}"#).unwrap();
        assert!(!keep(&home, &new).unwrap(), "a file of an earlier release does not say");
    }

    #[test]
    fn up_by_one_minor_at_most_and_never_down() {
        let version = |text: &str| Some(text.parse::<Version>().unwrap());
        let rows = [
            (None, None, Ok(crate::KUBERNETES)),
            (None, version("1.33.13"), Ok("1.33.13")),
            (version("1.33.13"), None, Ok("1.33.13")),
            (version("1.33.13"), version("1.34.4"), Ok("1.34.4")),
            (version("1.34.4"), version("1.34.3"), Ok("1.34.3")),
            (version("1.34.4"), version("1.33.13"), Err("downgrade")),
            (version("1.33.13"), version("1.35.4"), Err("1.34.0")),
        ];
        for (before, asked, expected) in rows {
            match (decide(before.clone(), asked.as_ref()), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected),
                (Err(error), Err(word)) => assert!(error.to_string().contains(word), "{error}"),
                (found, expected) => panic!("{before:?} to {asked:?}: {found:?}, not {expected:?}"),
            }
        }
    }
}
