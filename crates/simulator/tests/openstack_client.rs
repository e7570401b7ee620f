//! The real `openstack` client from PyPI against the simulator. Python 3 with venv is all that must be there already; if the
//! client cannot be installed this fails, because nothing was shown then.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hangar_simulator::{Options, Simulator, starter};
use tokio_util::sync::CancellationToken;

const CLIENT: [&str; 2] = ["python-openstackclient==10.5.0", "python-octaviaclient==3.15.0"];

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?} failed:\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

/// Kept beside the test binaries, so that only the first run installs it.
fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("openstack-client-{}", CLIENT.join("-")));
    let python = folder.join("bin/python");
    if !folder.join("complete").exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
        run(Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(CLIENT));
        std::fs::write(folder.join("complete"), "").unwrap();
    }
    python
}

#[tokio::test(flavor = "multi_thread")]
async fn the_real_client_walks_through_ninety_steps_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let simulator = Simulator::new(Options { starter: false, speed: 50.0, ..Options::default() }).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let entries = [("admin", starter::ADMIN), ("demo", starter::USER)];
    std::fs::write(dir.path().join("clouds.yaml"), simulator.clouds_yaml_of(&base, &entries, None)).unwrap();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    tokio::spawn(simulator.clone().serve_owned(listener, stop));
    let walk = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openstack_client/walk.py");
    let folder = dir.path().to_owned();
    let output = tokio::task::spawn_blocking(move || {
        run(Command::new(python())
            .arg(walk)
            .arg(folder)
            .arg(format!("{base}/identity/v3"))
            .env("PYTHONWARNINGS", "ignore"))
    });
    let output = output.await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let steps: usize = text.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(steps >= 90, "{text}");
    println!("{text}");
    assert!(simulator.inventory().is_empty(), "{:?}", simulator.inventory());
}
