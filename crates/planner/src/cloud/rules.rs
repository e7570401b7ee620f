//! Which rules the groups of a cluster must have.

use serde_json::Value;

use hangar_openstack_types::{CreateSecurityGroupRule, SecurityGroupRule};

/// The machines that a group is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    ControlPlane,
    Worker,
    Bastion,
}

impl Role {
    pub const NODES: [Self; 2] = [Self::ControlPlane, Self::Worker];

    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "controlplane",
            Self::Worker => "worker",
            Self::Bastion => "bastion",
        }
    }

    pub fn key_role(self) -> &'static str {
        match self {
            Self::ControlPlane => "security-group-controlplane",
            Self::Worker => "security-group-worker",
            Self::Bastion => "security-group-bastion",
        }
    }

    pub fn group_name(self, namespace: &str, cluster: &str) -> String {
        format!("k8s-cluster-{namespace}-{cluster}-secgroup-{}", self.name())
    }
}

/// Neutron's ids of the groups.
pub struct Ids<'a> {
    pub control_plane: &'a str,
    pub worker: &'a str,
    pub bastion: Option<&'a str>,
}

impl Ids<'_> {
    fn of(&self, name: &str) -> Option<String> {
        match name {
            "controlplane" => Some(self.control_plane.to_owned()),
            "worker" => Some(self.worker.to_owned()),
            "bastion" => self.bastion.map(str::to_owned),
            _ => None,
        }
    }

    fn group(&self, role: Role) -> &str {
        match role {
            Role::ControlPlane => self.control_plane,
            Role::Worker => self.worker,
            Role::Bastion => self.bastion.unwrap_or_default(),
        }
    }
}

/// What the rules depend on beside what the user wrote.
pub struct Surroundings<'a> {
    pub ids: Ids<'a>,
    /// Of the cluster's subnets.
    pub cidrs: &'a [&'a str],
    /// Where the API answers, and what else is opened beside it.
    pub api_ports: &'a [u16],
}

/// The two rules that Neutron makes itself: everything may go out.
pub fn is_default(rule: &SecurityGroupRule) -> bool {
    rule.direction == "egress"
        && rule.protocol.is_none()
        && rule.remote_group_id.is_none()
        && rule.remote_ip_prefix.is_none()
}

/// What Neutron takes for the same rule: descriptions do not count.
pub fn is_wanted(rule: &SecurityGroupRule, wanted: &CreateSecurityGroupRule) -> bool {
    rule.direction == wanted.direction
        && Some(&rule.ethertype) == wanted.ethertype.as_ref()
        && lower(&rule.protocol) == lower(&wanted.protocol)
        && rule.port_range_min == wanted.port_range_min
        && rule.port_range_max == wanted.port_range_max
        && rule.remote_group_id == wanted.remote_group_id
        && rule.remote_ip_prefix == wanted.remote_ip_prefix
}

/// Neutron writes names of protocols in small letters.
fn lower(protocol: &Option<String>) -> Option<String> {
    protocol.as_ref().map(|protocol| protocol.to_lowercase())
}

/// What Neutron makes in every new group: everything may go out.
pub fn defaults(group_id: &str) -> [CreateSecurityGroupRule; 2] {
    ["IPv4", "IPv6"].map(|family| CreateSecurityGroupRule {
        security_group_id: group_id.to_owned(),
        direction: "egress".into(),
        ethertype: Some(family.into()),
        ..CreateSecurityGroupRule::default()
    })
}

pub fn wanted(spec: &Value, role: Role, around: &Surroundings<'_>) -> Vec<CreateSecurityGroupRule> {
    let mut rules = match role {
        Role::ControlPlane => control_plane(spec, around),
        Role::Worker => worker(spec, around),
        Role::Bastion => around.in_families(|| vec![ports("SSH", "tcp", 22, 22)]),
    };
    if let Some(bastion) = around.ids.bastion.filter(|_| role != Role::Bastion) {
        rules.extend(around.in_families(|| vec![from(ports("SSH", "tcp", 22, 22), bastion)]));
    }
    let own = match role {
        Role::ControlPlane => Some("controlPlaneNodesSecurityGroupRules"),
        Role::Worker => Some("workerNodesSecurityGroupRules"),
        Role::Bastion => None,
    };
    for field in own.into_iter().flat_map(|own| ["allNodesSecurityGroupRules", own]) {
        rules.extend(spec[field].as_array().into_iter().flatten().flat_map(|rule| written(rule, &around.ids)));
    }
    let group = around.ids.group(role);
    let mut unique: Vec<CreateSecurityGroupRule> = vec![];
    for rule in rules {
        let rule = CreateSecurityGroupRule { security_group_id: group.to_owned(), ..rule };
        let undescribed =
            |rule: &CreateSecurityGroupRule| CreateSecurityGroupRule { description: None, ..rule.clone() };
        if !unique.iter().any(|other| undescribed(other) == undescribed(&rule)) {
            unique.push(rule);
        }
    }
    unique
}

