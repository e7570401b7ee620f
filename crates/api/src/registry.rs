//! Which kinds there are, in which versions, and which of them is the hub.
//!
//! Holds: [`crate::kinds::SOURCES`] is generated from the schemas, so a kind is added by adding its schema files.

use std::sync::OnceLock;

use serde_json::Value;

use crate::kinds::SOURCES;

/// A kind as generated code names it.
pub struct KindSource {
    pub group: &'static str,
    pub kind: &'static str,
    /// Version name and its facts as JSON, oldest first.
    pub versions: &'static [(&'static str, &'static str)],
}

/// A kind with its facts parsed.
#[derive(Debug)]
pub struct KindFacts {
    pub group: &'static str,
    pub kind: &'static str,
    pub versions: Vec<VersionFacts>,
}

/// One version of a kind: printer columns, subresources, schema, ... as upstream has them.
#[derive(Debug)]
pub struct VersionFacts {
    pub name: &'static str,
    pub facts: Value,
}

impl KindFacts {
    /// The version that is stored and that controllers read: the newest.
    pub fn hub(&self) -> &VersionFacts {
        &self.versions[self.versions.len() - 1]
    }

    pub fn version(&self, name: &str) -> Option<&VersionFacts> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub fn plural(&self) -> &str {
        self.hub().text("plural")
    }

    pub fn namespaced(&self) -> bool {
        self.hub().text("scope") != "Cluster"
    }

    /// `group/version` of the hub.
    pub fn hub_api_version(&self) -> String {
        format!("{}/{}", self.group, self.hub().name)
    }
}

impl VersionFacts {
    pub fn text(&self, key: &str) -> &str {
        self.facts[key].as_str().unwrap_or_default()
    }

    pub fn schema(&self) -> &Value {
        &self.facts["schema"]
    }
}

/// All kinds, parsed once; immutable data compiled into the program.
pub fn kinds() -> &'static [KindFacts] {
    static KINDS: OnceLock<Vec<KindFacts>> = OnceLock::new();
    KINDS.get_or_init(|| SOURCES.iter().map(parse).collect())
}

/// The facts of a kind, by group and kind.
pub fn kind(group: &str, kind: &str) -> Option<&'static KindFacts> {
    kinds().iter().find(|facts| facts.group == group && facts.kind == kind)
}

fn parse(source: &'static KindSource) -> KindFacts {
    let version = |(name, text): &(&'static str, &'static str)| VersionFacts {
        name,
        facts: serde_json::from_str(text).unwrap_or_default(),
    };
    KindFacts { group: source.group, kind: source.kind, versions: source.versions.iter().map(version).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_parses_and_every_kind_has_a_hub() {
        assert_eq!(kinds().len(), 11);
        for facts in kinds() {
            for version in &facts.versions {
                assert!(version.schema().is_object(), "{} {}", facts.kind, version.name);
            }
        }
    }

    #[test]
    fn the_newest_version_is_the_hub() {
        assert_eq!(kind("cluster.x-k8s.io", "Cluster").unwrap().hub().name, "v1beta2");
        assert_eq!(kind("controlplane.cluster.x-k8s.io", "KamajiControlPlane").unwrap().hub().name, "v1alpha2");
    }
}
