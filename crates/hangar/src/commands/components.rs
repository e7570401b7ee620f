//! `hangar components`, and the progress bars while they are fetched.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hangar_embedded::{Component, NAMES, Progress, Stage, Store, default_version};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use semver::Version;
use serde_json::json;

use crate::cli::{Components, Global, Output, PlaneGuests};
use crate::commands::{store, up};
use crate::daemon::{OF_MACHINES, OF_TENANTS};

const KUBERNETES_NAMES: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// What a plane of this version and its user need; kubectl is always ours.
fn of_plane(kubernetes: &Version) -> Vec<Component> {
    let of_plane = KUBERNETES_NAMES.iter().map(|name| (*name, kubernetes.clone()));
    let own = ["etcd", "kubectl"].map(|name| (name, default_version(name)));
    let all = own.into_iter().chain(of_plane);
    all.map(|(name, version)| Component { name: name.to_owned(), version }).collect()
}

pub async fn run(global: &Global, what: Components) -> Result<()> {
    let store = store(global)?;
    match what {
        Components::Fetch { names, kubernetes } => {
            fetch(&store, &requested(&names, kubernetes.as_deref())?).await?;
            list(&store, global.output);
        }
        Components::List => list(&store, global.output),
        Components::Path { name, version } => {
            let component = component(&name, version.as_deref())?;
            let path = store.installed(&name, &component.version).with_context(|| {
                format!("{component} is not installed: run `hangar components fetch {name}@{}`", component.version)
            })?;
            anstream::println!("{}", path.display());
        }
        Components::Verify => verify(&store, global.output)?,
        Components::Prune { all } => {
            let going = if all { store.list() } else { store.not_default() };
            for stored in &going {
                store.remove(&stored.component)?;
            }
            let bytes: u64 = going.iter().map(|stored| stored.bytes).sum();
            report(global.output, "removed", going.into_iter().map(|stored| stored.component).collect());
            if global.output == Output::Text {
                anstream::println!("{} MB freed", bytes / 1_000_000);
            }
        }
        Components::Bundle { file } => report(global.output, "bundled", store.bundle(&file)?),
        Components::Load { file } => report(global.output, "loaded", store.load(&file).await?),
    }
    Ok(())
}

/// What was named, or what the plane needs.
fn requested(names: &[String], kubernetes: Option<&str>) -> Result<Vec<Component>> {
    if names.is_empty() {
        return Ok(of_plane(&component("kube-apiserver", kubernetes)?.version));
    }
    let split = |text: &String| match text.split_once('@') {
        Some((name, version)) => component(name, Some(version)),
        None => component(text, kubernetes.filter(|_| default_version(text) == default_version("kubectl"))),
    };
    names.iter().map(split).collect()
}

fn component(name: &str, version: Option<&str>) -> Result<Component> {
    anyhow::ensure!(NAMES.contains(&name), "unknown component {name}; available: {}", NAMES.join(", "));
    let version = up::version(version)?.unwrap_or_else(|| default_version(name));
    Ok(Component { name: name.to_owned(), version })
}

fn verify(store: &Store, output: Output) -> Result<()> {
    let damaged = store.verify();
    if output == Output::Json {
        let items = damaged.iter().map(|damage| json!({ "name": damage.component.name, "version": damage.component.version.to_string(), "path": damage.path, "expected": damage.expected, "found": damage.found }));
        anstream::println!("{:#}", json!(items.collect::<Vec<_>>()));
    }
    for damage in &damaged {
        anstream::eprintln!("{} is damaged: {}", damage.component, damage.path.display());
    }
    let names = damaged.iter().map(|damage| format!("{}@{}", damage.component.name, damage.component.version));
    let names = names.collect::<Vec<_>>().join(" ");
    anyhow::ensure!(
        damaged.is_empty(),
        "damaged components: remove their directories and run `hangar components fetch {names}`"
    );
    if output == Output::Text {
        anstream::println!("{} components are intact", store.list().len());
    }
    Ok(())
}

