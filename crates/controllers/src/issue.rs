//! Carries out an order for key material: makes it and fills the Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::Object;
use hangar_pki::{Authority, CertifiedKey, Kubeconfig, Leaf, PkiError, Usage, renew_after, service_account_keys};
use hangar_planner::hosted::certificates::RENEW_AFTER_ANNOTATION;
use hangar_planner::step::{Issue, LeafCertificate, Material, Signer};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::Context;

/// The Secret with its data.
pub fn fill(context: &Context, issue: &Issue, now: Timestamp) -> Result<Object, PkiError> {
    let mut secret = issue.secret.clone();
    secret.0["data"] = Value::Object(material(context, &issue.material, now)?);
    // Authorities and key pairs are not renewed by the clock: that is a rotation.
    if matches!(issue.material, Material::Leaf { .. } | Material::Kubeconfig { .. }) {
        secret.0["metadata"]["annotations"][RENEW_AFTER_ANNOTATION] = renew_after(now).to_string().into();
    }
    Ok(secret)
}

fn material(context: &Context, material: &Material, now: Timestamp) -> Result<Map<String, Value>, PkiError> {
    let keys = context.keys.as_ref();
    let mut files = vec![];
    match material {
        Material::Authority { common_name, files: names } => {
            let authority = Authority::create(keys, common_name, now)?;
            for (certificate, key) in names {
                files.push((certificate.clone(), authority.certificate_pem().to_owned()));
                files.push((key.clone(), authority.key_pem().to_owned()));
            }
        }
        Material::Leaf { authority, leaf, files: (certificate, key), ca_file } => {
            let issued = issue_leaf(context, authority, leaf, now)?;
            files.push((certificate.clone(), issued.certificate_pem));
            files.push((key.clone(), issued.key_pem));
            files.extend(ca_file.iter().map(|file| (file.clone(), trusted(authority).to_owned())));
        }
        Material::Kubeconfig { authority, leaf, cluster, user, files: servers } => {
            let identity = issue_leaf(context, authority, leaf, now)?;
            for (file, server) in servers {
                let config = Kubeconfig { cluster, user, server, ca_pem: trusted(authority), identity: &identity };
                files.push((file.clone(), config.to_json()));
            }
        }
        Material::ServiceAccount { public_file, private_file } => {
            let (public, private) = service_account_keys(keys)?;
            files.push((public_file.clone(), public));
            files.push((private_file.clone(), private));
        }
    }
    Ok(files.into_iter().map(|(name, text)| (name, STANDARD.encode(text).into())).collect())
}

fn trusted(signer: &Signer) -> &str {
    signer.trust_pem.as_deref().unwrap_or(&signer.certificate_pem)
}

fn issue_leaf(
    context: &Context,
    signer: &Signer,
    leaf: &LeafCertificate,
    now: Timestamp,
) -> Result<CertifiedKey, PkiError> {
    let usage = match (leaf.server, leaf.client) {
        (true, true) => Usage::ServerAndClient,
        (true, false) => Usage::Server,
        _ => Usage::Client,
    };
    let wanted = Leaf {
        common_name: leaf.common_name.clone(),
        organizations: leaf.organizations.clone(),
        names: leaf.names.clone(),
        usage,
    };
    Authority::load(&signer.certificate_pem, &signer.key_pem)?.issue(context.keys.as_ref(), &wanted, now)
}