impl Surroundings<'_> {
    /// The same for IPv6, if the cluster has a subnet of it; for IPv4 in any case.
    fn in_families(&self, rules: impl Fn() -> Vec<CreateSecurityGroupRule>) -> Vec<CreateSecurityGroupRule> {
        let mut all = rules();
        if self.cidrs.iter().any(|cidr| cidr.contains(':')) {
            all.extend(
                rules().into_iter().map(|rule| CreateSecurityGroupRule { ethertype: Some("IPv6".into()), ..rule }),
            );
        }
        all
    }

    fn api(&self) -> Vec<CreateSecurityGroupRule> {
        let mut all: Vec<i32> = [6443].into_iter().chain(self.api_ports.iter().map(|port| i32::from(*port))).collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(|port| ports("Kubernetes API", "tcp", port, port)).collect()
    }
}

fn control_plane(spec: &Value, around: &Surroundings<'_>) -> Vec<CreateSecurityGroupRule> {
    let ids = &around.ids;
    around.in_families(|| {
        let mut rules = around.api();
        if spec["allowAllInClusterTraffic"] == true {
            rules.extend(in_cluster(ids));
            return rules;
        }
        rules.push(from(ports("Etcd", "tcp", 2379, 2380), ids.control_plane));
        rules.push(from(ports("Kubelet API", "tcp", 10250, 10250), ids.control_plane));
        rules.push(from(ports("Kubelet API", "tcp", 10250, 10250), ids.worker));
        rules
    })
}

fn worker(spec: &Value, around: &Surroundings<'_>) -> Vec<CreateSecurityGroupRule> {
    let ids = &around.ids;
    let mut rules = vec![];
    for protocol in ["tcp", "udp"] {
        let services = ports("Node Port Services", protocol, 30000, 32767);
        for cidr in around.cidrs {
            let family = if cidr.contains(':') { "IPv6" } else { "IPv4" };
            rules.push(CreateSecurityGroupRule {
                remote_ip_prefix: Some((*cidr).to_owned()),
                ethertype: Some(family.into()),
                ..services.clone()
            });
        }
        rules.extend(
            around.in_families(|| vec![from(services.clone(), ids.worker), from(services.clone(), ids.control_plane)]),
        );
    }
    rules.extend(around.in_families(|| {
        if spec["allowAllInClusterTraffic"] == true {
            return in_cluster(ids);
        }
        let kubelet = || ports("Kubelet API", "tcp", 10250, 10250);
        vec![from(kubelet(), ids.worker), from(kubelet(), ids.control_plane)]
    }));
    rules
}

fn in_cluster(ids: &Ids<'_>) -> Vec<CreateSecurityGroupRule> {
    let any = CreateSecurityGroupRule {
        direction: "ingress".into(),
        ethertype: Some("IPv4".into()),
        description: Some("In-cluster Ingress".into()),
        ..CreateSecurityGroupRule::default()
    };
    vec![from(any.clone(), ids.control_plane), from(any, ids.worker)]
}

fn ports(description: &str, protocol: &str, from: i32, to: i32) -> CreateSecurityGroupRule {
    CreateSecurityGroupRule {
        direction: "ingress".into(),
        ethertype: Some("IPv4".into()),
        protocol: Some(protocol.into()),
        port_range_min: Some(from),
        port_range_max: Some(to),
        description: Some(description.into()),
        ..CreateSecurityGroupRule::default()
    }
}

fn from(rule: CreateSecurityGroupRule, group_id: &str) -> CreateSecurityGroupRule {
    CreateSecurityGroupRule { remote_group_id: Some(group_id.to_owned()), ..rule }
}

/// Of a rule that does not say it.
fn family_of(rule: &Value) -> &'static str {
    let prefix = rule["remoteIPPrefix"].as_str().unwrap_or_default();
    if prefix.contains(':') { "IPv6" } else { "IPv4" }
}

