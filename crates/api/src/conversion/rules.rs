//! What moved between the versions of each kind, as tables.
//!
//! Holds: rules run in order on the way up and in reverse on the way down, so that a place can be emptied before it is filled.

use serde_json::{Map, Value, json};

use crate::registry;

/// How a value changes on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Same value, other place.
    Move,
    /// `1m30s` in the old version, 90 in the hub.
    Seconds,
    /// A full object reference in the old version, group, kind and name in the hub.
    Reference,
    /// A full object reference in the old version, the name alone in the hub.
    NodeName,
    /// A map in the old version, a list of name and value in the hub.
    Arguments,
    /// A map by name in the old version, a list with names in the hub.
    FailureDomains,
}

/// One thing that differs between an older version and the hub.
#[derive(Debug, Clone)]
pub struct Rule {
    old: String,
    hub: String,
    how: How,
}

impl Rule {
    pub fn up(&self, body: &mut Value) {
        carry(body, &self.old, &self.hub, &|value| self.how.up(value));
    }

    pub fn down(&self, body: &mut Value) {
        carry(body, &self.hub, &self.old, &|value| self.how.down(value));
    }
}

/// The rules of a kind; none means that versions differ in nothing but new fields.
pub fn of(kind: &str) -> Vec<Rule> {
    match kind {
        "Cluster" => cluster(),
        "Machine" => [machine_spec("spec"), machine_status()].concat(),
        "MachineSet" => [machine_set_spec(), machine_spec("spec.template.spec"), replica_status()].concat(),
        "MachineDeployment" => {
            [machine_deployment_spec(), machine_spec("spec.template.spec"), replica_status()].concat()
        }
        "KubeadmConfig" => [kubeadm_spec("spec"), kubeadm_status()].concat(),
        "KubeadmConfigTemplate" => kubeadm_spec("spec.template.spec"),
        "KamajiControlPlane" => kamaji(),
        _ => vec![],
    }
}

fn rule(how: How, old: &str, hub: &str) -> Rule {
    Rule { old: old.to_owned(), hub: hub.to_owned(), how }
}

fn moved(pairs: &[(&str, &str)]) -> Vec<Rule> {
    pairs.iter().map(|(old, hub)| rule(How::Move, old, hub)).collect()
}

fn below(prefix: &str, how: How, old: &str, hub: &str) -> Rule {
    rule(how, &format!("{prefix}.{old}"), &format!("{prefix}.{hub}"))
}

fn condition_status() -> Vec<Rule> {
    moved(&[
        ("status.conditions", "status.deprecated.v1beta1.conditions"),
        ("status.v1beta2.conditions", "status.conditions"),
        ("status.failureReason", "status.deprecated.v1beta1.failureReason"),
        ("status.failureMessage", "status.deprecated.v1beta1.failureMessage"),
    ])
}

fn cluster() -> Vec<Rule> {
    let mut rules = vec![
        rule(How::Reference, "spec.controlPlaneRef", "spec.controlPlaneRef"),
        rule(How::Reference, "spec.infrastructureRef", "spec.infrastructureRef"),
        rule(How::FailureDomains, "status.failureDomains", "status.failureDomains"),
    ];
    rules.extend(moved(&[
        ("spec.topology.class", "spec.topology.classRef.name"),
        ("spec.topology.classNamespace", "spec.topology.classRef.namespace"),
        ("status.infrastructureReady", "status.initialization.infrastructureProvisioned"),
        ("status.controlPlaneReady", "status.initialization.controlPlaneInitialized"),
        ("status.v1beta2.controlPlane", "status.controlPlane"),
        ("status.v1beta2.workers", "status.workers"),
    ]));
    rules.extend(condition_status());
    rules
}

fn machine_spec(prefix: &str) -> Vec<Rule> {
    vec![
        below(prefix, How::Reference, "bootstrap.configRef", "bootstrap.configRef"),
        below(prefix, How::Reference, "infrastructureRef", "infrastructureRef"),
        below(prefix, How::Seconds, "nodeDrainTimeout", "deletion.nodeDrainTimeoutSeconds"),
        below(prefix, How::Seconds, "nodeVolumeDetachTimeout", "deletion.nodeVolumeDetachTimeoutSeconds"),
        below(prefix, How::Seconds, "nodeDeletionTimeout", "deletion.nodeDeletionTimeoutSeconds"),
    ]
}

