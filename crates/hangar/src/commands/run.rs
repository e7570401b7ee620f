//! `hangar run`: the controllers and the webhook against a management cluster, as a Deployment has them there.
//!
//! Flows: kubeconfig or service account -> webhook and monitoring at once, in every process -> the Lease -> the controllers, in one process. Holds: whoever loses the Lease
//! ends, because what it has in memory is of no use any more; whoever is told to stop ends its passes first and gives the Lease back, so that nobody waits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hangar_controllers::{CONTROLLERS, Context, Site};
use hangar_engine::leader::{self, Candidate, Terms};
use hangar_engine::monitoring::{self, Monitored, Slot};
use hangar_engine::runtime::Controllers;
use hangar_engine::{system_clock, webhook};
use hangar_openstack::HostPolicy;
use hangar_pki::{CertifiedKey, SystemKeys};
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use webhook::WebhookIdentity;

use crate::cli::{Election, Run};
use crate::{daemon, management, manager};

const LEASE: &str = "hangar";
const NAMESPACE: &str = "hangar-system";
/// Certificates that were put in the place of old ones are used this soon.
const LOOK_EVERY: Duration = Duration::from_secs(60);

pub async fn run(options: Run) -> Result<()> {
    let controllers = chosen(&options.controllers)?;
    let config = config(&options).await?;
    let candidate = candidate(&options.election, &config)?;
    let shutdown = CancellationToken::new();
    daemon::stop_on_signal(shutdown.clone())?;
    let client = Client::try_from(config.clone())?;
    let engine = manager::engine(manager::Parts {
        client: client.clone(),
        // Images come from registries here.
        site: Site { konnectivity: Ok(()) },
        hosts: hosts(&config, &options.cloud_hosts),
        workers: options.workers.max(1),
        controllers,
    });
    let leads = Arc::new(AtomicBool::new(false));
    let metrics = engine.context.passes.metrics.clone();
    let slot = Slot::default();
    drop(slot.set(monitored(client, engine.context.clone(), leads.clone())));
    let (listener, identity) = (listen(&options).await?, identity(&options).await?);
    let serving = tokio::spawn(webhook::serve(listener, identity, monitoring::router(slot), shutdown.clone()));
    let work = |term| async move {
        leads.store(true, Ordering::Relaxed);
        engine.run(term).await
    };
    let outcome = match candidate {
        Some(candidate) => leader::lead(Candidate { metrics: Some(metrics), ..candidate }, &shutdown, work).await,
        None => Ok(work(shutdown.clone()).await),
    };
    shutdown.cancel();
    serving.await??;
    outcome?;
    Ok(())
}

/// By kind, as it is written in manifests.
fn chosen(kinds: &[String]) -> Result<Controllers<Context>> {
    let find = |kind: &String| {
        let found = CONTROLLERS.iter().find(|one| one.kind.eq_ignore_ascii_case(kind.trim()));
        found.with_context(|| {
            let all: Vec<&str> = CONTROLLERS.iter().map(|one| one.kind).collect();
            format!("--controllers: there is no controller for {kind}; there are {}", all.join(", "))
        })
    };
    if kinds.is_empty() { Ok(hangar_controllers::all()) } else { kinds.iter().map(find).collect() }
}

async fn config(options: &Run) -> Result<Config> {
    let Some(file) = &options.kubeconfig else { return management::config_of_pod() };
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    management::config(&text).await.with_context(|| format!("--kubeconfig {}", file.display()))
}

fn candidate(election: &Election, config: &Config) -> Result<Option<Candidate>> {
    let terms = Terms {
        duration: election.leader_elect_lease_duration,
        renew_within: election.leader_elect_renew_deadline,
        retry: election.leader_elect_retry_period,
    };
    if let Err(why) = terms.check() {
        bail!("--leader-elect-*: {why}");
    }
    if !election.leader_elect {
        return Ok(None);
    }
    let namespace = election.leader_elect_resource_namespace.clone().unwrap_or_else(|| namespace_of_pod(config));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(Some(Candidate {
        client: Client::try_from(config.clone())?,
        namespace,
        name: LEASE.to_owned(),
        identity: format!("{host}_{}", Uuid::new_v4()),
        terms,
        clock: system_clock(),
        metrics: None,
    }))
}

