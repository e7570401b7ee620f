//! Names and texts of small kinds.

use serde_json::json;

use super::*;

fn object(properties: Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

/// The structs of each kind, whatever the order in which the kinds are read.
fn written(kinds: &[(&str, Value)]) -> BTreeMap<String, String> {
    let texts = |order: &[&(&str, Value)]| {
        let mut types = Types::default();
        order.iter().for_each(|(kind, schema)| types.read("any", kind, schema));
        let named = types.named().unwrap();
        let text = |(kind, schema): &&(&str, Value)| ((*kind).to_owned(), named.write(kind, schema).unwrap().1);
        order.iter().map(text).collect::<BTreeMap<_, _>>()
    };
    let order: Vec<&(&str, Value)> = kinds.iter().collect();
    let forwards = texts(&order);
    assert_eq!(forwards, texts(&order.into_iter().rev().collect::<Vec<_>>()));
    forwards
}

#[test]
fn two_structs_of_one_shape_are_one_type() {
    let mut reference = object(json!({
        "name": {"type": "string", "description": "of it"}, "size": {"type": "integer", "format": "int32"},
    }));
    reference["required"] = json!(["name"]);
    let text = &written(&[("A", object(json!({"spec": object(json!({"one": reference, "two": reference}))})))])["A"];
    assert_eq!(text.matches("pub struct").count(), 2, "{text}");
    assert!(text.contains("pub two: Option<super::ASpecOne>"), "{text}");
    assert!(text.contains("/// of it\n#[serde(default)]\npub name: String"), "{text}");
    assert!(!text.contains("ASpecTwo"), "{text}");
}

#[test]
fn what_a_kind_is_made_of_is_named_after_that_kind() {
    let port = object(json!({"trunk": {"type": "boolean"}}));
    let machine = object(json!({"flavor": {"type": "string"}, "ports": {"type": "array", "items": port}}));
    let bastion = object(json!({"enabled": {"type": "boolean"}, "spec": machine}));
    let kinds = [
        ("Cluster", object(json!({"spec": object(json!({"bastion": bastion}))}))),
        ("LongerMachine", object(json!({"spec": machine}))),
        ("Machine", object(json!({"spec": machine}))),
        ("Template", object(json!({"spec": object(json!({"template": object(json!({"spec": machine}))}))}))),
    ];
    let texts = written(&kinds);
    assert!(texts["Cluster"].contains("pub spec: Option<super::MachineSpec>"), "{}", texts["Cluster"]);
    assert!(!texts["Cluster"].contains("pub struct MachineSpec"), "{}", texts["Cluster"]);
    assert!(texts["Machine"].contains("pub struct MachineSpec "), "{}", texts["Machine"]);
    assert!(texts["Machine"].contains("pub struct MachineSpecPort "), "{}", texts["Machine"]);
    assert_eq!(texts["LongerMachine"], "\npub type LongerMachineSpec = super::MachineSpec;\n");
    assert!(texts["Template"].contains("pub spec: Option<super::MachineSpec>"), "{}", texts["Template"]);
}

#[test]
fn values_of_maps_and_items_of_lists_have_names() {
    let item = object(json!({"x": {"type": "string"}}));
    let maps = json!({"type": "object", "additionalProperties": {"type": "array", "items": item}});
    let text = &written(&[("A", object(json!({"spec": object(json!({"pools": maps}))})))])["A"];
    assert!(
        text.contains("pub pools: Option<std::collections::BTreeMap<String, Vec<super::ASpecPoolsValue>>>"),
        "{text}"
    );
    assert!(text.contains("pub struct ASpecPoolsValue "), "{text}");
}

#[test]
fn kinds_of_different_providers_share_nothing() {
    let kind = object(json!({"spec": object(json!({"secretRef": object(json!({"name": {"type": "string"}}))}))}));
    let mut types = Types::default();
    types.read("one", "A", &kind);
    types.read("another", "B", &kind);
    let text = types.named().unwrap().write("B", &kind).unwrap().1;
    assert!(text.contains("pub struct BSpecSecretRef "), "{text}");
}
