//! Applying a manifest as a user would.
//!
//! Holds: what no schema knows is refused. A namespace is created only if the caller says so. A kind that is not ours is looked up once, or found in the manifest, so that its plural and its scope are the server's own words.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context as _, Result, bail};
use hangar_api::Object;
use hangar_engine::received::Received;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ApiResource, Patch, PatchParams, PostParams, ValidationDirective};
use kube::core::{GroupVersionKind, ObjectMeta};
use kube::discovery::{Scope, oneshot};
use kube::runtime::{conditions, wait};

const ESTABLISHED_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// What happens to objects whose namespace does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MissingNamespace {
    Refuse,
    Create,
}

/// What became of a manifest.
#[derive(Default)]
pub struct Applied {
    /// As they are stored.
    pub objects: Vec<Object>,
    /// Namespaces that were created for them.
    pub namespaces: Vec<String>,
}

/// Applies objects. Those that name no namespace go to the one given here.
pub async fn apply(client: &Client, objects: &[Object], namespace: &str, missing: MissingNamespace) -> Result<Applied> {
    if objects.iter().any(|object| object.group() == "gateway.networking.k8s.io") {
        gateway_api(client).await?;
    }
    let params = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("hangar-user").force()
    };
    let mut resources = Resources { client, foreign: HashMap::new() };
    let (mut applied, mut checked) = (Applied::default(), BTreeSet::new());
    for object in in_order(objects) {
        let mut object = object.clone();
        let resource = resources.of(&object).await?;
        if resource.namespaced && object.namespace().is_empty() {
            object.0["metadata"]["namespace"] = namespace.into();
        }
        let namespace = object.namespace().to_owned();
        if missing == MissingNamespace::Create && resource.namespaced && checked.insert(namespace.clone()) {
            applied.namespaces.extend(create_namespace(client, &namespace).await?);
        }
        let answer = resource.api(client, &object).patch(object.name(), &params, &Patch::Apply(&object.0)).await;
        match answer {
            Ok(stored) => applied.objects.push(stored.into_object()),
            Err(kube::Error::Api(status)) if is_missing_namespace(&status, &namespace) => bail!(
                "{}: there is no namespace {namespace}: create it with `hangar kubectl -- create namespace {namespace}`",
                object.key()
            ),
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

/// Creates a namespace unless it exists, and returns its name if it did not.
async fn create_namespace(client: &Client, name: &str) -> Result<Option<String>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let failed = || format!("namespace {name} could not be created");
    if namespaces.get_metadata_opt(name).await.with_context(failed)?.is_some() {
        return Ok(None);
    }
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    match namespaces.create(&PostParams::default(), &namespace).await {
        Ok(_) => Ok(Some(name.to_owned())),
        // Somebody else was faster.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(error) => Err(error).with_context(failed),
    }
}

/// Also a missing object is "not found"; the message names what is.
fn is_missing_namespace(status: &kube::core::Status, namespace: &str) -> bool {
    status.code == 404 && status.message.contains(&format!("namespaces \"{namespace}\" not found"))
}

/// The Gateway API's definitions, which are there only when somebody needs them.
pub async fn gateway_api(client: &Client) -> Result<()> {
    let installed = hangar_node::process::install_gateway_api(client).await;
    installed.context("could not install the definitions of the Gateway API")
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
    fn api(&self, client: &Client, object: &Object) -> Api<Received> {
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
                "{}: no kind {} in {} is installed: see `hangar kubectl -- api-resources`, or apply its CustomResourceDefinition first",
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
    fn a_missing_namespace_is_told_from_other_things_that_are_missing() {
        let not_found =
            |message: &str| kube::core::Status { code: 404, ..kube::core::Status::failure(message, "NotFound") };
        assert!(is_missing_namespace(&not_found("namespaces \"metal3\" not found"), "metal3"));
        assert!(!is_missing_namespace(&not_found("clusters \"metal3\" not found"), "metal3"));
    }

    #[test]
    fn of_most_kinds_the_scope_is_known() {
        let known = |version: &str, kind: &str| is_known_namespaced(&Object::named(version, kind, "", "x"));
        assert_eq!(known("kamaji.clastix.io/v1alpha1", "DataStore"), Some(false));
        assert_eq!((known("v1", "Secret"), known("v1", "Namespace")), (Some(true), Some(false)));
        assert_eq!(known("example.com/v1", "Secret"), None, "others have kinds of the same name");
    }
}
