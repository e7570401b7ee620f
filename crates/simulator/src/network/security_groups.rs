//! Neutron: security groups and their rules, one at a time or in bulk.

use hangar_openstack::wire::{CreateSecurityGroup, CreateSecurityGroupRule, SecurityGroup, SecurityGroupRule};
use http::Method;
use serde_json::{Value, json};

use super::{list, one};
use crate::Simulator;
use crate::ask::Ask;
use crate::reply::{Outcome, Refusal, Reply};
use crate::state::{Ids, State, World};

pub(crate) fn answer(simulator: &Simulator, world: &mut World, ask: &Ask) -> Outcome {
    let World { state, ids, .. } = world;
    match (&ask.method, ask.segments().as_slice()) {
        (&Method::GET, ["security-groups"]) => {
            list("security_groups", state.security_groups.values().filter(|group| ask.sees(&group.project_id)), ask)
        }
        (&Method::GET, ["security-groups", id]) => one("security_group", own(state, ask, id), || no_group(id)),
        (&Method::POST, ["security-groups"]) => create(simulator, state, ids, ask),
        (&Method::DELETE, ["security-groups", id]) => delete(state, ask, id),
        (&Method::GET, ["security-group-rules"]) => {
            let groups = state.security_groups.values().filter(|group| ask.sees(&group.project_id));
            list("security_group_rules", groups.flat_map(|group| &group.security_group_rules), ask)
        }
        (&Method::GET, ["security-group-rules", id]) => {
            let groups = state.security_groups.values().filter(|group| ask.sees(&group.project_id));
            let found = groups.flat_map(|group| &group.security_group_rules).find(|rule| rule.id == *id);
            one("security_group_rule", found, || no_rule(id))
        }
        (&Method::PUT, ["security-groups", id]) => update(simulator, state, ask, id),
        (&Method::POST, ["security-group-rules"]) => create_rules(state, ids, ask),
        (&Method::DELETE, ["security-group-rules", id]) => delete_rule(state, ask, id),
        _ => Err(Refusal::neutron(404, "HTTPNotFound", "The resource could not be found.")),
    }
}

pub(crate) fn no_group(id: &str) -> Refusal {
    Refusal::neutron(404, "SecurityGroupNotFound", format!("Security group {id} does not exist"))
}

fn own<'a>(state: &'a State, ask: &Ask, id: &str) -> Option<&'a SecurityGroup> {
    state.security_groups.get(id).filter(|group| ask.sees(&group.project_id))
}

/// The group every project has: egress to anywhere, ingress from itself.
pub(crate) fn default_group(ids: &mut Ids, id: &str, project: &str, created: &str) -> SecurityGroup {
    let mut group = new_group(ids, id, project, "default", "Default security group", created);
    for ethertype in ["IPv4", "IPv6"] {
        let mut rule = egress(ids, &group, ethertype);
        rule.direction = "ingress".to_owned();
        rule.remote_group_id = Some(id.to_owned());
        group.security_group_rules.push(rule);
    }
    group
}

fn new_group(ids: &mut Ids, id: &str, project: &str, name: &str, description: &str, created: &str) -> SecurityGroup {
    let mut group = SecurityGroup {
        id: id.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        stateful: Some(true),
        project_id: project.to_owned(),
        tenant_id: project.to_owned(),
        revision_number: 1,
        created_at: Some(created.to_owned()),
        ..SecurityGroup::default()
    };
    group.security_group_rules = ["IPv4", "IPv6"].map(|ethertype| egress(ids, &group, ethertype)).to_vec();
    group
}

fn egress(ids: &mut Ids, group: &SecurityGroup, ethertype: &str) -> SecurityGroupRule {
    SecurityGroupRule {
        id: ids.text(),
        security_group_id: group.id.clone(),
        direction: "egress".to_owned(),
        ethertype: ethertype.to_owned(),
        project_id: group.project_id.clone(),
        tenant_id: group.project_id.clone(),
        ..SecurityGroupRule::default()
    }
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, Refusal> {
    T::deserialize(value).map_err(|error| Refusal::neutron(400, "HTTPBadRequest", format!("Invalid input: {error}")))
}

fn create(simulator: &Simulator, state: &mut State, ids: &mut Ids, ask: &Ask) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::neutron(400, "HTTPBadRequest", why))?;
    let wanted: CreateSecurityGroup = read(&body["security_group"])?;
    if wanted.name == "default" {
        return Err(Refusal::neutron(
            409,
            "SecurityGroupDefaultAlreadyExists",
            "Default security group already exists.",
        ));
    }
    let full = |_| Refusal::neutron(409, "OverQuota", "Quota exceeded for resources: ['security_group'].");
    state.room(&ask.project_id, "security_group", state.groups_of(&ask.project_id).count(), 1).map_err(full)?;
    let id = ids.text();
    let description = wanted.description.unwrap_or_default();
    let group = new_group(ids, &id, &ask.project_id, &wanted.name, &description, &simulator.now_text());
    state.security_groups.insert(id, group.clone());
    Ok(Reply::new(201, json!({"security_group": group})))
}

