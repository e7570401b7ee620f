//! The suite as a program: asking it for its specs, running some of them, and reading what came of it.
//!
//! Holds: a spec is known by its full name; specs that must be alone run after all others, one at a time; what a run said is kept in a
//! file beside its report.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::rules;

pub struct Suite {
    pub program: PathBuf,
    /// Where reports and logs go.
    pub work: PathBuf,
    pub kubeconfig: PathBuf,
}

/// How one spec ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub name: String,
    /// In the suite's words: passed, failed, skipped, timedout, panicked, ...
    pub state: String,
    pub message: String,
    pub seconds: f64,
}

impl Outcome {
    pub fn passed(&self) -> bool {
        self.state == "passed"
    }

    /// The suite itself found that the spec does not apply.
    pub fn skipped(&self) -> bool {
        self.state == "skipped"
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Longer than any pod of the suite takes to end; after it, somebody else has the port, and the spec will say so.
const PATIENCE: Duration = Duration::from_secs(120);
const KEPT: &str = "outcomes.json";
/// Longest time for all specs of one job.
const LIMIT: &str = "--ginkgo.timeout=4h";

impl Suite {
    /// The names of all conformance specs that match.
    pub fn specs(&self, focus: Option<&str>) -> Result<Vec<String>> {
        let report = self.work.join("specs.json");
        let mut command = self.command(&report, &["--ginkgo.dry-run"]);
        command.arg(format!("--ginkgo.focus={}", focus.unwrap_or(r"\[(Node)?Conformance\]")));
        let status =
            command.stdout(Stdio::null()).stderr(Stdio::null()).status().context("the suite does not start")?;
        if !status.success() {
            bail!("{} cannot list its specs ({status})", self.program.display());
        }
        let mut names: Vec<String> = read(&report)?.into_iter().filter(Outcome::passed).map(|one| one.name).collect();
        names.sort();
        Ok(names)
    }

    /// Runs all specs: `jobs` at a time, those whose pods listen in a lane of their own, and those that must be alone at the end.
    pub fn run(&self, specs: &[String], jobs: usize) -> Result<Vec<Outcome>> {
        let (alone, together): (Vec<&str>, Vec<&str>) =
            specs.iter().map(String::as_str).partition(|name| rules::alone(name));
        let (listening, others): (Vec<&str>, Vec<&str>) =
            together.into_iter().partition(|name| rules::listening_lane(name).is_some());
        let jobs = jobs.max(1);
        let lane = |job: usize| others.iter().skip(job).step_by(jobs).copied().collect();
        let lanes: Vec<Vec<&str>> = (0..jobs).map(lane).collect();
        let mut outcomes = std::thread::scope(|scope| -> Result<Vec<Outcome>> {
            let mut listeners = vec![];
            for (number, lane) in rules::LISTENING.iter().enumerate() {
                let its: Vec<&str> =
                    listening.iter().filter(|name| rules::listening_lane(name) == Some(number)).copied().collect();
                listeners
                    .push(scope.spawn(move || self.after_each_other(&format!("port-{}", lane.port), lane.port, &its)));
            }
            let mut outcomes = self.beside("lane", &lanes)?;
            for listener in listeners {
                outcomes.extend(listener.join().map_err(|_| anyhow::anyhow!("a lane panicked"))??);
            }
            Ok(outcomes)
        })?;
        outcomes.extend(self.after_each_other("alone", rules::ALONE_PORT, &alone)?);
        outcomes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(outcomes)
    }

    /// Keeps what was found out, for a later run that only has to do the rest.
    pub fn keep(&self, outcomes: &[Outcome]) -> Result<()> {
        let all: Vec<Value> = outcomes
            .iter()
            .map(|one| json!({"name": one.name, "state": one.state, "message": one.message, "seconds": one.seconds}))
            .collect();
        Ok(std::fs::write(self.work.join(KEPT), serde_json::to_vec_pretty(&all)?)?)
    }

    /// What an earlier run found out.
    pub fn kept(&self) -> Vec<Outcome> {
        let text = std::fs::read(self.work.join(KEPT)).unwrap_or_default();
        let all: Vec<Value> = serde_json::from_slice(&text).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = |value: &Value| Outcome {
            name: text(&value["name"]),
            state: text(&value["state"]),
            message: text(&value["message"]),
            seconds: value["seconds"].as_f64().unwrap_or_default(),
        };
        all.iter().map(one).collect()
    }

    /// One at a time, each when those before have left the port that they all want: the suite itself does not wait for their pods to end.
    fn after_each_other(&self, name: &str, port: u16, specs: &[&str]) -> Result<Vec<Outcome>> {
        let mut outcomes = vec![];
        for (number, spec) in specs.iter().enumerate() {
            let began = Instant::now();
            while began.elapsed() < PATIENCE && TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_err() {
                std::thread::sleep(LOOK_AGAIN);
            }
            outcomes.extend(self.beside(&format!("{name}-{number}"), &[vec![*spec]])?);
        }
        Ok(outcomes)
    }

    fn beside(&self, name: &str, lanes: &[Vec<&str>]) -> Result<Vec<Outcome>> {
        let mut running = vec![];
        for (number, lane) in lanes.iter().enumerate().filter(|(_, lane)| !lane.is_empty()) {
            let report = self.work.join(format!("{name}-{number}.json"));
            let _ = std::fs::remove_file(&report);
            let mut command = self.command(&report, &[LIMIT, "--ginkgo.v"]);
            command.args(lane.iter().map(|name| format!("--ginkgo.focus= {}$", literally(name))));
            let log = File::create(self.work.join(format!("{name}-{number}.log")))?;
            command.stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
            running.push((command.spawn().context("the suite does not start")?, report, lane));
        }
        let mut outcomes = vec![];
        for (mut child, report, lane) in running {
            child.wait()?;
            let mut found: Vec<Outcome> =
                read(&report)?.into_iter().filter(|one| lane.contains(&one.name.as_str())).collect();
            // The suite gives a reason where it skips by itself; otherwise it was interrupted before.
            for lost in found.iter_mut().filter(|one| one.skipped() && one.message.is_empty()) {
                lost.state = "not run".to_owned();
            }
            if found.len() < lane.len() {
                bail!("{} tells of {} specs instead of {}", report.display(), found.len(), lane.len());
            }
            outcomes.extend(found);
        }
        Ok(outcomes)
    }

    fn command(&self, report: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(format!("--kubeconfig={}", self.kubeconfig.display()));
        command.args(["--provider=skeleton", "--ginkgo.no-color", "--dump-logs-on-failure=false"]);
        command.arg(format!("--ginkgo.json-report={}", report.display())).args(arguments);
        command
    }
}

fn read(report: &Path) -> Result<Vec<Outcome>> {
    let text = std::fs::read(report).with_context(|| format!("the suite left no {}", report.display()))?;
    let all: Value = serde_json::from_slice(&text)?;
    let specs =
        all.as_array().into_iter().flatten().flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten());
    Ok(specs.filter(|spec| spec["LeafNodeType"] == "It").map(outcome).collect())
}

fn outcome(spec: &Value) -> Outcome {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let above = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten().map(text);
    let words: Vec<String> = above.chain([text(&spec["LeafNodeText"])]).collect();
    Outcome {
        name: words.join(" "),
        state: text(&spec["State"]),
        message: text(&spec["Failure"]["Message"]),
        seconds: spec["RunTime"].as_f64().unwrap_or_default() / 1e9,
    }
}

/// A text as a regular expression that matches it alone.
fn literally(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_alphanumeric() && c != ' ' && c != '_' {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_matched_as_it_stands() {
        assert_eq!(literally("[sig-node] a (b) c/d"), r"\[sig\-node\] a \(b\) c\/d");
    }

    #[test]
    fn an_outcome_is_read_from_a_report() {
        let spec = serde_json::json!({
            "ContainerHierarchyTexts": ["[sig-node] Pods", "when"], "LeafNodeText": "runs", "State": "failed",
            "Failure": {"Message": "no"}, "RunTime": 1_500_000_000,
        });
        let expected = Outcome {
            name: "[sig-node] Pods when runs".into(),
            state: "failed".into(),
            message: "no".into(),
            seconds: 1.5,
        };
        assert_eq!(outcome(&spec), expected);
    }
}