fn machine_status() -> Vec<Rule> {
    let mut rules = vec![rule(How::NodeName, "status.nodeRef", "status.nodeRef")];
    rules.extend(moved(&[
        ("status.bootstrapReady", "status.initialization.bootstrapDataSecretCreated"),
        ("status.infrastructureReady", "status.initialization.infrastructureProvisioned"),
    ]));
    rules.extend(condition_status());
    rules
}

fn machine_set_spec() -> Vec<Rule> {
    moved(&[
        ("spec.deletePolicy", "spec.deletion.order"),
        ("spec.minReadySeconds", "spec.template.spec.minReadySeconds"),
        ("spec.machineNamingStrategy.template", "spec.machineNaming.template"),
    ])
}

fn machine_deployment_spec() -> Vec<Rule> {
    moved(&[
        ("spec.strategy.rollingUpdate.deletePolicy", "spec.deletion.order"),
        ("spec.strategy.rollingUpdate.maxSurge", "spec.rollout.strategy.rollingUpdate.maxSurge"),
        ("spec.strategy.rollingUpdate.maxUnavailable", "spec.rollout.strategy.rollingUpdate.maxUnavailable"),
        ("spec.strategy.type", "spec.rollout.strategy.type"),
        ("spec.strategy.remediation.maxInFlight", "spec.remediation.maxInFlight"),
        ("spec.rolloutAfter", "spec.rollout.after"),
        ("spec.minReadySeconds", "spec.template.spec.minReadySeconds"),
        ("spec.machineNamingStrategy.template", "spec.machineNaming.template"),
    ])
}

fn replica_status() -> Vec<Rule> {
    let mut rules = condition_status();
    rules.extend(moved(&[
        ("status.readyReplicas", "status.deprecated.v1beta1.readyReplicas"),
        ("status.availableReplicas", "status.deprecated.v1beta1.availableReplicas"),
        ("status.updatedReplicas", "status.deprecated.v1beta1.updatedReplicas"),
        ("status.unavailableReplicas", "status.deprecated.v1beta1.unavailableReplicas"),
        ("status.fullyLabeledReplicas", "status.deprecated.v1beta1.fullyLabeledReplicas"),
        ("status.v1beta2.readyReplicas", "status.readyReplicas"),
        ("status.v1beta2.availableReplicas", "status.availableReplicas"),
        ("status.v1beta2.upToDateReplicas", "status.upToDateReplicas"),
    ]));
    rules
}

fn kubeadm_spec(prefix: &str) -> Vec<Rule> {
    let arguments = [
        "clusterConfiguration.apiServer.extraArgs",
        "clusterConfiguration.controllerManager.extraArgs",
        "clusterConfiguration.scheduler.extraArgs",
        "clusterConfiguration.etcd.local.extraArgs",
        "initConfiguration.nodeRegistration.kubeletExtraArgs",
        "joinConfiguration.nodeRegistration.kubeletExtraArgs",
    ];
    let mut rules: Vec<Rule> = arguments.iter().map(|path| below(prefix, How::Arguments, path, path)).collect();
    rules.push(below(
        prefix,
        How::Seconds,
        "clusterConfiguration.apiServer.timeoutForControlPlane",
        "initConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
    ));
    rules.push(below(
        prefix,
        How::Seconds,
        "joinConfiguration.discovery.timeout",
        "joinConfiguration.timeouts.tlsBootstrapSeconds",
    ));
    rules
}

fn kubeadm_status() -> Vec<Rule> {
    let mut rules = moved(&[("status.ready", "status.initialization.dataSecretCreated")]);
    rules.extend(condition_status());
    rules
}

fn kamaji() -> Vec<Rule> {
    moved(&[
        ("status.initialized", "status.initialization.controlPlaneInitialized"),
        ("status.updatedReplicas", "status.upToDateReplicas"),
    ])
}

impl How {
    /// From the old version to the hub; `None` means that the hub cannot say it.
    fn up(self, value: Value) -> Option<Value> {
        match self {
            Self::Move => Some(value),
            Self::Seconds => seconds(value.as_str()?).map(Value::from),
            Self::Reference => {
                let group = value["apiVersion"].as_str()?.split_once('/').map_or("", |(group, _)| group).to_owned();
                Some(json!({ "apiGroup": group, "kind": value["kind"], "name": value["name"] }))
            }
            Self::NodeName => Some(json!({ "name": value["name"].as_str()? })),
            Self::Arguments => {
                let arguments = value.as_object()?.iter();
                Some(arguments.map(|(name, value)| json!({ "name": name, "value": value })).collect())
            }
            Self::FailureDomains => {
                let domains = value.as_object()?.iter();
                Some(domains.map(|(name, domain)| with_name(name, domain)).collect())
            }
        }
    }

