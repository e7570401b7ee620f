//! An authority signs leaves; both are PEM once they leave this module.

use jiff::{SignedDuration, Timestamp, ToSpan};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::{Keys, PkiError};

/// Clocks of workers may run behind ours by a little; a certificate that is not valid yet would keep them out.
const BACKDATED_MINUTES: i64 = 5;
/// As kubeadm has it.
const AUTHORITY_DAYS: i64 = 3650;
/// As kubeadm has it.
const LEAF_DAYS: i64 = 365;

/// When a leaf that is issued now is to be issued anew: two thirds of its life, so that a month of trouble does no harm.
pub fn renew_after(issued: Timestamp) -> Timestamp {
    let second = issued.as_second() + LEAF_DAYS * 24 * 3600 * 2 / 3;
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}

/// When a leaf that is issued now expires.
pub fn leaf_expires(issued: Timestamp) -> Timestamp {
    days_after(issued, LEAF_DAYS)
}

/// When an authority that is made now expires.
pub fn authority_expires(made: Timestamp) -> Timestamp {
    days_after(made, AUTHORITY_DAYS)
}

fn days_after(at: Timestamp, days: i64) -> Timestamp {
    Timestamp::from_second(at.as_second() + days * 24 * 3600).unwrap_or(Timestamp::MAX)
}

/// How long before two thirds of a certificate's life it is issued anew, so that whoever looks once a day is never late.
const AHEAD: SignedDuration = SignedDuration::from_hours(36);

/// Whether a leaf is to be issued anew; one that cannot be read is.
pub fn is_due(certificate_pem: &str, now: Timestamp) -> bool {
    renew_from(certificate_pem).map_or(true, |from| from <= now)
}

/// From when on a leaf is due.
pub fn renew_from(certificate_pem: &str) -> Result<Timestamp, PkiError> {
    let (start, end) = validity(certificate_pem)?;
    Ok(start + end.duration_since(start) * 2 / 3 - AHEAD)
}

/// A certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CertifiedKey {
    pub certificate_pem: String,
    pub key_pem: String,
}

impl std::fmt::Debug for CertifiedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertifiedKey(..)")
    }
}

/// What a leaf is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Server,
    Client,
    ServerAndClient,
}

/// A leaf certificate to be issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    pub common_name: String,
    pub organizations: Vec<String>,
    /// Addresses and names; what parses as an IP address becomes one.
    pub names: Vec<String>,
    pub usage: Usage,
}

impl Leaf {
    pub fn client(common_name: &str, organizations: &[&str]) -> Self {
        Self {
            common_name: common_name.to_owned(),
            organizations: organizations.iter().map(|&o| o.to_owned()).collect(),
            names: vec![],
            usage: Usage::Client,
        }
    }

    pub fn server(common_name: &str, names: impl IntoIterator<Item = String>) -> Self {
        Self {
            common_name: common_name.to_owned(),
            organizations: vec![],
            names: names.into_iter().collect(),
            usage: Usage::Server,
        }
    }
}

/// A certificate authority that can sign.
pub struct Authority {
    certificate_pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn create(keys: &dyn Keys, common_name: &str, now: Timestamp) -> Result<Self, PkiError> {
        let mut params = dated(common_name, &[], now, AUTHORITY_DAYS)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = keys.key_pair()?;
        let certificate_pem = params.self_signed(&key)?.pem();
        Self::load(&certificate_pem, &key.serialize_pem())
    }

    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let issuer = Issuer::from_ca_cert_pem(certificate_pem, KeyPair::from_pem(key_pem)?)?;
        Ok(Self { certificate_pem: certificate_pem.to_owned(), key_pem: key_pem.to_owned(), issuer })
    }

    pub fn issue(&self, keys: &dyn Keys, leaf: &Leaf, now: Timestamp) -> Result<CertifiedKey, PkiError> {
        let organizations: Vec<&str> = leaf.organizations.iter().map(String::as_str).collect();
        let mut params = dated(&leaf.common_name, &organizations, now, LEAF_DAYS)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = match leaf.usage {
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::ServerAndClient => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.subject_alt_names = leaf.names.iter().map(|name| san(name)).collect::<Result<_, _>>()?;
        params.use_authority_key_identifier_extension = true;
        let key = keys.key_pair()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(CertifiedKey { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority(..)")
    }
}

/// The pin of an authority's public key as kubeadm writes it: `sha256:<hex>`.
pub fn ca_hash(certificate_pem: &str) -> Result<String, PkiError> {
    let der = der(certificate_pem)?;
    let (_, parsed) =
        x509_parser::parse_x509_certificate(&der).map_err(|error| PkiError::Unreadable(error.to_string()))?;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, parsed.public_key().raw);
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{hex}"))
}

/// Whether a certificate says that an authority has signed it, by the identifier of the authority's key.
pub fn is_issued_by(certificate_pem: &str, authority_pem: &str) -> Result<bool, PkiError> {
    use x509_parser::extensions::ParsedExtension;
    let identifier = |pem: &str, of_authority: bool| -> Result<Option<Vec<u8>>, PkiError> {
        let der = der(pem)?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&der).map_err(|error| PkiError::Unreadable(error.to_string()))?;
        let mut all = parsed.extensions().iter().map(x509_parser::extensions::X509Extension::parsed_extension);
        Ok(all.find_map(|extension| match extension {
            ParsedExtension::SubjectKeyIdentifier(id) if of_authority => Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(id) if !of_authority => {
                id.key_identifier.as_ref().map(|id| id.0.to_vec())
            }
            _ => None,
        }))
    };
    let (signed_by, authority) = (identifier(certificate_pem, false)?, identifier(authority_pem, true)?);
    Ok(signed_by.is_some() && signed_by == authority)
}

