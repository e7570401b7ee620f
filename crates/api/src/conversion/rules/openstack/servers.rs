//! Networks and security groups of servers.

use serde_json::{Value, json};

use super::filters::{filter_down, filter_up, nested_down, nested_up};

/// One port for each network, or for each of its subnets that is named.
pub fn ports_of_networks(place: &mut Value) {
    let Some(networks) = place.as_array() else { return };
    let ports: Vec<Value> = networks.iter().flat_map(ports_of).collect();
    *place = Value::Array(ports);
}

fn ports_of(network: &Value) -> Vec<Value> {
    let port = match parameter(network) {
        Some(network) => json!({ "network": network }),
        None => json!({}),
    };
    let subnets = network["subnets"].as_array().into_iter().flatten().filter_map(parameter);
    let with_subnet = |subnet: Value| {
        let mut port = port.clone();
        if let Some(fields) = port.as_object_mut() {
            fields.insert("fixedIPs".into(), json!([{ "subnet": subnet }]));
        }
        port
    };
    let ports: Vec<Value> = subnets.map(with_subnet).collect();
    if ports.is_empty() { vec![port] } else { ports }
}

/// What `{uuid, filter}` means, if it says anything.
fn parameter(nested: &Value) -> Option<Value> {
    let mut parameter = nested.clone();
    nested_up(&mut parameter);
    parameter.as_object().is_some_and(|fields| !fields.is_empty()).then_some(parameter)
}

pub fn networks_of_ports(place: &mut Value) {
    let Some(ports) = place.as_array() else { return };
    let networks: Vec<Value> = ports.iter().map(network_of).collect();
    *place = Value::Array(networks);
}

fn network_of(port: &Value) -> Value {
    let down = |parameter: &Value| {
        let mut nested = parameter.clone();
        nested_down(&mut nested);
        nested
    };
    let mut network = if port["network"].is_object() { down(&port["network"]) } else { json!({}) };
    let fixed = port["fixedIPs"].as_array().into_iter().flatten();
    let subnets: Vec<Value> = fixed.map(|ip| &ip["subnet"]).filter(|subnet| subnet.is_object()).map(down).collect();
    if let Some(fields) = network.as_object_mut().filter(|_| !subnets.is_empty()) {
        fields.insert("subnets".into(), Value::Array(subnets));
    }
    network
}

/// `{uuid}`, `{name}` or `{filter}` become `{id}` or `{filter}`.
pub fn group_up(group: &mut Value) {
    let Some(fields) = group.as_object() else { return };
    let mut filter = fields.get("filter").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(name) = fields.get("name") {
        filter.entry("name").or_insert(name.clone());
    }
    let id = [fields.get("uuid"), filter.get("id")];
    let id = id.into_iter().flatten().find(|id| id.as_str().is_some_and(|id| !id.is_empty()));
    *group = match id {
        Some(id) => json!({ "id": id }),
        None => json!({ "filter": filter_up(&filter) }),
    };
}

pub fn group_down(group: &mut Value) {
    let Some(fields) = group.as_object() else { return };
    *group = match (fields.get("id"), fields.get("filter").and_then(Value::as_object)) {
        (Some(id), _) => json!({ "uuid": id }),
        (None, Some(filter)) => json!({ "filter": filter_down(filter) }),
        (None, None) => json!({}),
    };
}
