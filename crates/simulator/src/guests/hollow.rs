//! Guests that are hollow nodes: user-data decides whether and where they join.
//!
//! Flows: boot -> cloud-init -> JoinConfiguration -> join, again and again while waiting may help -> identity on disk ->
//! run until shut down. Holds: a guest with an identity on its disk needs no token any more; every step is on the console.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hangar_node::hollow::{self, Fleet, HollowNode, Identity, Join, JoinError};
use tokio_util::sync::CancellationToken;

use super::{Guest, GuestDriver, cloud_init, join_config};

const FIRST_WAIT: Duration = Duration::from_millis(500);
/// As often as kubeadm asks.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A machine that is switched off does not wait longer for anybody.
const GOODBYE: Duration = Duration::from_secs(5);

/// Boots every guest as a hollow node.
pub struct HollowGuests {
    /// Where identities are kept; `None` keeps none.
    dir: Option<PathBuf>,
    running: Mutex<HashMap<String, Switch>>,
    shutdown: CancellationToken,
    fleet: Fleet,
}

/// How a guest is ended.
#[derive(Clone)]
struct Switch {
    stop: CancellationToken,
    /// Without a chance to say goodbye: the server is gone, or this process ends.
    destroyed: CancellationToken,
}

impl HollowGuests {
    /// `dir` is [`crate::Simulator::guests_dir`]; all guests stop at `shutdown`.
    pub fn new(dir: Option<PathBuf>, shutdown: CancellationToken) -> Self {
        Self { dir, running: Mutex::default(), shutdown, fleet: Fleet::default() }
    }

    fn disk(&self, server_id: &str) -> Option<PathBuf> {
        // Ids are ours, but a file name is no place for surprises.
        let safe = server_id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        self.dir.as_ref().filter(|_| safe).map(|dir| dir.join(format!("{server_id}.json")))
    }
}

impl GuestDriver for HollowGuests {
    fn boot(&self, guest: Guest) {
        let switch = Switch { stop: self.shutdown.child_token(), destroyed: self.shutdown.child_token() };
        let id = guest.server_id.clone();
        let disk = self.disk(&id);
        let old = self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id, switch.clone());
        if let Some(old) = old {
            old.destroyed.cancel();
            old.stop.cancel();
        }
        let fleet = self.fleet.clone();
        tokio::spawn(async move {
            let joined = tokio::select! {
                () = switch.stop.cancelled() => None,
                joined = join(&guest, disk) => joined,
            };
            if let Some(node) = joined {
                live(&guest, node, &fleet, &switch).await;
            }
        });
    }

    fn stop(&self, server_id: &str) {
        if let Some(switch) = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(server_id) {
            switch.stop.cancel();
        }
    }

    fn shut_down(&self, server_id: &str) {
        if let Some(switch) = self.running.lock().unwrap_or_else(PoisonError::into_inner).get(server_id) {
            switch.destroyed.cancel();
        }
        self.stop(server_id);
        if let Some(disk) = self.disk(server_id) {
            // Not there when it never joined.
            let _ = std::fs::remove_file(disk);
        }
    }
}

/// `None` when it stays out.
async fn join(guest: &Guest, disk: Option<PathBuf>) -> Option<HollowNode> {
    let console = &guest.console;
    console.line(format!("{} booted", guest.name));
    let (join, sentinel) = match prepare(guest) {
        Ok(ready) => ready,
        Err(why) => {
            console.line(why);
            return None;
        }
    };
    let identity = match disk.as_ref().and_then(load) {
        Some(identity) => {
            console.line("kubelet: starting with the certificate on disk");
            identity
        }
        None => {
            let identity = join_until_in(guest, &join).await?;
            if sentinel {
                console.line(format!("cloud-init: {} is written", join_config::SENTINEL));
            }
            if let Some(path) = &disk
                && let Err(error) = store(path, &identity)
            {
                console.line(format!("the identity could not be written to disk: {error}"));
            }
            identity
        }
    };
    Some(HollowNode { identity, facts: join })
}

