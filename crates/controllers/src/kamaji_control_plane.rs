//! KamajiControlPlane: reads its Service, Secrets and Deployments, its DataStore, and what the tenant says of itself.

use hangar_api::{Object, ObjectKey, kinds, references};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, cluster, members, named, owned_built_in, read, reference};
use hangar_planner::hosted::roots::Root;
use hangar_planner::hosted::rotation::Stage;
use hangar_planner::hosted::{Facts, is_available};
use hangar_planner::kamaji_control_plane::{KamajiControlPlanes, api_server};
use hangar_planner::step::ClusterName;
use hangar_planner::{Reason, World};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{Api, ListParams};

use crate::{Context, data_stores, provided};

/// Of a container's last line.
const LAST_WORDS: usize = 300;
/// An API server whose program is installed is ready sooner.
const LATE: SignedDuration = SignedDuration::from_secs(8);

fn data_store(plane: &Object) -> Option<ObjectKey> {
    Some(references::data_store(plane))
}

fn secret_of(cluster: &Object, root: Root) -> Option<ObjectKey> {
    let name = format!("{}{}", cluster.name(), root.provided_suffix()?);
    Some(ObjectKey::new("", "Secret", cluster.namespace(), &name))
}

fn authority(cluster: &Object) -> Option<ObjectKey> {
    secret_of(cluster, Root::ClusterAuthority)
}

fn front_proxy(cluster: &Object) -> Option<ObjectKey> {
    secret_of(cluster, Root::FrontProxyAuthority)
}

fn service_account(cluster: &Object) -> Option<ObjectKey> {
    secret_of(cluster, Root::ServiceAccountKeys)
}

impl Controller<Context> for KamajiControlPlanes {
    const READS: &'static [Read] = &[
        read(&[cluster()], &["/spec/clusterNetwork", "/spec/controlPlaneRef"]),
        read(
            &[cluster(), reference("/spec/infrastructureRef")],
            &["/spec/controlPlaneEndpoint", "/spec/apiServerFixedIP"],
        ),
        read(
            &[named(<kinds::DataStore as hangar_api::Kind>::GROUP, "DataStore", data_store)],
            &["/spec", "/metadata/annotations/hangar.dev~1read-only-tenants"],
        ),
        read(&[owned_built_in("", "Secret")], &["/data", "/metadata/annotations"]),
        read(&[cluster(), named("", "Secret", authority)], &["/data"]),
        read(&[cluster(), named("", "Secret", front_proxy)], &["/data"]),
        read(&[cluster(), named("", "Secret", service_account)], &["/data"]),
        // Nodes must not be cut off by the rotation of an authority.
        read(&[members::<kinds::Machine>()], &["/status/nodeRef"]),
        read(&[owned_built_in("", "ConfigMap")], &["/data", "/metadata/annotations"]),
        read(&[owned_built_in("", "Service")], &["/spec", "/status"]),
        read(
            &[owned_built_in("apps", "Deployment")],
            &[
                "/spec",
                "/status/replicas",
                "/status/readyReplicas",
                "/status/availableReplicas",
                "/status/updatedReplicas",
                "/status/observedGeneration",
            ],
        ),
    ];

    async fn facts(context: &Context, world: &World<Self>, now: Timestamp) -> Result<Facts, Reason> {
        if world.cluster().is_none() && !world.object().is_deleting() {
            return Ok(Facts::default());
        }
        Ok(Facts {
            data_store: data_stores::view(context, &references::data_store(world.object())).await,
            konnectivity: context.site.konnectivity.clone(),
            provided: provided::read(world, now),
            nodes: nodes(context, world).await,
            tenant_version: version(context, world).await,
            pods_wait_for: pods_wait_for(context, world, now).await,
            ..Facts::default()
        })
    }

    fn forget(context: &Context, object: &Object) {
        if let Some(cluster) = references::cluster(object) {
            context.tenants.forget(&ClusterName { namespace: cluster.namespace, name: cluster.name });
        }
    }
}

