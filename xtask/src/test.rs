//! `cargo xtask test`: what CI runs, in order, with the time of each stage.
//!
//! Holds: the counts at the end are the sums of cargo's own lines, and a failing test fails the command.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{conformance, lint, run};

#[derive(clap::Args)]
pub struct Options {
    /// Run only the tests whose name contains this
    filter: Option<String>,
    /// Leave out the lints
    #[arg(long)]
    no_lint: bool,
    /// Unit tests only: nothing is fetched, no component is started
    #[arg(long)]
    quick: bool,
}

/// Lint, fetch the components, run the tests; stops at the first stage that fails.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    if !options.no_lint {
        stage("lint", || lint::run(root))?;
    }
    if !options.quick {
        stage("components", || fetch(root))?;
    }
    stage("tests", || tests(root, options))?;
    if options.quick || options.filter.is_some() {
        return Ok(());
    }
    stage("conformance, a sample", || conformance::sample(root))
}

const FETCH: [&str; 7] = ["run", "--quiet", "--package", "hangar", "--", "components", "fetch"];

fn stage(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("== {name}");
    let start = Instant::now();
    let result = work();
    let end = if result.is_ok() { "done" } else { "failed" };
    println!("== {name} {end} in {:.1} s\n", start.elapsed().as_secs_f64());
    result
}

/// Puts every component that the tests start into the local store; nothing is fetched twice.
pub fn fetch(root: &Path) -> Result<()> {
    run::to_success(run::cargo(root, &FETCH))?;
    const MORE: [&str; 8] =
        ["konnectivity-server", "konnectivity-agent", "kubelet", "kubeadm", "kube-proxy", "coredns", "e2e", "agnhost"];
    MORE.iter().try_for_each(|name| fetch_one(root, name))
}

pub fn fetch_one(root: &Path, name: &str) -> Result<()> {
    run::to_success(run::cargo(root, &[&FETCH[..], &[name]].concat()))
}

fn tests(root: &Path, options: &Options) -> Result<()> {
    let mut arguments = vec!["test", "--workspace", "--no-fail-fast"];
    if options.quick {
        arguments.extend(["--lib", "--bins"]);
    }
    if let Some(filter) = &options.filter {
        arguments.extend(["--", filter]);
    }
    let mut command = run::cargo(root, &arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| run::display(&command))?;
    let (mut results, mut passed, mut failed) = (0, 0, 0);
    for line in BufReader::new(child.stdout.take().context("cargo has no output")?).lines() {
        let line = line?;
        println!("{line}");
        if let Some(counts) = counts(&line) {
            results += 1;
            passed += counts.0;
            failed += counts.1;
        }
    }
    let status = child.wait()?;
    // Without a result nothing was run, and zero failures would be a boast.
    if results > 0 {
        println!("{passed} passed, {failed} failed");
    }
    if !status.success() {
        bail!("{} failed ({status})", run::display(&command));
    }
    Ok(())
}

/// The numbers in `test result: ok. 5 passed; 0 failed; ...`.
fn counts(line: &str) -> Option<(u64, u64)> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |label: &str| -> Option<u64> {
        let part = numbers.split(';').find_map(|part| part.trim().strip_suffix(label))?;
        part.trim().parse().ok()
    };
    Some((number("passed")?, number("failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_cargos_lines_only() {
        let rest = "0 ignored; 0 measured; 0 filtered out; finished in 0.00s";
        let table = [
            (format!("test result: ok. 16 passed; 0 failed; {rest}"), Some((16, 0))),
            (format!("test result: FAILED. 15 passed; 1 failed; {rest}"), Some((15, 1))),
            ("test a::b ... ok".to_owned(), None),
            ("16 passed; 0 failed".to_owned(), None),
        ];
        for (line, expected) in table {
            assert_eq!(counts(&line), expected, "{line}");
        }
    }
}
