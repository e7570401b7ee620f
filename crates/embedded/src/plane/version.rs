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
    #[error(
        "this home ran Kubernetes {before}; {asked} is older and cannot be trusted with its data: use another home (--home)"
    )]
    Older { before: Version, asked: Version },
    #[error(
        "this home ran Kubernetes {before}; go up one minor at a time: `hangar up --kubernetes {next}` first, with the newest patch there is"
    )]
    Skips { before: Version, next: String },
    #[error("{path} cannot be read or written: {why}")]
    File { path: PathBuf, why: String },
}

#[derive(Serialize, Deserialize)]
struct Kept {
    kubernetes: Version,
}

fn path(home: &Home) -> PathBuf {
    home.path().join("plane.json")
}

/// The version to run in this home.
pub fn choose(home: &Home, asked: Option<&Version>) -> Result<Version, VersionError> {
    let before = match std::fs::read(path(home)) {
        Ok(bytes) => Some(serde_json::from_slice::<Kept>(&bytes).map_err(|error| broken(home, &error))?.kubernetes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(broken(home, &error)),
    };
    decide(before, asked)
}

/// Writes down what runs from now on; called before the first process of that version is started.
pub fn keep(home: &Home, version: &Version) -> Result<(), VersionError> {
    let text = serde_json::to_vec(&Kept { kubernetes: version.clone() }).map_err(|error| broken(home, &error))?;
    std::fs::write(path(home), text).map_err(|error| broken(home, &error))
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
    fn up_by_one_minor_at_most_and_never_down() {
        let version = |text: &str| Some(text.parse::<Version>().unwrap());
        let rows = [
            (None, None, Ok(crate::KUBERNETES)),
            (None, version("1.33.13"), Ok("1.33.13")),
            (version("1.33.13"), None, Ok("1.33.13")),
            (version("1.33.13"), version("1.34.4"), Ok("1.34.4")),
            (version("1.34.4"), version("1.34.3"), Ok("1.34.3")),
            (version("1.34.4"), version("1.33.13"), Err("older")),
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
