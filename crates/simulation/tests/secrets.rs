//! A whole lifecycle at the level `trace`: no key, token, password or user-data is in the log.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_simulation::{NAMESPACE, Simulation};
use serde_json::Value;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What of a Secret's values must not be seen: the value itself in either form, and the telling lines of keys and tokens in it.
fn telling(secret: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, value) in secret["data"].as_object().into_iter().flatten() {
        let encoded = value.as_str().unwrap_or_default();
        let text = String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap();
        // Certificates, public keys, and names and addresses of the data store are public.
        let public = text.starts_with("-----BEGIN CERTIFICATE") || text.starts_with("-----BEGIN PUBLIC");
        found.extend((!public && encoded.len() >= 64).then(|| encoded.to_owned()));
        // One line of a key is as good as the key.
        let lines = text.lines().map(str::trim).filter(|_| text.contains("PRIVATE KEY"));
        found.extend(lines.filter(|line| line.len() >= 40 && !line.starts_with("-----")).map(str::to_owned));
        let words = text.split(|letter: char| letter.is_whitespace() || ['"', '\'', ','].contains(&letter));
        let secret = |word: &&str| {
            let token = word.split_once('.').is_some_and(|(id, rest)| id.len() == 6 && rest.len() == 16);
            token || text.contains(&format!("password: {word}")) && word.len() >= 8
        };
        found.extend(words.filter(secret).map(str::to_owned));
    }
    found
}

#[test]
fn nothing_secret_is_logged_at_any_level() {
    let log = Log::default();
    let (writer, seen) = (log.clone(), Arc::new(Mutex::new(BTreeSet::new())));
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut simulation = Simulation::new(121);
            let noted = seen.clone();
            simulation.management.observe(Arc::new(move |write| {
                if write.key.kind == "Secret"
                    && let Some(secret) = write.after
                {
                    noted.lock().unwrap().extend(telling(secret));
                }
            }));
            simulation.start(None);
            simulation.apply_example().await;
            simulation.becomes_available(1).await;
            simulation.scale(2);
            simulation.becomes_available(2).await;
            assert!(simulation.management.get("", "Secret", NAMESPACE, "capi-quickstart-kubeconfig").is_some());
            simulation.delete_cluster().await;
            simulation.stop().await;
        });
    });
    let (text, secrets) = (String::from_utf8(log.0.lock().unwrap().clone()).unwrap(), seen.lock().unwrap().clone());
    assert!(text.contains("TRACE") && text.contains("CreateServer"), "the log is empty");
    assert!(secrets.len() > 30, "only {} values are looked for", secrets.len());
    for secret in &secrets {
        if let Some(line) = text.lines().find(|line| line.contains(secret.as_str())) {
            panic!("{} letters of a secret are in the log: {}", secret.len(), &line[..line.len().min(300)]);
        }
    }
}
