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
    Slow,
}

impl Reason {
    pub fn text(self) -> &'static str {
        match self {
            Reason::NotOurs => "about kube-apiserver, kubectl or the scheduler alone, which the plane runs as they are",
            Reason::Image => "needs an image that is not built in, or a registry",
            Reason::Network => {
                "needs a network namespace for every pod: pods share the machine's network, each with a loopback address, which EndpointSlices and the proxy of the API server refuse"
            }
            Reason::Kernel => "needs kernel features that plain processes do not have (sysctls, cgroups, capabilities)",
            Reason::Runtime => "needs a container runtime: ephemeral containers, streams over websockets",
            Reason::Nodes => "needs a second node",
            Reason::Slow => "not run: waits for more than ten minutes at a time",
        }
    }
}

use Reason::{Image, Kernel, Network, Nodes, NotOurs, Runtime, Slow};

const RULES: &[(&str, Reason)] = &[
    ("[sig-api-machinery]", NotOurs),
    ("[sig-architecture]", NotOurs),
    ("[sig-instrumentation]", NotOurs),
    ("[sig-scheduling]", NotOurs),
    ("[sig-cli]", NotOurs),
    // The kernel of the machine, and what it is built with.
    ("Sysctls [LinuxOnly] [NodeConformance] should support sysctls", Kernel),
    ("PrivilegedPod", Kernel),
    // Pulling, and what only the image has.
    ("should be able to pull image", Image),
    ("should not be able to pull image from invalid registry", Image),
    ("should not be able to pull from private registry", Image),
    ("when creating containers with AllowPrivilegeEscalation", Image),
    // They take a page away from the web server, which must then answer 404; ours shows the directory.
    ("Burst scaling should run to completion even with unhealthy pods", Image),
    ("Scaling should happen in predictable order and halt", Image),
    ("should perform rolling updates and roll backs of template modifications", Image),
    // The shell of busybox has its own words for errors.
    ("read only busybox container should not write to root filesystem", Image),
    ("should cap back-off at MaxContainerBackOff", Slow),
    ("back-off timer reset on image update", Slow),
    ("Daemon set [Serial] should rollback without unnecessary restarts", Nodes),
    // What a process does not have.
    ("Ephemeral Containers", Runtime),
    ("over websockets", Runtime),
    // One network for all: several pods cannot listen on the same port of all addresses, and no EndpointSlice can hold a loopback address.
    ("Networking Granular Checks", Network),
    ("HostPort validates", Network),
    ("EndpointSlice should create Endpoints and EndpointSlices", Network),
    ("EndpointSlice should create and delete Endpoints", Network),
    ("EndpointSlice should have Endpoints and EndpointSlices pointing to API Server", Network),
    ("EndpointSlice should support a Service", Network),
    ("EndpointSliceMirroring", Network),
    ("Service endpoints latency", Network),
    ("session affinity", Network),
    ("Services should serve", Network),
    ("Services should be able to change the type", Network),
    ("functioning NodePort service", Network),
    ("DNS should", Network),
    ("Proxy version v1", Network),
    ("PreStop should call prestop when killing a pod", Network),
    ("should serve a basic image on each replica", Network),
];

/// Specs whose pods listen on a port of all addresses: those that want the same port run one after the other, in a lane of their own.
pub struct Listening {
    pub port: u16,
    parts: &'static [&'static str],
}

pub const LISTENING: &[Listening] = &[
    Listening {
        port: 8080,
        parts: &[
            "Container Lifecycle Hook",
            "tcp:8080",
            "monotonically increasing",
            "should be restarted with a /healthz",
            "GRPC liveness",
        ],
    },
    Listening { port: 80, parts: &["timeoutGracePeriodSeconds", "[sig-network]"] },
];

/// The port that some of those want that run alone.
pub const ALONE_PORT: u16 = 80;

/// Specs that run when nothing else does: they say so themselves, or they want port 80 of all addresses, which web servers have on theirs.
pub fn alone(spec: &str) -> bool {
    const PARTS: [&str; 4] = [
        "[Serial]",
        "should *not* be restarted with a /healthz",
        "with readiness probe",
        "EmptyDir wrapper volumes should not conflict",
    ];
    PARTS.iter().any(|part| spec.contains(part))
}

/// The lane of a spec that listens.
pub fn listening_lane(spec: &str) -> Option<usize> {
    LISTENING.iter().position(|lane| lane.parts.iter().any(|part| spec.contains(part)))
}

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
