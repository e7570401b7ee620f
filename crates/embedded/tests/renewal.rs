//! Certificates of a running plane, renewed under its feet.

// A test says what went wrong by panicking, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hangar_embedded::{Home, Plane, PlaneOptions, Quiet, Store, StoreOptions, identities};
use hangar_pki::{Authority, Leaf, SystemKeys, Usage, expires_at};
use jiff::{Timestamp, ToSpan as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};

const PATIENCE: Duration = Duration::from_secs(150);

/// Waits for something that nobody tells.
async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("gave up waiting for {what}"));
}

/// The certificate that a server shows to somebody who has none.
async fn shown(address: SocketAddr) -> Option<CertificateDer<'static>> {
    let connector = tokio_rustls::TlsConnector::from(Arc::new(hangar_pki::unverified_client().unwrap()));
    let stream = tokio::net::TcpStream::connect(address).await.ok()?;
    let stream = connector.connect(ServerName::from(address.ip()), stream).await.ok()?;
    Some(stream.get_ref().1.peer_certificates()?.first()?.clone().into_owned())
}

fn pid(plane: &Plane, name: &str) -> Option<u32> {
    plane.processes().into_iter().find(|process| process.name == name)?.pid
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_plane_uses_renewed_certificates_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::open(directory.path().join("home")).unwrap();
    let store = Store::new(StoreOptions::default());
    let plane = Plane::start(&home, &store, &PlaneOptions::default(), &Quiet).await.unwrap();
    let administrator = plane.renewable_client(None).await.unwrap();
    let client = administrator.client();
    client.apiserver_version().await.unwrap();
    assert_eq!(plane.renew(Timestamp::now()).unwrap(), Vec::<String>::new(), "nothing is due");

    // As if they had been issued 300 days ago.
    let file = |name: &str| home.pki().join(name);
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let past = Timestamp::now() - (300 * 24).hours();
    let here = || [plane.network().plane().to_string()];
    let old = [
        ("apiserver", "ca", Leaf::server("kube-apiserver", here())),
        ("etcd", "etcd-ca", Leaf { usage: Usage::ServerAndClient, ..Leaf::server("etcd", here()) }),
        ("controller-manager", "ca", Leaf::client("system:kube-controller-manager", &[])),
        ("admin", "ca", Leaf::client("kubernetes-admin", &["system:masters"])),
        (identities::CONTROLLERS, "ca", Leaf::client(identities::CONTROLLERS, &[])),
    ];
    for (name, ca, leaf) in &old {
        let authority = Authority::load(&read(&format!("{ca}.crt")), &read(&format!("{ca}.key"))).unwrap();
        let issued = authority.issue(&SystemKeys, leaf, past).unwrap();
        std::fs::write(file(&format!("{name}.crt")), issued.certificate_pem).unwrap();
        std::fs::write(file(&format!("{name}.key")), issued.key_pem).unwrap();
    }
    let before = pid(&plane, "kube-controller-manager").unwrap();
    let scheduler = pid(&plane, "kube-scheduler").unwrap();

    let mut renewed = plane.renew(Timestamp::now()).unwrap();
    let mut expected: Vec<&str> = old.iter().map(|(name, ..)| *name).collect();
    renewed.sort();
    expected.sort();
    assert_eq!(renewed, expected);
    let (_, end) = hangar_embedded::first_to_expire(&home).unwrap();
    assert!(end > Timestamp::now() + (360 * 24).hours(), "{end}");
    assert!(expires_at(&read("apiserver.crt")).unwrap() > Timestamp::now() + (360 * 24).hours());

    // The API server reads its files again by itself; one that reads its own once is started again, the others are left alone.
    let wanted = CertificateDer::from_pem_file(file("apiserver.crt")).unwrap();
    until("the API server to show its new certificate", async || {
        shown(plane.api_server()).await.as_ref() == Some(&wanted)
    })
    .await;
    until("the controller manager to be restarted", async || {
        pid(&plane, "kube-controller-manager").is_some_and(|pid| pid != before)
    })
    .await;
    assert_eq!(pid(&plane, "kube-scheduler"), Some(scheduler));
    let restarts = |name: &str| plane.processes().into_iter().find(|one| one.name == name).unwrap().restarts;
    assert_eq!(["etcd", "kube-apiserver", "kube-controller-manager"].map(restarts), [0, 0, 0], "nothing failed");

    // The same client goes on, with the certificate that is in the file now.
    administrator.renew().await.unwrap();
    client.apiserver_version().await.unwrap();
    plane.stop().await;
}
