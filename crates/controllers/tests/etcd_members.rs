//! A store of three real members: it works with one of them stopped, and its peer port is closed to tenants.

// A test says what went wrong by panicking, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use hangar_controllers::Etcd;
use hangar_embedded::{Component, Store, StoreOptions, default_version};
use hangar_pki::{Authority, CertifiedKey, Leaf, SystemKeys, Usage};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::AsyncReadExt as _;

const OWNER: &str = "11111111-1111-4111-8111-111111111111";

struct Quiet;

impl hangar_embedded::Progress for Quiet {
    fn stage(&self, _component: &Component, _stage: hangar_embedded::Stage) {}
}

struct Member {
    client: String,
    peer: String,
    process: Child,
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

struct Cluster {
    directory: tempfile::TempDir,
    ca: Authority,
    peer_ca: Authority,
    members: Vec<Member>,
}

impl Cluster {
    async fn start() -> Self {
        let now = jiff::Timestamp::now();
        let directory = tempfile::tempdir().unwrap();
        let ca = Authority::create(&SystemKeys, "etcd-ca", now).unwrap();
        let peer_ca = Authority::create(&SystemKeys, "etcd-peer-ca", now).unwrap();
        let member = |authority: &Authority| {
            let leaf = Leaf::server("member", ["127.0.0.1".to_owned()]);
            authority.issue(&SystemKeys, &Leaf { usage: Usage::ServerAndClient, ..leaf }, now).unwrap()
        };
        for (name, authority) in [("server", &ca), ("peer", &peer_ca)] {
            let pair = member(authority);
            std::fs::write(directory.path().join(format!("{name}-ca.crt")), authority.certificate_pem()).unwrap();
            std::fs::write(directory.path().join(format!("{name}.crt")), pair.certificate_pem).unwrap();
            std::fs::write(directory.path().join(format!("{name}.key")), pair.key_pem).unwrap();
        }
        let program = program().await;
        // All held at once, so that no two are the same.
        let held: Vec<TcpListener> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = held.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(held);
        let members = (0..3).map(|number| spawn(&program, directory.path(), &ports, number)).collect();
        Self { directory, ca, peer_ca, members }
    }

    fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client.clone()).collect()
    }

    fn etcd(&self) -> Etcd {
        let root = self.leaf(&self.ca, "root");
        Etcd::new(&self.endpoints(), self.ca.certificate_pem(), &root.certificate_pem, &root.key_pem).unwrap()
    }

    fn leaf(&self, authority: &Authority, name: &str) -> CertifiedKey {
        authority.issue(&SystemKeys, &Leaf::client(name, &[]), jiff::Timestamp::now()).unwrap()
    }

    fn log(&self) -> String {
        let read = |number: usize| std::fs::read_to_string(self.directory.path().join(format!("m{number}.log")));
        (0..3).filter_map(|number| read(number).ok()).collect()
    }

    /// Whether a certificate opens a port: a server of TLS 1.3 refuses after the handshake, at the first read.
    async fn opens(&self, address: &str, trust: &Authority, identity: CertifiedKey) -> bool {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trust.certificate_pem().as_bytes()).unwrap()).unwrap();
        let certificate = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .unwrap();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let Ok(mut stream) = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await else {
            return false;
        };
        use tokio::io::AsyncWriteExt as _;
        let request = b"GET /version HTTP/1.1\r\nHost: member\r\nConnection: close\r\n\r\n";
        let mut answer = Vec::new();
        stream.write_all(request).await.is_ok()
            && stream.read_to_end(&mut answer).await.is_ok()
            && answer.starts_with(b"HTTP/1.1 200")
    }
}

async fn program() -> PathBuf {
    let store = Store::new(StoreOptions::default());
    let etcd = Component { name: "etcd".into(), version: default_version("etcd") };
    store.fetch(&[etcd], &Quiet).await.unwrap().remove(0)
}