/// Who may depend on an authority that is rotated; from memory, and only then.
async fn nodes(context: &Context, world: &World<KamajiControlPlanes>) -> Option<Vec<(String, Timestamp)>> {
    let mut secrets = world.objects.of_kind("", "Secret").filter(|secret| secret.is_owned_by(world.object().uid()));
    if !secrets.any(|secret| Stage::of(secret) != Stage::Rest) {
        return None;
    }
    let cluster = ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() };
    let nodes = context.tenants.nodes(&cluster).await?;
    let joined = |node: &Object| node.created().unwrap_or(Timestamp::UNIX_EPOCH);
    Some(nodes.iter().map(|node| (node.name().to_owned(), joined(node))).collect())
}

/// Asked once for each rollout of the API server, when it answers.
async fn version(context: &Context, world: &World<KamajiControlPlanes>) -> Option<String> {
    let deployment = api_server(world).filter(|deployment| is_available(Some(deployment)))?;
    let number = |pointer: &str| deployment.get(pointer).as_i64().unwrap_or(0);
    let is_complete = number("/status/observedGeneration") >= deployment.generation()
        && number("/status/updatedReplicas") == number("/status/replicas")
        && number("/status/updatedReplicas") == number("/spec/replicas");
    let rollout = format!("{} {}", deployment.uid(), deployment.generation());
    let cluster = ClusterName { namespace: world.object().namespace().to_owned(), name: world.cluster_name() };
    context.tenants.version(&cluster, &rollout, is_complete).await
}

/// Asked only when the API server's pods take longer than they usually do, for the reason is in the pods alone.
async fn pods_wait_for(context: &Context, world: &World<KamajiControlPlanes>, now: Timestamp) -> Option<String> {
    let deployment = api_server(world).filter(|deployment| !is_available(Some(deployment)))?;
    let created = deployment.created()?;
    if now.duration_since(created) < LATE {
        return None;
    }
    let api: Api<Pod> = Api::namespaced(context.management().client().clone(), world.object().namespace());
    let own = ListParams::default().labels(&format!("kamaji.clastix.io/name={}", world.object().name()));
    let pods = api.list(&own).await.ok()?;
    let mut statuses = pods.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()).flatten();
    statuses.find_map(complaint)
}

/// Why a container does not run: its own last line if it came to an end, else what it waits for.
fn complaint(status: &ContainerStatus) -> Option<String> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let ended = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let Some(ended) = ended.filter(|_| waiting.reason.as_deref() == Some("CrashLoopBackOff")) else {
        return waiting.message.clone().filter(|message| !message.is_empty());
    };
    let mut lines = ended.message.as_deref().unwrap_or_default().lines().rev().map(str::trim);
    let last = lines.find(|line| !line.is_empty()).unwrap_or("it said nothing");
    let words: String = last.chars().take(LAST_WORDS).collect();
    Some(format!("{} ended with exit code {}: {words}", status.name, ended.exit_code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_says_last_is_why_it_does_not_run() {
        let status = |waiting: serde_json::Value, last: serde_json::Value| -> ContainerStatus {
            serde_json::from_value(serde_json::json!({
                "name": "kube-apiserver", "image": "", "imageID": "", "ready": false, "restartCount": 1,
                "state": waiting, "lastState": last,
            }))
            .unwrap()
        };
        let back_off = serde_json::json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}});
        let ended = |message: &str| serde_json::json!({"terminated": {"exitCode": 1, "message": message}});
        let pulling = serde_json::json!({"waiting": {"reason": "ImagePullBackOff", "message": "fetching"}});
        let rows = [
            (
                back_off.clone(),
                ended("I1116 starting\nError: unknown flag: --x\n\n"),
                Some("kube-apiserver ended with exit code 1: Error: unknown flag: --x"),
            ),
            (back_off.clone(), ended(""), Some("kube-apiserver ended with exit code 1: it said nothing")),
            (back_off, serde_json::json!({}), Some("back-off")),
            (pulling, ended("old words"), Some("fetching")),
            (serde_json::json!({"waiting": {"message": ""}}), serde_json::json!({}), None),
            (serde_json::json!({"running": {}}), ended("old words"), None),
        ];
        for (state, last, words) in rows {
            assert_eq!(complaint(&status(state.clone(), last)).as_deref(), words, "{state}");
        }
    }
}
