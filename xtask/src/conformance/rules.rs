//! Which specs apply to pods that are processes of one machine, and why the others cannot.
//!
//! A rule is a part of a spec's name; the first rule that matches decides, and what no rule names is run.

/// Why a spec cannot apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It is about a program of Kubernetes that the plane runs as it is.
    NotOurs,
    Image,
    Network,
    Kernel,
    Runtime,
    Nodes,
    Storage,
}

impl Reason {
    pub fn said(self) -> &'static str {
        match self {
            Reason::NotOurs => "about kube-apiserver, kubectl or the scheduler alone, which the plane runs as they are",
            Reason::Image => "needs an image that is not a program of ours, or a registry",
            Reason::Network => {
                "needs a network of its own for every pod: here pods share the machine's, each with a loopback address, which EndpointSlices refuse"
            }
            Reason::Kernel => {
                "needs something of the kernel that a process does not have by itself (sysctls, cgroups of its own, capabilities)"
            }
            Reason::Runtime => "needs a container runtime: attach, ephemeral containers, runtime classes, resizing",
            Reason::Nodes => "needs several nodes, or changes the node itself",
            Reason::Storage => "needs a storage driver",
        }
    }
}

use Reason::{Image, Kernel, Network, Nodes, NotOurs, Runtime, Storage};

const RULES: &[(&str, Reason)] = &[
    ("[sig-api-machinery]", NotOurs),
    ("[sig-architecture]", NotOurs),
    ("[sig-instrumentation]", NotOurs),
    ("[sig-scheduling]", NotOurs),
    ("[sig-cli]", NotOurs),
];

/// What is run, and what is not with the reason.
pub struct Chosen {
    pub run: Vec<String>,
    pub not: Vec<(String, Reason)>,
}

pub fn choose(specs: Vec<String>) -> Chosen {
    let mut chosen = Chosen { run: vec![], not: vec![] };
    for spec in specs {
        match RULES.iter().find(|(part, _)| spec.contains(part)) {
            Some((_, reason)) => chosen.not.push((spec, *reason)),
            None => chosen.run.push(spec),
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_specific_and_said_once() {
        for (at, (part, _)) in RULES.iter().enumerate() {
            assert!(part.len() > 7, "{part}");
            assert!(!RULES[..at].iter().any(|(earlier, _)| part.contains(earlier)), "{part} is never reached");
        }
    }
}
