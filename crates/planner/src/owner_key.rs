//! The owner's key: written into every cloud resource in the create call itself, so that a lost answer or a crash always finds its
//! resource again, and so that nothing is ever deleted that is not ours.

/// Whose resource it is, and which of the owner's resources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerKey {
    pub cluster_uid: String,
    pub object_uid: String,
    pub role: String,
}

const OPEN: &str = "[hangar:";

impl OwnerKey {
    pub fn new(cluster_uid: &str, object_uid: &str, role: &str) -> Self {
        Self { cluster_uid: cluster_uid.into(), object_uid: object_uid.into(), role: role.into() }
    }

    /// A description that a person can read, with the key at its end. Neutron takes 255 characters.
    pub fn describe(&self, text: &str) -> String {
        let key = self.to_string();
        let room = 254_usize.saturating_sub(key.len());
        let text: String = text.chars().take(room).collect();
        format!("{text} {key}")
    }

    /// The key in a description or a metadata value.
    pub fn find_in(text: &str) -> Option<Self> {
        let start = text.rfind(OPEN)? + OPEN.len();
        let inner = &text[start..start + text[start..].find(']')?];
        let mut parts = inner.splitn(3, '/');
        let (cluster, object, role) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self::new(cluster, object, role))
    }
}

impl std::fmt::Display for OwnerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{OPEN}{}/{}/{}]", self.cluster_uid, self.object_uid, self.role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_again_in_whatever_text_surrounds_it() {
        let key = OwnerKey::new("c-1", "m-2", "port-0");
        assert_eq!(OwnerKey::find_in(&key.describe("a port of [machine] x")), Some(key.clone()));
        assert_eq!(OwnerKey::find_in(&key.to_string()), Some(key));
        for foreign in ["", "made by hand", "[hangar:", "[hangar:only/two]"] {
            assert_eq!(OwnerKey::find_in(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_long_text_never_costs_the_key() {
        let uid = "0".repeat(36);
        let key = OwnerKey::new(&uid, &uid, "security-group-controlplane");
        let text = key.describe(&"ü".repeat(400));
        assert!(text.chars().count() <= 255);
        assert_eq!(OwnerKey::find_in(&text), Some(key));
    }
}
