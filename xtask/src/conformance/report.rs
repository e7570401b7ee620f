//! What is printed, and the page of the documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::rules::{Chosen, Reason};
use super::suite::Outcome;

/// The part of a name that says what the spec is about: `[sig-node] Probing container`.
fn group(name: &str) -> String {
    let (sig, rest) = name.split_once("] ").unwrap_or(("", name));
    let words = rest.split_whitespace().take_while(|word| word.starts_with(char::is_uppercase));
    format!("{}] {}", sig, words.take(3).collect::<Vec<_>>().join(" "))
}

/// What is left of a name without its labels.
fn short(name: &str) -> String {
    let words = name.split(' ').filter(|word| !word.starts_with('[') || word.starts_with("[sig"));
    words.collect::<Vec<_>>().join(" ")
}

#[derive(Default)]
struct Count {
    run: usize,
    passed: usize,
    failed: usize,
    not: usize,
}

fn counted(chosen: &Chosen, results: &[Outcome]) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for result in results {
        let count = counts.entry(group(&result.name)).or_default();
        match (result.passed(), result.skipped()) {
            (_, true) => count.not += 1,
            (passed, _) => {
                count.run += 1;
                count.passed += usize::from(passed);
                count.failed += usize::from(!passed);
            }
        }
    }
    for (name, _) in &chosen.not {
        counts.entry(group(name)).or_default().not += 1;
    }
    counts
}

pub fn table(chosen: &Chosen, results: &[Outcome]) -> String {
    let mut text = format!("{:<52} {:>5} {:>7} {:>7} {:>15}\n", "", "run", "passed", "failed", "not applicable");
    let mut sum = Count::default();
    let line = |text: &mut String, name: &str, c: &Count| {
        let _ = writeln!(text, "{name:<52} {:>5} {:>7} {:>7} {:>15}", c.run, c.passed, c.failed, c.not);
    };
    for (name, count) in counted(chosen, results) {
        line(&mut text, &name, &count);
        (sum.run, sum.passed) = (sum.run + count.run, sum.passed + count.passed);
        (sum.failed, sum.not) = (sum.failed + count.failed, sum.not + count.not);
    }
    line(&mut text, "all", &sum);
    for (reason, names) in by_reason(chosen) {
        let _ = writeln!(text, "{:>5} not applicable: {}", names.len(), reason.text());
    }
    for skipped in results.iter().filter(|result| result.skipped()) {
        let _ =
            writeln!(text, "skipped by the suite itself: {}: {}", short(&skipped.name), first_line(&skipped.message));
    }
    for failed in results.iter().filter(|result| !result.passed() && !result.skipped()) {
        let _ = writeln!(text, "FAILED {}\n       {}", short(&failed.name), first_line(&failed.message));
    }
    text
}

pub fn list(chosen: &Chosen) -> String {
    let mut text = String::new();
    chosen.run.iter().for_each(|name| text.push_str(&format!("run  {name}\n")));
    chosen.not.iter().for_each(|(name, reason)| text.push_str(&format!("not  {name}: {}\n", reason.text())));
    text
}

fn by_reason(chosen: &Chosen) -> BTreeMap<Reason, Vec<&str>> {
    let mut reasons: BTreeMap<Reason, Vec<&str>> = BTreeMap::new();
    chosen.not.iter().for_each(|(name, reason)| reasons.entry(*reason).or_default().push(name));
    reasons
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().chars().take(160).collect()
}

pub fn page(chosen: &Chosen, results: &[Outcome]) -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str(
        "\n## The count\n\n| Specs about | run | passed | failed | not applicable |\n| --- | --- | --- | --- | --- |\n",
    );
    let mut all = Count::default();
    for (name, count) in counted(chosen, results) {
        let Count { run, passed, failed, not } = count;
        let _ = writeln!(text, "| {name} | {run} | {passed} | {failed} | {not} |");
        (all.run, all.passed) = (all.run + run, all.passed + passed);
        (all.failed, all.not) = (all.failed + failed, all.not + not);
    }
    let _ = writeln!(text, "| **all** | {} | {} | {} | {} |", all.run, all.passed, all.failed, all.not);
    section(&mut text, "Passed", results.iter().filter(|one| one.passed()).map(|one| short(&one.name)));
    let failed = results.iter().filter(|one| !one.passed() && !one.skipped());
    section(&mut text, "Failed", failed.map(|one| format!("{}: {}", short(&one.name), first_line(&one.message))));
    text.push_str("\n## Not applicable\n");
    for (reason, names) in by_reason(chosen) {
        let _ = write!(text, "\n### {}\n\n", sentence(reason.text()));
        names.iter().for_each(|name| text.push_str(&format!("- {}\n", short(name))));
    }
    let skipped: Vec<&Outcome> = results.iter().filter(|one| one.skipped()).collect();
    if !skipped.is_empty() {
        text.push_str("\n### The suite itself says so\n\n");
        skipped
            .iter()
            .for_each(|one| text.push_str(&format!("- {}: {}\n", short(&one.name), first_line(&one.message))));
    }
    text
}

const INTRODUCTION: &str = "# Conformance of the process node

The specs of the Kubernetes e2e suite that are marked as conformance of clusters or of nodes, run against a plane whose pods are processes
of one machine. This page is written by `cargo xtask conformance`, which builds the suite from Go modules (some minutes, once), starts a
plane in a separate home and runs every applicable spec. `--focus REGEX` runs a part, `--list` only lists the specs.
The rules for specs that are not applicable are in `xtask/src/conformance/rules.rs`.

The results may be those of several runs (`--again` runs what did not pass): pods share the machine's ports, so a spec fails while another one, or a pod of
the previous spec, still listens on its port.
";

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.map(|line| format!("- {line}\n")).collect();
    if !lines.is_empty() {
        let _ = write!(text, "\n## {title}\n\n{}", lines.concat());
    }
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_grouped_by_what_they_are_about() {
        let name = "[sig-node] Probing container should be restarted [NodeConformance] [Conformance]";
        assert_eq!(
            (group(name).as_str(), short(name).as_str()),
            ("[sig-node] Probing", "[sig-node] Probing container should be restarted")
        );
    }

    #[test]
    fn every_spec_is_counted_once() {
        let outcome = |name: &str, state: &str| Outcome {
            name: name.into(),
            state: state.into(),
            message: "m".into(),
            seconds: 1.0,
        };
        let results = [
            outcome("[sig-node] Pods a", "passed"),
            outcome("[sig-node] Pods b", "failed"),
            outcome("[sig-node] Pods c", "skipped"),
        ];
        let chosen = Chosen { run: vec![], not: vec![("[sig-apps] Job d".into(), Reason::Image)] };
        let text = table(&chosen, &results);
        let all: Vec<&str> = text.lines().find(|line| line.starts_with("all")).unwrap().split_whitespace().collect();
        assert_eq!(all, ["all", "2", "1", "1", "2"]);
        assert!(page(&chosen, &results).contains("## Failed\n\n- [sig-node] Pods b: m\n"));
    }
}
