//! Ends the processes that a killed daemon left behind, found by the two variables that every child carries.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process};

const TERM_GRACE: Duration = Duration::from_secs(5);
/// What does not end by a KILL in this time will not.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Ends what belongs to `home` and returns how many processes that were.
pub async fn end_orphans(home: &Path) -> usize {
    end_all(&marks(home), Signal::TERM).await
}

/// Ends the machines of `home`, known by a variable of their own, and returns how many processes that were. They are switched off: nothing in them
/// is asked first.
pub async fn end_machines(home: &Path, mark: &str) -> usize {
    end_all(&[format!("{mark}={}", home.display())], Signal::KILL).await
}

fn marks(home: &Path) -> [String; 2] {
    hangar_node::process::markers(home).map(|(name, value)| format!("{name}={value}"))
}

async fn end_all(marks: &[String], first: Signal) -> usize {
    let found = marked(marks);
    if found.is_empty() {
        return 0;
    }
    tracing::info!(count = found.len(), ?marks, "stopping processes");
    // Numbers are given out again, soon on a busy machine: when it was started tells one process from the next.
    let known: Vec<(i32, Option<String>)> = found.iter().map(|&pid| (pid, started(pid))).collect();
    signal(&found, first);
    let deadline = tokio::time::Instant::now() + TERM_GRACE;
    while tokio::time::Instant::now() < deadline && !marked(marks).is_empty() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    loop {
        let stubborn = marked(marks);
        if stubborn.is_empty() && known.iter().all(|(pid, since)| started(*pid) != *since || has_ended(*pid)) {
            return found.len();
        }
        if tokio::time::Instant::now() > deadline + KILL_TIMEOUT {
            tracing::warn!(?marks, ?stubborn, "processes do not stop");
            return found.len();
        }
        signal(&stubborn, Signal::KILL);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A process that ends loses its environment first and its sockets later: it holds nothing any more when it is gone, or a zombie
/// whose last thread has ended.
fn has_ended(pid: i32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    stat_fields(pid).is_none_or(|rest| rest.starts_with(['Z', 'X']) && threads <= 1)
}

/// When a process was started, by the machine's clock; the 20th word behind its name.
fn started(pid: i32) -> Option<String> {
    stat_fields(pid)?.split(' ').nth(19).map(str::to_owned)
}

/// What the system says of a process, from its state on: the name before that may itself hold spaces and brackets.
fn stat_fields(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
}

fn signal(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|&pid| Pid::from_raw(pid)) {
        // It may have ended by itself in the meantime.
        let _ = kill_process(pid, signal);
    }
}

fn marked(marks: &[String]) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return vec![] };
    let own = std::process::id().cast_signed();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| pid != own && is_child(pid, marks))
        .collect()
}

fn is_child(pid: i32, marks: &[String]) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let directory = Path::new("/proc").join(pid.to_string());
    // Root's pods may run as other users.
    let ours = getuid().is_root() || directory.metadata().is_ok_and(|metadata| metadata.uid() == getuid().as_raw());
    // Empty for a process that has ended and waits to be reaped.
    let environ = std::fs::read(directory.join("environ")).unwrap_or_default();
    ours && has_marks(&environ, marks)
}

fn has_marks(environ: &[u8], marks: &[String]) -> bool {
    marks.iter().all(|mark| environ.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_children_of_this_home_are_known() {
        let home = Path::new("/h");
        let rows: [(&[u8], bool); 4] = [
            (b"A=1\0HANGAR_HOME=/h\0HANGAR_CHILD=1\0", true),
            (b"HANGAR_HOME=/h\0", false),
            (b"HANGAR_HOME=/h2\0HANGAR_CHILD=1\0", false),
            (b"", false),
        ];
        for (environ, expected) in rows {
            assert_eq!(has_marks(environ, &marks(home)), expected, "{}", String::from_utf8_lossy(environ));
        }
    }

    fn orphan(home: &Path, user: u32) -> tokio::process::Child {
        let mut command = tokio::process::Command::new("sleep");
        command.arg("600").envs(hangar_node::process::markers(home)).kill_on_drop(true).uid(user).spawn().unwrap()
    }

    #[tokio::test]
    async fn a_leftover_process_is_ended_whoever_it_runs_as() {
        let home = tempfile::tempdir().unwrap();
        // Only root can start something as nobody.
        let other = if getuid().is_root() { 65534 } else { getuid().as_raw() };
        let mut children = [getuid().as_raw(), other].map(|user| orphan(home.path(), user));
        // Between fork and exec a child still has our environment.
        while marked(&marks(home.path())).len() < children.len() {
            tokio::task::yield_now().await;
        }
        let [one, another] = &mut children;
        let (ended, first, second) = tokio::join!(end_orphans(home.path()), one.wait(), another.wait());
        assert_eq!(ended, 2);
        assert!(!first.unwrap().success() && !second.unwrap().success());
    }
}