fn no_rule(id: &str) -> Refusal {
    Refusal::neutron(404, "SecurityGroupRuleNotFound", format!("Security group rule {id} does not exist"))
}

fn update(simulator: &Simulator, state: &mut State, ask: &Ask, id: &str) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::neutron(400, "HTTPBadRequest", why))?;
    own(state, ask, id).ok_or_else(|| no_group(id))?;
    let Some(group) = state.security_groups.get_mut(id) else { return Err(no_group(id)) };
    let wanted = &body["security_group"];
    group.name = wanted["name"].as_str().map_or_else(|| group.name.clone(), str::to_owned);
    group.description = wanted["description"].as_str().map_or_else(|| group.description.clone(), str::to_owned);
    group.revision_number += 1;
    group.updated_at = Some(simulator.now_text());
    Ok(Reply::ok(json!({"security_group": group})))
}

fn delete(state: &mut State, ask: &Ask, id: &str) -> Outcome {
    let group = own(state, ask, id).ok_or_else(|| no_group(id))?;
    if group.name == "default" {
        return Err(Refusal::neutron(
            409,
            "SecurityGroupCannotRemoveDefault",
            "Insufficient rights for removing default security group.",
        ));
    }
    if state.ports.values().any(|port| port.security_groups.iter().any(|used| used == id)) {
        return Err(Refusal::neutron(409, "SecurityGroupInUse", format!("Security Group {id} in use.")));
    }
    state.security_groups.remove(id);
    // Rules that name a group go with it, as Neutron's foreign key has it.
    let names = |rule: &SecurityGroupRule| rule.remote_group_id.as_deref() == Some(id);
    for other in state.security_groups.ids(|group| group.security_group_rules.iter().any(names)) {
        if let Some(group) = state.security_groups.get_mut(&other) {
            group.security_group_rules.retain(|rule| !names(rule));
        }
    }
    Ok(Reply::empty(204))
}

/// One (`security_group_rule`) or many (`security_group_rules`): all or none.
fn create_rules(state: &mut State, ids: &mut Ids, ask: &Ask) -> Outcome {
    let body = ask.json().map_err(|why| Refusal::neutron(400, "HTTPBadRequest", why))?;
    let bulk = body.get("security_group_rules").is_some();
    let wanted: Vec<CreateSecurityGroupRule> =
        if bulk { read(&body["security_group_rules"])? } else { vec![read(&body["security_group_rule"])?] };
    let used = state.groups_of(&ask.project_id).map(|group| group.security_group_rules.len()).sum();
    let full = |_| Refusal::neutron(409, "OverQuota", "Quota exceeded for resources: ['security_group_rule'].");
    state.room(&ask.project_id, "security_group_rule", used, wanted.len()).map_err(full)?;
    let mut made: Vec<SecurityGroupRule> = vec![];
    for rule in wanted {
        let rule = new_rule(state, ids, ask, rule)?;
        let existing = own(state, ask, &rule.security_group_id).map(|group| group.security_group_rules.as_slice());
        let mut known = existing.unwrap_or_default().iter().chain(&made);
        if let Some(same) = known.find(|known| same_rule(known, &rule)) {
            let words = format!("Security group rule already exists. Rule id is {}.", same.id);
            return Err(Refusal::neutron(409, "SecurityGroupRuleExists", words));
        }
        made.push(rule);
    }
    for rule in &made {
        if let Some(group) = state.security_groups.get_mut(&rule.security_group_id) {
            group.security_group_rules.push(rule.clone());
            group.revision_number += 1;
        }
    }
    let body = if bulk { json!({"security_group_rules": made}) } else { json!({"security_group_rule": made.first()}) };
    Ok(Reply::new(201, body))
}

