//! Talking to the management plane as a user does: clients, applying, snapshots for the views.

use anyhow::{Context as _, Result, bail};
use hangar_api::{Kind as _, Object, kinds};
use hangar_engine::management::{api_of, stripped};
use hangar_views::Snapshot;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, ValidationDirective};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// A client from the text of a kubeconfig; the caller retries, not the client.
pub async fn client(kubeconfig: &str) -> Result<Client> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

async fn config(kubeconfig: &str) -> Result<Config> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("this is not a kubeconfig")?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.connect_timeout = Some(PATIENCE);
    Ok(config)
}

/// A client for the plane of this home, which must be there.
pub async fn of_home(home: &hangar_embedded::Home) -> Result<Client> {
    let config = config(&kubeconfig(home)?).await?;
    // Said here once, since whoever finds nobody there has one thing to do.
    if let Err(error) = somebody_listens(&config.cluster_url).await {
        bail!(
            "the management plane in {} does not answer ({error}): start it with `hangar up`, or see `hangar status`",
            home.path().display()
        );
    }
    Ok(Client::try_from(config)?)
}

/// The same for whoever finds out what is wrong with it.
pub async fn of_home_in_trouble(home: &hangar_embedded::Home) -> Result<Client> {
    client(&kubeconfig(home)?).await
}

fn kubeconfig(home: &hangar_embedded::Home) -> Result<String> {
    std::fs::read_to_string(home.kubeconfig()).with_context(|| {
        format!("there is no management plane in {}; start one with `hangar up`", home.path().display())
    })
}

async fn somebody_listens(server: &http::Uri) -> Result<()> {
    let at = (server.host().unwrap_or_default().to_owned(), server.port_u16().unwrap_or(443));
    tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect(at)).await.context("nobody answers")??;
    Ok(())
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

/// Whether objects of a kind belong to a namespace, as far as it can be told without asking: for most of every manifest.
fn is_known_namespaced(object: &Object) -> Option<bool> {
    if let Some(facts) = hangar_api::registry::kind(object.group(), object.kind()) {
        return Some(facts.namespaced());
    }
    object.group().is_empty().then(|| !["Namespace", "Node", "PersistentVolume"].contains(&object.kind()))
}

async fn is_namespaced(client: &Client, object: &Object) -> Result<bool> {
    if let Some(known) = is_known_namespaced(object) {
        return Ok(known);
    }
    let version = object.api_version().rsplit('/').next().unwrap_or_default();
    let kind = GroupVersionKind::gvk(object.group(), version, object.kind());
    match kube::discovery::oneshot::pinned_kind(client, &kind).await {
        Ok((_, capabilities)) => Ok(capabilities.scope == kube::discovery::Scope::Namespaced),
        Err(kube::Error::Discovery(_) | kube::Error::Api(_)) => bail!(
            "{}: the management plane knows no kind {} in {}: see `hangar kubectl -- api-resources`, or apply its definition first",
            object.key(),
            object.kind(),
            object.api_version()
        ),
        Err(error) => Err(error).with_context(|| format!("{} could not be applied", object.key())),
    }
}

/// The Gateway API's definitions, which are there only when somebody needs them.
pub async fn gateway_api(client: &Client) -> Result<()> {
    let installed = hangar_node::process::install_gateway_api(client).await;
    installed.context("the definitions of the Gateway API could not be installed")
}

/// Applies objects as a user would, refusing what no schema knows; returns them as they are stored.
pub async fn apply(client: &Client, objects: &[Object], namespace: &str) -> Result<Vec<Object>> {
    let mut applied = vec![];
    if objects.iter().any(|object| object.group() == "gateway.networking.k8s.io") {
        gateway_api(client).await?;
    }
    for object in in_order(objects) {
        let mut object = object.clone();
        if object.namespace().is_empty() && is_namespaced(client, &object).await? {
            object.0["metadata"]["namespace"] = namespace.into();
        }
        let params = PatchParams {
            field_validation: Some(ValidationDirective::Strict),
            ..PatchParams::apply("hangar-user").force()
        };
        let answer = api_of(client, &object).patch(object.name(), &params, &Patch::Apply(&object.0)).await;
        match answer {
            Ok(stored) => applied.push(stripped(stored)),
            Err(kube::Error::Api(status)) => bail!("{} was refused: {}", object.key(), status.message),
            Err(error) => return Err(error).with_context(|| format!("{} could not be applied", object.key())),
        }
    }
    Ok(applied)
}

/// Everything that the tree of a cluster shows; nothing if there is no such cluster.
pub async fn snapshot(client: &Client, namespace: &str, name: &str) -> Result<Option<Snapshot>> {
    let Some(cluster) = list(client, kinds::Cluster::GROUP, kinds::Cluster::VERSION, kinds::Cluster::KIND, namespace)
        .await?
        .into_iter()
        .find(|cluster| cluster.name() == name)
    else {
        return Ok(None);
    };
    let infrastructure = referenced(client, &cluster, "/spec/infrastructureRef").await?;
    let control_plane = referenced(client, &cluster, "/spec/controlPlaneRef").await?;
    let of_cluster = |objects: Vec<Object>| -> Vec<Object> {
        objects
            .into_iter()
            .filter(|object| {
                object.label("cluster.x-k8s.io/cluster-name") == Some(name) || object.text("/spec/clusterName") == name
            })
            .collect()
    };
    let core = kinds::Cluster::GROUP;
    Ok(Some(Snapshot {
        infrastructure,
        control_plane,
        deployments: of_cluster(list(client, core, "v1beta2", kinds::MachineDeployment::KIND, namespace).await?),
        sets: of_cluster(list(client, core, "v1beta2", kinds::MachineSet::KIND, namespace).await?),
        machines: of_cluster(list(client, core, "v1beta2", kinds::Machine::KIND, namespace).await?),
        infrastructure_machines: of_cluster(
            list(client, kinds::OpenStackMachine::GROUP, "v1beta1", kinds::OpenStackMachine::KIND, namespace).await?,
        ),
        bootstrap_configs: of_cluster(
            list(client, kinds::KubeadmConfig::GROUP, "v1beta2", kinds::KubeadmConfig::KIND, namespace).await?,
        ),
        cluster,
    }))
}

async fn list(client: &Client, group: &str, version: &str, kind: &str, namespace: &str) -> Result<Vec<Object>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    Ok(api
        .list(&ListParams::default())
        .await?
        .items
        .into_iter()
        .map(|mut object| {
            object.types.get_or_insert(kube::core::TypeMeta {
                api_version: format!("{group}/{version}"),
                kind: kind.to_owned(),
            });
            stripped(object)
        })
        .collect())
}

async fn referenced(client: &Client, cluster: &Object, pointer: &str) -> Result<Option<Object>> {
    let reference = cluster.get(pointer);
    let (Some(group), Some(kind), Some(name)) =
        (reference["apiGroup"].as_str(), reference["kind"].as_str(), reference["name"].as_str())
    else {
        return Ok(None);
    };
    let Some(facts) = hangar_api::registry::kind(group, kind) else { return Ok(None) };
    let object = Object::named(&facts.hub_api_version(), kind, cluster.namespace(), name);
    Ok(api_of(client, &object).get_opt(name).await?.map(stripped))
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
        assert_eq!(
            is_known_namespaced(&Object::named("kamaji.clastix.io/v1alpha1", "DataStore", "", "default")),
            Some(false)
        );
    }
}
