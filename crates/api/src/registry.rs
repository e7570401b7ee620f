//! Which kinds there are, in which versions, and which of them is the hub.
//!
//! Holds: [`crate::kinds::SOURCES`] is generated from the schemas, so a kind is added by adding its schema files. The facts of a version
//! are unpacked when they are first asked for: a process that serves ten kinds does not pay for sixty.

use std::sync::OnceLock;

use serde_json::Value;

use crate::kinds::SOURCES;

/// A kind as generated code names it.
pub struct KindSource {
    pub group: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// The version that is stored and that controllers read.
    pub hub: &'static str,
    /// Version name and its facts, packed as `build.rs` does, oldest first.
    pub versions: &'static [(&'static str, &'static [u8])],
}

/// A kind with its versions.
#[derive(Debug)]
pub struct KindFacts {
    pub group: &'static str,
    pub kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    hub: usize,
    /// Oldest first.
    pub versions: Vec<VersionFacts>,
}

/// One version of a kind: printer columns, subresources, schema, ... as upstream has them.
#[derive(Debug)]
pub struct VersionFacts {
    pub name: &'static str,
    packed: &'static [u8],
    facts: OnceLock<Value>,
}

impl KindFacts {
    /// The version that is stored and that controllers read: the newest, unless a newer one is only served.
    pub fn hub(&self) -> &VersionFacts {
        &self.versions[self.hub]
    }

    pub fn version(&self, name: &str) -> Option<&VersionFacts> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub fn plural(&self) -> &'static str {
        self.plural
    }

    pub fn namespaced(&self) -> bool {
        self.namespaced
    }

    /// `group/version` of the hub.
    pub fn hub_api_version(&self) -> String {
        format!("{}/{}", self.group, self.hub().name)
    }
}

impl VersionFacts {
    /// Everything that is known about this version, kept from now on.
    pub fn facts(&self) -> &Value {
        self.facts.get_or_init(|| self.unpack())
    }

    /// The same for who needs it once: sixty kinds that nobody uses would take tens of megabytes.
    pub fn unpack(&self) -> Value {
        self.facts.get().cloned().unwrap_or_else(|| unpacked(self.packed))
    }

    pub fn text(&self, key: &str) -> &str {
        self.facts()[key].as_str().unwrap_or_default()
    }

    pub fn schema(&self) -> &Value {
        &self.facts()["schema"]
    }
}

/// All kinds; immutable data compiled into the program.
pub fn kinds() -> &'static [KindFacts] {
    static KINDS: OnceLock<Vec<KindFacts>> = OnceLock::new();
    KINDS.get_or_init(|| SOURCES.iter().map(of_source).collect())
}

/// The facts of a kind, by group and kind.
pub fn kind(group: &str, kind: &str) -> Option<&'static KindFacts> {
    kinds().iter().find(|facts| facts.group == group && facts.kind == kind)
}

fn of_source(source: &'static KindSource) -> KindFacts {
    let version =
        |(name, packed): &(&'static str, &'static [u8])| VersionFacts { name, packed, facts: OnceLock::new() };
    KindFacts {
        group: source.group,
        kind: source.kind,
        plural: source.plural,
        namespaced: source.namespaced,
        hub: source.versions.iter().position(|(name, _)| *name == source.hub).unwrap_or_default(),
        versions: source.versions.iter().map(version).collect(),
    }
}

/// The build script wrote it from JSON that it had read; a test unpacks every one.
fn unpacked(packed: &[u8]) -> Value {
    serde_json::from_reader(flate2::bufread::DeflateDecoder::new(packed)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_unpacks_and_says_what_it_is_of() {
        for facts in kinds() {
            for version in &facts.versions {
                assert!(version.schema().is_object(), "{} {}", facts.kind, version.name);
                assert_eq!(version.text("kind"), facts.kind);
                assert_eq!(version.text("group"), facts.group);
                assert_eq!(version.text("plural"), facts.plural());
                assert_eq!(version.text("version"), version.name);
                assert_eq!(version.text("scope") != "Cluster", facts.namespaced());
            }
        }
    }

    #[test]
    fn the_newest_version_is_the_hub_unless_it_is_only_served() {
        let cluster = kind("infrastructure.cluster.x-k8s.io", "OpenStackCluster").unwrap();
        assert_eq!((cluster.hub().name, cluster.versions.last().unwrap().name), ("v1beta1", "v1beta2"));
        assert_eq!(kind("cluster.x-k8s.io", "Cluster").unwrap().hub().name, "v1beta2");
        assert_eq!(kind("k0smotron.io", "Cluster").unwrap().hub().name, "v1beta2");
        assert_eq!(kind("controlplane.cluster.x-k8s.io", "KamajiControlPlane").unwrap().hub().name, "v1alpha2");
        assert_eq!(kind("runtime.cluster.x-k8s.io", "ExtensionConfig").unwrap().versions.len(), 2);
    }
}
