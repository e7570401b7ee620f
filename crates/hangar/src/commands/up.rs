//! `hangar up`: components, background process, manifest, live tree.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use hangar_api::{Kind as _, Object, kinds};
use hangar_embedded::Home;
use indicatif::{ProgressBar, ProgressStyle};
use kube::Client;
use semver::Version;

use crate::cli::{Global, When};
use crate::commands::{components, home, store};
use crate::daemon::{DaemonState, log_path, state_path};
use crate::{health, management};

const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Longer than the longest pause between two starts of a process.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
const REDRAW: Duration = Duration::from_millis(400);

/// What was typed.
pub struct Wish {
    pub file: Option<PathBuf>,
    pub timeout: u64,
    pub no_wait: bool,
    pub kubernetes: Option<Version>,
    pub substitute: Option<When>,
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

pub async fn run(global: &Global, wish: &Wish) -> Result<ExitCode> {
    let (file, no_wait) = (wish.file.as_deref(), wish.no_wait);
    // A manifest that cannot be read is said before anything is started; the cloud's address is not known yet.
    if let Some(file) = file {
        management::manifest(file, &|name| {
            std::env::var(name).ok().or_else(|| (name == CLOUD_VARIABLE).then(String::new))
        })?;
    }
    let home = home(global)?;
    let began = Instant::now();
    let version = hangar_embedded::choose_version(&home, wish.kubernetes.as_ref())?;
    components::fetch(&store(global), &components::of_plane(&version)).await?;
    let got = began.elapsed();
    let state = start(global, &home, wish).await?;
    if wish.kubernetes.as_ref().is_some_and(|asked| state.kubernetes != asked.to_string()) {
        bail!(
            "the plane runs Kubernetes {} already; run `hangar down`, then `hangar up --kubernetes {version}`",
            state.kubernetes
        );
    }
    if let Some(when) = wish.substitute.filter(|when| state.substitution != when.word()) {
        bail!(
            "the plane runs with --substitute-versions={} already; run `hangar down`, then `hangar up --substitute-versions={}`",
            state.substitution,
            when.word()
        );
    }
    let started = began.elapsed();
    let client = management::of_home(&home).await?;
    if wish.gateway_api {
        management::gateway_api(&client).await?;
    }
    let mut clusters = vec![];
    if let Some(file) = file {
        let objects = management::manifest(file, &variables(&home))?;
        management::apply(&client, &objects, &global.namespace).await?;
        anstream::println!("applied {} objects of {}", objects.len(), file.display());
        clusters = objects.into_iter().filter(|object| object.kind() == kinds::Cluster::KIND).collect();
    }
    let mut ready = true;
    if !no_wait {
        for cluster in &clusters {
            ready &= watch(&client, cluster, &global.namespace, Duration::from_secs(wish.timeout)).await?;
        }
    }
    times(got, started - got, began.elapsed() - started, !clusters.is_empty());
    substitutions(&client, &clusters, &global.namespace).await?;
    reach(&home, &state, &clusters);
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const CLOUD_VARIABLE: &str = "OPENSTACK_CLOUD_YAML_B64";

/// The environment, and the simulated cloud's credentials where the environment says nothing.
pub fn variables(home: &Home) -> impl Fn(&str) -> Option<String> + use<> {
    use base64::Engine as _;
    let clouds = std::fs::read(home.path().join("clouds.yaml")).ok();
    let clouds = clouds.map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes));
    move |name| std::env::var(name).ok().or_else(|| clouds.clone().filter(|_| name == CLOUD_VARIABLE))
}

/// Starts the background process unless it runs, and waits until it is ready.
async fn start(global: &Global, home: &Home, wish: &Wish) -> Result<DaemonState> {
    let bar = spinner();
    bar.set_message("starting the management plane");
    let state = loop {
        let child = match home.lock() {
            Ok(lock) => {
                drop(lock);
                drop(std::fs::remove_file(state_path(home)));
                Some(spawn(global, home, wish)?)
            }
            Err(_) => None,
        };
        let is_new = child.is_some();
        let state = wait_until_ready(home, child, &bar).await;
        if is_new || state.is_err() {
            break state;
        }
        // One that was just being killed may have looked alive: its lock tells.
        tokio::time::sleep(LOOK_AGAIN).await;
        if home.lock().is_err() {
            break match until_it_answers(home, &bar).await {
                Ok(()) => state,
                Err(error) => Err(error),
            };
        }
    };
    bar.finish_and_clear();
    state
}

