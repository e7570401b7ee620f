//! OpenStack's clusters, machines and servers.

use serde_json::Value;

use super::Refusal;
use super::check::{FIXED, differing, not_a_cidr, template};
use crate::object::Object;

/// The fields of an OpenStackCluster's spec that may change at any time.
const MUTABLE: &[&str] = &[
    "identityRef",
    "bastion",
    "managedSecurityGroups",
    "controlPlaneAvailabilityZones",
    "controlPlaneOmitAvailabilityZone",
];

/// Fields below others that may change at any time.
const MUTABLE_BELOW: &[(&str, &[&str])] =
    &[("managedSubnets", &["dnsNameservers"]), ("apiServerLoadBalancer", &["allowedCIDRs", "monitor"])];

pub fn cluster(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = security_group_rules(object);
    refusals.extend(subnets(object));
    let Some(old) = old else { return refusals };
    // Manifests say "" for "let the control plane fill it in": applying one again must not take the address away.
    let filled = old.text("/spec/apiServerFixedIP");
    if let Some(place) = object.0.pointer_mut("/spec/apiServerFixedIP").filter(|place| **place == "") {
        *place = filled.into();
    }
    let (new_spec, old_spec) = (object.get("/spec"), old.get("/spec"));
    let changed = differing(new_spec, old_spec, MUTABLE).into_iter();
    let changed = changed.filter(|name| {
        let resolved = names_what_was_found(name, new_spec, old.get("/status"));
        !fills_in(name, old_spec) && !only_mutable_parts(name, new_spec, old_spec) && !resolved
    });
    refusals.extend(removals(new_spec, old_spec));
    let message = "cannot be changed once set; make a new cluster, or set it back";
    refusals.extend(changed.map(|name| Refusal::new(format!("spec.{name}"), message)));
    refusals
}

/// A hosted control plane brings the endpoint later: what is empty or absent may be filled in once.
fn fills_in(name: &str, old_spec: &Value) -> bool {
    match name {
        "controlPlaneEndpoint" => old_spec["controlPlaneEndpoint"]["host"].as_str().unwrap_or_default().is_empty(),
        "apiServerFixedIP" => {
            old_spec["disableAPIServerFloatingIP"] == true
                && old_spec["apiServerFixedIP"].as_str().unwrap_or_default().is_empty()
        }
        "apiServerPort" => old_spec["disableAPIServerFloatingIP"] == true && old_spec["apiServerPort"].is_null(),
        _ => false,
    }
}

/// What is there would be left behind: it has to be switched off first, or stays for as long as the cluster.
fn removals(new_spec: &Value, old_spec: &Value) -> Vec<Refusal> {
    let mut refusals = vec![];
    if old_spec["managedSecurityGroups"].is_object() && new_spec["managedSecurityGroups"].is_null() {
        let message = "cannot be removed: machines are in these groups; take out single rules instead";
        refusals.push(Refusal::new("spec.managedSecurityGroups", message));
    }
    let is_on = |spec: &Value| spec["bastion"].is_object() && spec["bastion"]["enabled"] != false;
    if is_on(old_spec) && new_spec["bastion"].is_null() {
        refusals.push(Refusal::new("spec.bastion", "set enabled to false before it is removed"));
    }
    refusals
}

/// A filter may give way to the id of what it matched, and no address to the one that was given.
fn names_what_was_found(name: &str, new_spec: &Value, status: &Value) -> bool {
    match name {
        "network" => new_spec["network"]["id"].is_string() && new_spec["network"]["id"] == status["network"]["id"],
        "subnets" => {
            let ids = |list: &Value| {
                let all = list.as_array().into_iter().flatten().map(|subnet| subnet["id"].as_str().map(str::to_owned));
                all.collect::<Option<std::collections::BTreeSet<String>>>()
            };
            let (new, found) = (ids(&new_spec["subnets"]), ids(&status["network"]["subnets"]));
            new.is_some_and(|new| !new.is_empty() && Some(new) == found)
        }
        "apiServerFloatingIP" => {
            let ip = &status["apiServerLoadBalancer"]["ip"];
            ip.is_string() && new_spec["apiServerFloatingIP"] == *ip
        }
        _ => false,
    }
}

