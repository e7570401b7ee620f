//! `cargo xtask simulate --planted`: bugs of the kind that others had are planted one by one into a copy of the tree, and the simulation has to find each.
//!
//! Flows: `crates/simulation/planted.json` -> a copy of the tree with one bug -> histories from seeds 0, 1, 2, ... until a law is broken -> a table with the number of seeds. Holds: the tree
//! itself is never touched; a bug whose place is not in the sources any more is an error of lint, so that the list does not rot.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::run;

const LIST: &str = "crates/simulation/planted.json";
const PAGE: &str = "docs/src/simulation.md";
const BEGIN: &str = "<!-- planted -->\n";
/// What the test prints of the first failure.
const FOUND: &str = "broken by seed ";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    name: String,
    /// What it is like.
    upstream: String,
    file: PathBuf,
    find: String,
    replace: String,
}

/// What became of one.
struct Outcome {
    name: String,
    upstream: String,
    /// Seeds that it took and how it was noticed.
    found: Option<(u64, String)>,
}

/// Bugs that cannot be planted any more.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let mut violations = vec![];
    for bug in bugs(root)? {
        let count = std::fs::read_to_string(root.join(&bug.file)).unwrap_or_default().matches(&bug.find).count();
        if count != 1 {
            let (name, file) = (&bug.name, bug.file.display());
            violations.push(format!("{LIST}: \"{name}\": its text is {count} times in {file}, it must be there once"));
        }
    }
    Ok(violations)
}

fn bugs(root: &Path) -> Result<Vec<Bug>> {
    let text = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    serde_json::from_str(&text).context(LIST)
}

/// All of them, or those whose name contains the filter; the table is written down only if nothing was left out.
pub fn run(root: &Path, filter: &str, seeds: u64, clusters: u64) -> Result<()> {
    let rotten = violations(root)?;
    ensure!(rotten.is_empty(), "{}", rotten.join("\n"));
    let tree = copy(root)?;
    let mut outcomes = vec![];
    for bug in bugs(root)?.into_iter().filter(|bug| bug.name.contains(filter)) {
        let path = tree.join(&bug.file);
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, text.replace(&bug.find, &bug.replace))?;
        let found = find(root, &tree, seeds, clusters).with_context(|| bug.name.clone());
        std::fs::write(&path, text)?;
        let outcome = Outcome { name: bug.name, upstream: bug.upstream, found: found? };
        println!("{}", row(&outcome));
        outcomes.push(outcome);
    }
    if filter.is_empty() {
        record(root, &outcomes, seeds, clusters)?;
    }
    let missed = outcomes.iter().filter(|outcome| outcome.found.is_none()).count();
    ensure!(missed == 0, "{missed} of {} bugs were not found by {seeds} seeds", outcomes.len());
    Ok(())
}

/// Of what git knows and of what is new; what has not changed keeps its time, so that it is not compiled again.
fn copy(root: &Path) -> Result<PathBuf> {
    let tree = root.join("target/planted/tree");
    let mut command = std::process::Command::new("git");
    command.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(root);
    let listed = run::output(command)?;
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let Ok(bytes) = std::fs::read(root.join(name)) else { continue };
        let target = tree.join(name);
        if std::fs::read(&target).is_ok_and(|there| there == bytes) {
            continue;
        }
        std::fs::create_dir_all(target.parent().context("a file without a directory")?)?;
        std::fs::write(&target, bytes).with_context(|| target.display().to_string())?;
    }
    Ok(tree)
}

fn find(root: &Path, tree: &Path, seeds: u64, clusters: u64) -> Result<Option<(u64, String)>> {
    let test = "whatever_people_do_and_whatever_fails_no_law_is_broken";
    let arguments =
        ["test", "--quiet", "--package", "hangar-simulation", "--test", "people", test, "--", "--nocapture"];
    let mut command = run::cargo(tree, &arguments);
    command.env("CARGO_TARGET_DIR", root.join("target/planted/target")).env("RUSTFLAGS", "-Awarnings");
    command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0").env("RUST_BACKTRACE", "0");
    command.env("HANGAR_SEEDS", seeds.to_string()).env("HANGAR_CLUSTERS", clusters.to_string());
    command.env("HANGAR_UNTIL_BROKEN", "1");
    let output = command.output().with_context(|| run::display(&command))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = text.lines().find_map(|line| line.strip_prefix(FOUND)) {
        let (seed, words) = line.split_once(": ").context("the test did not say how it failed")?;
        return Ok(Some((seed.parse::<u64>()? + 1, words.to_owned())));
    }
    if !output.status.success() {
        bail!("it does not compile or failed in another way:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(None)
}

fn row(outcome: &Outcome) -> String {
    let (seeds, words) = match &outcome.found {
        Some((seeds, words)) => (seeds.to_string(), words.replace('|', "\\|")),
        None => ("not found".to_owned(), String::new()),
    };
    format!("| {} | {} | {seeds} | {words} |", outcome.name, outcome.upstream)
}

fn record(root: &Path, outcomes: &[Outcome], seeds: u64, clusters: u64) -> Result<()> {
    let path = root.join(PAGE);
    let text = std::fs::read_to_string(&path).context(PAGE)?;
    let (before, rest) = text.split_once(BEGIN).with_context(|| format!("{PAGE} has no line {}", BEGIN.trim()))?;
    let after = rest.split_once(BEGIN).with_context(|| format!("{PAGE} has only one line {}", BEGIN.trim()))?.1;
    let found = outcomes.iter().filter(|outcome| outcome.found.is_some()).count();
    let mut table = format!(
        "{found} of {} bugs found, by at most {seeds} seeds with {clusters} clusters each.\n\n\
         | Planted | What others had | Seeds | How it was noticed |\n|---|---|---|---|\n",
        outcomes.len()
    );
    outcomes.iter().try_for_each(|outcome| writeln!(table, "{}", row(outcome)))?;
    std::fs::write(path, format!("{before}{BEGIN}{table}{BEGIN}{after}"))?;
    Ok(())
}
