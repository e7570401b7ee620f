//! Limits of memory: a control group of the container's own where the system lets us have one, else a watch over what its processes hold.
//!
//! Flows: a limit -> a group that the first process joins before it becomes the program -> the system ends what goes beyond. Without groups, the
//! node looks at the process group from time to time and ends it. Holds: both ways end as OOMKilled, with the exit code 137; a group goes with
//! its container, and those of a node that was killed go when it starts again.

use std::path::{Path, PathBuf};
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Which files of a control group say what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where the groups of this node are made; None: nobody lets us.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory(Option<(PathBuf, Version)>);

/// A container's limit, in force.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    limit: u64,
    group: Option<(PathBuf, Version)>,
}

impl Memory {
    /// The place for this home in the hierarchy that there is; it is made with the first group.
    pub fn find(home: &Path) -> Self {
        let name = format!("hangar{}", home.display().to_string().replace('/', "-"));
        let two = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let (above, version) = match two {
            true => (Path::new("/sys/fs/cgroup"), Version::Two),
            false => (Path::new("/sys/fs/cgroup/memory"), Version::One),
        };
        Self(above.is_dir().then(|| (above.join(name), version)))
    }

    /// Takes the groups away that are no longer in use, and the place for them if it is empty.
    pub fn remove_groups(&self) {
        if let Some((base, _)) = &self.0 {
            for entry in base.read_dir().into_iter().flatten().flatten() {
                let _ = std::fs::remove_dir(entry.path());
            }
            let _ = std::fs::remove_dir(base);
        }
    }

    /// Room for one run of a container.
    pub fn group(&self, name: &str, limit: u64) -> MemoryGroup {
        let group = self.0.as_ref().and_then(|(base, version)| {
            let path = base.join(name);
            open_base(base, *version)?;
            std::fs::create_dir(&path).ok()?;
            let file = if *version == Version::One { "memory.limit_in_bytes" } else { "memory.max" };
            if std::fs::write(path.join(file), limit.to_string()).is_err() {
                let _ = std::fs::remove_dir(&path);
                return None;
            }
            // All of it goes together, as in every cluster; swap is no way around the limit.
            let _ = std::fs::write(path.join("memory.oom.group"), "1");
            let _ = std::fs::write(path.join("memory.swap.max"), "0");
            Some((path, *version))
        });
        MemoryGroup { limit, group }
    }
}

impl MemoryGroup {
    /// The file into which a process writes its id to be limited.
    pub fn cgroup_procs(&self) -> Option<PathBuf> {
        self.group.as_ref().map(|(path, _)| path.join("cgroup.procs"))
    }

    /// Returns when the processes of a group hold more than they may; never where the system watches by itself.
    pub async fn exceeded(&self, group: u32) {
        loop {
            if self.group.is_none() && held(group) > self.limit {
                return;
            }
            match self.group {
                Some(_) => return std::future::pending().await,
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Whether the system had to end something.
    pub fn was_oom_killed(&self) -> bool {
        let Some((path, version)) = &self.group else { return false };
        let file = if *version == Version::One { "memory.oom_control" } else { "memory.events" };
        let text = std::fs::read_to_string(path.join(file)).unwrap_or_default();
        kills(&text) > 0
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Some((path, _)) = &self.group {
            // What is still in it is on its way out; then the next start of the node removes it.
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// Makes the place for a home's groups, if the system lets us.
fn open_base(base: &Path, version: Version) -> Option<()> {
    // Another container may be as far.
    if std::fs::create_dir(base).is_err() && !base.is_dir() {
        return None;
    }
    if version == Version::Two {
        // Those above may have it already, and only root may give it to them.
        let _ = std::fs::write(base.parent()?.join("cgroup.subtree_control"), "+memory");
        if std::fs::write(base.join("cgroup.subtree_control"), "+memory").is_err() {
            let _ = std::fs::remove_dir(base);
            return None;
        }
    }
    Some(())
}

fn kills(text: &str) -> u64 {
    let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    text.lines().find_map(count).unwrap_or(0)
}

/// Bytes that the processes of a group hold.
fn held(group: u32) -> u64 {
    let entries = Path::new("/proc").read_dir().into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        std::fs::read_to_string(entry.path().join("stat")).ok()
    });
    stats.filter_map(|stat| pages_of(&stat, group)).sum::<u64>() * rustix::param::page_size() as u64
}

/// Resident pages of a process if it belongs to the group; its name, which may be anything, ends at the last `)`.
fn pages_of(stat: &str, group: u32) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (fields.get(2)?.parse::<u32>().ok()? == group).then(|| fields.get(21)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read() {
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
        assert_eq!(kills("low 0\nhigh 0\nmax 5\noom 1\noom_kill 0\noom_group_kill 0\n"), 0);
        let stat = "77 (a ) name) S 1 42 42 0 -1 4194560 5 0 0 0 1 1 0 0 20 0 1 0 100 4096 123 18446744073709551615";
        assert_eq!((pages_of(stat, 42), pages_of(stat, 7)), (Some(123), None));
    }

    #[tokio::test]
    async fn without_groups_a_glutton_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let run = super::super::Run {
            program: "/bin/sh".into(),
            args: ["-c", "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo $x >/dev/null; sleep 60"]
                .map(str::to_owned)
                .into(),
            env: super::super::child::base_env(),
            directory: directory.path().to_owned(),
            log: directory.path().join("log"),
            log_format: super::super::LogFormat::Raw,
            home: directory.path().to_owned(),
        };
        let mut child = super::super::Child::start(&run).await.unwrap();
        let group = Memory::default().group("x", 20_000_000);
        group.exceeded(child.pid()).await;
        child.end(Duration::ZERO).await;
        assert!(!group.was_oom_killed() && group.cgroup_procs().is_none());
    }
}
