//! Clusters with their topology, and classes.

use super::core::{condition_status, health_check, strategy, timeouts};
use super::how::How;
use super::{Rule, moved, moved_below, rule};

pub fn cluster() -> Vec<Rule> {
    let mut rules = vec![
        rule(How::Reference, "spec.controlPlaneRef", "spec.controlPlaneRef"),
        rule(How::Reference, "spec.infrastructureRef", "spec.infrastructureRef"),
        rule(How::Named, "status.failureDomains", "status.failureDomains"),
    ];
    rules.extend(moved(&[
        ("spec.topology.class", "spec.topology.classRef.name"),
        ("spec.topology.classNamespace", "spec.topology.classRef.namespace"),
        ("status.infrastructureReady", "status.initialization.infrastructureProvisioned"),
        ("status.controlPlaneReady", "status.initialization.controlPlaneInitialized"),
        ("status.v1beta2.controlPlane", "status.controlPlane"),
        ("status.v1beta2.workers", "status.workers"),
    ]));
    rules.extend(members("spec.topology"));
    rules.extend(condition_status());
    rules
}

/// Control plane and workers, of a topology or of a class.
fn members(prefix: &str) -> Vec<Rule> {
    let (control_plane, deployments) =
        (format!("{prefix}.controlPlane"), format!("{prefix}.workers.machineDeployments[]"));
    let checked = |place: &str| health_check(&format!("{place}.machineHealthCheck"), &format!("{place}.healthCheck"));
    let mut rules = timeouts(&control_plane, "deletion");
    rules.extend(checked(&control_plane));
    rules.extend(timeouts(&deployments, "deletion"));
    rules.extend(checked(&deployments));
    rules.extend(strategy(&deployments));
    rules.extend(timeouts(&format!("{prefix}.workers.machinePools[]"), "deletion"));
    rules
}

pub fn cluster_class() -> Vec<Rule> {
    let mut rules = moved(&[
        ("spec.infrastructure.ref", "spec.infrastructure.templateRef"),
        ("spec.infrastructureNamingStrategy.template", "spec.infrastructure.naming.template"),
        ("spec.controlPlane.ref", "spec.controlPlane.templateRef"),
        ("spec.controlPlane.machineInfrastructure.ref", "spec.controlPlane.machineInfrastructure.templateRef"),
        ("spec.controlPlane.namingStrategy.template", "spec.controlPlane.naming.template"),
        ("spec.patches[].external.generateExtension", "spec.patches[].external.generatePatchesExtension"),
        ("spec.patches[].external.validateExtension", "spec.patches[].external.validateTopologyExtension"),
        ("spec.variables[].metadata", "spec.variables[].deprecatedV1Beta1Metadata"),
        ("status.variables[].definitions[].metadata", "status.variables[].definitions[].deprecatedV1Beta1Metadata"),
    ]);
    for workers in ["spec.workers.machineDeployments[]", "spec.workers.machinePools[]"] {
        rules.extend(moved_below(
            workers,
            &[
                ("template.metadata", "metadata"),
                ("template.bootstrap.ref", "bootstrap.templateRef"),
                ("template.infrastructure.ref", "infrastructure.templateRef"),
                ("namingStrategy.template", "naming.template"),
            ],
        ));
    }
    rules.extend(members("spec"));
    rules.extend(condition_status());
    rules
}
