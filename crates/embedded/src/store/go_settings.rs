//! The settings under which Go modules are fetched and built.
//!
//! Flows: `go env` says where modules come from and which checksum database vouches for them -> every command of a build gets these two and nothing else.
//! Holds: no variable and no file of Go's settings that somebody left behind changes what is built, or switches the verification of modules off.

use std::process::Stdio;

use tokio::process::Command;

use super::build::BuildError;

/// What is taken over.
const TAKEN_OVER: [&str; 2] = ["GOPROXY", "GOSUMDB"];
/// Where caches are decides nothing about what is built: modules in them are checked like others.
const PLACES: [&str; 3] = ["GOPATH", "GOMODCACHE", "GOCACHE"];

/// For the commands of one build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GoSettings {
    taken_over: Vec<(&'static str, String)>,
}

impl GoSettings {
    pub async fn read() -> Result<Self, BuildError> {
        let mut go = Command::new("go");
        go.args(["env"]).args(TAKEN_OVER).stdin(Stdio::null()).kill_on_drop(true);
        let output = go.output().await.map_err(BuildError::NoGo)?;
        let settings = Self::parse(&String::from_utf8_lossy(&output.stdout));
        if settings.taken_over.iter().any(|(name, value)| *name == "GOSUMDB" && value == "off") {
            tracing::warn!(
                "GOSUMDB is off: modules of versions without a go.sum of Hangar's own are built without verification"
            );
        }
        Ok(settings)
    }

    /// One value on each line.
    fn parse(text: &str) -> Self {
        let values = text.lines().map(|line| line.trim().to_owned()).chain(std::iter::repeat(String::new()));
        Self { taken_over: TAKEN_OVER.into_iter().zip(values).filter(|(_, value)| !value.is_empty()).collect() }
    }

    /// A command of Go with these settings.
    pub fn command(&self) -> Command {
        let mut go = Command::new("go");
        let is_setting = |name: &str| name.starts_with("GO") && !PLACES.contains(&name) || name.starts_with("CGO_");
        let left_behind = std::env::vars_os().map(|(name, _)| name);
        for name in left_behind.filter(|name| is_setting(&name.to_string_lossy())) {
            go.env_remove(name);
        }
        go.env("GOENV", "off").env("GOWORK", "off").env("CGO_ENABLED", "0");
        for empty in ["GOFLAGS", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE"] {
            go.env(empty, "");
        }
        go.envs(self.taken_over.iter().map(|(name, value)| (name, value)));
        go
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_build_knows_the_proxy_and_the_checksum_database_and_no_other_setting() {
        let go = GoSettings::parse("https://proxy.example,direct\nsum.example\n").command();
        let set: BTreeMap<String, Option<String>> = go
            .as_std()
            .get_envs()
            .map(|(name, value)| {
                (name.to_string_lossy().into_owned(), value.map(|value| value.to_string_lossy().into_owned()))
            })
            .collect();
        let expected = [
            ("GOPROXY", "https://proxy.example,direct"),
            ("GOSUMDB", "sum.example"),
            ("GOENV", "off"),
            ("GOFLAGS", ""),
            ("GOPRIVATE", ""),
            ("GONOSUMDB", ""),
            ("GOINSECURE", ""),
        ];
        for (name, value) in expected {
            assert_eq!(set[name].as_deref(), Some(value), "{name}");
        }
    }

    #[tokio::test]
    async fn what_go_says_is_taken_over() {
        let go =
            GoSettings::parse("off\noff\n").command().args(["env", "GOPROXY", "GOSUMDB", "GOFLAGS"]).output().await;
        // Where there is no Go, nothing can be built, and nothing is to be shown.
        let Ok(output) = go else { return println!("NOT TESTED: there is no Go on this machine") };
        assert_eq!(String::from_utf8_lossy(&output.stdout), "off\noff\n\n");
    }
}
