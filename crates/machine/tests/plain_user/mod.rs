//! A test that is run by a plain user, whoever runs the suite.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Nobody in particular.
const USER: u32 = 65534;
const ASIDE: &str = "HANGAR_TEST_AS_PLAIN_USER";

/// The program with the processes of machines, where this user may run it.
pub fn program() -> PathBuf {
    match std::env::var_os(ASIDE) {
        Some(directory) => Path::new(&directory).join("hangar-machine"),
        None => env!("CARGO_BIN_EXE_hangar-machine").into(),
    }
}

/// Runs the test as a plain user: by itself in a process of its own where this one is root's.
pub fn run(name: &str, test: impl FnOnce()) {
    if !rustix::process::geteuid().is_root() {
        return test();
    }
    let directory = tempfile::tempdir().unwrap();
    let own = std::env::current_exe().unwrap();
    for (from, to) in [(own.as_path(), "test"), (Path::new(env!("CARGO_BIN_EXE_hangar-machine")), "hangar-machine")] {
        std::fs::copy(from, directory.path().join(to)).unwrap();
    }
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let id = USER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(directory.path().join("test"));
    command.args([name, "--exact", "--nocapture"]).env(ASIDE, directory.path()).env("HOME", directory.path());
    command.env("TMPDIR", directory.path()).current_dir(directory.path());
    let output = command.output().expect("setpriv (util-linux) runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
