//! Keys and certificates of the shared etcd, by the file they are in.
//!
//! Holds: clients and servers have one authority, because etcd knows users by the name in their certificate; members have another one, so that no
//! tenant's certificate opens the peer port. Authorities are made once; a leaf is made when it is missing or due.

use std::collections::BTreeMap;

use hangar_pki::{Authority, CertifiedKey, Keys, Leaf, PkiError, Usage, is_due};
use jiff::Timestamp;

/// PEM by the name of its file.
pub type Files = BTreeMap<String, String>;

/// What there is, with what is missing or due made anew.
pub fn complete(mut files: Files, keys: &dyn Keys, address: &str, now: Timestamp) -> Result<Files, PkiError> {
    let ca = authority(&mut files, keys, "ca", "etcd-ca", now)?;
    let peer_ca = authority(&mut files, keys, "peer-ca", "etcd-peer-ca", now)?;
    let names = [address, "127.0.0.1", "localhost", "etcd", "etcd.kamaji-system.svc"].map(str::to_owned);
    let member = |name: &str| Leaf { usage: Usage::ServerAndClient, ..Leaf::server(name, names.clone()) };
    leaf(&mut files, keys, &ca, "server", &member("etcd-server"), now)?;
    leaf(&mut files, keys, &peer_ca, "peer", &member("etcd-peer"), now)?;
    leaf(&mut files, keys, &ca, "root", &Leaf::client("root", &[]), now)?;
    Ok(files)
}

fn authority(
    files: &mut Files,
    keys: &dyn Keys,
    name: &str,
    common_name: &str,
    now: Timestamp,
) -> Result<Authority, PkiError> {
    let [certificate, key] = names(name);
    if let (Some(certificate), Some(key)) = (files.get(&certificate), files.get(&key)) {
        return Authority::load(certificate, key);
    }
    let made = Authority::create(keys, common_name, now)?;
    files.insert(certificate, made.certificate_pem().to_owned());
    files.insert(key, made.key_pem().to_owned());
    Ok(made)
}

fn leaf(
    files: &mut Files,
    keys: &dyn Keys,
    authority: &Authority,
    name: &str,
    leaf: &Leaf,
    now: Timestamp,
) -> Result<(), PkiError> {
    let [certificate, key] = names(name);
    if files.contains_key(&key) && files.get(&certificate).is_some_and(|pem| !is_due(pem, now)) {
        return Ok(());
    }
    let CertifiedKey { certificate_pem, key_pem } = authority.issue(keys, leaf, now)?;
    files.insert(certificate, certificate_pem);
    files.insert(key, key_pem);
    Ok(())
}

fn names(name: &str) -> [String; 2] {
    [format!("{name}.crt"), format!("{name}.key")]
}

#[cfg(test)]
mod tests {
    use hangar_pki::SystemKeys;
    use jiff::ToSpan as _;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn made(files: Files, now: Timestamp) -> Files {
        complete(files, &SystemKeys, "127.9.0.4", now).unwrap()
    }

    #[test]
    fn members_trust_an_authority_that_signs_no_tenant() {
        let files = made(Files::new(), now());
        assert_ne!(files["peer-ca.key"], files["ca.key"]);
        assert_ne!(files["peer-ca.crt"], files["ca.crt"]);
    }

    #[test]
    fn a_store_from_before_keeps_its_authority_and_gets_one_for_its_members() {
        let mut before = made(Files::new(), now());
        before.retain(|name, _| !name.starts_with("peer"));
        let after = made(before.clone(), now());
        assert!(before.iter().all(|(name, pem)| after[name] == *pem));
        assert!(after.contains_key("peer.key") && after.contains_key("peer-ca.key"));
        assert_eq!(made(after.clone(), now()), after, "nothing changes the second time");
    }

    #[test]
    fn leaves_are_renewed_before_two_thirds_of_their_life_and_authorities_stay() {
        let mut files = made(Files::new(), now());
        let first = files.clone();
        let mut renewals = 0;
        for day in 0..365 * 9 {
            let today = now() + (day * 24).hours();
            let next = made(files.clone(), today);
            renewals += u32::from(next != files);
            files = next;
            for name in ["server.crt", "peer.crt", "root.crt"] {
                let left = hangar_pki::expires_at(&files[name]).unwrap().duration_since(today);
                assert!(left.as_hours() >= 365 * 24 / 3, "{name} on day {day}");
            }
        }
        assert_eq!((&files["ca.crt"], &files["peer-ca.crt"]), (&first["ca.crt"], &first["peer-ca.crt"]));
        assert_eq!(renewals, 13, "about every eight months");
    }
}