fn only_mutable_parts(name: &str, new_spec: &Value, old_spec: &Value) -> bool {
    let Some((_, parts)) = MUTABLE_BELOW.iter().find(|(field, _)| *field == name) else { return false };
    let without = |value: &Value| {
        let mut value = value.clone();
        let items = match &mut value {
            Value::Array(items) => items.iter_mut().collect(),
            other => vec![other],
        };
        items
            .into_iter()
            .filter_map(Value::as_object_mut)
            .for_each(|fields| fields.retain(|name, _| !parts.contains(&name.as_str())));
        value
    };
    without(&new_spec[name]) == without(&old_spec[name])
}

/// A rule is about one other side.
fn security_group_rules(object: &Object) -> Vec<Refusal> {
    let mut refusals = vec![];
    for list in ["allNodesSecurityGroupRules", "controlPlaneNodesSecurityGroupRules", "workerNodesSecurityGroupRules"] {
        let rules = object.get("/spec/managedSecurityGroups").get(list).and_then(Value::as_array);
        for (index, rule) in rules.into_iter().flatten().enumerate() {
            let sides = ["remoteGroupID", "remoteIPPrefix", "remoteManagedGroups"];
            let named: Vec<&str> =
                sides.into_iter().filter(|side| rule.get(*side).is_some_and(|value| !value.is_null())).collect();
            if named.len() > 1 {
                let field = format!("spec.managedSecurityGroups.{list}[{index}]");
                refusals
                    .push(Refusal::new(field, format!("{} exclude each other; keep one of them", named.join(" and "))));
            }
        }
    }
    refusals
}

fn subnets(object: &Object) -> Vec<Refusal> {
    let subnets = object.get("/spec/managedSubnets").as_array().into_iter().flatten().enumerate();
    let named = subnets.filter_map(|(index, subnet)| Some((index, subnet["cidr"].as_str()?)));
    named
        .filter(|(_, cidr)| cidr.parse::<ipnet::IpNet>().is_err())
        .map(|(index, cidr)| Refusal::new(format!("spec.managedSubnets[{index}].cidr"), not_a_cidr(cidr)))
        .collect()
}

pub fn machine(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = server_spec(object.get("/spec"), "spec");
    if let Some(old) = old {
        let changed = differing(object.get("/spec"), old.get("/spec"), &["providerID", "instanceID", "identityRef"]);
        refusals.extend(changed.into_iter().map(|name| Refusal::new(format!("spec.{name}"), FIXED)));
    }
    refusals
}

pub fn machine_template(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = template(object, old);
    let spec = object.get("/spec/template/spec");
    if spec["providerID"].is_string() {
        let message = "names one server, but a template is for many; leave it out";
        refusals.push(Refusal::new("spec.template.spec.providerID", message));
    }
    refusals.extend(server_spec(spec, "spec.template.spec"));
    refusals
}

pub fn server(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = server_spec(object.get("/spec"), "spec");
    if let Some(old) = old {
        let changed = differing(object.get("/spec"), old.get("/spec"), &[]);
        refusals.extend(changed.into_iter().map(|name| Refusal::new(format!("spec.{name}"), FIXED)));
    }
    refusals
}

fn server_spec(spec: &Value, field: &str) -> Vec<Refusal> {
    let mut refusals = vec![];
    let devices = spec["additionalBlockDevices"].as_array().into_iter().flatten().enumerate();
    let root = devices.filter(|(_, device)| spec["rootVolume"].is_object() && device["name"] == "root");
    refusals.extend(root.map(|(index, _)| {
        let field = format!("{field}.additionalBlockDevices[{index}].name");
        Refusal::new(field, "\"root\" is the name of rootVolume; choose another name")
    }));
    let ports = spec["ports"].as_array().into_iter().flatten().enumerate();
    let secured = ports.filter(|(_, port)| {
        let groups = port["securityGroups"].as_array().is_some_and(|groups| !groups.is_empty());
        port["disablePortSecurity"] == true && groups
    });
    refusals.extend(secured.map(|(index, _)| {
        let message = "disablePortSecurity and securityGroups exclude each other; keep one of them";
        Refusal::new(format!("{field}.ports[{index}]"), message)
    }));
    refusals
}
