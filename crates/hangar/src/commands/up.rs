//! `hangar up`: components, background process, manifest, live tree.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum as _;
use hangar_api::{Object, kinds};
use hangar_embedded::Home;
use kube::Client;
use semver::Version;

use super::background;
use super::live_tree::watch;
use super::outcome::{self, ClusterOutcome, Outcome};
use crate::apply::{self, MissingNamespace};
use crate::cli::{Global, Output, PlaneGuests, When};
use crate::commands::{components, home, store};
use crate::management;
use crate::manifest::Manifest;

/// What was typed.
pub struct UpOptions {
    pub file: Option<PathBuf>,
    pub timeout: Duration,
    pub no_wait: bool,
    pub kubernetes: Option<Version>,
    pub substitute: Option<When>,
    pub guests: PlaneGuests,
    pub gateway_api: bool,
}

/// A version as people write it.
pub fn version(text: Option<&str>) -> Result<Option<Version>> {
    let parse = |text: &str| {
        let parsed = text.trim_start_matches('v').parse();
        parsed.with_context(|| format!("{text} is not a version such as {}", hangar_embedded::KUBERNETES))
    };
    text.map(parse).transpose()
}

fn read(file: &Path, substitute: Option<When>) -> Result<Manifest> {
    let meant = substitute.and_then(|_| When::from_str(file.to_str()?, false).ok()).filter(|_| !file.exists());
    if let Some(when) = meant {
        bail!("there is no file {0}; to set the option, write --substitute-versions={0}", when.word());
    }
    Manifest::read(file)
}

pub async fn run(global: &Global, options: &UpOptions) -> Result<ExitCode> {
    // A manifest that cannot be read is said before anything is started; the cloud's address is not known yet.
    let manifest = options.file.as_deref().map(|file| read(file, options.substitute)).transpose()?;
    if let Some(manifest) = &manifest {
        manifest.objects(&|name| std::env::var(name).ok().or_else(|| (name == CLOUD_VARIABLE).then(String::new)))?;
    }
    let home = home(global)?;
    let began = Instant::now();
    let version = hangar_embedded::choose_version(&home, options.kubernetes.as_ref())?;
    components::fetch_plane(&store(global)?, &version, options.guests).await?;
    let got = began.elapsed();
    let state = background::start(global, &home, options).await?;
    if options.kubernetes.as_ref().is_some_and(|asked| state.kubernetes != asked.to_string()) {
        bail!(
            "the plane is already running Kubernetes {}; run `hangar down`, then `hangar up --kubernetes {version}`",
            state.kubernetes
        );
    }
    if let Some(when) = options.substitute.filter(|when| state.substitution != when.word()) {
        bail!(
            "the plane is already running with --substitute-versions={}; run `hangar down`, then `hangar up --substitute-versions={}`",
            state.substitution,
            when.word()
        );
    }
    let started = began.elapsed();
    let client = management::client_for(&home).await?;
    if options.gateway_api {
        apply::gateway_api(&client).await?;
    }
    let mut clusters = vec![];
    if let Some(manifest) = manifest {
        let objects = manifest.objects(&variables(&home))?;
        let applied = apply::apply(&client, &objects, &global.namespace, MissingNamespace::Create).await?;
        if global.output == Output::Text {
            applied.namespaces.iter().for_each(|name| anstream::println!("created namespace {name}"));
            anstream::println!("applied {} objects of {}", applied.objects.len(), manifest.name);
        }
        clusters = wait_for_clusters(&client, &home, applied.objects, global.output, options).await?;
    }
    let (rest, plane, waited) = (began.elapsed() - started, started - got, !options.no_wait);
    let outcome = Outcome { home: &home, state: &state, clusters, waited, components: got, plane, rest };
    match global.output {
        Output::Json => anstream::println!("{:#}", outcome.json()),
        _ => outcome.print(),
    }
    Ok(if outcome.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The clusters among what was applied, ready if somebody wants to wait for it.
async fn wait_for_clusters(
    client: &Client,
    home: &Home,
    applied: Vec<Object>,
    output: Output,
    options: &UpOptions,
) -> Result<Vec<ClusterOutcome>> {
    let mut clusters = vec![];
    // k0smotron has a kind of this name, too.
    for cluster in applied.into_iter().filter(Object::is::<kinds::Cluster>) {
        let why = if options.no_wait { vec![] } else { watch(client, home, &cluster, output, options.timeout).await? };
        clusters.push(ClusterOutcome { notes: outcome::notes(client, &cluster).await?, why, cluster });
    }
    Ok(clusters)
}

const CLOUD_VARIABLE: &str = "OPENSTACK_CLOUD_YAML_B64";

/// The environment, and the simulated cloud's credentials where the environment says nothing.
pub fn variables(home: &Home) -> impl Fn(&str) -> Option<String> + use<> {
    use base64::Engine as _;
    let clouds = std::fs::read(home.path().join("clouds.yaml")).ok();
    let clouds = clouds.map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes));
    move |name| std::env::var(name).ok().or_else(|| clouds.clone().filter(|_| name == CLOUD_VARIABLE))
}
