//! Carries out an order for key material: makes it and fills the Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::Object;
use hangar_pki::{
    Authority, CertifiedKey, Keys, Kubeconfig, Leaf, PkiError, Usage, authority_expires, leaf_expires, renew_after,
    service_account_keys,
};
use hangar_planner::hosted::certificates::{EXPIRES_ANNOTATION, RENEW_AFTER_ANNOTATION};
use hangar_planner::hosted::encryption;
use hangar_planner::hosted::roots::Root;
use hangar_planner::hosted::rotation::{NEXT_EXPIRES_ANNOTATION, with_successor};
use hangar_planner::step::{Identity, Issue, LeafCertificate, Material, Signer};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::Context;

/// The Secret with its data.
pub fn fill(context: &Context, issue: &Issue, now: Timestamp) -> Result<Object, PkiError> {
    let mut secret = issue.secret.clone();
    secret.0["data"] = Value::Object(material(context, &issue.material, now)?);
    for (name, at) in dates(&issue.material, now) {
        secret.0["metadata"]["annotations"][name] = at.to_string().into();
    }
    Ok(secret)
}

/// What is written down of the life of what was made, so that planners need not read certificates.
fn dates(material: &Material, now: Timestamp) -> Vec<(&'static str, Timestamp)> {
    match material {
        Material::Leaf { .. } | Material::Kubeconfig { .. } => {
            vec![(RENEW_AFTER_ANNOTATION, renew_after(now)), (EXPIRES_ANNOTATION, leaf_expires(now))]
        }
        // Authorities are not renewed but rotated, and key pairs do not expire.
        Material::Authority { .. } => vec![(EXPIRES_ANNOTATION, authority_expires(now))],
        Material::Successor { root, .. } if root.is_authority() => {
            vec![(NEXT_EXPIRES_ANNOTATION, authority_expires(now))]
        }
        Material::Successor { .. } | Material::ServiceAccount { .. } | Material::EncryptionKey { .. } => vec![],
    }
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
        Material::Kubeconfig { authority, cluster, identities } => {
            for Identity { leaf, user, files: servers } in identities {
                let identity = issue_leaf(context, authority, leaf, now)?;
                for (file, server) in servers {
                    let config = Kubeconfig { cluster, user, server, ca_pem: trusted(authority), identity: &identity };
                    files.push((file.clone(), config.to_json()));
                }
            }
        }
        Material::Successor { root: Root::ServiceAccountKeys, current, .. } => {
            let (public, private) = service_account_keys(keys)?;
            return Ok(with_successor(Root::ServiceAccountKeys, current, &public, &private));
        }
        Material::Successor { root: Root::EncryptionKey, current, .. } => {
            return Ok(with_successor(Root::EncryptionKey, current, &encryption_key(keys)?, ""));
        }
        Material::EncryptionKey { file } => files.push((file.clone(), encryption_key(keys)?)),
        Material::Successor { root, common_name, current } => {
            let next = Authority::create(keys, common_name, now)?;
            return Ok(with_successor(*root, current, next.certificate_pem(), next.key_pem()));
        }
        Material::ServiceAccount { public_file, private_file } => {
            let (public, private) = service_account_keys(keys)?;
            files.push((public_file.clone(), public));
            files.push((private_file.clone(), private));
        }
    }
    Ok(files.into_iter().map(|(name, text)| (name, STANDARD.encode(text).into())).collect())
}

/// A new key, by a name that no key before it had: the name says what it has written.
fn encryption_key(keys: &dyn Keys) -> Result<String, PkiError> {
    let (mut key, mut name) = ([0; 32], [0; 8]);
    keys.fill(&mut key)?;
    keys.fill(&mut name)?;
    Ok(encryption::with_key(&format!("{:016x}", u64::from_be_bytes(name)), &key))
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