fn new_rule(
    state: &State,
    ids: &mut Ids,
    ask: &Ask,
    wanted: CreateSecurityGroupRule,
) -> Result<SecurityGroupRule, Refusal> {
    let bad = |kind: &str, words: &str| Err(Refusal::neutron(400, kind, words));
    for id in [Some(&wanted.security_group_id), wanted.remote_group_id.as_ref()].into_iter().flatten() {
        own(state, ask, id).ok_or_else(|| no_group(id))?;
    }
    if !matches!(wanted.direction.as_str(), "ingress" | "egress") {
        return bad("HTTPBadRequest", "Invalid input for direction. Reason: it is not in valid_values.");
    }
    if wanted.remote_group_id.is_some() && wanted.remote_ip_prefix.is_some() {
        return bad(
            "SecurityGroupRemoteGroupAndRemoteIpPrefix",
            "Only remote_ip_prefix or remote_group_id may be provided.",
        );
    }
    if wanted.protocol.is_none() && wanted.port_range_min.is_some() {
        return bad("SecurityGroupProtocolRequiredWithPorts", "Must also specify protocol if port range is given.");
    }
    if let Some(protocol) = wanted.protocol.as_deref().filter(|protocol| !known_protocol(protocol)) {
        let words = format!(
            "Security group rule protocol {protocol} not supported. Only protocol values and integer representations [0 to 255] are supported."
        );
        return bad("SecurityGroupRuleInvalidProtocol", &words);
    }
    let ports = |protocol: &str| matches!(protocol, "tcp" | "udp" | "sctp" | "6" | "17");
    if wanted.protocol.as_deref().is_some_and(ports) && wanted.port_range_min > wanted.port_range_max {
        return bad("SecurityGroupInvalidPortRange", "For TCP/UDP protocols, port_range_min must be <= port_range_max");
    }
    let prefix = wanted.remote_ip_prefix.as_deref().map(str::parse::<ipnet::IpNet>);
    let ethertype = wanted.ethertype.unwrap_or_else(|| "IPv4".to_owned());
    match prefix {
        Some(Err(_)) => return bad("InvalidCIDR", "Invalid CIDR given as remote_ip_prefix."),
        Some(Ok(net)) if net.addr().is_ipv6() != (ethertype == "IPv6") => {
            let words = format!("Conflicting value ethertype {ethertype} for CIDR {net}");
            return bad("SecurityGroupRuleParameterConflict", &words);
        }
        _ => {}
    }
    Ok(SecurityGroupRule {
        id: ids.text(),
        security_group_id: wanted.security_group_id,
        direction: wanted.direction,
        ethertype,
        protocol: wanted.protocol,
        port_range_min: wanted.port_range_min,
        port_range_max: wanted.port_range_max,
        remote_group_id: wanted.remote_group_id,
        remote_ip_prefix: wanted.remote_ip_prefix,
        description: wanted.description.unwrap_or_default(),
        project_id: ask.project_id.clone(),
        tenant_id: ask.project_id.clone(),
        revision_number: 0,
    })
}

/// By name or number, as IANA has them; Neutron gives back what it was given.
fn known_protocol(protocol: &str) -> bool {
    const NAMES: [&str; 26] = [
        "any",
        "ah",
        "dccp",
        "egp",
        "esp",
        "gre",
        "hopopt",
        "icmp",
        "igmp",
        "ip",
        "ipip",
        "ipv6-encap",
        "ipv6-frag",
        "ipv6-icmp",
        "icmpv6",
        "ipv6-nonxt",
        "ipv6-opts",
        "ipv6-route",
        "ospf",
        "pgm",
        "rsvp",
        "sctp",
        "tcp",
        "udp",
        "udplite",
        "vrrp",
    ];
    NAMES.contains(&protocol) || protocol.parse::<u8>().is_ok()
}

/// The description does not make a rule another rule.
fn same_rule(one: &SecurityGroupRule, other: &SecurityGroupRule) -> bool {
    let essence = |rule: &SecurityGroupRule| SecurityGroupRule {
        id: String::new(),
        description: String::new(),
        revision_number: 0,
        // Neutron takes "anywhere" and "no prefix" for the same.
        remote_ip_prefix: rule.remote_ip_prefix.clone().filter(|cidr| cidr != "0.0.0.0/0" && cidr != "::/0"),
        ..rule.clone()
    };
    essence(one) == essence(other)
}

fn delete_rule(state: &mut State, ask: &Ask, id: &str) -> Outcome {
    let groups = state.security_groups.values().filter(|group| ask.sees(&group.project_id));
    let holder = groups.into_iter().find(|group| group.security_group_rules.iter().any(|rule| rule.id == id));
    let holder = holder.map(|group| group.id.clone()).ok_or_else(|| no_rule(id))?;
    if let Some(group) = state.security_groups.get_mut(&holder) {
        group.security_group_rules.retain(|rule| rule.id != id);
        group.revision_number += 1;
    }
    Ok(Reply::empty(204))
}
