//! Applying a manifest as a user would.
//!
//! Holds: what no schema knows is refused. A kind that is not ours is looked up once, or found in the manifest, so that its plural and its scope are the server's own words.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};
use hangar_api::Object;
use hangar_engine::management::stripped;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, ValidationDirective};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, oneshot};
use kube::runtime::{conditions, wait};

const ESTABLISHED_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// Applies objects, and returns them as they are stored. Those that name no namespace go to the one given here.
pub async fn apply(client: &Client, objects: &[Object], namespace: &str) -> Result<Vec<Object>> {
    if objects.iter().any(|object| object.group() == "gateway.networking.k8s.io") {
        gateway_api(client).await?;
    }
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("hangar-user").force()
    };
    let mut resources = Resources { client, foreign: HashMap::new() };
    let mut applied = vec![];
    for object in in_order(objects) {
        let mut object = object.clone();
        let resource = resources.of(&object).await?;
        if resource.namespaced && object.namespace().is_empty() {
            object.0["metadata"]["namespace"] = namespace.into();
        }
        let answer = resource.api(client, &object).patch(object.name(), &params, &Patch::Apply(&object.0)).await;
        match answer {
            Ok(stored) => applied.push(stripped(stored)),
            Err(kube::Error::Api(status)) => bail!("{} was refused: {}", object.key(), status.message),
            Err(error) => return Err(error).with_context(|| format!("{} could not be applied", object.key())),
        }
        if object.kind() == "CustomResourceDefinition" {
            until_established(client, object.name()).await?;
            // The server lists it a moment after it serves it.
            resources.foreign.extend(defined_by(&object));
        }
    }
    Ok(applied)
}

/// The Gateway API's definitions, which are there only when somebody needs them.
pub async fn gateway_api(client: &Client) -> Result<()> {
    let installed = hangar_node::process::install_gateway_api(client).await;
    installed.context("the definitions of the Gateway API could not be installed")
}

/// What others refer to goes first, so that nobody has to wait for it; else the order of the manifest.
fn in_order(objects: &[Object]) -> Vec<&Object> {
    let mut ordered: Vec<&Object> = objects.iter().collect();
    ordered.sort_by_key(|object| match object.kind() {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        "Secret" | "ConfigMap" | "ServiceAccount" => 2,
        _ => 3,
    });
    ordered
}

/// Objects of a new kind may stand in the same manifest.
async fn until_established(client: &Client, name: &str) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established = wait::await_condition(definitions, name, conditions::is_crd_established());
    match tokio::time::timeout(ESTABLISHED_WITHIN, established).await {
        Ok(outcome) => outcome.map(drop).with_context(|| format!("CustomResourceDefinition {name} could not be read")),
        Err(_) => bail!(
            "CustomResourceDefinition {name} is not served: see `hangar kubectl -- describe customresourcedefinition {name}`"
        ),
    }
}

/// Where objects of a kind are served.
#[derive(Clone)]
struct Resource {
    served: ApiResource,
    namespaced: bool,
}

impl Resource {
    fn api(&self, client: &Client, object: &Object) -> Api<DynamicObject> {
        match self.namespaced {
            true => Api::namespaced_with(client.clone(), object.namespace(), &self.served),
            false => Api::all_with(client.clone(), &self.served),
        }
    }
}

struct Resources<'a> {
    client: &'a Client,
    foreign: HashMap<GroupVersionKind, Resource>,
}

impl Resources<'_> {
    async fn of(&mut self, object: &Object) -> Result<Resource> {
        let version = object.api_version().rsplit('/').next().unwrap_or_default();
        let kind = GroupVersionKind::gvk(object.group(), version, object.kind());
        if let Some(namespaced) = is_known_namespaced(object) {
            return Ok(Resource { served: ApiResource::from_gvk(&kind), namespaced });
        }
        if let Some(found) = self.foreign.get(&kind) {
            return Ok(found.clone());
        }
        let (served, namespaced) = match oneshot::pinned_kind(self.client, &kind).await {
            Ok((served, capabilities)) => (served, capabilities.scope == Scope::Namespaced),
            Err(kube::Error::Discovery(_) | kube::Error::Api(_)) => bail!(
                "{}: the management plane knows no kind {} in {}: see `hangar kubectl -- api-resources`, or apply its definition first",
                object.key(),
                object.kind(),
                object.api_version()
            ),
            Err(error) => return Err(error).with_context(|| format!("{} could not be applied", object.key())),
        };
        let resource = Resource { served, namespaced };
        self.foreign.insert(kind, resource.clone());
        Ok(resource)
    }
}

/// The kinds that a definition brings, one for each version.
fn defined_by(definition: &Object) -> Vec<(GroupVersionKind, Resource)> {
    let (group, kind) = (definition.text("/spec/group"), definition.text("/spec/names/kind"));
    let resource = |version: &serde_json::Value| {
        let kind = GroupVersionKind::gvk(group, version["name"].as_str()?, kind);
        let served = ApiResource::from_gvk_with_plural(&kind, definition.text("/spec/names/plural"));
        Some((kind, Resource { served, namespaced: definition.text("/spec/scope") == "Namespaced" }))
    };
    definition.get("/spec/versions").as_array().into_iter().flatten().filter_map(resource).collect()
}

/// Whether objects of a kind belong to a namespace, as far as it can be told without asking: for most of every manifest.
fn is_known_namespaced(object: &Object) -> Option<bool> {
    if let Some(facts) = hangar_api::registry::kind(object.group(), object.kind()) {
        return Some(facts.namespaced());
    }
    match (object.group(), object.kind()) {
        ("", "Namespace") => Some(false),
        ("", "ConfigMap" | "PersistentVolumeClaim" | "Pod" | "Secret" | "Service" | "ServiceAccount") => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_refer_to_is_applied_first() {
        let named = |kind: &str, name: &str| Object::named("v1", kind, "", name);
        let objects = [named("Pod", "a"), named("Secret", "b"), named("Pod", "c"), named("Namespace", "d")];
        let names: Vec<&str> = in_order(&objects).iter().map(|object| object.name()).collect();
        assert_eq!(names, ["d", "b", "a", "c"]);
    }

    #[test]
    fn of_most_kinds_the_scope_is_known() {
        let known = |version: &str, kind: &str| is_known_namespaced(&Object::named(version, kind, "", "x"));
        assert_eq!(known("kamaji.clastix.io/v1alpha1", "DataStore"), Some(false));
        assert_eq!((known("v1", "Secret"), known("v1", "Namespace")), (Some(true), Some(false)));
        assert_eq!(known("example.com/v1", "Secret"), None, "others have kinds of the same name");
    }
}
