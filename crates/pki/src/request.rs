//! Requests for certificates, as nodes make them with a bootstrap token.

use rcgen::{CertificateParams, DistinguishedName, DnType};
use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

use crate::{Keys, PkiError, Subject};

/// A new key, and the request for its certificate; both PEM.
pub fn create(keys: &dyn Keys, common_name: &str, organizations: &[&str]) -> Result<(String, String), PkiError> {
    let mut subject = DistinguishedName::new();
    organizations.iter().for_each(|name| subject.push(DnType::OrganizationName, *name));
    subject.push(DnType::CommonName, common_name);
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    let key = keys.key_pair()?;
    let request = params.serialize_request(&key)?.pem()?;
    Ok((key.serialize_pem(), request))
}

/// Whom a request names, and whether it asks for more than that: other parts of a name, or extensions such as alternative names.
pub fn read(request_pem: &str) -> Result<(Subject, bool), PkiError> {
    let unreadable = |error: &dyn std::fmt::Display| PkiError::Unreadable(error.to_string());
    let der =
        CertificateSigningRequestDer::from_pem_slice(request_pem.as_bytes()).map_err(|error| unreadable(&error))?;
    let (_, request) = X509CertificationRequest::from_der(&der).map_err(|error| unreadable(&error))?;
    let info = &request.certification_request_info;
    let text = |entry: &x509_parser::x509::AttributeTypeAndValue<'_>| entry.as_str().ok().map(str::to_owned);
    let common_names: Vec<String> = info.subject.iter_common_name().filter_map(text).collect();
    let organizations: Vec<String> = info.subject.iter_organization().filter_map(text).collect();
    let named = common_names.len().min(1) + organizations.len();
    let more = info.subject.iter_attributes().count() != named
        || request.requested_extensions().is_some_and(|mut extensions| extensions.next().is_some());
    let common_name = common_names.into_iter().next().unwrap_or_default();
    Ok((Subject { common_name, organizations }, more))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemKeys;

    #[test]
    fn what_is_asked_for_is_read() {
        let (key, request) = create(&SystemKeys, "system:node:n", &["system:nodes"]).unwrap();
        assert!(key.contains("PRIVATE KEY") && request.starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
        let subject = Subject { common_name: "system:node:n".into(), organizations: vec!["system:nodes".into()] };
        assert_eq!(read(&request).unwrap(), (subject.clone(), false));
        assert!(read("nonsense").is_err());

        let request = |change: &dyn Fn(&mut CertificateParams)| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
            params.distinguished_name.push(DnType::CommonName, "system:node:n");
            change(&mut params);
            params.serialize_request(&SystemKeys.key_pair().unwrap()).unwrap().pem().unwrap()
        };
        assert_eq!(read(&request(&|_| {})).unwrap(), (subject.clone(), false));
        let named =
            request(&|params| params.subject_alt_names.push(rcgen::SanType::DnsName("other".try_into().unwrap())));
        assert_eq!(read(&named).unwrap(), (subject.clone(), true));
        let more = request(&|params| params.distinguished_name.push(DnType::OrganizationalUnitName, "unit"));
        assert_eq!(read(&more).unwrap(), (subject, true));
    }
}
