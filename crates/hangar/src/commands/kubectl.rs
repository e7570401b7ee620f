//! `hangar kubectl`: the kubectl of the component store, against the plane or one of its clusters.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use hangar_api::kubeconfig::InlineKubeconfig;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;

use crate::cli::Global;
use crate::commands::{components, home, store};
use crate::management;

pub async fn run(global: &Global, cluster: Option<&str>, arguments: &[String]) -> Result<ExitCode> {
    let home = home(global)?;
    let client = management::client_for(&home).await?;
    let config = match cluster {
        None => home.kubeconfig(),
        Some(name) => {
            let directory = home.path().join("kubeconfigs");
            std::fs::create_dir_all(&directory)?;
            let path = directory.join(format!("{}-{name}", global.namespace));
            write(&path, &kubeconfig(&client, &global.namespace, name).await?)?;
            path
        }
    };
    let store = store(global)?;
    let kubectl = components::fetch_kubectl(&store).await?;
    // From here on this process is kubectl.
    let error = std::process::Command::new(kubectl).args(arguments).env("KUBECONFIG", config).exec();
    bail!("kubectl could not be started: {error}")
}

/// The administrator's kubeconfig of a cluster.
pub async fn kubeconfig(client: &Client, namespace: &str, name: &str) -> Result<String> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets
        .get_opt(&format!("{name}-kubeconfig"))
        .await
        .context("the management plane does not answer; start it with `hangar up`")?;
    let value = secret.and_then(|secret| secret.data).and_then(|mut data| data.remove("value"));
    let value = value.with_context(|| {
        format!("cluster {namespace}/{name} has no kubeconfig yet; see `hangar describe cluster {name}`")
    })?;
    let text = String::from_utf8(value.0).context("the kubeconfig is not text")?;
    // kubectl would run the programs that it names: whoever may write this Secret must not choose them.
    let accepted = InlineKubeconfig::parse(&text)
        .with_context(|| format!("the kubeconfig in Secret {namespace}/{name}-kubeconfig is refused"))?;
    Ok(accepted.to_json())
}

/// Many may ask for a cluster at once: each finds a whole file, and they take turns at writing it.
fn write(path: &Path, text: &str) -> Result<()> {
    let lock = std::fs::File::create(path.with_file_name(".lock"))?;
    lock.lock()?;
    Ok(hangar_node::small_file::note(path, text.as_bytes())?)
}
