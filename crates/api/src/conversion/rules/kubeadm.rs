//! Kubeadm's configurations and control planes.

use super::core::{condition_status, replica_status, timeouts};
use super::how::How;
use super::{Rule, below, moved, moved_below, rule};

pub fn rules(kind: &str, older: &str) -> Vec<Rule> {
    match (kind, older) {
        ("KubeadmConfig", "v1beta1") => [spec("spec"), config_status()].concat(),
        ("KubeadmConfigTemplate", "v1beta1") => spec("spec.template.spec"),
        ("KubeadmControlPlane", "v1alpha3") => moved(&[
            ("spec.infrastructureTemplate", "spec.machineTemplate.infrastructureRef"),
            ("spec.nodeDrainTimeout", "spec.machineTemplate.nodeDrainTimeout"),
            ("spec.upgradeAfter", "spec.rolloutAfter"),
        ]),
        ("KubeadmControlPlane", "v1beta1") => [control_plane("spec"), control_plane_status()].concat(),
        ("KubeadmControlPlaneTemplate", "v1beta1") => control_plane("spec.template.spec"),
        _ => vec![],
    }
}

fn spec(prefix: &str) -> Vec<Rule> {
    let arguments = [
        "clusterConfiguration.apiServer.extraArgs",
        "clusterConfiguration.controllerManager.extraArgs",
        "clusterConfiguration.scheduler.extraArgs",
        "clusterConfiguration.etcd.local.extraArgs",
        "initConfiguration.nodeRegistration.kubeletExtraArgs",
        "joinConfiguration.nodeRegistration.kubeletExtraArgs",
    ];
    let mut rules: Vec<Rule> =
        arguments.iter().map(|path| below(prefix, How::Pairs("name", "value"), path, path)).collect();
    let seconds = [
        (
            "clusterConfiguration.apiServer.timeoutForControlPlane",
            "initConfiguration.timeouts.controlPlaneComponentHealthCheckSeconds",
        ),
        ("joinConfiguration.discovery.timeout", "joinConfiguration.timeouts.tlsBootstrapSeconds"),
        ("initConfiguration.bootstrapTokens[].ttl", "initConfiguration.bootstrapTokens[].ttlSeconds"),
    ];
    rules.extend(seconds.iter().map(|(old, new)| below(prefix, How::Seconds, old, new)));
    rules
}

fn config_status() -> Vec<Rule> {
    let mut rules = moved(&[("status.ready", "status.initialization.dataSecretCreated")]);
    rules.extend(condition_status());
    rules
}

fn control_plane(prefix: &str) -> Vec<Rule> {
    let mut rules = vec![below(
        prefix,
        How::Reference,
        "machineTemplate.infrastructureRef",
        "machineTemplate.spec.infrastructureRef",
    )];
    rules.extend(timeouts(&format!("{prefix}.machineTemplate"), "spec.deletion"));
    rules.extend(moved_below(
        prefix,
        &[
            ("machineTemplate.readinessGates", "machineTemplate.spec.readinessGates"),
            ("machineTemplate.taints", "machineTemplate.spec.taints"),
            ("rolloutBefore", "rollout.before"),
            ("rolloutAfter", "rollout.after"),
            ("rolloutStrategy", "rollout.strategy"),
            ("remediationStrategy.maxRetry", "remediation.maxRetry"),
            ("machineNamingStrategy.template", "machineNaming.template"),
        ],
    ));
    for period in ["minHealthyPeriod", "retryPeriod"] {
        let new = format!("remediation.{period}Seconds");
        rules.push(below(prefix, How::Seconds, &format!("remediationStrategy.{period}"), &new));
    }
    rules.extend(spec(&format!("{prefix}.kubeadmConfigSpec")));
    rules
}

fn control_plane_status() -> Vec<Rule> {
    let mut rules = vec![
        rule(How::Move, "status.initialized", "status.initialization.controlPlaneInitialized"),
        rule(How::Move, "status.lastRemediation.timestamp", "status.lastRemediation.time"),
    ];
    rules.extend(replica_status());
    rules
}
