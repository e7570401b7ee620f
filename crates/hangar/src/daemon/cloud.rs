//! The simulated cloud of the local plane, and what looks after its nodes in each tenant.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use hangar_api::kubeconfig::InlineKubeconfig;
use hangar_embedded::{Home, LoopbackNet, Store, ports};
use hangar_node::small_file::keep;
use hangar_simulator::{Access, Options, Simulator};
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::cli::PlaneGuests;

/// The running simulated cloud.
pub struct SimulatedCloud {
    pub cloud: Simulator,
    pub url: String,
    /// What runs on its servers, and why.
    pub guests: String,
}

/// What a cloud is made of besides itself.
pub struct Surroundings<'a> {
    pub home: &'a Home,
    pub network: LoopbackNet,
    pub store: &'a Store,
    pub guests: PlaneGuests,
}

pub async fn start(
    surroundings: &Surroundings<'_>,
    client: &Client,
    tasks: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) -> Result<SimulatedCloud> {
    let home = surroundings.home;
    let directory = home.path().join("cloud");
    std::fs::create_dir_all(&directory)?;
    let listener = listener(&directory, surroundings.network.plane()).await?;
    let url = format!("http://{}", listener.local_addr()?);
    let options = Options {
        state_file: Some(directory.join("state.json")),
        // An endpoint that is taken from Neutron or Octavia is one that kubectl can reach.
        forward: true,
        public_cidr: hangar_simulator::starter::LOCAL_PUBLIC_CIDR,
        access: access(&directory)?,
        ..Options::default()
    };
    let cloud = Simulator::new(options)?;
    keep(&home.path().join("clouds.yaml"), cloud.clouds_yaml(&url).as_bytes())?;
    let (serving, stop) = (cloud.clone(), shutdown.clone());
    tasks.spawn(async move {
        if let Err(error) = serving.serve(listener, stop).await {
            tracing::error!(%error, "the simulated cloud stopped");
        }
    });
    let ports = super::guests::ports(&url);
    let (driver, guests) = super::guests::choose(surroundings, &cloud, ports.subscribe(), shutdown).await?;
    cloud.set_guests(driver);
    tasks.spawn(look_after_nodes(client.clone(), cloud.clone(), ports, shutdown.clone()));
    Ok(SimulatedCloud { cloud, url, guests })
}

/// The file below `cloud` in the home that has the token for `/admin`.
pub const ADMIN_TOKEN: &str = "admin-token";
const PASSWORD: &str = "password";

/// Of this home alone, and the same after each start. A cloud that is older keeps the password that stands in its Secrets.
fn access(directory: &Path) -> Result<Access> {
    let is_old = directory.join("state.json").exists() && !directory.join(PASSWORD).exists();
    let password = if is_old { None } else { Some(word(&directory.join(PASSWORD))?) };
    Ok(Access { password, admin_token: Some(word(&directory.join(ADMIN_TOKEN))?) })
}

fn word(path: &Path) -> Result<String> {
    if let Ok(kept) = std::fs::read_to_string(path)
        && !kept.trim().is_empty()
    {
        return Ok(kept.trim().to_owned());
    }
    let made = Access::random_word();
    keep(path, made.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(made)
}

/// Where it listens is kept, since it stands in Secrets of the management plane. That is an address of the plane's own: on 127.0.0.1, connections within
/// the machine come from any port, so that one which is free now may be taken when the plane comes back.
async fn listener(directory: &Path, own: Ipv4Addr) -> Result<TcpListener> {
    let path = directory.join("address");
    let listener = match kept(directory) {
        None => super::listen(own, ports::CLOUD).await.context("could not listen for the simulated cloud")?,
        Some(address) => TcpListener::bind(address).await.with_context(|| {
            format!(
                "{address}, the address of the simulated cloud, is already in use: stop the program that listens there, or remove {} to choose another address",
                path.display()
            )
        })?,
    };
    keep(&path, listener.local_addr()?.to_string().as_bytes())?;
    Ok(listener)
}

/// Homes that are older have a port of 127.0.0.1 instead.
fn kept(directory: &Path) -> Option<SocketAddr> {
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).ok();
    match read("address") {
        Some(address) => address.trim().parse().ok(),
        None => Some((Ipv4Addr::LOCALHOST, read("port")?.trim().parse().ok()?).into()),
    }
}

/// One cloud controller for each tenant: started when its kubeconfig appears, ended when that goes.
async fn look_after_nodes(
    client: Client,
    cloud: Simulator,
    ports: watch::Sender<Vec<u16>>,
    shutdown: CancellationToken,
) {
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
                // Whoever may write Secrets wrote it.
                let (accepted, server) = match InlineKubeconfig::parse(&kubeconfig) {
                    Ok(accepted) => {
                        super::guests::add_port(&ports, &accepted.server);
                        (accepted.to_json(), accepted.server)
                    }
                    Err(error) => {
                        tracing::warn!(secret = name, %error, "a kubeconfig is refused");
                        continue;
                    }
                };
                let Ok(tenant) = crate::management::client(&accepted).await else { continue };
                let controller =
                    hangar_simulator::cloud_controller::run(tenant.clone(), cloud.clone(), shutdown.clone());
                let endpoint = super::tenant_endpoint::publish(tenant, server);
                let task = tokio::spawn(async move {
                    tokio::join!(controller, endpoint);
                });
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
            Some(Err(error)) => tracing::debug!(%error, "the watch on kubeconfigs is restarted"),
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

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 1);

    #[tokio::test]
    async fn a_cloud_stays_where_it_was_and_says_who_is_in_its_way() {
        let directory = tempfile::tempdir().unwrap();
        let first = listener(directory.path(), OWN).await.unwrap();
        let address = first.local_addr().unwrap();
        assert_eq!(address.ip(), OWN);
        let refused = listener(directory.path(), OWN).await.unwrap_err().to_string();
        assert!(refused.contains(&address.to_string()) && refused.contains("remove"), "{refused}");
        let another = tempfile::tempdir().unwrap();
        assert_ne!(listener(another.path(), OWN).await.unwrap().local_addr().unwrap(), address, "it is taken");
        drop(first);
        assert_eq!(listener(directory.path(), OWN).await.unwrap().local_addr().unwrap(), address);
    }

    #[test]
    fn each_home_has_words_of_its_own_and_an_older_one_keeps_its_password() {
        use std::os::unix::fs::PermissionsExt as _;
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = access(one.path()).unwrap();
        std::fs::write(one.path().join("state.json"), "{}").unwrap();
        let again = access(one.path()).unwrap();
        assert_eq!((&first.password, &first.admin_token), (&again.password, &again.admin_token));
        let elsewhere = access(other.path()).unwrap();
        assert!(first.password != elsewhere.password && first.admin_token != elsewhere.admin_token);
        for name in [PASSWORD, ADMIN_TOKEN] {
            let mode = std::fs::metadata(one.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let old = tempfile::tempdir().unwrap();
        std::fs::write(old.path().join("state.json"), "{}").unwrap();
        assert_eq!(access(old.path()).unwrap().password, None);
    }

    #[test]
    fn an_older_home_keeps_its_port() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(kept(directory.path()), None);
        std::fs::write(directory.path().join("address"), "127.9.0.1:5000").unwrap();
        assert_eq!(kept(directory.path()), Some("127.9.0.1:5000".parse().unwrap()));
        std::fs::remove_file(directory.path().join("address")).unwrap();
        std::fs::write(directory.path().join("port"), "40123").unwrap();
        assert_eq!(kept(directory.path()), Some("127.0.0.1:40123".parse().unwrap()));
    }
}
