//! Secrets of the management plane are encrypted in its etcd, with a key that is in the home and nowhere else.
//!
//! Flows: a key, made once -> the API server's configuration, which encrypts what it writes and still reads what was written before -> once, every Secret of an
//! older home is written again. Holds: the key is never replaced, and readable by its user alone; a home whose etcd is copied without it shows no Secret.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_pki::{Keys as _, SystemKeys};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::PlaneError;

/// For the API server, with the key in it.
const CONFIGURATION: &str = "encryption.json";
/// Says that nothing is left that was written before there was a key.
const COMPLETE: &str = "secrets-encrypted";
const PAGE: u32 = 500;

/// The configuration for the API server, made if it is not there yet.
pub(super) fn configuration(pki: &Path) -> Result<PathBuf, PlaneError> {
    let path = pki.join(CONFIGURATION);
    if path.exists() {
        return Ok(path);
    }
    let mut key = [0; 32];
    SystemKeys.fill(&mut key).map_err(|source| PlaneError::Pki { path: path.clone(), source })?;
    let key = json!({ "name": "home", "secret": STANDARD.encode(key) });
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        // The first writes, all read: what an older home has is in plain text.
        "resources": [{ "resources": ["secrets"], "providers": [{ "secretbox": { "keys": [key] } }, { "identity": {} }] }],
    });
    let text = format!("{configuration:#}\n");
    hangar_node::small_file::keep(&path, text.as_bytes())
        .map_err(|source| PlaneError::File { path: path.clone(), source })?;
    Ok(path)
}

/// Has every Secret written again that was written without the key; done once for each home. One that somebody changes meanwhile is encrypted by that.
pub async fn encrypt_existing(client: &Client, pki: &Path) -> Result<(), kube::Error> {
    let marker = pki.join(COMPLETE);
    if marker.exists() {
        return Ok(());
    }
    let all: Api<Secret> = Api::all(client.clone());
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let listed = all.list(&page).await?;
        let next = listed.metadata.continue_.clone().filter(|next| !next.is_empty());
        for secret in listed.items {
            let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace().unwrap_or_default());
            match api.replace(&secret.name_any(), &PostParams::default(), &secret).await {
                Ok(_) => {}
                // Gone, or written by somebody else just now.
                Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => {}
                Err(error) => return Err(error),
            }
        }
        match next {
            Some(next) => page = ListParams::default().limit(PAGE).continue_token(&next),
            None => break,
        }
    }
    // Without the marker it is only done again.
    if let Err(error) = hangar_node::small_file::keep(&marker, b"") {
        tracing::warn!(%error, path = %marker.display(), "could not be written");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = configuration(directory.path()).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let first = std::fs::read(&path).unwrap();
        assert_eq!(std::fs::read(configuration(directory.path()).unwrap()).unwrap(), first);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(std::fs::read(configuration(other.path()).unwrap()).unwrap(), first, "each home has its own");
    }
}