fn report(output: Output, what: &str, components: Vec<Component>) {
    if output == Output::Json {
        let items: Vec<_> = components
            .iter()
            .map(|component| json!({ "name": component.name, "version": component.version.to_string() }))
            .collect();
        anstream::println!("{:#}", json!(items));
        return;
    }
    for component in components {
        anstream::println!("{what} {component}");
    }
}

fn list(store: &Store, output: Output) {
    let stored = store.list();
    if output == Output::Json {
        let items: Vec<_> = stored
            .iter()
            .map(|one| json!({ "name": one.component.name, "version": one.component.version.to_string(), "bytes": one.bytes, "path": one.path }))
            .collect();
        anstream::println!("{:#}", json!(items));
        return;
    }
    let row = |name: &str, version: &str, bytes: u64, path: String| {
        vec![name.to_owned(), version.to_owned(), format!("{} MB", bytes / 1_000_000), path]
    };
    let mut rows: Vec<Vec<String>> = stored
        .iter()
        .map(|one| {
            row(&one.component.name, &one.component.version.to_string(), one.bytes, one.path.display().to_string())
        })
        .collect();
    rows.push(row("together", "", stored.iter().map(|one| one.bytes).sum(), String::new()));
    anstream::print!("{}", hangar_views::table(&["NAME", "VERSION", "SIZE", "PATH"], &rows));
}

/// Gets what a plane needs, and its machines if there must be some; with `auto` there are some if these are at hand.
pub async fn fetch_plane(store: &Store, kubernetes: &Version, guests: PlaneGuests) -> Result<()> {
    let mut wanted = of_plane(kubernetes);
    if guests == PlaneGuests::Machine {
        let of_guests = OF_MACHINES.into_iter().chain(OF_TENANTS);
        let of_guests = of_guests.map(|name| Component { name: name.to_owned(), version: default_version(name) });
        wanted.extend(of_guests.filter(|one| !wanted.contains(one)).collect::<Vec<_>>());
    }
    store.check_named_has(&wanted)?;
    fetch(store, &wanted).await?;
    Ok(())
}

/// Gets kubectl, and says where it is.
pub async fn fetch_kubectl(store: &Store) -> Result<PathBuf> {
    let wanted = [component("kubectl", None)?];
    store.check_named_has(&wanted)?;
    let paths = fetch(store, &wanted).await?;
    paths.into_iter().next().context("kubectl is not installed: run `hangar components fetch kubectl`")
}

/// Gets components, with a line for each that takes time.
async fn fetch(store: &Store, wanted: &[Component]) -> Result<Vec<PathBuf>> {
    let bars = Bars::default();
    let fetched = store.fetch(wanted, &bars).await;
    bars.clear();
    fetched.context("could not install the components")
}

#[derive(Default)]
struct Bars {
    all: MultiProgress,
    by_name: Mutex<BTreeMap<String, ProgressBar>>,
}

impl Bars {
    fn clear(&self) {
        drop(self.all.clear());
    }

    fn line(&self, name: &str, text: String) {
        let Ok(mut bars) = self.by_name.lock() else { return };
        let bar = bars.entry(name.to_owned()).or_insert_with(|| {
            let bar = self.all.add(ProgressBar::new_spinner());
            bar.set_style(
                ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            );
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        if bar.is_hidden() && bar.message() != text {
            // No terminal: each news is a line.
            anstream::eprintln!("{text}");
        }
        bar.set_message(text);
    }
}

impl Progress for Bars {
    fn stage(&self, component: &Component, stage: Stage) {
        if matches!(stage, Stage::Found(_)) {
            return;
        }
        let name = component.to_string();
        self.line(&name, format!("{name}: {stage}"));
        if matches!(stage, Stage::Done { .. })
            && let Some(bar) = self.by_name.lock().ok().and_then(|bars| bars.get(&name).cloned())
        {
            bar.finish();
        }
    }
}
