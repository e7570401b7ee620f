//! What is wrong with the machine is said, with what to do; and when it is mended, everything goes on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use hangar_embedded::{Store, StoreOptions, default_directory};

const HANGAR: &str = env!("CARGO_BIN_EXE_hangar");

/// A file system of its own that can be filled without harm to anybody: small, then larger, full, and with room again.
const FULL_DISK: &str = r#"
set -eu
mount -t tmpfs -o size=40m tmpfs "$DISK"
if "$HANGAR" up 2>"$SAID/small"; then echo "started without room" >&2; exit 1; fi
mount -o remount,size=460m "$DISK"
"$HANGAR" up
dd if=/dev/zero of="$DISK/fill" bs=1M 2>/dev/null || true
head -c 300000 /dev/urandom | base64 -w0 >"$SAID/words"
number=0
while "$HANGAR" kubectl -- create configmap "words-$number" --from-file="$SAID/words" >/dev/null 2>&1; do
  number=$((number + 1))
  [ "$number" -lt 500 ] || { echo "the disk never got full" >&2; exit 1; }
done
"$HANGAR" status >"$SAID/status"
if "$HANGAR" up 2>"$SAID/full"; then echo "up was content with a full disk" >&2; df "$DISK" >&2; exit 1; fi
rm "$DISK/fill"
"$HANGAR" up
"$HANGAR" kubectl -- create configmap afterwards
"$HANGAR" kubectl -- wait --for=condition=Ready node/hangar
"$HANGAR" down --purge
"#;

/// The words that give a process mounts of its own, as root or as a user; none if this system gives nobody any.
fn own_mounts() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["-m", "--propagation", "private"], &["-Urm", "--propagation", "private"]];
    let works = |way: &&&[&str]| {
        let tried = Command::new("unshare").args(**way).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    ways.iter().find(works).copied()
}

#[test]
fn a_full_disk_is_said_and_lived_through() {
    let Some(way) = own_mounts() else {
        println!("NOT TESTED: this system gives no process a file system of its own to fill");
        return;
    };
    let (disk, said) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = Command::new("unshare");
    command.args(way).args(["sh", "-c", FULL_DISK]).env("HANGAR", HANGAR).env("HANGAR_HOME", disk.path().join("home"));
    let output = command.env("DISK", disk.path()).env("SAID", said.path()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{errors}", String::from_utf8_lossy(&output.stdout));
    for name in ["small", "status", "full"] {
        let text = std::fs::read_to_string(said.path().join(name)).unwrap();
        let place = disk.path().join("home").display().to_string();
        for word in ["MiB are free", "--home", &place] {
            assert!(text.contains(word), "{name}: no {word:?} in\n{text}");
        }
    }
}

#[test]
fn a_damaged_program_is_named_with_the_way_to_mend_it() {
    let (home, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for stored in Store::new(StoreOptions::default()).list() {
        let name = format!("{}-{}", stored.component.name, stored.component.version);
        link(&default_directory().join(&name), &store.path().join(&name));
    }
    let version = hangar_embedded::default_version("kube-apiserver");
    let program = store.path().join(format!("kube-apiserver-{version}/kube-apiserver"));
    let whole = std::fs::read(&program).unwrap();
    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, &whole[..whole.len() / 2]).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();

    let hangar = |arguments: &[&str]| {
        let mut command = Command::new(HANGAR);
        command.env("HANGAR_HOME", home.path().join("home")).env("HANGAR_COMPONENTS", store.path());
        command.args(arguments).output().unwrap()
    };
    let output = hangar(&["up"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    for word in ["is damaged", program.to_str().unwrap(), &format!("hangar components fetch kube-apiserver@{version}")]
    {
        assert!(said.contains(word), "no {word:?} in\n{said}");
    }
    std::fs::write(&program, whole).unwrap();
    let output = hangar(&["up"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(hangar(&["down", "--purge"]).status.success());
}

/// A directory of links: large files are not copied.
fn link(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::os::unix::fs::symlink(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
