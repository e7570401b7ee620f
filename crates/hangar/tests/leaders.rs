//! `hangar run` beside a real API server: of two processes one acts, and the other one follows when it is killed or told to stop.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod api;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use api::Api;
use hangar_engine::webhook::WebhookIdentity;
use hangar_pki::SystemKeys;
use serde_json::Value;

/// Shorter than by default, so that nobody waits a quarter of a minute for one who was killed.
const TERMS: [&str; 6] =
    ["--leader-elect-lease-duration", "3s", "--leader-elect-renew-deadline", "2s", "--leader-elect-retry-period", "1s"];

/// A process with what it said so far.
struct Manager {
    child: Child,
    lines: Receiver<String>,
    said: Vec<Value>,
}

impl Manager {
    fn start(api: &Api, certificates: &str) -> Self {
        let kubeconfig = api.kubeconfig();
        let mut command = Command::new(env!("CARGO_BIN_EXE_hangar"));
        command.args(["run", "--kubeconfig", &kubeconfig, "--bind-address", "127.0.0.1:0", "--log-format", "json"]);
        command.args(["--cert-dir", certificates]).args(TERMS).env_remove("HANGAR_LOG").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let errors = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || errors.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines, said: vec![] }
    }

    /// Waits until it says this, and returns the line.
    fn says(&mut self, words: &str) -> Value {
        loop {
            let is_it = |line: &&Value| line["message"].as_str().is_some_and(|message| message.contains(words));
            if let Some(line) = self.said.iter().find(is_it) {
                return line.clone();
            }
            let Ok(line) = self.lines.recv() else { panic!("it ended without saying {words:?}: {:#?}", self.said) };
            self.said.push(serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}")));
        }
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn holder(api: &Api) -> String {
    api.kubectl(&["get", "lease", "-n", "hangar-system", "hangar", "-o", "jsonpath={.spec.holderIdentity}"])
}

/// Somebody works: a new Cluster gets a status.
fn is_worked_on(api: &Api, name: &str) {
    let manifest = format!(
        "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {{name: {name}, namespace: default}}\nspec: {{\
         controlPlaneEndpoint: {{host: 192.0.2.1, port: 6443}}}}\n"
    );
    api.kubectl_with(&["apply", "-f", "-"], &manifest);
    api.kubectl(&["wait", "--for=jsonpath={.status.observedGeneration}", &format!("cluster/{name}"), "--timeout=120s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_one_acts_and_the_other_one_follows() {
    let api = Api::start().await;
    api.kubectl(&["create", "namespace", "hangar-system"]);
    let directory = tempfile::tempdir().unwrap();
    let certificates = directory.path().to_str().unwrap();
    let identity = WebhookIdentity::create(&SystemKeys, "127.0.0.1", jiff::Timestamp::now()).unwrap();
    for (name, text) in [
        ("tls.crt", &identity.server.certificate_pem),
        ("tls.key", &identity.server.key_pem),
        ("ca.crt", &identity.ca_pem),
    ] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }

    let mut first = Manager::start(&api, certificates);
    let leads = first.says("this process leads");
    assert_eq!(holder(&api), leads["identity"].as_str().unwrap());
    is_worked_on(&api, "one");

    let mut second = Manager::start(&api, certificates);
    let address = second.says("serves the webhook")["address"].as_str().unwrap().to_owned();
    let client = Api::client_of(&format!("https://{address}"), &identity.ca_pem);
    for path in ["/healthz", "/readyz"] {
        let answer = client.request_text(http::Request::get(path).body(vec![]).unwrap()).await;
        assert_eq!(answer.unwrap(), "ok", "whoever waits answers for the webhook: {path}");
    }
    assert_eq!(holder(&api), leads["identity"].as_str().unwrap(), "the second one waits");

    first.signal("-KILL");
    let follows = second.says("this process leads");
    assert_eq!(holder(&api), follows["identity"].as_str().unwrap());
    is_worked_on(&api, "two");

    let mut third = Manager::start(&api, certificates);
    third.says("serves the webhook");
    second.signal("-TERM");
    second.says("gave the Lease back");
    assert!(second.child.wait().unwrap().success(), "{:#?}", second.said);
    third.says("this process leads");
    is_worked_on(&api, "three");

    // Whoever loses it ends, and says why.
    api.kubectl(&["delete", "lease", "-n", "hangar-system", "hangar"]);
    third.says("it was taken or deleted");
    assert!(!third.child.wait().unwrap().success());
    api.stop().await;
}

#[test]
fn what_is_wrong_with_its_options_is_said() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_hangar")).arg("run").args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for (arguments, words) in [
        (&[][..], "name the management cluster with --kubeconfig FILE"),
        (&["--kubeconfig", "/nowhere/config"], "cannot read /nowhere/config"),
        (&["--controllers", "Machine,Pod"], "there is no controller for Pod; there are "),
        (&["--leader-elect-lease-duration", "soon"], "not a duration such as 90s"),
    ] {
        let said = refused(arguments);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config");
    let text = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\n\
                contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {}}]\n";
    std::fs::write(&file, text).unwrap();
    let said = refused(&["--kubeconfig", file.to_str().unwrap(), "--leader-elect-renew-deadline", "20s"]);
    assert!(said.contains("the renew deadline must be shorter than the lease duration"), "{said}");
}
