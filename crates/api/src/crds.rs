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

/// Who converts between the versions of a kind.
#[derive(Debug, Clone)]
pub enum Converter {
    /// Nobody: an API server then drops what the other version does not know. For tools that only read the schemas.
    Nobody,
    At(WebhookAddress),
    /// A Service of the management cluster; `ca_bundle` may be filled in later by whoever installs.
    Service {
        namespace: String,
        name: String,
        ca_bundle: Option<String>,
    },
}

impl Converter {
    fn stanza(&self, facts: &KindFacts) -> Value {
        let mut client = match self {
            _ if facts.versions.len() < 2 => return json!({ "strategy": "None" }),
            Self::Nobody => return json!({ "strategy": "None" }),
            Self::At(address) => json!({ "url": format!("{}/convert", address.url), "caBundle": address.ca_bundle }),
            Self::Service { namespace, name, .. } => {
                json!({ "service": { "namespace": namespace, "name": name, "path": "/convert", "port": 443 } })
            }
        };
        if let Self::Service { ca_bundle: Some(bundle), .. } = self {
            client["caBundle"] = bundle.clone().into();
        }
        json!({ "strategy": "Webhook", "webhook": { "conversionReviewVersions": ["v1"], "clientConfig": client } })
    }
}

/// All definitions, one after the other; without a webhook address the conversion stanza says `None`.
pub fn definitions(webhook: Option<&WebhookAddress>) -> impl ExactSizeIterator<Item = Value> {
    let converter = webhook.map_or(Converter::Nobody, |address| Converter::At(address.clone()));
    kinds().iter().map(move |facts| definition(facts, &converter))
}

/// The definition of one kind.
pub fn definition(facts: &KindFacts, converter: &Converter) -> Value {
    let mut versions: Vec<Value> = facts.versions.iter().map(VersionFacts::unpack).collect();
    let served: Vec<Value> = versions.iter_mut().map(|version| served(facts, version)).collect();
    let of_hub = versions.iter().position(|version| version["version"] == facts.hub().name);
    let mut hub = versions.swap_remove(of_hub.unwrap_or_default());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", facts.plural(), facts.group), "labels": labels(&mut hub) },
        "spec": {
            "group": facts.group,
            "names": {
                "kind": facts.kind,
                "listKind": format!("{}List", facts.kind),
                "plural": facts.plural(),
                "singular": facts.kind.to_lowercase(),
                "categories": hub["categories"].take(),
                "shortNames": hub["shortNames"].take(),
            },
            "scope": hub["scope"].take(),
            "conversion": converter.stanza(facts),
            "versions": served,
        },
    })
}

fn served(facts: &KindFacts, version: &mut Value) -> Value {
    json!({
        "name": version["version"],
        "served": true,
        "storage": version["version"] == facts.hub().name,
        "schema": { "openAPIV3Schema": version["schema"].take() },
        "subresources": version["subresources"].take(),
        "additionalPrinterColumns": version["printerColumns"].take(),
    })
}

/// The labels by which Cluster API finds the version of a kind that fulfils a contract, and clusterctl what is to be moved.
fn labels(hub: &mut Value) -> Value {
    let mut labels = hub["contractLabels"].take();
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
        let table = [
            ("controlplane.cluster.x-k8s.io", "KamajiControlPlane", "control-plane-kamaji", "v1alpha1", "v1alpha2"),
            (
                "controlplane.cluster.x-k8s.io",
                "K0smotronControlPlaneTemplate",
                "control-plane-k0smotron",
                "v1beta1",
                "v1beta2",
            ),
            ("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", "control-plane-kubeadm", "v1beta1", "v1beta2"),
            ("bootstrap.cluster.x-k8s.io", "K0sWorkerConfig", "bootstrap-k0smotron", "v1beta1", "v1beta2"),
            ("infrastructure.cluster.x-k8s.io", "Metal3Cluster", "infrastructure-metal3", "v1beta1", "v1beta2"),
            ("infrastructure.cluster.x-k8s.io", "OpenStackCluster", "infrastructure-openstack", "v1beta1", ""),
            (
                "controlplane.cluster.x-k8s.io",
                "HostedControlPlane",
                "control-plane-hosted-control-plane",
                "",
                "v1alpha1",
            ),
        ];
        for (group, name, provider, old, new) in table {
            let definition = definition(kind(group, name).unwrap(), &Converter::Nobody);
            let labels = &definition["metadata"]["labels"];
            assert_eq!(labels["cluster.x-k8s.io/provider"], provider, "{name}");
            assert_eq!(labels["cluster.x-k8s.io/v1beta1"].as_str().unwrap_or_default(), old, "{name}");
            assert_eq!(labels["cluster.x-k8s.io/v1beta2"].as_str().unwrap_or_default(), new, "{name}");
        }
    }

    #[test]
    fn a_service_is_named_with_its_path() {
        let service = Converter::Service { namespace: "hangar-system".into(), name: "hangar".into(), ca_bundle: None };
        let definition = definition(kind("cluster.x-k8s.io", "Cluster").unwrap(), &service);
        let client = &definition["spec"]["conversion"]["webhook"]["clientConfig"];
        assert_eq!(
            client,
            &json!({"service": {"namespace": "hangar-system", "name": "hangar", "path": "/convert", "port": 443}})
        );
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
