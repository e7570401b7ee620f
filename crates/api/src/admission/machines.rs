//! Machines and what makes them.

use serde_json::{Value, json};

use super::Refusal;
use super::check::{default, field, fields, version};
use crate::names::{CLUSTER_NAME_LABEL, DEPLOYMENT_NAME_LABEL, SET_NAME_LABEL};
use crate::object::Object;

pub fn machine(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let cluster = object.text("/spec/clusterName").to_owned();
    if let Some(labels) = fields(&mut object.0, &["metadata", "labels"]).filter(|_| !cluster.is_empty()) {
        labels.insert(CLUSTER_NAME_LABEL.into(), cluster.into());
    }
    let mut refusals = bootstrap(object, "/spec");
    refusals.extend(leading_v(object, old, "/spec"));
    refusals
}

pub fn machine_deployment(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    select_own(object, DEPLOYMENT_NAME_LABEL);
    let spec = &mut object.0["spec"];
    default(spec, &[], "replicas", 1);
    default(spec, &["rollout", "strategy"], "type", "RollingUpdate");
    if spec["rollout"]["strategy"]["type"] == "RollingUpdate" {
        let rolling = ["rollout", "strategy", "rollingUpdate"];
        default(spec, &rolling, "maxSurge", 1);
        default(spec, &rolling, "maxUnavailable", 0);
    }
    of_template(object, old)
}

pub fn machine_set(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    select_own(object, SET_NAME_LABEL);
    default(&mut object.0["spec"], &[], "replicas", 1);
    of_template(object, old)
}

pub fn machine_pool(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    default(&mut object.0["spec"], &[], "replicas", 1);
    let mut refusals = bootstrap(object, "/spec/template/spec");
    refusals.extend(replicas(object, old));
    refusals.extend(leading_v(object, old, "/spec/template/spec"));
    refusals
}

/// Twice what Kubernetes supports in a cluster. Upstream's schema has no bound, so ours has none either.
const MOST_REPLICAS: i64 = 10_000;

/// What is already stored may stay and become smaller.
fn replicas(object: &Object, old: Option<&Object>) -> Vec<Refusal> {
    let count = |object: &Object| object.get("/spec/replicas").as_i64().unwrap_or(0);
    let (wanted, before) = (count(object), old.map_or(0, count));
    if (0..=MOST_REPLICAS).contains(&wanted) || (wanted > 0 && wanted <= before) {
        return vec![];
    }
    let message = format!("{wanted} is not a number of Machines that can be made; write one from 0 to {MOST_REPLICAS}");
    vec![Refusal::new("spec.replicas", message)]
}

fn of_template(object: &mut Object, old: Option<&Object>) -> Vec<Refusal> {
    let mut refusals = selects_its_template(&object.0["spec"]);
    refusals.extend(replicas(object, old));
    refusals.extend(bootstrap(object, "/spec/template/spec"));
    refusals.extend(leading_v(object, old, "/spec/template/spec"));
    let (own, inner) = (object.text("/spec/clusterName"), object.text("/spec/template/spec/clusterName"));
    if !inner.is_empty() && own != inner {
        let message =
            format!("{inner:?} is not spec.clusterName, which is {own:?}; name the same cluster in both places");
        refusals.push(Refusal::new("spec.template.spec.clusterName", message));
    }
    refusals
}

/// Without a selector it selects what it makes; and always only what is of its cluster.
fn select_own(object: &mut Object, label: &str) {
    let (name, cluster) = (object.name().to_owned(), object.text("/spec/clusterName").to_owned());
    let spec = &mut object.0["spec"];
    let empty = is_empty(&spec["selector"]["matchLabels"]) && is_empty(&spec["selector"]["matchExpressions"]);
    let places: [&[&str]; 2] = [&["selector", "matchLabels"], &["template", "metadata", "labels"]];
    for place in places {
        let Some(labels) = fields(spec, place) else { continue };
        if empty {
            labels.insert(label.into(), json!(name));
        }
        labels.insert(CLUSTER_NAME_LABEL.into(), json!(cluster));
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn selects_its_template(spec: &Value) -> Vec<Refusal> {
    let labels = &spec["template"]["metadata"]["labels"];
    let wanted = spec["selector"]["matchLabels"].as_object().into_iter().flatten();
    wanted
        .filter(|(name, value)| labels.get(name.as_str()) != Some(value))
        .map(|(name, value)| {
            let message = format!(
                "must be {value}, because spec.selector asks for it; add the label or drop it from the selector"
            );
            Refusal::new(format!("spec.template.metadata.labels[{name}]"), message)
        })
        .collect()
}

/// Bootstrap data comes from an object or from a Secret.
fn bootstrap(object: &Object, spec: &str) -> Vec<Refusal> {
    let place = object.get(spec).get("bootstrap").unwrap_or(&Value::Null);
    if !place.is_object() || !is_empty(&place["configRef"]) || place["dataSecretName"].is_string() {
        return vec![];
    }
    let message = "names neither a configRef nor a dataSecretName; write one of them";
    vec![Refusal::new(format!("{}.bootstrap", field(spec)), message)]
}

fn leading_v(object: &mut Object, old: Option<&Object>, spec: &str) -> Vec<Refusal> {
    let pointer = format!("{spec}/version");
    let refusals = version(object, old, &pointer);
    if let Some(text) = object.0.pointer_mut(&pointer)
        && let Some(bare) = text.as_str().filter(|text| text.starts_with(|letter: char| letter.is_ascii_digit()))
    {
        *text = format!("v{bare}").into();
    }
    refusals
}

pub fn machine_health_check(object: &mut Object, _old: Option<&Object>) -> Vec<Refusal> {
    let timeout = object.get("/spec/checks/nodeStartupTimeoutSeconds").as_i64();
    match timeout.filter(|seconds| (1..30).contains(seconds)) {
        Some(seconds) => {
            let message =
                format!("{seconds} seconds are too short for any host to start; write at least 30, or 0 for ever");
            vec![Refusal::new("spec.checks.nodeStartupTimeoutSeconds", message)]
        }
        None => vec![],
    }
}
