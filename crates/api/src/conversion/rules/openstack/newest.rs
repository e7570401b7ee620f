//! OpenStack's v1beta1 and v1beta2: the same settings, grouped; what was forbidden is now allowed, and the other way round.
//!
//! Holds: v1beta1 is what is stored. Tools of hosted control planes write `spec.apiServerFixedIP` and `spec.apiServerPort` without naming a version and get the newest one:
//! both are accepted there too, and win.

use serde_json::{Value, json};

use super::super::how::How;
use super::super::{Rule, below, moved, moved_below, rebuilt, rule};

pub fn rules(kind: &str) -> Vec<Rule> {
    match kind {
        "OpenStackCluster" => [cluster_spec("spec"), cluster_status()].concat(),
        "OpenStackClusterTemplate" => cluster_spec("spec.template.spec"),
        "OpenStackMachine" => {
            let mut rules = machine_spec("spec");
            rules.extend(ports("status.resolved.ports"));
            rules.push(rebuilt("status.conditions[]", condition_up, condition_down));
            rules
        }
        "OpenStackMachineTemplate" => machine_spec("spec.template.spec"),
        _ => vec![],
    }
}

fn machine_spec(prefix: &str) -> Vec<Rule> {
    // A name first, so that an id finds its place beside it; upstream takes one of them.
    let mut rules = moved_below(prefix, &[("flavor", "flavor.filter.name"), ("flavorID", "flavor.id")]);
    rules.extend(ports(&format!("{prefix}.ports")));
    rules
}

fn ports(list: &str) -> Vec<Rule> {
    vec![rule(How::Inverted, &format!("{list}[].disablePortSecurity"), &format!("{list}[].enablePortSecurity"))]
}

fn cluster_spec(prefix: &str) -> Vec<Rule> {
    let mut rules = moved_below(
        prefix,
        &[
            ("apiServerPort", "apiServer.port"),
            ("apiServerFixedIP", "apiServer.fixedIP"),
            ("apiServerFloatingIP", "apiServer.floatingIP"),
            ("apiServerLoadBalancer", "apiServer.managedLoadBalancer"),
            ("networkMTU", "managedNetwork.mtu"),
            ("externalRouterIPs", "managedRouter.externalIPs"),
            (
                "managedSecurityGroups.allNodesSecurityGroupRules",
                "managedSecurityGroups.clusterNodesSecurityGroupRules",
            ),
        ],
    );
    for (old, new) in [
        ("disableAPIServerFloatingIP", "apiServer.enableFloatingIP"),
        ("disableExternalNetwork", "enableExternalNetwork"),
        ("disablePortSecurity", "managedNetwork.enablePortSecurity"),
    ] {
        rules.push(below(prefix, How::Inverted, old, new));
    }
    rules.extend(machine_spec(&format!("{prefix}.bastion.spec")));
    rules
}

fn cluster_status() -> Vec<Rule> {
    let mut rules = moved(&[("status.apiServerLoadBalancer", "status.apiServerManagedLoadBalancer")]);
    rules.push(rule(How::Named, "status.failureDomains", "status.failureDomains"));
    rules.extend(ports("status.bastion.resolved.ports"));
    rules.push(rebuilt("status.conditions[]", condition_up, condition_down));
    rules
}

/// Standard conditions always have a reason and a message.
fn condition_up(condition: &mut Value) {
    let Some(fields) = condition.as_object_mut() else { return };
    let kind = fields.get("type").cloned().unwrap_or_default();
    fields.entry("reason").or_insert(kind);
    fields.entry("message").or_insert_with(|| json!(""));
}

fn condition_down(condition: &mut Value) {
    let Some(fields) = condition.as_object_mut() else { return };
    if fields.get("message").is_some_and(|message| message == "") {
        fields.remove("message");
    }
    if fields.get("reason") == fields.get("type") && fields.get("status").is_some_and(|status| status == "True") {
        fields.remove("reason");
    }
}