    /// From the hub to the old version.
    fn down(self, value: Value) -> Option<Value> {
        match self {
            Self::Move => Some(value),
            Self::Seconds => value.as_i64().map(|seconds| duration(seconds).into()),
            Self::Reference => {
                let (group, kind) = (value["apiGroup"].as_str()?, value["kind"].as_str()?);
                let version = registry::kind(group, kind).map_or("v1beta1", |facts| facts.hub().name);
                let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
                Some(json!({ "apiVersion": api_version, "kind": kind, "name": value["name"] }))
            }
            Self::NodeName => Some(json!({ "apiVersion": "v1", "kind": "Node", "name": value["name"].as_str()? })),
            Self::Arguments => {
                // Equal names are legal in a list only; there the map keeps the last one and the list is set aside.
                let pairs = value.as_array()?.iter();
                let map: Map<String, Value> = pairs
                    .map(|pair| Some((pair["name"].as_str()?.to_owned(), pair["value"].clone())))
                    .collect::<Option<_>>()?;
                Some(Value::Object(map))
            }
            Self::FailureDomains => {
                let domains = value.as_array()?.iter();
                let map: Map<String, Value> = domains.map(without_name).collect::<Option<_>>()?;
                Some(Value::Object(map))
            }
        }
    }
}

fn with_name(name: &str, domain: &Value) -> Value {
    let mut domain = domain.as_object().cloned().unwrap_or_default();
    domain.insert("name".into(), name.into());
    Value::Object(domain)
}

fn without_name(domain: &Value) -> Option<(String, Value)> {
    let mut domain = domain.as_object()?.clone();
    let name = domain.remove("name")?;
    Some((name.as_str()?.to_owned(), Value::Object(domain)))
}

/// Go's duration text in whole seconds, or nothing.
fn seconds(text: &str) -> Option<i64> {
    let mut total = 0_i64;
    let mut number = String::new();
    for letter in text.chars() {
        match letter {
            '0'..='9' => number.push(letter),
            'h' | 'm' | 's' => {
                let unit = match letter {
                    'h' => 3600,
                    'm' => 60,
                    _ => 1,
                };
                total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(unit)?)?;
                number.clear();
            }
            _ => return None,
        }
    }
    (number.is_empty() && !text.is_empty()).then_some(total)
}

/// Whole seconds as Go writes them: `1h0m0s`, `1m30s`, `5s`, `0s`.
fn duration(seconds: i64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

/// Takes the value at `from`, changes it and puts it at `to`; what cannot be changed stays where it is.
fn carry(body: &mut Value, from: &str, to: &str, change: &dyn Fn(Value) -> Option<Value>) {
    let pointer = |path: &str| format!("/{}", path.replace('.', "/"));
    let Some(changed) = body.pointer(&pointer(from)).cloned().and_then(change) else { return };
    let (parent, leaf) = from.rsplit_once('.').unwrap_or(("", from));
    if let Some(map) = body.pointer_mut(&if parent.is_empty() { String::new() } else { pointer(parent) })
        && let Some(map) = map.as_object_mut()
    {
        map.remove(leaf);
    }
    let mut place = body;
    for key in to.split('.') {
        if place.is_null() {
            *place = json!({});
        }
        let Some(map) = place.as_object_mut() else { return };
        place = map.entry(key).or_insert(Value::Null);
    }
    *place = changed;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        let table = [
            ("10m", Some(600), "10m0s"),
            ("0s", Some(0), "0s"),
            ("1h30m", Some(5400), "1h30m0s"),
            ("45s", Some(45), "45s"),
        ];
        for (text, number, written) in table {
            assert_eq!(seconds(text), number, "{text}");
            assert_eq!(number.map(duration).as_deref(), Some(written));
        }
        for inexact in ["1.5s", "100ms", "", "10"] {
            assert_eq!(seconds(inexact), None, "{inexact}");
        }
    }
}
