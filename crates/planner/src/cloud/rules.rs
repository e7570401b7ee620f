//! Which rules the groups of a cluster must have.

use serde_json::Value;

use hangar_openstack_types::{CreateSecurityGroupRule, SecurityGroupRule};

/// The machines that a group is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    ControlPlane,
    Worker,
}

impl Role {
    pub const ALL: [Self; 2] = [Self::ControlPlane, Self::Worker];

    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "controlplane",
            Self::Worker => "worker",
        }
    }

    pub fn key_role(self) -> &'static str {
        match self {
            Self::ControlPlane => "security-group-controlplane",
            Self::Worker => "security-group-worker",
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
}

impl Ids<'_> {
    fn of(&self, name: &str) -> Option<String> {
        match name {
            "controlplane" => Some(self.control_plane.to_owned()),
            "worker" => Some(self.worker.to_owned()),
            _ => None,
        }
    }
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
        && rule.protocol == wanted.protocol
        && rule.port_range_min == wanted.port_range_min
        && rule.port_range_max == wanted.port_range_max
        && rule.remote_group_id == wanted.remote_group_id
        && rule.remote_ip_prefix == wanted.remote_ip_prefix
}

pub fn wanted(spec: &Value, role: Role, ids: &Ids<'_>, cidrs: &[&str]) -> Vec<CreateSecurityGroupRule> {
    let mut rules = match role {
        Role::ControlPlane => control_plane(spec, ids),
        Role::Worker => worker(spec, ids, cidrs),
    };
    let own = match role {
        Role::ControlPlane => "controlPlaneNodesSecurityGroupRules",
        Role::Worker => "workerNodesSecurityGroupRules",
    };
    for field in ["allNodesSecurityGroupRules", own] {
        rules.extend(spec[field].as_array().into_iter().flatten().flat_map(|rule| written(rule, ids)));
    }
    let group = match role {
        Role::ControlPlane => ids.control_plane,
        Role::Worker => ids.worker,
    };
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

fn control_plane(spec: &Value, ids: &Ids<'_>) -> Vec<CreateSecurityGroupRule> {
    let mut rules = vec![ports("Kubernetes API", "tcp", 6443, 6443)];
    if spec["allowAllInClusterTraffic"] == true {
        rules.extend(in_cluster(ids));
        return rules;
    }
    rules.push(from(ports("Etcd", "tcp", 2379, 2380), ids.control_plane));
    rules.push(from(ports("Kubelet API", "tcp", 10250, 10250), ids.control_plane));
    rules.push(from(ports("Kubelet API", "tcp", 10250, 10250), ids.worker));
    rules
}

fn worker(spec: &Value, ids: &Ids<'_>, cidrs: &[&str]) -> Vec<CreateSecurityGroupRule> {
    let mut rules = vec![];
    for protocol in ["tcp", "udp"] {
        let services = ports("Node Port Services", protocol, 30000, 32767);
        for cidr in cidrs.iter().filter(|cidr| !cidr.contains(':')) {
            rules.push(CreateSecurityGroupRule { remote_ip_prefix: Some((*cidr).to_owned()), ..services.clone() });
        }
        rules.push(from(services.clone(), ids.worker));
        rules.push(from(services, ids.control_plane));
    }
    if spec["allowAllInClusterTraffic"] == true {
        rules.extend(in_cluster(ids));
        return rules;
    }
    rules.push(from(ports("Kubelet API", "tcp", 10250, 10250), ids.worker));
    rules.push(from(ports("Kubelet API", "tcp", 10250, 10250), ids.control_plane));
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

/// A rule as the user wrote it: one for each of the groups that it names.
fn written(rule: &Value, ids: &Ids<'_>) -> Vec<CreateSecurityGroupRule> {
    let text = |field: &str| rule[field].as_str().map(str::to_owned);
    let port = |field: &str| rule[field].as_i64().and_then(|port| i32::try_from(port).ok());
    let base = CreateSecurityGroupRule {
        security_group_id: String::new(),
        direction: text("direction").unwrap_or_else(|| "ingress".into()),
        ethertype: text("etherType").or_else(|| Some("IPv4".into())),
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

    #[test]
    fn a_hosted_cluster_with_calico_has_six_and_ten_rules() {
        let rule = |name: &str, protocol: &str| json!({"name": name, "direction": "ingress", "etherType": "IPv4", "protocol": protocol, "remoteManagedGroups": ["worker"]});
        let spec = json!({"allowAllInClusterTraffic": false, "allNodesSecurityGroupRules": [rule("BGP", "tcp"), rule("IP-in-IP", "4")]});
        let ids = Ids { control_plane: "cp", worker: "w" };
        assert_eq!(wanted(&spec, Role::ControlPlane, &ids, &["10.6.0.0/24"]).len(), 6);
        assert_eq!(wanted(&spec, Role::Worker, &ids, &["10.6.0.0/24"]).len(), 10);
    }

    #[test]
    fn a_rule_for_two_groups_becomes_two_and_twins_become_one() {
        let rule = json!({"name": "x", "direction": "ingress", "protocol": "tcp", "remoteManagedGroups": ["worker", "controlplane"]});
        let spec = json!({"allNodesSecurityGroupRules": [rule, rule]});
        let ids = Ids { control_plane: "cp", worker: "w" };
        let extra = wanted(&spec, Role::ControlPlane, &ids, &[]).len()
            - wanted(&json!({}), Role::ControlPlane, &ids, &[]).len();
        assert_eq!(extra, 2);
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
