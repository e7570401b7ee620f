//! `cargo xtask conformance`: the Kubernetes e2e suite against a plane of its own.
//!
//! Flows: the suite, built from Go modules into the component store -> all conformance specs, by a dry run -> the rules say which apply -> those
//! are run against a plane in a home of its own -> a table, and the page docs/src/conformance.md. Holds: every spec is counted, either as run
//! or as not applicable with its reason; nothing is left out in silence.

mod report;
mod rules;
mod suite;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::run;
use suite::{Outcome, Suite};

#[derive(clap::Args)]
pub struct Options {
    /// Run only the specs whose name matches this regular expression; the page is not written then
    #[arg(long)]
    focus: Option<String>,
    /// Suites beside each other against the one plane
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Run only what did not pass in the last run, and keep the rest of its results
    #[arg(long)]
    again: bool,
    /// Only say what would be run and what would not
    #[arg(long)]
    list: bool,
}

/// A few specs: what CI can afford. Those with gRPC probes bind ports 5000 and 8080 of all addresses, which fails if the plane listens on one of them.
const SAMPLE: &str = r"\[sig-node\] (Downward API .*\[Conformance\]|Probing container .* GRPC liveness probe)";

pub fn sample(root: &Path) -> Result<()> {
    let focus = SAMPLE.to_owned();
    run(root, &Options { focus: Some(focus), jobs: 1, again: false, list: false })
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    run::to_success(run::cargo(root, &["build", "--quiet", "--package", "hangar"]))?;
    let hangar = Hangar { program: root.join("target/debug/hangar"), home: root.join("target/conformance/home") };
    run::to_success(hangar.command(&["components", "fetch", "e2e", "agnhost"]))?;
    let program = hangar.output(&["components", "path", "e2e"])?;
    let work = root.join("target/conformance");
    std::fs::create_dir_all(&work)?;
    let suite = Suite { program: program.trim().into(), work, kubeconfig: hangar.home.join("kubeconfig") };
    let chosen = rules::choose(suite.specs(options.focus.as_deref())?);
    if chosen.run.is_empty() && chosen.not.is_empty() {
        bail!("no spec matches: name a part of a spec's name with --focus");
    }
    if options.list {
        print!("{}", report::list(&chosen));
        return Ok(());
    }
    run::to_success(hangar.command(&["up"])).context("the plane did not start")?;
    let began = Instant::now();
    let mut results: Vec<Outcome> = if options.again { suite.kept() } else { vec![] };
    results.retain(|one| one.passed() && chosen.run.contains(&one.name));
    let known: Vec<&str> = results.iter().map(|one| one.name.as_str()).collect();
    let rest: Vec<String> = chosen.run.iter().filter(|name| !known.contains(&name.as_str())).cloned().collect();
    let found = suite.run(&rest, options.jobs);
    let down = run::to_success(hangar.command(&["down", "--purge"]));
    results.extend(found?);
    results.sort_by(|a, b| a.name.cmp(&b.name));
    suite.keep(&results)?;
    print!("{}", report::table(&chosen, &results));
    println!("{} specs in {:.0} s", results.len(), began.elapsed().as_secs_f64());
    if options.focus.is_none() {
        std::fs::write(root.join("docs/src/conformance.md"), report::page(&chosen, &results))?;
    }
    down?;
    let failed = results.iter().filter(|result| !result.passed() && !result.skipped()).count();
    if failed > 0 {
        bail!("{failed} specs failed; what they said is in {}", suite.work.display());
    }
    Ok(())
}

/// The program that was just built, with a home of its own.
struct Hangar {
    program: PathBuf,
    home: PathBuf,
}

impl Hangar {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("HANGAR_HOME", &self.home).env_remove("KUBECONFIG");
        command
    }

    fn output(&self, arguments: &[&str]) -> Result<String> {
        run::output(self.command(arguments))
    }
}