/// One that runs already may be in trouble: a process that ended is on its way back, or never will be.
async fn until_it_answers(home: &Home, bar: &ProgressBar) -> Result<()> {
    let deadline = Instant::now() + ANSWERS_WITHIN;
    loop {
        match health::check(home).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline || error.is::<hangar_embedded::room::NoRoom>() => {
                return Err(error);
            }
            Err(error) => bar.set_message(format!("waiting: {error:#}")),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn spawn(global: &Global, home: &Home, wish: &Wish) -> Result<std::process::Child> {
    use std::os::unix::process::CommandExt as _;
    let log = log_path(home);
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&log)?;
    let program = std::env::current_exe().context("cannot find the program itself")?;
    let mut command = std::process::Command::new(program);
    command.arg("daemon").arg("--home").arg(home.path());
    if let Some(version) = &wish.kubernetes {
        command.arg("--kubernetes").arg(version.to_string());
    }
    if let Some(when) = wish.substitute {
        command.arg(format!("--substitute-versions={}", when.word()));
    }
    if let Some(directory) = &global.components {
        command.arg("--components").arg(std::path::absolute(directory)?);
    }
    if let Some(mirror) = &global.mirror {
        command.arg("--mirror").arg(mirror);
    }
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
    command.spawn().context("the background process could not be started")
}

async fn wait_until_ready(
    home: &Home,
    mut child: Option<std::process::Child>,
    bar: &ProgressBar,
) -> Result<DaemonState> {
    loop {
        let state =
            std::fs::read(state_path(home)).ok().and_then(|bytes| serde_json::from_slice::<DaemonState>(&bytes).ok());
        match state {
            Some(DaemonState { error: Some(error), .. }) => {
                bail!("the management plane did not start: {error}\n  its log: {}", log_path(home).display())
            }
            Some(state) if state.ready => return Ok(state),
            Some(state) => bar.set_message(state.stage),
            None => {}
        }
        if child.is_none() && home.lock().is_ok() {
            return Ok(DaemonState::default());
        }
        if let Some(Ok(Some(status))) = child.as_mut().map(std::process::Child::try_wait) {
            let log = log_path(home);
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let last = text.lines().last().unwrap_or_default();
            bail!("the background process ended ({status}): {last}\n  its log: {}", log.display());
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Shows the tree until the cluster is ready; on a terminal in place, elsewhere whenever it changed.
async fn watch(client: &Client, cluster: &Object, namespace: &str, timeout: Duration) -> Result<bool> {
    let namespace = if cluster.namespace().is_empty() { namespace } else { cluster.namespace() };
    let (terminal, began) = (std::io::stdout().is_terminal(), Instant::now());
    let (mut drawn, mut last) = (0, String::new());
    loop {
        let snapshot = management::snapshot(client, namespace, cluster.name()).await?;
        let Some(snapshot) = snapshot else { bail!("Cluster {namespace}/{} is gone", cluster.name()) };
        let root = hangar_views::tree(&snapshot);
        let ready = hangar_views::is_ready(&root);
        let options = hangar_views::RenderOptions { color: terminal, width: super::describe::width() };
        if terminal {
            let text = hangar_views::render(&root, jiff::Timestamp::now(), &options);
            if drawn > 0 {
                print!("\x1b[{drawn}A\x1b[J");
            }
            print!("{text}");
            drop(std::io::Write::flush(&mut std::io::stdout()));
            drawn = text.lines().count();
        } else if ready || signature(&root) != last {
            last = signature(&root);
            anstream::println!("{}", hangar_views::render(&root, jiff::Timestamp::now(), &options));
        }
        if ready {
            return Ok(true);
        }
        if began.elapsed() > timeout {
            anstream::eprintln!("not ready after {} s:", timeout.as_secs());
            hangar_views::why(&root).iter().for_each(|line| anstream::eprintln!("  {line}"));
            return Ok(false);
        }
        tokio::time::sleep(REDRAW).await;
    }
}

/// What of a tree is worth showing again; time passing is not.
fn signature(root: &hangar_views::Row) -> String {
    let mut text = format!("{}{:?}{}{}", root.name, root.ready, root.reason, root.message);
    root.children.iter().for_each(|child| text.push_str(&signature(child)));
    text
}

fn times(components: Duration, plane: Duration, cluster: Duration, waited: bool) {
    let cluster = if waited { format!(", cluster {:.1} s", cluster.as_secs_f64()) } else { String::new() };
    anstream::println!(
        "\ncomponents {:.1} s, management plane {:.1} s{cluster}",
        components.as_secs_f64(),
        plane.as_secs_f64()
    );
}

/// Another version than the one asked for is said here too.
async fn substitutions(client: &Client, clusters: &[Object], namespace: &str) -> Result<()> {
    for cluster in clusters {
        let namespace = if cluster.namespace().is_empty() { namespace } else { cluster.namespace() };
        let Some(plane) =
            management::snapshot(client, namespace, cluster.name()).await?.and_then(|snapshot| snapshot.control_plane)
        else {
            continue;
        };
        let conditions = plane.get("/status/conditions").as_array().cloned().unwrap_or_default();
        for condition in
            conditions.iter().filter(|condition| condition["status"] == "False" && condition["message"] != "")
        {
            anstream::println!("note: {}: {}", plane.key(), condition["message"].as_str().unwrap_or_default());
            if condition["reason"] == "VersionSubstituted" {
                anstream::println!(
                    "      to wait for the version itself instead: hangar down, then hangar up --substitute-versions=never"
                );
            }
        }
    }
    Ok(())
}

fn reach(home: &Home, state: &DaemonState, clusters: &[Object]) {
    anstream::println!("\nmanagement plane   hangar kubectl -- get clusters");
    anstream::println!("                   export KUBECONFIG={}", home.kubeconfig().display());
    anstream::println!(
        "simulated cloud    {} (clouds.yaml: {})",
        state.cloud_url,
        home.path().join("clouds.yaml").display()
    );
    for cluster in clusters {
        anstream::println!("cluster            hangar kubectl --cluster {} -- get nodes", cluster.name());
    }
    anstream::println!("stop               hangar down");
}
