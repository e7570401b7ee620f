//! cluster.x-k8s.io: Machines and what makes them; Clusters and classes are in `topology`.

use super::how::How;
use super::{Rule, below, moved, moved_below, rule, topology};

/// The rules between `older` and the next newer version of a kind of this group.
pub fn rules(kind: &str, older: &str) -> Vec<Rule> {
    if older != "v1beta1" {
        // v1alpha3 to v1beta1 renamed nothing: fields were added and dropped.
        return vec![];
    }
    match kind {
        "Cluster" => topology::cluster(),
        "ClusterClass" => topology::cluster_class(),
        "Machine" => [machine_spec("spec"), machine_status()].concat(),
        "MachineSet" => [machine_set_spec(), machine_spec("spec.template.spec"), replica_status()].concat(),
        "MachineDeployment" => {
            [machine_deployment_spec(), machine_spec("spec.template.spec"), replica_status()].concat()
        }
        "MachinePool" => machine_pool(),
        "MachineHealthCheck" => [health_check("spec", "spec"), condition_status()].concat(),
        _ => vec![],
    }
}

/// Conditions of the old form make room for those of the new one.
pub fn condition_status() -> Vec<Rule> {
    moved(&[
        ("status.conditions", "status.deprecated.v1beta1.conditions"),
        ("status.v1beta2.conditions", "status.conditions"),
        ("status.failureReason", "status.deprecated.v1beta1.failureReason"),
        ("status.failureMessage", "status.deprecated.v1beta1.failureMessage"),
    ])
}

/// Timeouts of a Machine.
pub fn timeouts(prefix: &str, deletion: &str) -> Vec<Rule> {
    ["nodeDrainTimeout", "nodeVolumeDetachTimeout", "nodeDeletionTimeout"]
        .iter()
        .map(|name| below(prefix, How::Seconds, name, &format!("{deletion}.{name}Seconds")))
        .collect()
}

fn machine_spec(prefix: &str) -> Vec<Rule> {
    let mut rules = vec![
        below(prefix, How::Reference, "bootstrap.configRef", "bootstrap.configRef"),
        below(prefix, How::Reference, "infrastructureRef", "infrastructureRef"),
    ];
    rules.extend(timeouts(prefix, "deletion"));
    rules
}

fn machine_status() -> Vec<Rule> {
    let mut rules = vec![rule(How::NodeName, "status.nodeRef", "status.nodeRef")];
    rules.extend(provisioning_status());
    rules.extend(condition_status());
    rules
}

fn provisioning_status() -> Vec<Rule> {
    moved(&[
        ("status.bootstrapReady", "status.initialization.bootstrapDataSecretCreated"),
        ("status.infrastructureReady", "status.initialization.infrastructureProvisioned"),
    ])
}

fn machine_set_spec() -> Vec<Rule> {
    moved(&[
        ("spec.deletePolicy", "spec.deletion.order"),
        ("spec.minReadySeconds", "spec.template.spec.minReadySeconds"),
        ("spec.machineNamingStrategy.template", "spec.machineNaming.template"),
    ])
}

fn machine_deployment_spec() -> Vec<Rule> {
    let mut rules = strategy("spec");
    rules.extend(moved(&[
        ("spec.rolloutAfter", "spec.rollout.after"),
        ("spec.minReadySeconds", "spec.template.spec.minReadySeconds"),
        ("spec.machineNamingStrategy.template", "spec.machineNaming.template"),
    ]));
    rules
}

/// How a MachineDeployment replaces its Machines.
pub fn strategy(prefix: &str) -> Vec<Rule> {
    moved_below(
        prefix,
        &[
            ("strategy.rollingUpdate.deletePolicy", "deletion.order"),
            ("strategy.rollingUpdate.maxSurge", "rollout.strategy.rollingUpdate.maxSurge"),
            ("strategy.rollingUpdate.maxUnavailable", "rollout.strategy.rollingUpdate.maxUnavailable"),
            ("strategy.type", "rollout.strategy.type"),
        ],
    )
    .into_iter()
    .chain([remediation(prefix)])
    .collect()
}

/// Upstream keeps a MachineDeployment's limit in `remediation`, and a class's and a topology's in the health check beside it.
fn remediation(prefix: &str) -> Rule {
    let new = if prefix == "spec" { "remediation.maxInFlight" } else { "healthCheck.remediation.maxInFlight" };
    below(prefix, How::Move, "strategy.remediation.maxInFlight", new)
}

fn machine_pool() -> Vec<Rule> {
    let mut rules = moved(&[("spec.minReadySeconds", "spec.template.spec.minReadySeconds")]);
    rules.extend(machine_spec("spec.template.spec"));
    rules.extend(provisioning_status());
    rules.extend(replica_status());
    rules
}

/// Counts of the old meaning make room for those of the new one.
pub fn replica_status() -> Vec<Rule> {
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

/// A health check stands alone, or within a class or a topology.
pub fn health_check(old: &str, new: &str) -> Vec<Rule> {
    let place =
        |old_leaf: &str, new_leaf: &str, how| rule(how, &format!("{old}.{old_leaf}"), &format!("{new}.{new_leaf}"));
    let timeouts = |list: &str| below(&format!("{new}.checks.{list}[]"), How::Seconds, "timeout", "timeoutSeconds");
    vec![
        place("enable", "enabled", How::Move),
        place("maxUnhealthy", "remediation.triggerIf.unhealthyLessThanOrEqualTo", How::Move),
        place("unhealthyRange", "remediation.triggerIf.unhealthyInRange", How::Move),
        place("remediationTemplate", "remediation.templateRef", How::Move),
        place("nodeStartupTimeout", "checks.nodeStartupTimeoutSeconds", How::Seconds),
        place("unhealthyConditions", "checks.unhealthyNodeConditions", How::Move),
        timeouts("unhealthyNodeConditions"),
        place("unhealthyMachineConditions", "checks.unhealthyMachineConditions", How::Move),
        timeouts("unhealthyMachineConditions"),
    ]
}
