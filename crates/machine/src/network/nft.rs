//! Rules of packets, by the program `nft`.
//!
//! Holds: the table is ours alone, and whatever is said twice is there once.

use std::io::{Error, Result, Write as _};
use std::process::{Command, Stdio};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

const DECLARATIONS: &str = "\
add table ip hangar
add set ip hangar pods { type ipv4_addr; flags interval; auto-merge; }
add chain ip hangar postrouting { type nat hook postrouting priority srcnat; }
";

/// Carries out rules in the network of the calling thread.
pub fn run(rules: &str) -> Result<()> {
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut nft = command.spawn()?;
    if let Some(mut input) = nft.stdin.take() {
        input.write_all(rules.as_bytes())?;
    }
    let done = nft.wait_with_output()?;
    if done.status.success() { Ok(()) } else { Err(Error::other(String::from_utf8_lossy(&done.stderr).into_owned())) }
}

/// Ranges in which pods are reached by their own addresses, from their own addresses.
pub fn pods(ranges: &[Ipv4Net]) -> String {
    let elements: Vec<String> = ranges.iter().map(|range| range.trunc().to_string()).collect();
    match elements.is_empty() {
        true => DECLARATIONS.to_owned(),
        false => format!("{DECLARATIONS}add element ip hangar pods {{ {} }}\n", elements.join(", ")),
    }
}

/// What pods of a range send to anybody else comes from their node: nobody outside knows where pods are.
pub fn masquerade(range: Ipv4Net) -> String {
    format!(
        "{}flush chain ip hangar postrouting\nadd rule ip hangar postrouting ip saddr {range} ip daddr != @pods oifname \"eth*\" masquerade\n",
        pods(&[range])
    )
}

/// What may come and go, as security groups say it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFilter {
    pub rules: Vec<PortRule>,
    /// Pods of other nodes: what a network plug-in would send through a tunnel.
    pub pods: Vec<Ipv4Net>,
}

/// One thing that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRule {
    pub ingress: bool,
    /// `tcp`, `udp`, `icmp` or a number; None: all.
    pub protocol: Option<String>,
    pub ports: Option<(u16, u16)>,
    /// On the other side.
    pub remotes: Vec<Ipv4Net>,
}

/// Everything else is dropped. What is asked for is judged before kube-proxy sends it elsewhere, what is answered is let through.
pub fn filter(filter: &PortFilter) -> String {
    let mut text = "\
add table ip hangar_port
add chain ip hangar_port ingress { type filter hook prerouting priority mangle; }
add chain ip hangar_port egress { type filter hook postrouting priority 300; }
flush table ip hangar_port
"
    .to_owned();
    for (chain, link, side, ingress) in [("ingress", "iifname", "saddr", true), ("egress", "oifname", "daddr", false)] {
        let add = format!("add rule ip hangar_port {chain}");
        text.push_str(&format!("{add} {link} != \"eth*\" accept\n{add} ct state established,related accept\n"));
        if !filter.pods.is_empty() {
            text.push_str(&format!("{add} ip {side} {} accept\n", set(&filter.pods)));
        }
        // Loopback beyond the machine's own is how it reaches the plane, which is on no network.
        if !ingress {
            text.push_str(&format!("{add} ip daddr {{ 127.0.0.0/8, 198.18.0.0/15, 169.254.169.254 }} accept\n"));
        }
        for rule in filter.rules.iter().filter(|rule| rule.ingress == ingress && !rule.remotes.is_empty()) {
            if let Some(what) = what(rule) {
                text.push_str(&format!("{add} ip {side} {}{what} accept\n", set(&rule.remotes)));
            }
        }
        text.push_str(&format!("{add} drop\n"));
    }
    text
}

fn set(ranges: &[Ipv4Net]) -> String {
    let all = Ipv4Net::aggregate(&ranges.iter().map(Ipv4Net::trunc).collect());
    format!("{{ {} }}", all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}

/// None for a protocol whose name is none: it comes from whoever may write security groups, and must not become a rule of its own.
fn what(rule: &PortRule) -> Option<String> {
    let Some(name) = rule.protocol.as_deref().filter(|name| !matches!(*name, "" | "any")) else {
        return Some(String::new());
    };
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    is_name.then(|| match (name, rule.ports) {
        ("tcp" | "udp" | "sctp", Some((from, to))) => format!(" {name} dport {from}-{to}"),
        ("icmp", Some((kind, _))) => format!(" icmp type {kind}"),
        _ => format!(" ip protocol {name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_rule_names_is_dropped() {
        let all: Ipv4Net = "0.0.0.0/0".parse().unwrap();
        let rule = |ingress, protocol: &str, ports, remotes: &[Ipv4Net]| PortRule {
            ingress,
            protocol: Some(protocol.to_owned()),
            ports,
            remotes: remotes.to_vec(),
        };
        let rules = vec![
            rule(true, "tcp", Some((10250, 10250)), &["10.6.0.9/32".parse().unwrap()]),
            rule(true, "4", None, &[all]),
            rule(true, "tcp; flush ruleset", None, &[all]),
            rule(true, "udp", None, &[]),
            PortRule { ingress: false, protocol: None, ports: None, remotes: vec![all] },
        ];
        let text = filter(&PortFilter { rules, pods: vec![] });
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("add rule ip hangar_port ")).collect();
        let expected = [
            "ingress iifname != \"eth*\" accept",
            "ingress ct state established,related accept",
            "ingress ip saddr { 10.6.0.9/32 } tcp dport 10250-10250 accept",
            "ingress ip saddr { 0.0.0.0/0 } ip protocol 4 accept",
            "ingress drop",
            "egress oifname != \"eth*\" accept",
            "egress ct state established,related accept",
            "egress ip daddr { 127.0.0.0/8, 198.18.0.0/15, 169.254.169.254 } accept",
            "egress ip daddr { 0.0.0.0/0 } accept",
            "egress drop",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn rules_can_be_said_again() {
        let rules = masquerade("10.244.1.0/24".parse().unwrap());
        assert!(rules.starts_with("add table") && rules.contains("pods { 10.244.1.0/24 }"), "{rules}");
        assert!(!pods(&[]).contains("element"));
    }
}
