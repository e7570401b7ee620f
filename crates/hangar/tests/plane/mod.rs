//! A home of its own for a test, driven through the program as a user would.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    reason = "a test says what went wrong by panicking; not every test uses all"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Generous, because a machine may be busy; nothing waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(150);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The program that was built with this test, or another build of it that a benchmark names.
pub fn program() -> PathBuf {
    let named = std::env::var_os("HANGAR_BINARY").map(PathBuf::from);
    named.or_else(|| aside("hangar")).unwrap_or_else(|| env!("CARGO_BIN_EXE_hangar").into())
}

/// A file of a test that is run by a plain user, where he may read it.
fn aside(name: &str) -> Option<PathBuf> {
    std::env::var_os("HANGAR_TEST_AS_PLAIN_USER").map(|directory| Path::new(&directory).join(name))
}

pub struct Plane {
    home: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

impl Plane {
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// With variables of the environment.
    pub fn with(variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { home: tempfile::Builder::new().prefix("hangar-test-").tempdir().unwrap(), variables }
    }

    pub fn home(&self) -> PathBuf {
        self.home.path().join("home")
    }

    /// Runs the program and returns what it said.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts the program and leaves it running, its output to be read.
    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Runs the program with something to read.
    pub fn run_with(&self, arguments: &[&str], text: &str) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.current_dir(repository()).env("HANGAR_HOME", self.home()).env_remove("KUBECONFIG");
        command.envs(self.variables.iter().map(|(name, value)| (name, value))).args(arguments);
        command
    }

    /// Runs the program, which must succeed, and returns its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "hangar {arguments:?} failed\n{text}\n{errors}\n{}", self.log_tail());
        text
    }

    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.ok(&[&["kubectl", "--"], arguments].concat())
    }

    pub fn tenant(&self, cluster: &str, arguments: &[&str]) -> String {
        self.ok(&[&["kubectl", "--cluster", cluster, "--"], arguments].concat())
    }

    /// An object, or null.
    pub fn get(&self, what: &str) -> Value {
        let output = self.run(&["kubectl", "--", "get", what, "-o", "json", "--ignore-not-found"]);
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Waits until an object is as wanted.
    pub fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let object = self.get(what);
            if wanted(&object) {
                return object;
            }
            assert!(began.elapsed() < PATIENCE, "gave up waiting for {what}:\n{object:#}\n{}", self.log_tail());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits without asking again and again: for measurements, which asking would disturb.
    pub fn wait(&self, what: &str, wanted: &str) {
        let (condition, timeout) = (format!("--for={wanted}"), format!("--timeout={}s", PATIENCE.as_secs()));
        self.kubectl(&["wait", what, &condition, &timeout]);
    }

    /// What was said of an object, in events.
    pub fn events(&self, name: &str) -> String {
        let selector = format!("--field-selector=involvedObject.name={name}");
        self.kubectl(&["get", "events", &selector, "-o", "jsonpath={.items[*].message}"])
    }

    pub fn inventory(&self) -> Vec<Value> {
        let text = self.ok(&["simulator", "inventory", "-o", "json"]);
        let value: Value = serde_json::from_str(&text).unwrap();
        let projects = value["projects"].as_object().unwrap();
        projects.values().flat_map(|items| items.as_array().unwrap().clone()).collect()
    }

    /// A request to the simulated cloud's own admin endpoint.
    pub fn admin(&self, method: &str, path: &str, body: &Value) {
        self.ask(method, path, &body.to_string());
    }

    pub fn admin_get(&self, path: &str) -> Value {
        serde_json::from_str(&self.ask("GET", path, "")).unwrap()
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        use std::io::Read as _;
        let address = self.state()["cloud_url"].as_str().unwrap().trim_start_matches("http://").to_owned();
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let length = body.len();
        let token = std::fs::read_to_string(self.home().join("cloud/admin-token")).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\nX-Admin-Token: {token}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.contains(" 20"), "{method} {path}: {answer}");
        body.to_owned()
    }

    pub fn state(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.home().join("daemon.json")).unwrap_or_default())
            .unwrap_or(Value::Null)
    }

    /// As a power cut would: no chance to say goodbye.
    pub fn kill(&self) {
        self.signal("KILL");
    }

    pub fn signal(&self, name: &str) {
        let pid = self.state()["pid"].to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// What its pods have outside of the home.
    pub fn in_memory(&self) -> Vec<PathBuf> {
        let below = |path: PathBuf| path.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        let volumes = below(self.home().join("pods")).flat_map(|pod| below(pod.join("volumes")));
        let real = volumes.filter_map(|volume| std::fs::read_link(volume).ok());
        real.filter(|real| real.starts_with("/dev/shm")).collect()
    }

    /// Processes of this home, by name: the background process and everything that it started.
    pub fn processes(&self) -> Vec<(u32, String)> {
        let marked = format!("HANGAR_HOME={}", self.home().display());
        let read = |pid: u32, file: &str| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let machines = format!("HANGAR_MACHINES_OF={}", self.home().display());
        let is_ours = |pid: &u32| {
            let is_mark = |word: &[u8]| word == marked.as_bytes() || word == machines.as_bytes();
            read(*pid, "environ").split(|byte| *byte == 0).any(is_mark)
        };
        let name = |pid: u32| String::from_utf8_lossy(&read(pid, "comm")).trim().to_owned();
        pids.filter(is_ours).map(|pid| (pid, name(pid))).collect()
    }

    pub fn pids(&self) -> Vec<u32> {
        self.processes().into_iter().map(|(pid, _)| pid).collect()
    }

    fn control_groups(&self) -> Vec<PathBuf> {
        let name = self.home.path().file_name().unwrap().to_string_lossy().into_owned();
        let groups = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"].map(|above| Path::new(above).read_dir());
        let groups = groups.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
        groups.filter(|path| path.to_string_lossy().contains(&name)).collect()
    }

    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.home().join("logs/hangar.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the end of the log:\n{}", self.log_tail());
        }
        let in_memory = self.in_memory();
        drop(self.run(&["down", "--purge"]));
        let left: Vec<_> = in_memory.into_iter().chain(self.control_groups()).filter(|path| path.exists()).collect();
        assert!(left.is_empty() || std::thread::panicking(), "left behind: {left:?}");
    }
}

pub fn repository() -> PathBuf {
    aside("").unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// Waits for something that no object tells.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "gave up waiting for {what}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// A condition's status and message.
pub fn condition(object: &Value, kind: &str) -> (String, String) {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

/// The address of a Service or an Ingress; nothing if it has none yet.
pub fn address_of(object: &Value) -> String {
    object["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap_or_default().to_owned()
}
