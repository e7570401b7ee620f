//! A test that is run by a plain user, whoever runs the suite.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Nobody in particular.
const USER: u32 = 65534;
const ASIDE: &str = "HANGAR_TEST_AS_PLAIN_USER";

/// Where the files of [`run`] are, in a process of its own; None if this user is a plain one already.
pub fn aside() -> Option<PathBuf> {
    std::env::var_os(ASIDE).map(PathBuf::from)
}

/// Runs the test as a plain user: by itself, in a process of its own with these files, where this one is root's.
pub fn run(name: &str, files: &[(&Path, &str)], test: impl FnOnce()) {
    if !rustix::process::geteuid().is_root() {
        return test();
    }
    let directory = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    for (from, to) in files.iter().copied().chain([(own.as_path(), "test")]) {
        copy(from, &directory.path().join(to));
    }
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let id = USER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(directory.path().join("test"));
    command.args([name, "--exact", "--nocapture"]).env(ASIDE, directory.path()).env("HOME", directory.path());
    command.env("TMPDIR", directory.path()).env_remove("XDG_CACHE_HOME").current_dir(directory.path());
    let output = command.output().expect("setpriv (util-linux) runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// Large files are linked where that is possible: they are not written to.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in from.read_dir().unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else if std::fs::hard_link(from, to).is_err() {
        std::fs::copy(from, to).unwrap();
    }
}
