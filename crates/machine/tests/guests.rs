//! Machines of a plain user: processes, disks and networks of their own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plain_user;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hangar_machine::cloud_init::Instance;
use hangar_machine::{Fabric, FabricOptions, GuestSpec, Interface, Leg, Place, PortFilter, PortRule};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const NETWORK: &str = "d3c7a2b4";
/// Long enough for a machine that does other things, too.
const PATIENCE: Duration = Duration::from_secs(60);

const PROGRAM: &str = env!("CARGO_BIN_EXE_hangar-machine");

fn as_plain_user(name: &str, test: impl FnOnce()) {
    plain_user::run(name, &[(Path::new(PROGRAM), "hangar-machine")], test);
}

/// Where this user may run it.
fn program() -> PathBuf {
    plain_user::aside().map_or_else(|| PROGRAM.into(), |directory| directory.join("hangar-machine"))
}

fn open(directory: &Path) -> Fabric {
    let options = FabricOptions { directory: directory.join("fabric"), home: directory.to_owned(), program: program() };
    Fabric::open(&options).unwrap()
}

fn spec(directory: &Path, name: &str, network: &str, address: &str, user_data: &str) -> GuestSpec {
    let disk = directory.join(format!("disk-{name}"));
    std::fs::create_dir_all(&disk).unwrap();
    GuestSpec {
        id: name.to_owned(),
        console: directory.join(format!("{name}.console")),
        disk,
        interfaces: vec![Interface {
            network: network.to_owned(),
            mac: Some([0xfa, 0x16, 0x3e, 0, 0, 7]),
            address: address.parse().unwrap(),
            gateway: Some("10.6.0.1".parse().unwrap()),
            mtu: 1450,
        }],
        outside: vec![],
        instance: Instance {
            id: name.to_owned(),
            name: name.to_owned(),
            user_data: user_data.as_bytes().to_vec(),
            ..Instance::default()
        },
        programs: Default::default(),
        components: PathBuf::from("/nowhere"),
        program: program(),
    }
}

fn console(spec: &GuestSpec) -> String {
    std::fs::read_to_string(&spec.console).unwrap_or_default()
}

/// Waits until a guest has written something.
fn until(spec: &GuestSpec, words: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    while !console(spec).contains(words) {
        assert!(Instant::now() < deadline, "no {words:?} in {}", console(spec));
        std::thread::sleep(Duration::from_millis(20));
    }
    console(spec)
}

/// Ends the fabric, however the test ends.
struct Killed(i32);

impl Killed {
    fn at_the_end(directory: &Path) -> Self {
        Self(processes(directory).into_iter().min().unwrap())
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.0) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Everything that runs for a home.
fn processes(home: &Path) -> Vec<i32> {
    let mark = format!("{}={}", hangar_machine::MARK, home.display());
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(ours).collect()
}

#[test]
fn a_guest_does_what_its_user_data_says_and_keeps_its_disk() {
    as_plain_user("a_guest_does_what_its_user_data_says_and_keeps_its_disk", || {
        let directory = tempfile::tempdir().unwrap();
        let fabric = open(directory.path());
        let end = Killed::at_the_end(directory.path());
        let user_data = "\
#cloud-config
bootcmd: ['echo start $(hostname) $$']
write_files:
- {path: /etc/of/a/test, content: 'hello', permissions: '0640'}
runcmd:
- [sh, -c, 'cat /etc/of/a/test; echo; stat -c %a /etc/of/a/test']
- id -u; ls /home /root; ls -d /etc/passwd
- 'false'
";
        let guest = spec(directory.path(), "one", NETWORK, "10.6.0.11/24", user_data);
        assert!(fabric.boot(guest.clone()).unwrap().now);
        let booted = fabric.boot(guest.clone()).unwrap();
        assert!(!booted.now, "it runs already");
        let said = until(&guest, "finished");
        assert!(
            said.contains("one booted\nstart one ") && said.contains("hello\n640\n0\n/home:\n\n/root:\n/etc/passwd\n"),
            "{said}"
        );
        assert!(said.contains("runcmd failed: exit status: 1"), "{said}");
        assert!(!Path::new("/etc/of").exists());

        fabric.power_off("one").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { tokio::time::timeout(PATIENCE, booted.ended()).await }).unwrap().unwrap();
        assert!(fabric.guests().unwrap().is_empty());
        std::fs::remove_file(&guest.console).unwrap();
        assert!(fabric.boot(guest.clone()).unwrap().now);
        let said = until(&guest, "finished");
        assert!(said.contains("start one") && !said.contains("hello"), "once for each instance: {said}");
        assert_eq!(std::fs::read_to_string(guest.disk.join("own/etc/of/a/test")).unwrap(), "hello");

        drop(end);
        let deadline = Instant::now() + PATIENCE;
        while !processes(directory.path()).is_empty() {
            assert!(Instant::now() < deadline, "processes are left: {:?}", processes(directory.path()));
            std::thread::sleep(Duration::from_millis(20));
        }
        hangar_machine::remove_disk(&guest.disk).unwrap();
    });
}

