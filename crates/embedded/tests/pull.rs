//! Versions that are fetched while pods wait, from a site on this machine that is slow, wrong or breaks off.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hangar_embedded::{Store, StoreOptions, Substitution};
use hangar_node::process::{Images as _, Pulling};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

const IMAGE: &str = "registry.k8s.io/kube-scheduler:v9.9.9";
const PROGRAM: &[u8] = b"#!/bin/sh\necho Kubernetes v9.9.9\n";

/// What the site does with the program.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Good,
    Wrong,
    BreaksOff,
    Empty,
}

struct Site {
    url: String,
    /// How often the program was asked for.
    asked: Arc<AtomicUsize>,
    /// The program is sent when there is a permit.
    gate: Arc<Semaphore>,
}

async fn site(mood: Mood) -> Site {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let site = Site { url, asked: asked.clone(), gate: gate.clone() };
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (asked, gate) = (asked.clone(), gate.clone());
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let n = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..n]).into_owned();
                let is_digest = request.contains(".sha256 ");
                if mood == Mood::Empty || !request.contains("/v9.9.9/") {
                    let _ = stream
                        .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                        .await;
                    return;
                }
                let digest = sha256(if mood == Mood::Wrong { b"another" } else { PROGRAM });
                let body = if is_digest { digest.into_bytes() } else { PROGRAM.to_vec() };
                let announced = body.len() + if mood == Mood::BreaksOff && !is_digest { 1000 } else { 0 };
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {announced}\r\nconnection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).await.unwrap();
                if !is_digest {
                    asked.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(&body[..1]).await.unwrap();
                    drop(gate.acquire().await.unwrap());
                    stream.write_all(&body[1..]).await.unwrap();
                } else {
                    stream.write_all(&body).await.unwrap();
                }
            });
        }
    });
    site
}

fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn store(directory: &Path, site: &Site, substitution: Substitution) -> Store {
    Store::new(StoreOptions {
        directory: directory.into(),
        mirror: Some(site.url.clone()),
        insecure_mirror: true,
        download: false,
        path_lookup: false,
        substitution,
        ..StoreOptions::default()
    })
}

/// Another version of the same program, at hand.
fn put_another(directory: &Path) {
    let program = directory.join("kube-scheduler-9.8.0/kube-scheduler");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let names = directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("kube") || name.starts_with('.')).collect()
}

#[tokio::test]
async fn everybody_waits_for_one_download_and_hears_of_it() {
    for substitution in [Substitution::Never, Substitution::Auto] {
        let (directory, site) = (tempfile::tempdir().unwrap(), site(Mood::Good).await);
        put_another(directory.path());
        let store = store(directory.path(), &site, substitution);
        let (sender, mut news) = watch::channel(Pulling::default());
        let first = tokio::spawn(store.pull(IMAGE, sender));
        let second = tokio::spawn(store.pull(IMAGE, watch::channel(Pulling::default()).0));
        let heard = news.wait_for(|pulling| pulling.step.contains("downloading")).await.unwrap().clone();
        assert!(heard.step.contains("kube-scheduler 9.9.9") && heard.step.contains("usually"), "{heard:?}");
        assert_eq!(
            names(directory.path()).iter().filter(|name| name.starts_with("kube-scheduler-9.9.9")).count(),
            0,
            "nothing half-made"
        );
        site.gate.add_permits(1);
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        assert_eq!(site.asked.load(Ordering::SeqCst), 1);
        let program = store.resolve(IMAGE).unwrap();
        assert_eq!((program.version.as_str(), program.substituted_for), ("v9.9.9", None));
        // What is at hand is not asked for again.
        store.pull(IMAGE, watch::channel(Pulling::default()).0).await.unwrap();
        assert_eq!(site.asked.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn the_nearest_version_stands_in_where_that_is_wanted() {
    for (substitution, mood) in [(Substitution::Auto, Mood::Empty), (Substitution::Always, Mood::Good)] {
        let (directory, site) = (tempfile::tempdir().unwrap(), site(mood).await);
        put_another(directory.path());
        let store = store(directory.path(), &site, substitution);
        store.pull(IMAGE, watch::channel(Pulling::default()).0).await.unwrap();
        assert_eq!(site.asked.load(Ordering::SeqCst), 0);
        assert_eq!(store.resolve(IMAGE).unwrap().substituted_for.as_deref(), Some("v9.9.9"));
    }
}

#[tokio::test]
async fn a_failure_says_why_and_what_to_do_and_is_not_repeated_at_once() {
    for (mood, word) in [(Mood::Wrong, "SHA-256"), (Mood::BreaksOff, "could not be reached"), (Mood::Empty, "404")] {
        let (directory, site) = (tempfile::tempdir().unwrap(), site(mood).await);
        site.gate.add_permits(10);
        put_another(directory.path());
        let store = store(directory.path(), &site, Substitution::Never);
        let error = store.pull(IMAGE, watch::channel(Pulling::default()).0).await.unwrap_err();
        for word in [word, "hangar components fetch kube-scheduler@9.9.9", "--mirror", "--substitute-versions"] {
            assert!(error.contains(word), "no {word:?} in {error}");
        }
        let asked = site.asked.load(Ordering::SeqCst);
        let again = store.pull(IMAGE, watch::channel(Pulling::default()).0).await.unwrap_err();
        assert_eq!((again, site.asked.load(Ordering::SeqCst)), (error, asked));
        assert_eq!(names(directory.path()), ["kube-scheduler-9.8.0"], "nothing is left of the attempt");
    }
}

#[tokio::test]
async fn what_is_no_component_is_nobodys_to_pull() {
    let (directory, site) = (tempfile::tempdir().unwrap(), site(Mood::Good).await);
    let store = store(directory.path(), &site, Substitution::Never);
    store.pull("postgres:16.1", watch::channel(Pulling::default()).0).await.unwrap();
    assert!(store.resolve("postgres:16.1").is_err());
}
