//! What users want to have in their clusters: read from ConfigMaps and Secrets, and applied in tenants.
//!
//! Flows: a name -> read once until a change of it is noticed -> parsed for all clusters that get it; objects -> the tenant's own words for their kinds -> applied or
//! created. Holds: what one object lacks does not stop the others; what is in a Secret is repeated in no message.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hangar_api::{Object, ObjectKey};
use hangar_engine::notices::Notices;
use hangar_engine::received::Received;
use hangar_planner::Reason;
use hangar_planner::cluster_resource_set::manifest::{self, Manifest};
use hangar_planner::cluster_resource_set_binding::Resource;
use hangar_planner::step::{ClusterName, Installation, TenantAnswer};
use jiff::{Timestamp, ToSpan};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use kube::api::{Api, ApiResource, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, Request};

use crate::Context;
use crate::tenant_calls::{Failure, words};

/// A field manager's name may not be longer.
const LONGEST_MANAGER: usize = 128;

type Read = Result<Arc<Manifest>, String>;

/// What was read, for all clusters; and when it was put right in each.
pub struct Manifests {
    notices: Notices,
    /// With how often it had changed then.
    known: Mutex<BTreeMap<ObjectKey, (u64, Read)>>,
    repaired: Mutex<BTreeMap<(ClusterName, Resource), Timestamp>>,
}

impl Manifests {
    pub fn new(notices: Notices) -> Self {
        Self { notices, known: Mutex::default(), repaired: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, (u64, Read)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The manifest, or why there is none.
    pub async fn read(&self, context: &Context, key: &ObjectKey) -> Result<Read, Reason> {
        let changes = self.notices.changes(key);
        let known = self.known().get(key).filter(|(at, _)| *at == changes).map(|(_, read)| read.clone());
        if let Some(read) = known {
            return Ok(read);
        }
        let found = context.management().get(key).await;
        let found = found.map_err(|error| Reason::retry("APIServerUnreachable", error.to_string()))?;
        let read = found.map_or_else(|| Err(format!("there is no {key}")), |object| parsed(&object).map(Arc::new));
        self.known().insert(key.clone(), (changes, read.clone()));
        Ok(read)
    }

    fn times(&self) -> MutexGuard<'_, BTreeMap<(ClusterName, Resource), Timestamp>> {
        self.repaired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn repaired(&self, cluster: &ClusterName, resource: &Resource) -> Option<Timestamp> {
        self.times().get(&(cluster.clone(), resource.clone())).copied()
    }

    pub fn note(&self, cluster: &ClusterName, answer: &TenantAnswer, now: Timestamp) {
        let TenantAnswer::Installed { resource, is_last: true, .. } = answer else { return };
        let mut times = self.times();
        // Nobody waits longer than a day for the next time.
        times.retain(|_, at| *at > now - 24.hours());
        times.insert((cluster.clone(), resource.clone()), now);
    }
}

fn parsed(object: &Object) -> Result<Manifest, String> {
    let texts = manifest::texts(object)?;
    let hash = hangar_pki::sha256(texts.iter().map(|(_, text)| text.as_str()));
    let objects = manifest::objects(object, &texts);
    Ok(Manifest { hash, objects })
}

pub async fn install(client: &Client, installation: &Installation) -> Result<TenantAnswer, Failure> {
    let Installation { resource, objects, is_last, .. } = installation;
    let mut kinds = Kinds { client, known: HashMap::new() };
    let mut problems = vec![];
    for object in objects {
        match install_one(&mut kinds, object, installation).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) => {
                // The words of the server may repeat what it refused.
                let why = if resource.kind == "Secret" { &status.reason } else { &status.message };
                problems.push(format!("{}: {why}", object.key()));
            }
            Err(error) => return Err(words(&error)),
        }
    }
    Ok(TenantAnswer::Installed { resource: resource.clone(), problems, is_last: *is_last })
}

async fn install_one(kinds: &mut Kinds<'_>, object: &Object, installation: &Installation) -> Result<(), kube::Error> {
    let (resource, namespaced) = kinds.of(object).await?;
    let mut object = object.clone();
    if namespaced && object.namespace().is_empty() {
        object.0["metadata"]["namespace"] = "default".into();
    }
    let api: Api<Received> = if namespaced {
        Api::namespaced_with(kinds.client.clone(), object.namespace(), &resource)
    } else {
        Api::all_with(kinds.client.clone(), &resource)
    };
    let manager = manager(&installation.resource.set);
    if !installation.once {
        return api
            .patch(object.name(), &PatchParams::apply(&manager).force(), &Patch::Apply(&object.0))
            .await
            .map(drop);
    }
    let params = PostParams { field_manager: Some(manager), ..PostParams::default() };
    let request = Request::new(api.resource_url()).create(&params, object.0.to_string().into_bytes());
    match kinds.client.request::<Received>(request.map_err(kube::Error::BuildRequest)?).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        answer => answer.map(drop),
    }
}

/// Two sets that say different things of one object do not take away each other's fields.
fn manager(set: &str) -> String {
    let mut name = format!("hangar-set-{set}");
    if name.len() > LONGEST_MANAGER {
        name.truncate(LONGEST_MANAGER - 20);
        name = format!("{name}-{}", hangar_planner::intent::name_suffix(set));
    }
    name
}

/// Plurals and scopes, as the tenant's API has them; asked once for each group and version.
struct Kinds<'a> {
    client: &'a Client,
    known: HashMap<String, Vec<APIResource>>,
}

impl Kinds<'_> {
    async fn of(&mut self, object: &Object) -> Result<(ApiResource, bool), kube::Error> {
        let (group, version) = object.api_version().split_once('/').unwrap_or(("", object.api_version()));
        if !self.known.contains_key(object.api_version()) {
            let list = if group.is_empty() {
                self.client.list_core_api_resources(version).await?
            } else {
                self.client.list_api_group_resources(object.api_version()).await?
            };
            self.known.insert(object.api_version().to_owned(), list.resources);
        }
        let mut all = self.known.get(object.api_version()).into_iter().flatten();
        let found = all.find(|one| one.kind == object.kind() && !one.name.contains('/'));
        let found = found.ok_or_else(|| unknown(object))?;
        let kind = GroupVersionKind::gvk(group, version, object.kind());
        Ok((ApiResource::from_gvk_with_plural(&kind, &found.name), found.namespaced))
    }
}

fn unknown(object: &Object) -> kube::Error {
    let message = format!("the cluster knows no {} in {}", object.kind(), object.api_version());
    kube::Error::Api(kube::core::Status::failure(&message, "NotFound").with_code(404).boxed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_manager_has_a_name_that_kubernetes_takes() {
        assert_eq!(manager("cni"), "hangar-set-cni");
        let (one, other) = (manager(&"a".repeat(200)), manager(&format!("{}b", "a".repeat(199))));
        assert!(one.len() <= LONGEST_MANAGER && one != other, "{one} {other}");
    }
}