/// A kubeconfig's own default is for people, and a service account is always in its namespace.
fn namespace_of_pod(config: &Config) -> String {
    if config.auth_info.token_file.is_some() { config.default_namespace.clone() } else { NAMESPACE.to_owned() }
}

/// Credentials of tenants must not lead to the API of the management cluster.
fn hosts(config: &Config, allowed: &[String]) -> HostPolicy {
    let api_server = config.cluster_url.host().unwrap_or_default().to_owned();
    HostPolicy::shared(&[api_server, "kubernetes.default.svc".to_owned(), "*.cluster.local".to_owned()], allowed)
}

/// Whoever waits for the Lease is ready, too: it answers the webhook's calls.
fn monitored(client: Client, context: Arc<Context>, leads: Arc<AtomicBool>) -> Monitored {
    let is_ready = {
        let context = context.clone();
        Box::new(move || !leads.load(Ordering::Relaxed) || context.passes.metrics.is_ready())
    };
    Monitored { client, is_ready, metrics: Box::new(move || context.metrics()) }
}

async fn listen(options: &Run) -> Result<TcpListener> {
    let listener = TcpListener::bind(options.bind_address).await;
    let listener = listener.with_context(|| format!("--bind-address: could not listen on {}", options.bind_address))?;
    tracing::info!(address = %listener.local_addr()?, "serves the webhook, /healthz, /readyz and /metrics");
    Ok(listener)
}

/// The identity now, and later ones as their files change.
async fn identity(options: &Run) -> Result<watch::Receiver<WebhookIdentity>> {
    let Some(directory) = options.cert_dir.clone() else {
        tracing::warn!(
            "without --cert-dir no API server trusts the webhook of this process: it can only be used for health and metrics"
        );
        let own = WebhookIdentity::create(&SystemKeys, "hangar", jiff::Timestamp::now())?;
        return Ok(watch::channel(own).1);
    };
    let mut current = read(&directory).await.with_context(|| format!("--cert-dir {}", directory.display()))?;
    let (sender, receiver) = watch::channel(loaded(&current));
    tokio::spawn(async move {
        while !sender.is_closed() {
            tokio::time::sleep(LOOK_EVERY).await;
            match read(&directory).await {
                Ok(files) if files != current => {
                    current = files;
                    sender.send_replace(loaded(&current));
                    tracing::info!(directory = %directory.display(), "uses the new certificate");
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(error = %format!("{error:#}"), "the certificate was not read again"),
            }
        }
    });
    Ok(receiver)
}

/// Certificate, key and authority.
async fn read(directory: &Path) -> Result<[String; 3]> {
    let read = |name: &'static str| async move {
        let path = directory.join(name);
        tokio::fs::read_to_string(&path).await.with_context(|| format!("cannot read {}", path.display()))
    };
    Ok([read("tls.crt").await?, read("tls.key").await?, read("ca.crt").await?])
}

fn loaded([certificate_pem, key_pem, ca_pem]: &[String; 3]) -> WebhookIdentity {
    let server = CertifiedKey { certificate_pem: certificate_pem.clone(), key_pem: key_pem.clone() };
    WebhookIdentity { ca_pem: ca_pem.clone(), server }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_by_kind_and_a_wrong_one_names_all() {
        let kinds = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            chosen(&words).map(|all| all.iter().map(|one| one.kind).collect::<Vec<_>>())
        };
        assert_eq!(kinds(&[]).unwrap().len(), CONTROLLERS.len());
        assert_eq!(kinds(&["openstackmachine", " Machine"]).unwrap(), ["OpenStackMachine", "Machine"]);
        let refused = kinds(&["Machine", "Pod"]).unwrap_err().to_string();
        assert!(refused.starts_with("--controllers: there is no controller for Pod; there are "), "{refused}");
        assert!(refused.contains("OpenStackMachine"), "{refused}");
    }
}