fn spawn(program: &Path, directory: &Path, ports: &[u16], number: usize) -> Member {
    let url = |port: u16| format!("https://127.0.0.1:{port}");
    let peers: Vec<String> = (0..3).map(|other| format!("m{other}={}", url(ports[3 + other]))).collect();
    let file = |name: &str| directory.join(name).display().to_string();
    let (client, peer) = (url(ports[number]), url(ports[3 + number]));
    let mut command = Command::new(program);
    command.args([
        format!("--name=m{number}"),
        format!("--data-dir={}", file(&format!("m{number}"))),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster={}", peers.join(",")),
        "--client-cert-auth=true".into(),
        format!("--trusted-ca-file={}", file("server-ca.crt")),
        format!("--cert-file={}", file("server.crt")),
        format!("--key-file={}", file("server.key")),
        "--peer-client-cert-auth=true".into(),
        format!("--peer-trusted-ca-file={}", file("peer-ca.crt")),
        format!("--peer-cert-file={}", file("peer.crt")),
        format!("--peer-key-file={}", file("peer.key")),
    ]);
    let log = std::fs::File::create(directory.join(format!("m{number}.log"))).unwrap();
    let process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let bare = |url: &str| url.trim_start_matches("https://").to_owned();
    Member { client: bare(&client), peer: bare(&peer), process }
}

async fn until<T>(cluster: &Cluster, what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let asked = async {
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(120), asked).await;
    waited.unwrap_or_else(|_| panic!("gave up waiting for {what}: {}", cluster.log()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_three_works_with_one_member_down() {
    let mut cluster = Cluster::start().await;
    let etcd = cluster.etcd();
    until(&cluster, "an elected leader", async || etcd.enable_auth().await.ok()).await;

    let members = until(&cluster, "all members", async || {
        Some(etcd.members().await).filter(|members| members.iter().all(|member| member.answers && member.size > 0))
    })
    .await;
    assert_eq!(members.iter().filter(|member| member.leads).count(), 1);
    for member in &members {
        etcd.defragment(&member.endpoint).await.unwrap();
    }

    what_is_below_a_prefix_is_measured_to_the_byte(&etcd).await;

    let peer = cluster.members[0].peer.clone();
    let tenant = cluster.leaf(&cluster.ca, "a-tenant");
    assert!(!cluster.opens(&peer, &cluster.peer_ca, tenant).await, "a tenant's certificate opens the peer port");
    let member = cluster.leaf(&cluster.peer_ca, "member");
    assert!(cluster.opens(&peer, &cluster.peer_ca, member).await, "what members have opens it");

    // The first of the endpoints, and the leader if it is: both have to be coped with.
    cluster.members[0].process.kill().unwrap();
    cluster.members[0].process.wait().unwrap();
    until(&cluster, "a store with one member down", async || etcd.create_tenant(OWNER, "u", "r", "/r/").await.ok())
        .await;
    assert!(etcd.users().await.unwrap().contains(&"u".to_owned()));
    let left = etcd.members().await;
    assert!(!left[0].answers && left[1].answers && left[2].answers);
    etcd.delete_tenant(OWNER, "u", "r", "/r/").await.unwrap();
    assert_eq!(etcd.count("/").await.unwrap(), 0);
}

/// More keys than the first request asks for: those of the register of tenants, which are known.
async fn what_is_below_a_prefix_is_measured_to_the_byte(etcd: &Etcd) {
    assert_eq!(etcd.usage("/hangar/", b"/hangar/").await.unwrap().bytes, 0);
    let names: Vec<String> = (0..40).map(|number| format!("tenant-{number}")).collect();
    let mut expected = 0;
    for name in &names {
        etcd.create_tenant(OWNER, name, name, &format!("/{name}/")).await.unwrap();
        let keys = [format!("/hangar/tenants/users/{name}"), format!("/hangar/tenants/schemas/{name}")];
        expected += keys.iter().map(|key| (key.len() + OWNER.len()) as u64).sum::<u64>();
    }
    // Any member is asked, and one that follows may be a moment behind.
    let mut found = etcd.usage("/hangar/", b"/hangar/").await.unwrap();
    while found.bytes < expected {
        found = etcd.usage("/hangar/", b"/hangar/").await.unwrap();
    }
    assert_eq!((found.bytes, found.next), (expected, None));
    for name in &names {
        etcd.delete_tenant(OWNER, name, name, &format!("/{name}/")).await.unwrap();
    }
}
