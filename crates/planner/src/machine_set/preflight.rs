//! Whether new Machines fit the control plane, before they are made.
//! Holds: MS3. Machines that are there are not judged; a control plane without a version of its own is not either; an annotation skips checks by name.

use hangar_api::contract::Foreign;
use hangar_api::kinds::MachineDeployment;
use hangar_api::names::PAUSED_ANNOTATION;
use hangar_api::{KubeVersion, Object};

use super::{BOOTSTRAP_TEMPLATE, World, missing_count};
use crate::Phase;

const SKIP_ANNOTATION: &str = "machineset.cluster.x-k8s.io/skip-preflight-checks";
/// Kubelets may be this much older than their API server.
const MOST_SKEW: u64 = 3;

pub(super) fn checked(world: &World) -> Phase {
    if missing_count(world) == 0 { Phase::Done } else { deployment_has_decided(world).then(|| fits(world)) }
}

/// What its deployment was told last may be that no Machine is to be made here: after a pause both find out at the same time.
fn deployment_has_decided(world: &World) -> Phase {
    let Some(deployment) = world.owner::<MachineDeployment>() else { return Phase::Done };
    let observed = deployment.get("/status/observedGeneration").as_i64();
    if deployment.annotation(PAUSED_ANNOTATION).is_some()
        || observed.is_none_or(|observed| observed >= deployment.generation())
    {
        return Phase::Done;
    }
    let text = format!("{} has changed and decides first how many Machines this set has", deployment.key());
    Phase::wait("WaitingForMachineDeployment", text)
}

/// The same whether Machines are missing or not.
pub(super) fn fits(world: &World) -> Phase {
    let Some(plane) = world.cluster_referenced("/spec/controlPlaneRef") else { return Phase::Done };
    let wanted = KubeVersion::parse(world.typed().spec.template.spec.version.as_deref().unwrap_or_default());
    let (Some(worker), Some(version)) = (wanted, Foreign::new(plane).wanted_version()) else { return Phase::Done };
    let by_kubeadm = world.object().text(&format!("{BOOTSTRAP_TEMPLATE}/kind")) == "KubeadmConfigTemplate";
    let checks = [
        ("KubernetesVersionSkew", worker.minor <= version.minor, "upgrade the control plane first"),
        (
            "KubernetesVersionSkew",
            worker.minor + MOST_SKEW >= version.minor,
            "they are more than three minor versions older",
        ),
        ("ControlPlaneIsStable", !is_upgrading(plane), "it is being upgraded"),
        (
            "KubeadmVersionSkew",
            !by_kubeadm || worker.minor == version.minor,
            "kubeadm joins only its own minor version",
        ),
    ];
    let failed = checks.into_iter().find(|(name, holds, _)| !holds && !is_skipped(world.object(), name));
    failed.map_or(Phase::Done, |(name, _, why)| {
        let text = format!(
            "workers request {worker}, {} requests {version}: {why} (check {name}; the annotation {SKIP_ANNOTATION} skips it)",
            plane.key()
        );
        Phase::blocked("PreflightCheckFailed", text)
    })
}

/// From an older minor version: another patch is no hindrance, and may be all that is installed.
fn is_upgrading(plane: &Object) -> bool {
    let plane = Foreign::new(plane);
    matches!((plane.wanted_version(), plane.running_version()), (Some(wanted), Some(running)) if running.minor < wanted.minor)
}

/// By name, or all of them.
fn is_skipped(set: &Object, check: &str) -> bool {
    let skipped = set.annotation(SKIP_ANNOTATION).unwrap_or_default().split(',').map(str::trim);
    skipped.into_iter().any(|name| name == "All" || name == check)
}
