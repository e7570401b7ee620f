//! The CustomResourceDefinitions, assembled from the schemas.
//!
//! Holds: every version is served for ever, the hub is stored. Where a schema deliberately differs from upstream's,
//! `tests/upstream/differences.json` says so and why, and a test keeps that list true.

use serde_json::{Value, json};

use crate::registry::{KindFacts, VersionFacts, kinds};

/// How the API server reaches our webhook.
#[derive(Debug, Clone)]
pub struct WebhookAddress {
    /// `https://host:port`
    pub url: String,
    /// PEM, base64.
    pub ca_bundle: String,
}

/// All definitions; without a webhook address the conversion stanza says `None`.
pub fn definitions(webhook: Option<&WebhookAddress>) -> Vec<Value> {
    kinds().iter().map(|facts| definition(facts, webhook)).collect()
}

/// The definition of one kind.
pub fn definition(facts: &KindFacts, webhook: Option<&WebhookAddress>) -> Value {
    let hub = facts.hub();
    let singular = facts.kind.to_lowercase();
    let conversion = match webhook {
        Some(address) if facts.versions.len() > 1 => json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": { "url": format!("{}/convert", address.url), "caBundle": address.ca_bundle },
            },
        }),
        _ => json!({ "strategy": "None" }),
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", facts.plural(), facts.group), "labels": labels(facts) },
        "spec": {
            "group": facts.group,
            "names": {
                "kind": facts.kind,
                "listKind": format!("{}List", facts.kind),
                "plural": facts.plural(),
                "singular": singular,
                "categories": hub.facts()["categories"],
                "shortNames": hub.facts()["shortNames"],
            },
            "scope": hub.facts()["scope"],
            "conversion": conversion,
            "versions": facts.versions.iter().map(|version| served(facts, version)).collect::<Vec<_>>(),
        },
    })
}

fn served(facts: &KindFacts, version: &VersionFacts) -> Value {
    json!({
        "name": version.name,
        "served": true,
        "storage": version.name == facts.hub().name,
        "schema": { "openAPIV3Schema": version.schema() },
        "subresources": version.facts()["subresources"],
        "additionalPrinterColumns": version.facts()["printerColumns"],
    })
}

/// The labels by which Cluster API finds the version of a kind that fulfils a contract, and clusterctl what is to be moved.
fn labels(facts: &KindFacts) -> Value {
    let mut labels = facts.hub().facts()["contractLabels"].clone();
    labels["app.kubernetes.io/part-of"] = "hangar".into();
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::kind;

    #[test]
    fn one_version_is_stored_and_all_are_served() {
        for definition in definitions(None) {
            let versions = definition["spec"]["versions"].as_array().unwrap().clone();
            assert!(versions.iter().all(|version| version["served"] == true));
            assert_eq!(versions.iter().filter(|version| version["storage"] == true).count(), 1);
        }
    }

    #[test]
    fn contract_labels_name_the_version_that_fulfils_it() {
        let definition = definition(kind("controlplane.cluster.x-k8s.io", "KamajiControlPlane").unwrap(), None);
        assert_eq!(definition["metadata"]["labels"]["cluster.x-k8s.io/v1beta1"], "v1alpha1");
        assert_eq!(definition["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"], "v1alpha2");
    }

    #[test]
    fn only_kinds_with_several_versions_need_the_webhook() {
        let address = WebhookAddress { url: "https://127.0.0.1:1".into(), ca_bundle: String::new() };
        for definition in definitions(Some(&address)) {
            let several = definition["spec"]["versions"].as_array().unwrap().len() > 1;
            assert_eq!(definition["spec"]["conversion"]["strategy"] == "Webhook", several);
        }
    }
}
