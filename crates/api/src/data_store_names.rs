//! Names that a control plane may choose for its user and its schema in a shared data store.
//!
//! Holds: nobody becomes a user of the store itself, leaves its own prefix, or takes the name that another control plane has by default (its UID).

/// Users, roles and prefixes of the stores themselves and of Hangar.
const RESERVED: [&str; 12] = [
    "root",
    "hangar",
    "registry",
    "kubernetes",
    "admin",
    "postgres",
    "mysql",
    "sys",
    "public",
    "information_schema",
    "performance_schema",
    "pg_catalog",
];
const LONGEST: usize = 63;

/// Why a name cannot be used by the control plane with this UID.
pub fn problem(name: &str, uid: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ['_', '-', '.'].contains(&letter);
    if name == uid {
        return None;
    }
    if RESERVED.contains(&lower.as_str()) || lower.starts_with("pg_") {
        return Some(format!("{name:?} is reserved for the data store itself; choose another name, or leave it out"));
    }
    if name.len() > LONGEST || !name.chars().all(is_plain) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Some(format!(
            "{name:?} must have at most {LONGEST} letters, digits, '-', '_' or '.', and begin with a letter or digit"
        ));
    }
    let digits: String = lower.chars().filter(|letter| *letter != '-').collect();
    if digits.len() == 32 && digits.chars().all(|letter| letter.is_ascii_hexdigit()) {
        return Some(format!(
            "{name:?} looks like the UID of another control plane; choose another name, or leave it out"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_names_itself_after_the_store_or_another_tenant() {
        let own = "5e0e3f5e-9a2b-4a52-8b0c-6f0f1e9d1a11";
        let table = [
            ("default_kamaji-quickstart", true),
            ("Tenant.1", true),
            (own, true),
            ("root", false),
            ("ROOT", false),
            ("hangar", false),
            ("registry", false),
            ("pg_temp", false),
            ("a/b", false),
            ("../x", false),
            ("", false),
            ("-a", false),
            ("a b", false),
            ("a\n", false),
            ("5e0e3f5e-9a2b-4a52-8b0c-6f0f1e9d1a12", false),
            ("5E0E3F5E9A2B4A528B0C6F0F1E9D1A12", false),
            (&"a".repeat(64), false),
        ];
        for (name, usable) in table {
            assert_eq!(problem(name, own).is_none(), usable, "{name:?}: {:?}", problem(name, own));
        }
    }
}
