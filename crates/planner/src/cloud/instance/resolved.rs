//! What the names and filters of a server's spec mean in its cloud; lists are by position.

use super::Lookup;
use crate::plan::Reason;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resolved {
    pub flavor: Lookup,
    /// Of the flavor, if it is known.
    pub size: Option<Size>,
    pub image: Lookup,
    /// An Image object is named that is not available.
    pub image_waits: Option<Reason>,
    pub server_group: Lookup,
    /// Those of the whole server.
    pub security_groups: Vec<Lookup>,
    pub ports: Vec<ResolvedPort>,
}

/// What a flavor takes of a project's quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub cores: u64,
    pub memory_mib: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResolvedPort {
    pub network: Lookup,
    /// Of the fixed IPs.
    pub subnets: Vec<Lookup>,
    pub security_groups: Vec<Lookup>,
}

impl Resolved {
    /// The first that cannot be used, and why; `place` is where the spec stands.
    pub fn problem(&self, place: &str) -> Option<String> {
        let flavor = || self.flavor.problem(&format!("{place}.flavor"), "flavor");
        let image = || self.image.problem(&format!("{place}.image.filter"), "image");
        let group = || self.server_group.problem(&format!("{place}.serverGroup.filter"), "server group");
        let groups = || groups(&self.security_groups, place);
        let mut ports = self.ports.iter().enumerate();
        let mut of_ports = || ports.find_map(|(index, port)| port.problem(&format!("{place}.ports[{index}]")));
        flavor().or_else(image).or_else(group).or_else(groups).or_else(&mut of_ports)
    }
}

impl ResolvedPort {
    fn problem(&self, place: &str) -> Option<String> {
        let network = self.network.problem(&format!("{place}.network.filter"), "network");
        let subnets = || {
            let mut all = self.subnets.iter().enumerate();
            all.find_map(|(index, it)| it.problem(&format!("{place}.fixedIPs[{index}].subnet.filter"), "subnet"))
        };
        network.or_else(subnets).or_else(|| groups(&self.security_groups, place))
    }
}

fn groups(found: &[Lookup], place: &str) -> Option<String> {
    let mut all = found.iter().enumerate();
    all.find_map(|(index, it)| it.problem(&format!("{place}.securityGroups[{index}].filter"), "security group"))
}