/// A rule as the user wrote it: one for each of the groups that it names.
fn written(rule: &Value, ids: &Ids<'_>) -> Vec<CreateSecurityGroupRule> {
    let text = |field: &str| rule[field].as_str().map(str::to_owned);
    let port = |field: &str| rule[field].as_i64().and_then(|port| i32::try_from(port).ok());
    let base = CreateSecurityGroupRule {
        security_group_id: String::new(),
        direction: text("direction").unwrap_or_else(|| "ingress".into()),
        ethertype: text("etherType").or_else(|| Some(family_of(rule).into())),
        protocol: text("protocol"),
        port_range_min: port("portRangeMin"),
        port_range_max: port("portRangeMax"),
        remote_group_id: text("remoteGroupID"),
        remote_ip_prefix: text("remoteIPPrefix"),
        description: Some(text("description").unwrap_or_default()),
    };
    match rule["remoteManagedGroups"].as_array() {
        Some(groups) if !groups.is_empty() => groups
            .iter()
            .filter_map(|name| ids.of(name.as_str().unwrap_or_default()))
            .map(|id| CreateSecurityGroupRule { remote_group_id: Some(id), ..base.clone() })
            .collect(),
        _ => vec![base],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn around<'a>(cidrs: &'a [&'a str], bastion: Option<&'a str>) -> Surroundings<'a> {
        Surroundings { ids: Ids { control_plane: "cp", worker: "w", bastion }, cidrs, api_ports: &[6443] }
    }

    #[test]
    fn oc4_a_hosted_cluster_with_calico_has_six_and_ten_rules() {
        let rule = |name: &str, protocol: &str| json!({"name": name, "direction": "ingress", "etherType": "IPv4", "protocol": protocol, "remoteManagedGroups": ["worker"]});
        let spec = json!({"allowAllInClusterTraffic": false, "allNodesSecurityGroupRules": [rule("BGP", "tcp"), rule("IP-in-IP", "4")]});
        let around = around(&["10.6.0.0/24"], None);
        assert_eq!(wanted(&spec, Role::ControlPlane, &around).len(), 6);
        assert_eq!(wanted(&spec, Role::Worker, &around).len(), 10);
    }

    #[test]
    fn oc4_a_rule_for_several_groups_becomes_several_and_twins_become_one() {
        let rule = json!({"name": "x", "direction": "ingress", "protocol": "tcp", "remoteManagedGroups": ["worker", "controlplane", "bastion"]});
        let spec = json!({"allNodesSecurityGroupRules": [rule, rule]});
        for (bastion, expected) in [(None, 2), (Some("b"), 3)] {
            let around = around(&[], bastion);
            let extra = wanted(&spec, Role::ControlPlane, &around).len()
                - wanted(&json!({}), Role::ControlPlane, &around).len();
            assert_eq!(extra, expected, "{bastion:?}");
        }
    }

    #[test]
    fn oc4_the_second_family_has_the_same_rules_if_there_is_a_subnet_of_it() {
        let families = |role, cidrs: &[&str]| {
            let rules = wanted(&json!({}), role, &around(cidrs, Some("b")));
            let of = |family: &str| rules.iter().filter(|rule| rule.ethertype.as_deref() == Some(family)).count();
            (of("IPv4"), of("IPv6"))
        };
        for (role, single, dual) in
            [(Role::ControlPlane, (5, 0), (5, 5)), (Role::Worker, (9, 0), (9, 9)), (Role::Bastion, (1, 0), (1, 1))]
        {
            assert_eq!(families(role, &["10.6.0.0/24"]), single, "{role:?}");
            assert_eq!(families(role, &["10.6.0.0/24", "fd00::/64"]), dual, "{role:?}");
        }
        let prefix = json!({"controlPlaneNodesSecurityGroupRules": [{"name": "x", "direction": "ingress", "remoteIPPrefix": "fd00::/8"}]});
        let rules = wanted(&prefix, Role::ControlPlane, &around(&[], None));
        assert_eq!(rules.last().unwrap().ethertype.as_deref(), Some("IPv6"), "a range says of which family it is");
    }

    #[test]
    fn oc4_every_port_of_the_api_is_opened_once() {
        let around = Surroundings { api_ports: &[443, 6443, 8132], ..around(&[], None) };
        let rules = wanted(&json!({}), Role::ControlPlane, &around);
        let open: Vec<_> =
            rules.iter().filter(|rule| rule.remote_group_id.is_none()).map(|rule| rule.port_range_min).collect();
        assert_eq!(open, [Some(443), Some(6443), Some(8132)]);
    }

    #[test]
    fn neutrons_own_rules_are_left_alone() {
        let own =
            SecurityGroupRule { direction: "egress".into(), ethertype: "IPv6".into(), ..SecurityGroupRule::default() };
        assert!(is_default(&own));
        let other = SecurityGroupRule { direction: "ingress".into(), ..SecurityGroupRule::default() };
        assert!(!is_default(&other));
    }
}
