//! Talking to the management plane as a user does: clients, and snapshots for the views.

use anyhow::{Context as _, Result, bail};
use hangar_api::names::CLUSTER_NAME_LABEL;
use hangar_api::{Kind, Object, kinds, references, registry};
use hangar_engine::management::api_of;
use hangar_engine::received::Received;
use hangar_views::Snapshot;
use kube::api::{Api, ApiResource, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Client, Config};

const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// A client from the text of a kubeconfig; the caller retries, not the client.
pub async fn client(kubeconfig: &str) -> Result<Client> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

/// What a kubeconfig says, with our own patience.
pub async fn config(kubeconfig: &str) -> Result<Config> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("invalid kubeconfig")?;
    Ok(patient(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?))
}

/// For a process that runs as a pod: its service account.
pub fn config_of_pod() -> Result<Config> {
    let config = Config::incluster()
        .context("there is no service account of a pod here: name the management cluster with --kubeconfig FILE")?;
    Ok(patient(config))
}

fn patient(mut config: Config) -> Config {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config
}

/// A client for the plane of this home, which must be there.
pub async fn client_for(home: &hangar_embedded::Home) -> Result<Client> {
    let config = config(&kubeconfig(home)?).await?;
    // Said here once, since whoever finds nobody there has one thing to do.
    if let Err(error) = check_reachable(&config.cluster_url).await {
        bail!(
            "the management plane in {} does not answer ({error}): start it with `hangar up`, or see `hangar status`",
            home.path().display()
        );
    }
    Ok(Client::try_from(config)?)
}

/// The same for whoever finds out what is wrong with it.
pub async fn unchecked_client_for(home: &hangar_embedded::Home) -> Result<Client> {
    client(&kubeconfig(home)?).await
}

fn kubeconfig(home: &hangar_embedded::Home) -> Result<String> {
    std::fs::read_to_string(home.kubeconfig()).with_context(|| {
        format!("there is no management plane in {}; start one with `hangar up`", home.path().display())
    })
}

async fn check_reachable(server: &http::Uri) -> Result<()> {
    let at = (server.host().unwrap_or_default().to_owned(), server.port_u16().unwrap_or(443));
    tokio::time::timeout(CONNECT_TIMEOUT, tokio::net::TcpStream::connect(at)).await.context("timeout")??;
    Ok(())
}

/// Everything that the tree of a cluster shows; nothing if there is no such cluster.
pub async fn snapshot(client: &Client, namespace: &str, name: &str) -> Result<Option<Snapshot>> {
    let cluster = Object::named(&hub::<kinds::Cluster>(), kinds::Cluster::KIND, namespace, name);
    let Some(cluster) = api_of(client, &cluster).get_opt(name).await?.map(Received::into_object) else {
        return Ok(None);
    };
    // A deployment that came before its cluster carries no label yet; what comes from one does.
    let labelled = format!("{CLUSTER_NAME_LABEL}={name}");
    let (infrastructure, control_plane) = tokio::try_join!(
        referenced(client, &cluster, "/spec/infrastructureRef"),
        referenced(client, &cluster, "/spec/controlPlaneRef"),
    )?;
    let (mut deployments, sets, mut pools) = tokio::try_join!(
        list::<kinds::MachineDeployment>(client, namespace, ""),
        list::<kinds::MachineSet>(client, namespace, &labelled),
        list::<kinds::MachinePool>(client, namespace, ""),
    )?;
    let (machines, infrastructure_machines, bootstrap_configs) = tokio::try_join!(
        list::<kinds::Machine>(client, namespace, &labelled),
        list::<kinds::OpenStackMachine>(client, namespace, &labelled),
        list::<kinds::KubeadmConfig>(client, namespace, &labelled),
    )?;
    for workers in [&mut deployments, &mut pools] {
        workers.retain(|object| object.text("/spec/clusterName") == name);
    }
    Ok(Some(Snapshot {
        infrastructure,
        control_plane,
        deployments,
        sets,
        pools,
        machines,
        infrastructure_machines,
        bootstrap_configs,
        cluster,
    }))
}

/// The version in which we read a kind, with its group.
fn hub<K: Kind>() -> String {
    format!("{}/{}", K::GROUP, K::VERSION)
}

async fn list<K: Kind>(client: &Client, namespace: &str, labels: &str) -> Result<Vec<Object>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(K::GROUP, K::VERSION, K::KIND));
    let api: Api<Received> = Api::namespaced_with(client.clone(), namespace, &resource);
    let listed = api.list(&ListParams::default().labels(labels)).await?;
    Ok(listed.items.into_iter().map(|object| object.into_listed(&resource)).collect())
}

async fn referenced(client: &Client, cluster: &Object, pointer: &str) -> Result<Option<Object>> {
    let Some(target) = references::target(cluster, pointer) else { return Ok(None) };
    let Some(facts) = registry::kind(&target.group, &target.kind) else { return Ok(None) };
    let object = Object::named(&facts.hub_api_version(), &target.kind, &target.namespace, &target.name);
    Ok(api_of(client, &object).get_opt(object.name()).await?.map(Received::into_object))
}
