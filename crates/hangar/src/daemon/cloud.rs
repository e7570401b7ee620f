//! The simulated cloud of the local plane, and what looks after its nodes in each tenant.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use hangar_embedded::Home;
use hangar_node::small_file::keep;
use hangar_simulator::guests::HollowGuests;
use hangar_simulator::{Options, Simulator};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// The running simulated cloud.
pub struct SimulatedCloud {
    pub cloud: Simulator,
    pub url: String,
}

pub async fn start(
    home: &Home,
    client: &Client,
    tasks: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) -> Result<SimulatedCloud> {
    let directory = home.path().join("cloud");
    std::fs::create_dir_all(&directory)?;
    let listener = listener(&directory.join("port")).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let options = Options {
        state_file: Some(directory.join("state.json")),
        // An endpoint that is taken from Neutron or Octavia is one that kubectl can reach.
        forward: true,
        public_cidr: hangar_simulator::starter::LOCAL_PUBLIC_CIDR,
        ..Options::default()
    };
    let cloud = Simulator::new(options)?;
    keep(&home.path().join("clouds.yaml"), cloud.clouds_yaml(&url).as_bytes())?;
    let (serving, stop) = (cloud.clone(), shutdown.clone());
    tasks.spawn(async move {
        if let Err(error) = serving.serve(listener, stop).await {
            tracing::error!(%error, "the simulated cloud ended");
        }
    });
    cloud.set_guests(Arc::new(HollowGuests::new(cloud.guests_dir(), shutdown.clone())));
    tasks.spawn(look_after_nodes(client.clone(), cloud.clone(), shutdown.clone()));
    Ok(SimulatedCloud { cloud, url })
}

/// The port is kept: its address stands in Secrets of the management plane.
async fn listener(path: &std::path::Path) -> Result<TcpListener> {
    let kept = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u16>().ok());
    let listener = match kept {
        None => TcpListener::bind("127.0.0.1:0").await.context("no port for the simulated cloud")?,
        Some(port) => TcpListener::bind(("127.0.0.1", port)).await.with_context(|| {
            format!(
                "port {port} of the simulated cloud is taken: end what listens there, or remove {} to choose another",
                path.display()
            )
        })?,
    };
    keep(path, listener.local_addr()?.port().to_string().as_bytes())?;
    Ok(listener)
}

/// One cloud controller for each tenant: started when its kubeconfig appears, ended when that goes.
async fn look_after_nodes(client: Client, cloud: Simulator, shutdown: CancellationToken) {
    let secrets: Api<Secret> = Api::all(client);
    let config = watcher::Config::default().labels("cluster.x-k8s.io/cluster-name");
    let mut stream = Box::pin(watcher(secrets, config));
    let mut running: BTreeMap<String, (String, AbortHandle)> = BTreeMap::new();
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => break,
            event = stream.next() => event,
        };
        match event {
            Some(Ok(watcher::Event::Apply(secret) | watcher::Event::InitApply(secret))) => {
                let Some((name, kubeconfig)) = kubeconfig_of(&secret) else { continue };
                if running.get(&name).is_some_and(|(known, _)| *known == kubeconfig) {
                    continue;
                }
                let Ok(tenant) = crate::management::client(&kubeconfig).await else { continue };
                let task =
                    tokio::spawn(hangar_simulator::cloud_controller::run(tenant, cloud.clone(), shutdown.clone()));
                if let Some((_, old)) = running.insert(name, (kubeconfig, task.abort_handle())) {
                    old.abort();
                }
            }
            Some(Ok(watcher::Event::Delete(secret))) => {
                let name = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
                if let Some((_, task)) = running.remove(&name) {
                    task.abort();
                }
            }
            Some(Err(error)) => tracing::debug!(%error, "the watch on kubeconfigs starts again"),
            None => break,
            _ => {}
        }
    }
    running.into_values().for_each(|(_, task)| task.abort());
}

fn kubeconfig_of(secret: &Secret) -> Option<(String, String)> {
    let name = secret.name_any();
    if !name.ends_with("-kubeconfig") || secret.type_.as_deref() != Some("cluster.x-k8s.io/secret") {
        return None;
    }
    let text = String::from_utf8(secret.data.as_ref()?.get("value")?.0.clone()).ok()?;
    Some((format!("{}/{name}", secret.namespace()?), text))
}
