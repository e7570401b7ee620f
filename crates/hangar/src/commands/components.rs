//! `hangar components`, and the progress bars while they are fetched.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hangar_embedded::{Component, ETCD, KUBERNETES, Progress, Stage, Store};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::json;

use crate::cli::{Components, Global, Output};
use crate::commands::store;

const KUBERNETES_NAMES: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];

/// What the plane and the user of the quick start need.
pub fn of_plane() -> Vec<Component> {
    with_version(KUBERNETES)
}

fn with_version(kubernetes: &str) -> Vec<Component> {
    let names = KUBERNETES_NAMES.iter().map(|name| (*name, kubernetes));
    let all = std::iter::once(("etcd", ETCD)).chain(names);
    all.filter_map(|(name, version)| {
        Some(Component { name: name.to_owned(), version: version.trim_start_matches('v').parse().ok()? })
    })
    .collect()
}

pub async fn run(global: &Global, what: Components) -> Result<()> {
    let store = store(global);
    match what {
        Components::Fetch { kubernetes } => {
            let version = kubernetes.unwrap_or_else(|| KUBERNETES.to_owned());
            let wanted = with_version(&version);
            if wanted.len() <= 1 {
                anyhow::bail!("{version} is not a version such as {KUBERNETES}");
            }
            fetch(&store, &wanted).await?;
            list(&store, global.output);
        }
        Components::List => list(&store, global.output),
        Components::Path { name, version } => {
            let default = if name == "etcd" { ETCD } else { KUBERNETES };
            let version = version.unwrap_or_else(|| default.to_owned());
            let parsed =
                version.trim_start_matches('v').parse().with_context(|| format!("{version} is not a version"))?;
            let path = store.at_hand(&name, &parsed);
            let path = path
                .with_context(|| format!("{name} {version} is not at hand; get it with `hangar components fetch`"))?;
            anstream::println!("{}", path.display());
        }
    }
    Ok(())
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
    let rows: Vec<Vec<String>> = stored
        .iter()
        .map(|one| {
            vec![
                one.component.name.clone(),
                one.component.version.to_string(),
                format!("{} MB", one.bytes / 1_000_000),
                one.path.display().to_string(),
            ]
        })
        .collect();
    anstream::print!("{}", hangar_views::table(&["NAME", "VERSION", "SIZE", "PATH"], &rows));
}

/// Gets components, with a line for each that takes time.
pub async fn fetch(store: &Store, wanted: &[Component]) -> Result<()> {
    let bars = Bars::default();
    let fetched = store.fetch(wanted, &bars).await;
    bars.clear();
    fetched.context("the components could not be got")?;
    Ok(())
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
        let name = component.to_string();
        match stage {
            Stage::Found(_) => {}
            Stage::Downloading { done, total } => {
                let total = total.map_or(String::new(), |total| format!(" of {} MB", total / 1_000_000));
                self.line(&name, format!("{name}: downloading {} MB{total}", done / 1_000_000));
            }
            Stage::DownloadFailed { reason } => {
                self.line(&name, format!("{name}: no download ({reason}), it will be built"))
            }
            Stage::Building { .. } => {
                self.line(
                    &name,
                    format!(
                        "{name}: building from Go modules; all of them together take 5 to 10 minutes on two cores, once"
                    ),
                );
            }
            Stage::Waiting { holder } => {
                self.line(&name, format!("{name}: waiting for another hangar ({holder}) that builds"))
            }
            Stage::Done { seconds } => {
                self.line(&name, format!("{name}: done after {seconds:.0} s"));
                if let Some(bar) = self.by_name.lock().ok().and_then(|bars| bars.get(&name).cloned()) {
                    bar.finish();
                }
            }
        }
    }
}
