//! One function for each command.

mod background;
mod components;
mod crds;
mod describe;
mod down;
mod kubectl;
mod live_tree;
mod outcome;
mod run;
mod simulator;
mod status;
mod up;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::Result;
use hangar_embedded::{Home, Store, StoreOptions, Substitution};

use crate::apply::{self, MissingNamespace};
use crate::cli::{Cli, Command, Described, Global, Got, LogFormat, Output, Substitute, When};
use crate::manifest::Manifest;
use crate::{daemon, management};

pub async fn run(cli: Cli) -> Result<ExitCode> {
    let global = cli.global;
    if global.output == Output::Yaml && !matches!(cli.command, Command::Crds(_)) {
        anyhow::bail!("only `hangar crds` prints YAML: use --output text or json");
    }
    match cli.command {
        Command::Daemon { kubernetes, substitute, guests } => {
            let home = home(&global)?;
            log_to_stderr(LogFormat::Text, Some(daemon::log_path(&home)));
            daemon::detach();
            let kubernetes = up::version(kubernetes.as_deref())?;
            let options = daemon::DaemonOptions { kubernetes, gateway_api: false, guests };
            daemon::run(home, plane_store(&global, substitute)?, options).await?;
        }
        Command::Up { foreground: true, kubernetes, substitute, guests, gateway_api, log_format, .. } => {
            let (home, store) = (home(&global)?, plane_store(&global, substitute)?);
            let asked = up::version(kubernetes.as_deref())?;
            let version = hangar_embedded::choose_version(&home, asked.as_ref())?;
            components::fetch_plane(&store, &version, guests).await?;
            log_to_stderr(log_format, None);
            daemon::run(home, store, daemon::DaemonOptions { kubernetes: asked, gateway_api, guests }).await?;
        }
        Command::Run(options) => {
            log_to_stderr(options.log_format, None);
            run::run(options).await?;
        }
        Command::Up { file, timeout, no_wait, kubernetes, substitute, guests, gateway_api, .. } => {
            let kubernetes = up::version(kubernetes.as_deref())?;
            let options =
                up::UpOptions { file, timeout, no_wait, kubernetes, substitute: substitute.when, guests, gateway_api };
            return up::run(&global, &options).await;
        }
        Command::Down { purge } => down::run(&home(&global)?, purge).await?,
        Command::Status => status::run(&global, &home(&global)?).await?,
        Command::Apply { filename } => {
            let home = home(&global)?;
            let objects = Manifest::read(&filename)?.objects(&up::variables(&home))?;
            let client = management::client_for(&home).await?;
            let applied = apply::apply(&client, &objects, &global.namespace, MissingNamespace::Refuse).await?.objects;
            match global.output {
                Output::Json => {
                    let items: Vec<_> = applied.into_iter().map(|object| object.0).collect();
                    anstream::println!("{:#}", serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items}));
                }
                _ => applied.iter().for_each(|object| anstream::println!("{} applied", object.key())),
            }
        }
        Command::Kubectl { cluster, arguments } => return kubectl::run(&global, cluster.as_deref(), &arguments).await,
        Command::Describe { what: Described::Cluster { name } } => return describe::run(&global, &name).await,
        Command::Get { what: Got::Kubeconfig { name } } => {
            let client = management::client_for(&home(&global)?).await?;
            anstream::print!("{}", kubectl::kubeconfig(&client, &global.namespace, &name).await?);
        }
        Command::Crds(wanted) => crds::run(&wanted, global.output)?,
        Command::Components { what } => components::run(&global, what).await?,
        Command::Simulator { what } => simulator::run(&global, what).await?,
    }
    Ok(ExitCode::SUCCESS)
}

pub fn home(global: &Global) -> Result<Home> {
    Ok(Home::open(global.home.clone().unwrap_or_else(Home::default_path))?)
}

pub fn store(global: &Global) -> Result<Store> {
    plane_store(global, Substitute { when: None })
}

/// The store of a plane, which also knows what is to run in the place of versions that are not at hand.
fn plane_store(global: &Global, substitute: Substitute) -> Result<Store> {
    let substitution = match substitute.when {
        Some(When::Never) => Substitution::Never,
        Some(When::Always) => Substitution::Always,
        Some(When::Auto) | None => Substitution::Auto,
    };
    let store = Store::new(StoreOptions {
        named: global.components.clone(),
        mirror: global.mirror.clone(),
        insecure_mirror: global.insecure_mirror,
        substitution,
        ..StoreOptions::default()
    });
    store.check_sources()?;
    Ok(store)
}

/// To standard error; the background process has a file there, which is kept small.
fn log_to_stderr(format: LogFormat, file: Option<PathBuf>) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("HANGAR_LOG")
        .unwrap_or_else(|_| "info,kube_client=off,kube_runtime=off".into());
    // On a full disk the log cannot be written; complaining about that in the same place would end the process.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).log_internal_errors(false);
    match (format, file) {
        (LogFormat::Text, Some(file)) => log.with_writer(Mutex::new(daemon::LogFile::new(file))).init(),
        (LogFormat::Text, None) => log.with_writer(std::io::stderr).init(),
        (LogFormat::Json, _) => log.json().flatten_event(true).with_writer(std::io::stderr).init(),
    }
}
