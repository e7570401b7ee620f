//! Rules of packets, by the program `nft`.
//!
//! Holds: the table is ours alone, and whatever is said twice is there once.

use std::io::{Error, Result, Write as _};
use std::process::{Command, Stdio};

use ipnet::Ipv4Net;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_can_be_said_again() {
        let rules = masquerade("10.244.1.0/24".parse().unwrap());
        assert!(rules.starts_with("add table") && rules.contains("pods { 10.244.1.0/24 }"), "{rules}");
        assert!(!pods(&[]).contains("element"));
    }
}