async fn live(guest: &Guest, node: HollowNode, fleet: &Fleet, switch: &Switch) {
    let console = &guest.console;
    console.line(format!("kubelet: node {} runs against {}", node.facts.node_name, node.identity.server));
    if let Err(error) = hollow::run(node.clone(), fleet, switch.stop.clone()).await {
        return console.line(format!("kubelet: {}", chain(&error)));
    }
    let goodbye = tokio::time::timeout(GOODBYE, hollow::leave(&node));
    tokio::select! {
        biased;
        () = switch.destroyed.cancelled() => {}
        said = goodbye => match said {
            Ok(Ok(())) => console.line("kubelet: node is shutting down"),
            Ok(Err(error)) => console.line(format!("kubelet: {}", chain(&error))),
            Err(_) => console.line("kubelet: the API server did not answer, so nobody knows that the node is shutting down"),
        }
    }
}

/// How it joins, and whether it writes down that it did.
fn prepare(guest: &Guest) -> Result<(Join, bool), String> {
    let prepared = cloud_init::prepare(&guest.instance()).map_err(|error| error.to_string())?;
    let join = join_config::read(guest, &prepared).map_err(|error| error.to_string())?;
    Ok((join, join_config::writes_sentinel(&prepared)))
}

/// `None` when waiting does not help.
async fn join_until_in(guest: &Guest, join: &Join) -> Option<Identity> {
    let mut wait = FIRST_WAIT;
    let mut last = String::new();
    guest.console.line(format!("kubeadm: joining {} as {}", join.endpoint, join.node_name));
    loop {
        match hollow::join(join).await {
            Ok(identity) => {
                guest.console.line("kubeadm: This node has joined the cluster");
                return Some(identity);
            }
            Err(error) => {
                let again = error.retryable() && !token_is_gone(&error);
                // The same complaint every few seconds tells nobody anything new.
                let line = format!("kubeadm: {}", chain(&error));
                if line != last {
                    guest.console.line(&line);
                    last = line;
                }
                if !again {
                    guest.console.line("kubeadm: giving up");
                    return None;
                }
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// A token the API server does not know is not going to be known later: its cluster made a new one for somebody else.
fn token_is_gone(error: &JoinError) -> bool {
    matches!(error, JoinError::Refused { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 401))
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn load(path: &PathBuf) -> Option<Identity> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn store(path: &std::path::Path, identity: &Identity) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    hangar_node::small_file::keep(path, &serde_json::to_vec(identity)?)
}

#[cfg(test)]
mod tests {
    use super::super::join_config::tests::guest;
    use super::*;

    #[tokio::test]
    async fn what_keeps_a_guest_out_is_on_its_console() {
        let pinless = "\
#cloud-config
write_files:
- path: /j
  content: |
    apiVersion: kubeadm.k8s.io/v1beta4
    kind: JoinConfiguration
    discovery: {bootstrapToken: {apiServerEndpoint: '127.0.0.1:1', token: abcdef.0123456789abcdef}}
runcmd: [kubeadm join --config /j]
";
        let table = [
            ("#!/bin/sh\necho hi\n", "nothing joins"),
            ("hello\n", "neither #cloud-config nor anything else"),
            ("#cloud-config\nruncmd: [date]\n", "nothing joins"),
            (pinless, "caCertHashes is empty"),
        ];
        for (user_data, words) in table {
            let guest = guest(user_data);
            assert!(join(&guest, None).await.is_none());
            let text = guest.console.text();
            assert!(text.starts_with("worker-1 booted\n") && text.contains(words), "{text}");
        }
    }

    #[test]
    fn an_identity_on_disk_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cloud.json.guests").join("1f.json");
        let identity = Identity {
            ca_pem: "ca".into(),
            certificate_pem: "certificate".into(),
            key_pem: "key".into(),
            server: "https://127.0.0.1:6443".into(),
        };
        store(&path, &identity).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load(&path).unwrap().key_pem, "key");
        assert!(!format!("{identity:?}").contains("key\""));
        let guests = HollowGuests::new(Some(dir.path().join("cloud.json.guests")), CancellationToken::new());
        assert!(guests.disk("../1f").is_none());
        guests.shut_down("1f");
        assert!(!path.exists());
    }
}
