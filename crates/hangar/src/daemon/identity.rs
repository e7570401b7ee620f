//! The webhook's certificate and port, kept in the home: with new ones at each start every definition would have to be applied again.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use hangar_embedded::Home;
use hangar_engine::webhook::WebhookIdentity;
use hangar_pki::{CertifiedKey, SystemKeys};
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

const HOST: &str = "127.0.0.1";
/// Certificates are valid for a year.
const RENEWED_AFTER_DAYS: i64 = 90;

#[derive(Serialize, Deserialize)]
struct Kept {
    port: u16,
    made: Timestamp,
    ca_pem: String,
    certificate_pem: String,
    key_pem: String,
}

/// A listener and the identity to serve with, the same as last time if that is possible.
pub async fn open(home: &Home, now: Timestamp) -> Result<(TcpListener, WebhookIdentity)> {
    let path = home.pki().join("webhook.json");
    let kept: Option<Kept> = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let kept = kept.filter(|kept| kept.made + (24 * RENEWED_AFTER_DAYS).hours() > now);
    if let Some(kept) = kept
        && let Ok(listener) = TcpListener::bind((HOST, kept.port)).await
    {
        let server = CertifiedKey { certificate_pem: kept.certificate_pem, key_pem: kept.key_pem };
        return Ok((listener, WebhookIdentity { ca_pem: kept.ca_pem, server }));
    }
    let listener = TcpListener::bind((HOST, 0)).await.context("no port for the webhook")?;
    let identity = WebhookIdentity::create(&SystemKeys, HOST, now)?;
    let kept = Kept {
        port: listener.local_addr()?.port(),
        made: now,
        ca_pem: identity.ca_pem.clone(),
        certificate_pem: identity.server.certificate_pem.clone(),
        key_pem: identity.server.key_pem.clone(),
    };
    keep(&path, &serde_json::to_vec(&kept)?).with_context(|| path.display().to_string())?;
    Ok((listener, identity))
}

/// Nobody else may read it, and a half-written file is never seen.
fn keep(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    drop(std::fs::remove_file(&beside));
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    std::fs::rename(&beside, path)
}
