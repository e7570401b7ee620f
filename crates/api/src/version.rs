//! Kubernetes versions as people write them: with or without `v`, with build tags.

use std::cmp::Ordering;

/// A Kubernetes version. Ordering and equality look at major, minor and patch only: an image whose kubelet says
/// `v1.32.6+k0s` runs what `1.32.6` asked for.
#[derive(Debug, Clone)]
pub struct KubeVersion {
    pub major: u64,
    pub minor: u64,
    pub patch: u64,
}

impl KubeVersion {
    pub fn parse(text: &str) -> Option<Self> {
        let version = semver::Version::parse(text.trim().trim_start_matches('v')).ok()?;
        Some(Self { major: version.major, minor: version.minor, patch: version.patch })
    }

    /// `1.28`
    pub fn minor_text(&self) -> String {
        format!("{}.{}", self.major, self.minor)
    }

    pub fn at_least(&self, major: u64, minor: u64) -> bool {
        (self.major, self.minor) >= (major, minor)
    }

    fn triple(&self) -> (u64, u64, u64) {
        (self.major, self.minor, self.patch)
    }
}

/// `v1.28.10`
impl std::fmt::Display for KubeVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl PartialEq for KubeVersion {
    fn eq(&self, other: &Self) -> bool {
        self.triple() == other.triple()
    }
}

impl Eq for KubeVersion {}

impl PartialOrd for KubeVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KubeVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        self.triple().cmp(&other.triple())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_letter_and_build_tags_do_not_matter() {
        for text in ["1.32.6", "v1.32.6", "v1.32.6+k0s.0", " v1.32.6 "] {
            assert_eq!(KubeVersion::parse(text).unwrap().to_string(), "v1.32.6", "{text}");
        }
        assert_eq!(KubeVersion::parse("latest"), None);
    }
}
