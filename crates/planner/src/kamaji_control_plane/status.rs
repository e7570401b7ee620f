//! What a KamajiControlPlane says of itself.

use hangar_api::KubeVersion;
use hangar_api::conditions::{Condition, Status};
use hangar_api::kinds::{KamajiControlPlane, KamajiControlPlaneStatusInitialization};

use jiff::Timestamp;

use super::{World, api_server, hosting_objects, translate};
use crate::data_store::read_only::is_marked;
use crate::hosted::read_only::condition;
use crate::hosted::{is_available, replicas};
use crate::machine_deployment::selector_text;
use crate::{Progress, Report};

pub fn status(world: &World, progress: &Progress, report: &mut Report<KamajiControlPlane>) {
    let server = api_server(world);
    let done = progress.is_done() && !world.object().is_deleting();
    let initialized = done || world.object().get("/status/initialization/controlPlaneInitialized") == true;
    let ready = done && is_available(server);
    let labels = server.map(|deployment| deployment.get("/spec/selector/matchLabels").clone()).unwrap_or_default();
    let status = &mut report.status;
    // What runs, not what was requested: workers compare with it. It stays while the API does not answer.
    let running = world.facts.tenant_version.as_deref().and_then(KubeVersion::parse);
    status.version = running.map_or_else(|| world.object().text("/status/version").to_owned(), |it| it.to_string());
    status.initialization =
        Some(KamajiControlPlaneStatusInitialization { control_plane_initialized: Some(initialized) });
    status.external_managed_control_plane = true;
    status.ready = ready;
    status.replicas = replicas(server, "replicas");
    status.ready_replicas = replicas(server, "readyReplicas");
    status.available_replicas = replicas(server, "availableReplicas");
    status.up_to_date_replicas = replicas(server, "updatedReplicas");
    status.selector = Some(selector_text(&labels));

    report.condition(match progress.reason() {
        Some(reason) => Condition::new("Available", Status::False, reason.code, reason.message.clone()),
        None if ready => Condition::new("Available", Status::True, "Available", ""),
        None => Condition::new("Available", Status::False, "NotAvailable", "the control plane is being made"),
    });
    report.flag("TenantControlPlaneAddressReady", hosting_objects(world).addresses().is_some(), "NotYet");
    report.flag("KamajiControlPlaneIsInitialized", initialized, "NotYet");
    report.flag("KamajiControlPlaneIsReady", ready, "NotYet");
    let record = format!("{}-kubeadmconfig", world.object().name());
    report.flag("KubeadmResourcesCreated", world.named("", "ConfigMap", &record).is_some(), "NotYet");
    report.conditions.extend(substitution(world));
    report.conditions.extend(certificates(world));
    report.conditions.extend(hosting_objects(world).rotation_condition());
    report.conditions.extend(hosting_objects(world).provided_condition());
    report.conditions.extend(konnectivity(world));
    report.conditions.extend(read_only(world));
}

/// When the next certificate is issued anew, by itself.
fn certificates(world: &World) -> Option<Condition> {
    // The time of the pass does not matter: only when it is due is said.
    let renewal = hosting_objects(world).renewal(Timestamp::UNIX_EPOCH);
    let mut text = format!("the next certificate is renewed after {}", renewal.next?);
    if let Some(expires) = renewal.expires {
        text += &format!("; the first one expires at {expires}");
    }
    Some(Condition::new("CertificatesValid", Status::True, "RenewalScheduled", text))
}

/// Its server runs beside the API server, and is ready with it.
fn konnectivity(world: &World) -> Option<Condition> {
    world.typed().spec.addons.as_ref()?.konnectivity.as_ref()?;
    let condition = |status, reason: &str, text: String| Condition::new("KonnectivityReady", status, reason, text);
    Some(match &world.facts.konnectivity {
        Err(fix) => {
            let text = format!("konnectivity-server is not installed, the API server calls nodes directly: {fix}");
            condition(Status::False, "ProgramMissing", text)
        }
        Ok(()) if is_available(api_server(world)) => condition(Status::True, "Running", String::new()),
        Ok(()) => condition(Status::False, "NotYet", String::new()),
    })
}

fn read_only(world: &World) -> Option<Condition> {
    let store = translate::store(world).filter(|store| is_marked(store, world.object().uid()))?;
    Some(condition(store.name(), &KubeVersion::parse(&world.typed().spec.version)?))
}

/// Another version than the one requested is never run in silence.
fn substitution(world: &World) -> Option<Condition> {
    let running = KubeVersion::parse(world.facts.tenant_version.as_deref()?)?;
    let wanted = KubeVersion::parse(&world.typed().spec.version)?;
    Some(if running == wanted {
        Condition::new("VersionAsRequested", Status::True, "AsRequested", "")
    } else {
        let text = format!("requested {wanted}, running {running}: the requested version is not installed");
        Condition::new("VersionAsRequested", Status::False, "VersionSubstituted", text)
    })
}