/// What answers is an error too: nobody listens any more, and is reached all the same.
fn security_groups_keep_out(fabric: &Fabric, runtime: &tokio::runtime::Runtime) {
    let reached = || {
        let connecting = fabric.connect(NETWORK, "10.6.0.11:81".parse().unwrap());
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(1), connecting).await.is_ok() })
    };
    let rule = |ports| PortRule {
        ingress: true,
        protocol: Some("tcp".to_owned()),
        ports: Some(ports),
        remotes: vec!["10.6.0.0/24".parse().unwrap()],
    };
    for (ports, expected) in [((80, 80), false), ((80, 81), true), ((82, 90), false)] {
        fabric.filter("one", PortFilter { rules: vec![rule(ports)], pods: vec![] }).unwrap();
        assert_eq!(reached(), expected, "{ports:?}");
    }
}

#[test]
fn networks_are_real_and_may_overlap() {
    as_plain_user("networks_are_real_and_may_overlap", || {
        let directory = tempfile::tempdir().unwrap();
        let fabric = open(directory.path());
        let _end = Killed::at_the_end(directory.path());
        let listen = "#cloud-config\nruncmd: [\"python3 -c 'import socket; s=socket.create_server((\\\"0.0.0.0\\\",80)); print(\\\"listens\\\",flush=True); c,a=s.accept(); c.sendall(open(\\\"/etc/hostname\\\").read().encode())' &\"]\n";
        let runtime = tokio::runtime::Runtime::new().unwrap();
        for network in [NETWORK, "another"] {
            let legs = vec![Leg { network: network.into(), address: "10.6.0.1/24".parse().unwrap(), mtu: 1450 }];
            let answers_for = vec!["127.24.4.0/24".parse().unwrap()];
            fabric.ensure_place(Place { name: network.into(), legs, answers_for }).unwrap();
        }
        let (one, two) = (
            spec(directory.path(), "one", NETWORK, "10.6.0.11/24", listen),
            spec(directory.path(), "two", "another", "10.6.0.11/24", listen),
        );
        for guest in [&one, &two] {
            fabric.boot(guest.clone()).unwrap();
            until(guest, "listens");
        }
        // The same address, in networks of their own.
        for (network, name) in [(NETWORK, "one\n"), ("another", "two\n")] {
            let said = runtime.block_on(async {
                let mut stream = fabric.connect(network, "10.6.0.11:80".parse().unwrap()).await.unwrap();
                let mut said = String::new();
                stream.read_to_string(&mut said).await.unwrap();
                said
            });
            assert_eq!(said, name);
        }
        security_groups_keep_out(&fabric, &runtime);
        // From a guest to the outside, by an address that is loopback's here and there.
        let said = runtime.block_on(async {
            let listener = fabric.listen(NETWORK, "0.0.0.0:6443".parse().unwrap()).unwrap();
            let ask = "#cloud-config\nruncmd: [\"python3 -c 'import socket; s=socket.create_connection((\\\"127.24.4.7\\\",6443)); s.sendall(b\\\"from inside\\\")'\"]\n";
            fabric.boot(spec(directory.path(), "three", NETWORK, "10.6.0.12/24", ask)).unwrap();
            let (mut stream, from) = tokio::time::timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
            assert_eq!(stream.local_addr().unwrap(), "127.24.4.7:6443".parse().unwrap());
            assert_eq!(from.ip().to_string(), "127.255.0.12", "an address of loopback, too");
            let mut said = String::new();
            stream.read_to_string(&mut said).await.unwrap();
            stream.shutdown().await.unwrap();
            said
        });
        assert_eq!(said, "from inside");
    });
}
