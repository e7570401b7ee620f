//! Certificate authorities, leaves, kubeconfigs and bootstrap tokens.
//!
//! Flows: key source -> authority -> leaf -> PEM or kubeconfig. Holds: keys come from [`Keys`] and time from the caller, so
//! nothing in here reads a clock or decides when to renew; every certificate has both of its dates set (rcgen's default is
//! 1975 to 4096).

mod authority;
mod kubeconfig;
pub mod provided;
pub mod request;
mod token;
mod unverified;

pub use authority::{
    Authority, CertifiedKey, Leaf, Subject, Usage, authority_expires, ca_hash, expires_at, is_due, is_issued_by,
    leaf_expires, renew_after, renew_from,
};
pub use kubeconfig::Kubeconfig;
pub use provided::ca_hashes;
pub use token::BootstrapToken;
pub use unverified::unverified_client;

use rcgen::KeyPair;

/// `sha256:<hex>` of these texts, one after the other.
pub fn sha256<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    use std::fmt::Write as _;
    let mut hash = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    texts.into_iter().for_each(|text| hash.update(text.as_bytes()));
    hash.finish().as_ref().iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Where keys and random bytes come from, so that a simulation can hand out its own.
pub trait Keys: Send + Sync {
    /// A new P-256 key pair.
    fn key_pair(&self) -> Result<KeyPair, PkiError>;
    /// Fills `bytes` with randomness.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), PkiError>;
}

/// Keys from the operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemKeys;

impl Keys for SystemKeys {
    fn key_pair(&self) -> Result<KeyPair, PkiError> {
        Ok(KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?)
    }

    fn fill(&self, bytes: &mut [u8]) -> Result<(), PkiError> {
        aws_lc_rs::rand::fill(bytes).map_err(|_| PkiError::NoRandomness)
    }
}

/// The key pair that signs service account tokens, as the API server and the controller manager read it.
pub fn service_account_keys(keys: &dyn Keys) -> Result<(String, String), PkiError> {
    let pair = keys.key_pair()?;
    Ok((pair.public_key_pem(), pair.serialize_pem()))
}

/// What can go wrong when making or reading key material.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("could not create a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("could not read a certificate: {0}")]
    Unreadable(String),
    #[error("could not read random bytes from the operating system")]
    NoRandomness,
    #[error("{0} is not a bootstrap token: it must match [a-z0-9]{{6}}.[a-z0-9]{{16}}")]
    BadToken(String),
}
