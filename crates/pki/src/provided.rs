//! Key material that somebody else made: whether it can be used, and which key of its Secret is wrong.
//!
//! Holds: a certificate may be followed by others that are trusted too; the first one signs, so it is the one that the key must belong to.

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The keys of a Secret by Cluster API's convention.
pub const CERTIFICATE: &str = "tls.crt";
pub const KEY: &str = "tls.key";

/// What is wrong, and with which key of the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub key: &'static str,
    pub message: String,
}

fn problem(key: &'static str, message: impl Into<String>) -> Problem {
    Problem { key, message: message.into() }
}

/// The signing certificate of an authority, by itself, if the authority can be used.
pub fn check_authority(certificates_pem: &str, key_pem: &str, now: Timestamp) -> Result<String, Problem> {
    let first = all_certificates(certificates_pem)?.into_iter().next();
    let first = first.ok_or_else(|| problem(CERTIFICATE, "holds no certificate"))?;
    let (_, certificate) =
        X509Certificate::from_der(&first).map_err(|error| problem(CERTIFICATE, format!("cannot be read: {error}")))?;
    let constraints = certificate.basic_constraints().ok().flatten();
    if !constraints.is_some_and(|constraints| constraints.value.ca) {
        return Err(problem(CERTIFICATE, "is not the certificate of an authority (basic constraints without CA)"));
    }
    let (start, end) = (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
    if end <= now.as_second() {
        return Err(problem(CERTIFICATE, format!("expired at {}", moment(end))));
    }
    if start > now.as_second() {
        return Err(problem(CERTIFICATE, format!("is not valid before {}", moment(start))));
    }
    let pair = key_pair(key_pem)?;
    if pair.subject_public_key_info() != certificate.public_key().raw {
        return Err(problem(KEY, format!("is not the key of the certificate in {CERTIFICATE}")));
    }
    Ok(pem("CERTIFICATE", &first))
}

/// Whether the keys of service accounts can be used: public keys, the first of which belongs to the private one.
pub fn check_key_pair(public_pem: &str, key_pem: &str) -> Result<(), Problem> {
    let first = SubjectPublicKeyInfoDer::pem_slice_iter(public_pem.as_bytes()).next();
    let first = first.ok_or_else(|| problem(CERTIFICATE, "holds no public key (PUBLIC KEY)"))?;
    let first = first.map_err(|error| problem(CERTIFICATE, format!("cannot be read: {error}")))?;
    if key_pair(key_pem)?.subject_public_key_info() != first.as_ref() {
        return Err(problem(KEY, format!("is not the key of the public key in {CERTIFICATE}")));
    }
    Ok(())
}

/// The pins of all authorities in a file, as kubeadm writes them; none if one of them cannot be read.
pub fn ca_hashes(certificates_pem: &str) -> Vec<String> {
    let all = all_certificates(certificates_pem).unwrap_or_default();
    let hashes: Option<Vec<String>> = all.iter().map(|der| crate::ca_hash(&pem("CERTIFICATE", der)).ok()).collect();
    hashes.unwrap_or_default()
}

fn all_certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    all.map_err(|error| problem(CERTIFICATE, format!("cannot be read: {error}")))
}

fn key_pair(pem: &str) -> Result<KeyPair, Problem> {
    // The words of the library may repeat what they could not read.
    KeyPair::from_pem(pem).map_err(|_| problem(KEY, "holds no private key that can be read"))
}

fn moment(second: i64) -> String {
    Timestamp::from_second(second).map_or_else(|_| second.to_string(), |at| at.to_string())
}

fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, Leaf, SystemKeys, ca_hash, service_account_keys};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn an_authority_that_cannot_be_used_is_refused_with_the_key_that_is_wrong() {
        let now = at("2026-01-01T00:00:00Z");
        let (one, other) = (
            Authority::create(&SystemKeys, "one", now).unwrap(),
            Authority::create(&SystemKeys, "other", now).unwrap(),
        );
        let leaf = one.issue(&SystemKeys, &Leaf::client("leaf", &[]), now).unwrap();
        let both = format!("{}{}", one.certificate_pem(), other.certificate_pem());
        let later = at("2036-01-01T00:00:00Z");
        let table = [
            (one.certificate_pem(), one.key_pem(), now, None),
            (&both, one.key_pem(), now, None),
            (&both, other.key_pem(), now, Some((KEY, "is not the key of"))),
            (one.certificate_pem(), "", now, Some((KEY, "holds no private key"))),
            (one.certificate_pem(), "no key at all", now, Some((KEY, "holds no private key"))),
            ("", one.key_pem(), now, Some((CERTIFICATE, "holds no certificate"))),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                one.key_pem(),
                now,
                Some((CERTIFICATE, "cannot be read")),
            ),
            (&leaf.certificate_pem, &leaf.key_pem, now, Some((CERTIFICATE, "is not the certificate of an authority"))),
            (one.certificate_pem(), one.key_pem(), later, Some((CERTIFICATE, "expired at 2035-12-30"))),
            (
                one.certificate_pem(),
                one.key_pem(),
                at("2025-01-01T00:00:00Z"),
                Some((CERTIFICATE, "is not valid before")),
            ),
        ];
        for (certificates, key, now, expected) in table {
            match (check_authority(certificates, key, now), expected) {
                (Ok(first), None) => assert_eq!(ca_hash(&first).unwrap(), ca_hash(one.certificate_pem()).unwrap()),
                (Err(problem), Some((key, words))) => {
                    assert!(problem.key == key && problem.message.contains(words), "{problem:?}");
                }
                (answer, expected) => panic!("{answer:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn keys_of_service_accounts_must_belong_together() {
        let ((public, private), (other, _)) =
            (service_account_keys(&SystemKeys).unwrap(), service_account_keys(&SystemKeys).unwrap());
        assert_eq!(check_key_pair(&public, &private), Ok(()));
        assert_eq!(check_key_pair(&format!("{public}{other}"), &private), Ok(()));
        assert_eq!(check_key_pair(&other, &private).unwrap_err().key, KEY);
        assert_eq!(check_key_pair(&private, &private).unwrap_err().key, CERTIFICATE);
        assert_eq!(check_key_pair(&public, &public).unwrap_err().key, KEY);
    }

    #[test]
    fn every_authority_of_a_file_has_its_pin() {
        let now = at("2026-01-01T00:00:00Z");
        let all = ["one", "other"].map(|name| Authority::create(&SystemKeys, name, now).unwrap());
        let file: String = all.iter().map(Authority::certificate_pem).collect();
        let expected: Vec<String> = all.iter().map(|one| ca_hash(one.certificate_pem()).unwrap()).collect();
        assert_eq!(ca_hashes(&file), expected);
        assert!(ca_hashes("nothing").is_empty());
    }

    /// What `openssl req -newkey rsa:2048` and `openssl genrsa` write, as Cluster API's documentation asks for.
    #[test]
    fn keys_that_openssl_made_are_read() {
        let now = at("2026-11-18T15:00:00Z");
        let signer =
            check_authority(include_str!("../tests/provided/ca.crt"), include_str!("../tests/provided/ca.key"), now);
        let authority = Authority::load(&signer.unwrap(), include_str!("../tests/provided/ca.key")).unwrap();
        authority.issue(&SystemKeys, &Leaf::client("admin", &[]), now).unwrap();
        let (public, private) = (include_str!("../tests/provided/sa.pub"), include_str!("../tests/provided/sa.key"));
        assert_eq!(check_key_pair(public, private), Ok(()));
        let (certificate, key) = (include_str!("../tests/provided/ec.crt"), include_str!("../tests/provided/ec.key"));
        check_authority(certificate, key, now).unwrap();
    }
}
