//! What a KamajiControlPlane says of itself.

use hangar_api::KubeVersion;
use hangar_api::conditions::{Condition, Status, settle};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{World, is_available};
use crate::machine_deployment::selector_text;
use crate::{Phase, Progress};

pub fn status(world: &World, progress: &Progress, now: Timestamp) -> Option<Value> {
    if world.object.is_deleting() && world.api_server.is_none() {
        return None;
    }
    let number = |field: &str| {
        world
            .api_server
            .as_ref()
            .map_or(0, |deployment| deployment.get("/status").get(field).and_then(Value::as_i64).unwrap_or(0))
    };
    let done = *progress == Progress::Done && !world.object.is_deleting();
    let initialized = done || world.object.get("/status/initialization/controlPlaneInitialized") == true;
    let ready = done && is_available(world.api_server.as_ref());
    let present = world.kind.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    // Workers are held back until the control plane says what it runs: what was asked for, in the form that they compare.
    let version = KubeVersion::parse(&world.kind.spec.version)
        .filter(|_| initialized)
        .map_or(String::new(), |version| version.to_string());
    Some(json!({
        "version": version,
        "initialization": { "controlPlaneInitialized": initialized },
        "externalManagedControlPlane": true,
        "ready": ready,
        "replicas": number("replicas"),
        "readyReplicas": number("readyReplicas"),
        "availableReplicas": number("availableReplicas"),
        "upToDateReplicas": number("updatedReplicas"),
        "selector": selector_text(&world.api_server.as_ref().map(|deployment| deployment.get("/spec/selector/matchLabels").clone()).unwrap_or_default()),
        "conditions": settle(conditions(world, progress, ready, initialized), &present, now),
    }))
}

fn conditions(world: &World, progress: &Progress, ready: bool, initialized: bool) -> Vec<Condition> {
    let has_address = super::address(world, Timestamp::UNIX_EPOCH) == Phase::Done;
    let flag = |kind: &str, good: bool| Condition::new(kind, good.into(), if good { kind } else { "NotYet" }, "");
    let available = match progress.reason() {
        Some(reason) => Condition::new("Available", Status::False, reason.code, reason.message.clone()),
        None if ready => Condition::new("Available", Status::True, "Available", ""),
        None => Condition::new("Available", Status::False, "NotAvailable", "it is being made"),
    };
    let mut all = vec![
        available,
        flag("TenantControlPlaneAddressReady", has_address),
        flag("KamajiControlPlaneIsInitialized", initialized),
        flag("KamajiControlPlaneIsReady", ready),
        flag("KubeadmResourcesCreated", world.kubeadm_config.is_some()),
    ];
    all.extend(substitution(world));
    all.extend(konnectivity(world));
    all
}

/// Its server stands beside the API server, and is ready with it.
fn konnectivity(world: &World) -> Option<Condition> {
    world.kind.spec.addons.as_ref()?.konnectivity.as_ref()?;
    let condition = |status, reason: &str, text: String| Condition::new("KonnectivityReady", status, reason, text);
    Some(match &world.konnectivity {
        Err(fix) => {
            let text =
                format!("konnectivity is asked for and not there, so the API server calls nodes directly: {fix}");
            condition(Status::False, "ProgramMissing", text)
        }
        Ok(()) if is_available(world.api_server.as_ref()) => condition(Status::True, "Running", String::new()),
        Ok(()) => condition(Status::False, "NotYet", String::new()),
    })
}

/// Another version than the one asked for is never run in silence.
fn substitution(world: &World) -> Option<Condition> {
    let running = KubeVersion::parse(world.tenant_version.as_deref()?)?;
    let wanted = KubeVersion::parse(&world.kind.spec.version)?;
    Some(if running == wanted {
        Condition::new("VersionAsRequested", Status::True, "AsRequested", "")
    } else {
        let text = format!("{wanted} was asked for, {running} runs in its place because it was at hand");
        Condition::new("VersionAsRequested", Status::False, "VersionSubstituted", text)
    })
}
