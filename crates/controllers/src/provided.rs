//! Authorities and keys that users made for a control plane: read, and checked as long as nothing depends on them yet.

use hangar_api::Object;
use hangar_pki::provided::{CERTIFICATE, KEY, Problem, check_authority, check_key_pair};
use hangar_planner::hosted::roots::{AllProvided, Provided, Root, is_provided};
use hangar_planner::step::Signer;
use hangar_planner::{Planner, World};
use jiff::Timestamp;

/// Those that there are, by the convention of Cluster API.
pub fn read<P: Planner>(world: &World<P>, now: Timestamp) -> AllProvided {
    let found = Root::ALL.into_iter().filter_map(|root| {
        let name = format!("{}{}", world.cluster()?.name(), root.provided_suffix()?);
        let secret = world.named("", "Secret", &name).filter(|secret| is_provided(secret))?;
        Some((root, provided(root, secret, now)))
    });
    found.collect()
}

fn provided(root: Root, secret: &Object, now: Timestamp) -> Provided {
    let words = |problem: Problem| format!("Secret {}: {} {}", secret.name(), problem.key, problem.message);
    Provided { secret: secret.name().to_owned(), content: content(root, secret, now).map_err(words) }
}

fn content(root: Root, secret: &Object, now: Timestamp) -> Result<Signer, Problem> {
    let text = |key: &'static str| {
        let found = secret.secret_text(key).filter(|text| !text.trim().is_empty());
        found.ok_or_else(|| Problem { key, message: "is missing or empty".to_owned() })
    };
    let (public, key_pem) = (text(CERTIFICATE)?, text(KEY)?);
    if root == Root::ServiceAccountKeys {
        check_key_pair(&public, &key_pem)?;
        return Ok(Signer { certificate_pem: public, key_pem, trust_pem: None });
    }
    let certificate_pem = check_authority(&public, &key_pem, now)?;
    // Only where it says more than the certificate that signs.
    let trust_pem = (hangar_pki::ca_hashes(&public).len() > 1).then_some(public);
    Ok(Signer { certificate_pem, key_pem, trust_pem })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hangar_pki::{Authority, SystemKeys};

    use super::*;

    #[test]
    fn a_problem_names_the_secret_and_the_key() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let authority = Authority::create(&SystemKeys, "mine", now).unwrap();
        let other = Authority::create(&SystemKeys, "other", now).unwrap();
        let secret = |certificate: &str, key: &str| {
            let mut secret = Object::named("v1", "Secret", "n", "c-ca");
            secret.0["data"] =
                serde_json::json!({ CERTIFICATE: STANDARD.encode(certificate), KEY: STANDARD.encode(key) });
            secret
        };
        let both = format!("{}{}", authority.certificate_pem(), other.certificate_pem());
        let good = provided(Root::ClusterAuthority, &secret(authority.certificate_pem(), authority.key_pem()), now);
        assert!(good.content.unwrap().trust_pem.is_none());
        let two = provided(Root::ClusterAuthority, &secret(&both, authority.key_pem()), now).content.unwrap();
        assert!(two.trust_pem == Some(both) && two.certificate_pem.matches("BEGIN CERTIFICATE").count() == 1);
        for (certificate, key, words) in [
            (authority.certificate_pem(), " ", "Secret c-ca: tls.key is missing or empty"),
            ("", authority.key_pem(), "Secret c-ca: tls.crt is missing or empty"),
            (
                authority.certificate_pem(),
                other.key_pem(),
                "Secret c-ca: tls.key is not the key of the certificate in tls.crt",
            ),
        ] {
            assert_eq!(provided(Root::ClusterAuthority, &secret(certificate, key), now).content.unwrap_err(), words);
        }
        let keys = provided(Root::ServiceAccountKeys, &secret(authority.certificate_pem(), authority.key_pem()), now);
        assert_eq!(keys.content.unwrap_err(), "Secret c-ca: tls.crt holds no public key (PUBLIC KEY)");
    }
}