/// Whom a certificate names: a user and its groups, as Kubernetes reads them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    pub common_name: String,
    pub organizations: Vec<String>,
}

impl Subject {
    /// Of a certificate in DER.
    pub fn of(der: &[u8]) -> Result<Self, PkiError> {
        let (_, parsed) =
            x509_parser::parse_x509_certificate(der).map_err(|error| PkiError::Unreadable(error.to_string()))?;
        let text = |entry: &x509_parser::x509::AttributeTypeAndValue<'_>| entry.as_str().ok().map(str::to_owned);
        let common_name = parsed.subject().iter_common_name().find_map(text).unwrap_or_default();
        let organizations = parsed.subject().iter_organization().filter_map(text).collect();
        Ok(Self { common_name, organizations })
    }
}

/// When a certificate stops being valid.
pub fn expires_at(certificate_pem: &str) -> Result<Timestamp, PkiError> {
    validity(certificate_pem).map(|(_, end)| end)
}

fn validity(certificate_pem: &str) -> Result<(Timestamp, Timestamp), PkiError> {
    let unreadable = |error: &dyn std::fmt::Display| PkiError::Unreadable(error.to_string());
    let der = der(certificate_pem)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|error| unreadable(&error))?;
    let moment = |second: i64| Timestamp::from_second(second).map_err(|error| unreadable(&error));
    Ok((moment(parsed.validity().not_before.timestamp())?, moment(parsed.validity().not_after.timestamp())?))
}

fn der(certificate_pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(|error| PkiError::Unreadable(error.to_string()))
}

fn dated(common_name: &str, organizations: &[&str], now: Timestamp, days: i64) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    for organization in organizations {
        subject.push(DnType::OrganizationName, *organization);
    }
    subject.push(DnType::CommonName, common_name);
    params.distinguished_name = subject;
    params.not_before = moment(now - BACKDATED_MINUTES.minutes())?;
    params.not_after = moment(now + (days * 24).hours())?;
    Ok(params)
}

fn moment(at: Timestamp) -> Result<time::OffsetDateTime, PkiError> {
    time::OffsetDateTime::from_unix_timestamp(at.as_second()).map_err(|error| PkiError::Unreadable(error.to_string()))
}

fn san(name: &str) -> Result<SanType, PkiError> {
    Ok(match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemKeys;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_leaf_lasts_a_year_and_an_authority_ten() {
        let authority = Authority::create(&SystemKeys, "kubernetes", now()).unwrap();
        let leaf = authority.issue(&SystemKeys, &Leaf::client("admin", &["system:masters"]), now()).unwrap();
        assert_eq!(expires_at(&leaf.certificate_pem).unwrap().to_string(), "2027-01-01T00:00:00Z");
        assert_eq!(expires_at(authority.certificate_pem()).unwrap().to_string(), "2035-12-30T00:00:00Z");
        assert_eq!(leaf_expires(now()), expires_at(&leaf.certificate_pem).unwrap());
        assert_eq!(authority_expires(now()), expires_at(authority.certificate_pem()).unwrap());
        let other = Authority::create(&SystemKeys, "kubernetes", now()).unwrap();
        assert!(is_issued_by(&leaf.certificate_pem, authority.certificate_pem()).unwrap());
        assert!(!is_issued_by(&leaf.certificate_pem, other.certificate_pem()).unwrap());
    }

    #[test]
    fn a_reloaded_authority_still_signs_and_keeps_its_pin() {
        let first = Authority::create(&SystemKeys, "kubernetes", now()).unwrap();
        let again = Authority::load(first.certificate_pem(), first.key_pem()).unwrap();
        again.issue(&SystemKeys, &Leaf::server("api", ["127.0.0.1".into(), "localhost".into()]), now()).unwrap();
        assert_eq!(ca_hash(first.certificate_pem()).unwrap(), ca_hash(again.certificate_pem()).unwrap());
        assert!(ca_hash(first.certificate_pem()).unwrap().starts_with("sha256:"));
    }

    #[test]
    fn key_material_does_not_show_in_debug_output() {
        let authority = Authority::create(&SystemKeys, "kubernetes", now()).unwrap();
        let leaf = authority.issue(&SystemKeys, &Leaf::client("admin", &[]), now()).unwrap();
        assert!(!format!("{authority:?}{leaf:?}").contains("KEY"));
    }

    #[test]
    fn a_name_that_no_certificate_can_hold_is_refused() {
        let authority = Authority::create(&SystemKeys, "kubernetes", now()).unwrap();
        let bad = Leaf::server("api", ["bücher".to_owned()]);
        assert!(authority.issue(&SystemKeys, &bad, now()).is_err());
    }
}
