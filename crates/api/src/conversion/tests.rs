use proptest::prelude::*;
use serde_json::json;

use super::*;

fn machine_deployment() -> Object {
    Object(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment",
        "metadata": {"name": "md-0", "namespace": "default"},
        "spec": {
            "clusterName": "c", "replicas": 1, "minReadySeconds": 5, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "deletePolicy": "Oldest"}},
            "template": {"spec": {
                "clusterName": "c", "version": "v1.28.10", "nodeDrainTimeout": "10m",
                "bootstrap": {"configRef": {"apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "KubeadmConfigTemplate", "name": "t"}},
                "infrastructureRef": {"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "OpenStackMachineTemplate", "name": "t"},
            }},
        },
    }))
}

#[test]
fn fields_move_to_their_new_places() {
    let hub = convert(&machine_deployment(), "v1beta2").unwrap();
    assert_eq!(hub.get("/spec/rollout/strategy/rollingUpdate/maxSurge"), 1);
    assert_eq!(hub.get("/spec/deletion/order"), "Oldest");
    assert_eq!(hub.get("/spec/template/spec/deletion/nodeDrainTimeoutSeconds"), 600);
    assert_eq!(hub.get("/spec/template/spec/bootstrap/configRef/apiGroup"), "bootstrap.cluster.x-k8s.io");
    assert_eq!(hub.get("/spec/template/spec/minReadySeconds"), 5);
}

#[test]
fn what_the_hub_cannot_say_comes_back() {
    let there = convert(&machine_deployment(), "v1beta2").unwrap();
    assert_eq!(convert(&there, "v1beta1").unwrap(), machine_deployment());
}

#[test]
fn an_edit_in_the_hub_wins_over_what_was_set_aside() {
    let mut hub = convert(&machine_deployment(), "v1beta2").unwrap();
    hub.0["spec"]["template"]["spec"]["deletion"]["nodeDrainTimeoutSeconds"] = json!(90);
    hub.0["spec"]["template"]["spec"]["bootstrap"]["configRef"]["name"] = json!("other");
    let old = convert(&hub, "v1beta1").unwrap();
    assert_eq!(old.get("/spec/template/spec/nodeDrainTimeout"), "1m30s");
    assert_eq!(old.get("/spec/template/spec/bootstrap/configRef/name"), "other");
    assert_eq!(old.get("/spec/progressDeadlineSeconds"), 600);
}

#[test]
fn an_empty_string_is_not_an_absent_one() {
    let object = Object(json!({
        "apiVersion": "controlplane.cluster.x-k8s.io/v1alpha1", "kind": "KamajiControlPlane",
        "metadata": {"name": "k"}, "spec": {"dataStoreName": "", "version": "1.28.10", "addons": {"coreDNS": {}}},
    }));
    let hub = convert(&object, "v1alpha2").unwrap();
    assert_eq!(hub.get("/spec/dataStoreName"), "");
    assert_eq!(hub.get("/spec/addons/coreDNS"), &json!({}));
    assert_eq!(convert(&hub, "v1alpha1").unwrap(), object);
}

#[test]
fn an_unknown_version_is_named_with_the_served_ones() {
    let error = convert(&machine_deployment(), "v1alpha9").unwrap_err();
    assert_eq!(error.to_string(), "MachineDeployment has no version v1alpha9 here; served are v1beta1, v1beta2");
}

/// Pod parts nest deeper than a strategy can be drawn from: below this depth objects are empty.
const DEEPEST: usize = 7;

/// Random objects of a version, drawn from its own schema.
fn from_schema(schema: &Value, depth: usize) -> BoxedStrategy<Value> {
    if schema["x-kubernetes-int-or-string"] == true {
        return prop_oneof![any::<i32>().prop_map(Value::from), "[a-z%0-9]{1,5}".prop_map(Value::from)].boxed();
    }
    match schema["type"].as_str() {
        Some("object") if depth >= DEEPEST => Just(json!({})).boxed(),
        Some("object") => object_strategy(schema, depth + 1),
        Some("array") => {
            prop::collection::vec(from_schema(&schema["items"], depth + 1), 0..3).prop_map(Value::from).boxed()
        }
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => any::<i32>().prop_map(Value::from).boxed(),
        Some("number") => any::<i16>().prop_map(|number| json!(f64::from(number))).boxed(),
        // Durations and references are strings too: some of what is drawn must look like them.
        Some("string") => prop_oneof![
            "[a-z0-9./-]{0,8}".prop_map(Value::from),
            Just(json!("10m0s")),
            Just(json!("1.5s")),
            Just(json!("cluster.x-k8s.io/v1beta1")),
        ]
        .boxed(),
        _ => Just(json!({"free": ["form", 1]})).boxed(),
    }
}

fn object_strategy(schema: &Value, depth: usize) -> BoxedStrategy<Value> {
    let Some(properties) = schema["properties"].as_object() else {
        let values = schema["additionalProperties"].clone();
        if !values.is_object() {
            return Just(json!({"any": "thing"})).boxed();
        }
        return prop::collection::btree_map("[a-z]{1,3}", from_schema(&values, depth), 0..3)
            .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into())
            .boxed();
    };
    let fields: Vec<BoxedStrategy<Option<(String, Value)>>> = properties
        .iter()
        .map(|(name, schema)| {
            let name = name.clone();
            prop::option::weighted(0.6, from_schema(schema, depth))
                .prop_map(move |value| value.map(|value| (name.clone(), value)))
                .boxed()
        })
        .collect();
    fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect())).boxed()
}

fn any_pair() -> impl Strategy<Value = (Object, &'static str)> {
    let pairs: Vec<BoxedStrategy<(Object, &'static str)>> = registry::kinds()
        .iter()
        .filter(|facts| facts.versions.len() > 1)
        .flat_map(|facts| {
            let pairs = facts.versions.iter().flat_map(|from| facts.versions.iter().map(move |to| (from, to)));
            pairs
                .filter(|(from, to)| from.name != to.name)
                .map(|(from, to)| {
                    let (group, kind, version, target) = (facts.group, facts.kind, from.name, to.name);
                    let properties = &from.schema()["properties"];
                    (from_schema(&properties["spec"], 0), from_schema(&properties["status"], 0))
                        .prop_map(move |(spec, status)| {
                            let mut object = Object::named(&format!("{group}/{version}"), kind, "default", "x");
                            object.0["spec"] = spec;
                            if !status["free"].is_array() {
                                object.0["status"] = status;
                            }
                            (object, target)
                        })
                        .boxed()
                })
                .collect::<Vec<_>>()
        })
        .collect();
    proptest::strategy::Union::new(pairs)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn there_and_back_is_the_same_object((object, target) in any_pair()) {
        let version = object.api_version().rsplit('/').next().unwrap().to_owned();
        let there = convert(&object, target).unwrap();
        prop_assert_eq!(convert(&there, &version).unwrap(), object);
    }
}
