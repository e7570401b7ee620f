//! The command lines of the four programs.
//!
//! Holds: everything listens on the plane's own loopback address; no leader election and no API server identity, for both would
//! write a lease every few seconds.

use std::path::Path;
use std::process::Command;

use super::certificates::Certificates;
use super::state::State;
use crate::home::Home;

/// Off: the endpoint controllers (the API refuses loopback addresses in endpoints; the node finds ready pods by selector), whatever
/// waits for a cloud or for kubelet heartbeats (there are none), and what attaches volumes. The short names are known to every version.
const CONTROLLERS: &str = "*,-endpoint,-endpointslice,-endpointslicemirroring,-nodelifecycle,-nodeipam,-service,-route,\
-cloud-node-lifecycle,-ttl,-attachdetach,-horizontalpodautoscaling,-persistentvolume-expander";

pub(super) fn etcd(home: &Home, state: &State, certificates: &Certificates) -> Vec<String> {
    let address = state.network.plane();
    let client = format!("https://{address}:{}", state.etcd_port);
    let peer = format!("https://{address}:{}", state.etcd_peer_port);
    vec![
        "--name=hangar".into(),
        format!("--data-dir={}", home.etcd().display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=hangar={peer}"),
        "--client-cert-auth=true".into(),
        format!("--trusted-ca-file={}", certificates.file("etcd-ca.crt")),
        format!("--cert-file={}", certificates.file("etcd.crt")),
        format!("--key-file={}", certificates.file("etcd.key")),
        "--peer-client-cert-auth=true".into(),
        format!("--peer-trusted-ca-file={}", certificates.file("etcd-ca.crt")),
        format!("--peer-cert-file={}", certificates.file("etcd.crt")),
        format!("--peer-key-file={}", certificates.file("etcd.key")),
        "--log-level=warn".into(),
    ]
}

pub(super) fn api_server(state: &State, certificates: &Certificates, program: &Path) -> Vec<String> {
    let address = state.network.plane();
    let file = |name| certificates.file(name);
    let mut args = vec![
        format!("--bind-address={address}"),
        format!("--advertise-address={address}"),
        format!("--secure-port={}", state.api_port),
        "--endpoint-reconciler-type=none".into(),
        format!("--service-cluster-ip-range={}", state.network.services()),
        "--allow-privileged=true".into(),
        "--anonymous-auth=false".into(),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--enable-bootstrap-token-auth=true".into(),
        "--profiling=false".into(),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--etcd-servers=https://{address}:{}", state.etcd_port),
        format!("--etcd-cafile={}", file("etcd-ca.crt")),
        format!("--etcd-certfile={}", file("apiserver-etcd-client.crt")),
        format!("--etcd-keyfile={}", file("apiserver-etcd-client.key")),
        format!("--encryption-provider-config={}", file("encryption.json")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
    ];
    if knows_gate(program, "APIServerIdentity") {
        args.push("--feature-gates=APIServerIdentity=false".into());
    }
    args
}

pub(super) fn controller_manager(state: &State, certificates: &Certificates) -> Vec<String> {
    let mut args = client("controller-manager", state, state.controller_manager_port, certificates);
    args.extend([
        format!("--controllers={CONTROLLERS}"),
        "--use-service-account-credentials=true".into(),
        // Each controller asks for an account and a token before it starts: at the usual 20 requests a second the last one starts after five.
        "--kube-api-qps=100".into(),
        "--kube-api-burst=200".into(),
        format!("--root-ca-file={}", certificates.file("ca.crt")),
        format!("--service-account-private-key-file={}", certificates.file("sa.key")),
        format!("--cluster-signing-cert-file={}", certificates.file("ca.crt")),
        format!("--cluster-signing-key-file={}", certificates.file("ca.key")),
    ]);
    args
}

pub(super) fn scheduler(state: &State, certificates: &Certificates) -> Vec<String> {
    client("scheduler", state, state.scheduler_port, certificates)
}

fn client(name: &str, state: &State, port: u16, certificates: &Certificates) -> Vec<String> {
    let config = certificates.file(&format!("{name}.conf"));
    vec![
        format!("--kubeconfig={config}"),
        format!("--authentication-kubeconfig={config}"),
        format!("--authorization-kubeconfig={config}"),
        format!("--bind-address={}", state.network.plane()),
        format!("--secure-port={port}"),
        // Self-signed in memory: nobody but the user asks these two for metrics.
        "--cert-dir=".into(),
        "--leader-elect=false".into(),
        "--profiling=false".into(),
    ]
}

/// Feature gates come and go; one that a version does not know would keep it from starting.
fn knows_gate(program: &Path, gate: &str) -> bool {
    let Ok(output) = Command::new(program).arg("--help").output() else { return false };
    String::from_utf8_lossy(&output.stdout).contains(&format!("{gate}=true|false"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::certificates::tests::state;

    /// A cell is a list of arguments, or of beginnings of arguments, or says that the argument of the check is not set.
    fn check(row: &[&str], cell: &str, arguments: &[String]) {
        let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        for wanted in words(cell) {
            let is_there = arguments.iter().any(|argument| match wanted.ends_with(['=', '.']) {
                true => argument.starts_with(&wanted),
                false => *argument == wanted,
            });
            assert!(is_there, "{row:?}: {wanted} is not among {arguments:?}");
        }
        if cell == "not set" {
            for flag in words(row[1]) {
                assert!(!arguments.iter().any(|argument| argument.starts_with(&flag)), "{row:?}: {flag} is set");
            }
        } else {
            assert!(!words(cell).is_empty(), "{row:?} says nothing that can be checked");
        }
    }

    #[test]
    fn the_table_of_the_benchmark_is_true_for_the_local_plane() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::open(directory.path().join("home")).unwrap();
        let state = state();
        let certificates = Certificates::prepare(&home, &state).unwrap();
        let local = [
            ("1.2.", api_server(&state, &certificates, Path::new("/bin/false"))),
            ("1.3.", controller_manager(&state, &certificates)),
            ("1.4.", scheduler(&state, &certificates)),
            ("2.", etcd(&home, &state, &certificates)),
        ];
        let shared = crate::datastore::arguments("10.0.0.1");
        let mut rows = 0;
        for line in include_str!("../../../../SECURITY.md").lines() {
            let row: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let Some((number, arguments)) = local.iter().find(|(number, _)| row[0].starts_with(number)) else {
                continue;
            };
            check(&row, row[2], arguments);
            if *number == "2." {
                check(&row, row[3], &shared);
            }
            rows += 1;
        }
        assert_eq!(rows, 37);
    }
}
