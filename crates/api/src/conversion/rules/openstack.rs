//! OpenStack's v1alpha3: names where v1beta1 has parameters, and one thing where v1beta1 has lists.

mod filters;
pub mod newest;
mod servers;

use serde_json::{Value, json};

use super::how::How;
use super::{Rule, below, moved, moved_below, rebuilt, rule};

pub fn rules(kind: &str) -> Vec<Rule> {
    match kind {
        "OpenStackCluster" => [cluster_spec(), cluster_status()].concat(),
        "OpenStackMachine" => {
            let own = moved(&[
                ("spec.instanceID", "status.instanceID"),
                ("status.errorReason", "status.failureReason"),
                ("status.errorMessage", "status.failureMessage"),
            ]);
            [own, machine_spec("spec")].concat()
        }
        "OpenStackMachineTemplate" => machine_spec("spec.template.spec"),
        _ => vec![],
    }
}

/// The secret's namespace is dropped: it must be the object's own.
fn identity(prefix: &str) -> Vec<Rule> {
    moved_below(prefix, &[("cloudName", "identityRef.cloudName"), ("cloudsSecret.name", "identityRef.name")])
}

fn machine_spec(prefix: &str) -> Vec<Rule> {
    let mut rules = identity(prefix);
    rules.extend(moved_below(
        prefix,
        &[
            ("image", "image.filter.name"),
            ("rootVolume.diskSize", "rootVolume.sizeGiB"),
            ("serverGroupID", "serverGroup.id"),
            ("networks", "ports"),
        ],
    ));
    rules.push(below(prefix, How::Pairs("key", "value"), "serverMetadata", "serverMetadata"));
    rules.push(rebuilt(&format!("{prefix}.ports"), servers::ports_of_networks, servers::networks_of_ports));
    rules.push(rebuilt(&format!("{prefix}.securityGroups[]"), servers::group_up, servers::group_down));
    rules
}

fn cluster_spec() -> Vec<Rule> {
    let mut rules = identity("spec");
    rules.extend(moved(&[
        ("spec.externalNetworkId", "spec.externalNetwork.id"),
        ("spec.bastion.flavor", "spec.bastion.spec.flavor"),
        ("spec.bastion.image", "spec.bastion.spec.image"),
        ("spec.bastion.networks", "spec.bastion.spec.networks"),
        ("spec.bastion.securityGroups", "spec.bastion.spec.securityGroups"),
        ("spec.bastion.sshKeyName", "spec.bastion.spec.sshKeyName"),
    ]));
    rules.extend(machine_spec("spec.bastion.spec"));
    rules.push(rebuilt("spec.network", filters::parameter_up, filters::parameter_down));
    rules.push(rule(How::First, "spec.subnet", "spec.subnets"));
    rules.push(rebuilt("spec.subnets[]", filters::parameter_up, filters::parameter_down));
    rules.push(rebuilt("spec.externalRouterIPs[].subnet", filters::nested_up, filters::nested_down));
    rules.push(rebuilt("spec", spec_up, spec_down));
    rules
}

fn cluster_status() -> Vec<Rule> {
    let mut rules = moved(&[
        ("status.network.router", "status.router"),
        ("status.network.apiServerLoadBalancer", "status.apiServerLoadBalancer"),
    ]);
    rules.push(rule(How::First, "status.network.subnet", "status.network.subnets"));
    rules
}

/// What old releases opened without being asked: Calico's BGP and IP-in-IP between all nodes.
fn calico_rules() -> Value {
    let rule = |name: &str, protocol: &str, port: Option<u16>| {
        let mut rule = json!({
            "name": name, "description": "opened by default before v1beta1", "direction": "ingress", "etherType": "IPv4",
            "protocol": protocol, "remoteManagedGroups": ["controlplane", "worker"],
        });
        if let (Some(port), Some(fields)) = (port, rule.as_object_mut()) {
            fields.insert("portRangeMin".into(), port.into());
            fields.insert("portRangeMax".into(), port.into());
        }
        rule
    };
    json!([rule("BGP (calico)", "tcp", Some(179)), rule("IP-in-IP (calico)", "4", None)])
}

fn spec_up(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else { return };
    // Go's zero values meant "not set".
    for (field, zero) in [("apiServerFloatingIP", json!("")), ("apiServerPort", json!(0))] {
        if fields.get(field) == Some(&zero) {
            fields.remove(field);
        }
    }
    if fields.get("controlPlaneEndpoint").is_some_and(|endpoint| endpoint["host"] == "" && endpoint["port"] == 0) {
        fields.remove("controlPlaneEndpoint");
    }
    if let Some(cidr) = fields.get("nodeCidr").and_then(Value::as_str).filter(|cidr| !cidr.is_empty()) {
        let mut subnet = json!({ "cidr": cidr });
        if let (Some(servers), Some(subnet)) = (fields.get("dnsNameservers"), subnet.as_object_mut()) {
            subnet.insert("dnsNameservers".into(), servers.clone());
        }
        fields.insert("managedSubnets".into(), json!([subnet]));
    }
    let ports = fields.get("apiServerLoadBalancerAdditionalPorts").cloned();
    if fields.get("managedAPIServerLoadBalancer") == Some(&json!(true)) || ports.is_some() {
        let enabled = fields.get("managedAPIServerLoadBalancer").cloned().unwrap_or(json!(false));
        let mut balancer = json!({ "enabled": enabled });
        if let (Some(ports), Some(balancer)) = (ports, balancer.as_object_mut()) {
            balancer.insert("additionalPorts".into(), ports);
        }
        fields.insert("apiServerLoadBalancer".into(), balancer);
    }
    match fields.remove("managedSecurityGroups") {
        Some(Value::Bool(true)) => {
            let groups = json!({ "allowAllInClusterTraffic": false, "allNodesSecurityGroupRules": calico_rules() });
            fields.insert("managedSecurityGroups".into(), groups);
        }
        Some(Value::Bool(false)) | None => {}
        Some(other) => drop(fields.insert("managedSecurityGroups".into(), other)),
    }
}

fn spec_down(spec: &mut Value) {
    let Some(fields) = spec.as_object_mut() else { return };
    if let Some(subnet) = fields.get("managedSubnets").and_then(|subnets| subnets.get(0)).cloned() {
        for (new, old) in [("cidr", "nodeCidr"), ("dnsNameservers", "dnsNameservers")] {
            if let Some(value) = subnet.get(new) {
                fields.insert(old.into(), value.clone());
            }
        }
    }
    if let Some(balancer) = fields.get("apiServerLoadBalancer").cloned() {
        for (new, old) in
            [("enabled", "managedAPIServerLoadBalancer"), ("additionalPorts", "apiServerLoadBalancerAdditionalPorts")]
        {
            if let Some(value) = balancer.get(new) {
                fields.insert(old.into(), value.clone());
            }
        }
    }
    if fields.get("managedSecurityGroups").is_some_and(Value::is_object) {
        fields.insert("managedSecurityGroups".into(), json!(true));
    }
}
