//! The volumes that a server is made with.
//! Flows: surplus ones go -> missing ones are made -> failed ones are replaced -> all are available. Holds: once there is a server, its volumes are its own and go with it;
//! what is left of them when it is gone goes by its key.

use std::time::Duration;

use hangar_openstack_types::{CreateVolume, Volume};
use jiff::Timestamp;

use super::resources::oldest;
use super::{Cloud, CloudCall, Owned, ResourceType};
use crate::plan::{Phase, Reason, Wake};
use crate::planner::Part;
use crate::step::Step;

/// Cinder does not call back: while a volume is made or deleted, it is looked at this often.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// A volume that failed is replaced after this time, so that a passing fault of the cloud heals by itself.
const REPLACE_FAILED_AFTER: i64 = 60;

/// One volume as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedVolume {
    pub role: String,
    /// With the owner's key in its metadata.
    pub create: CreateVolume,
}

pub struct Volumes<'a> {
    pub cloud: &'a Cloud,
    /// There is a server, which has them.
    pub has_server: bool,
    pub wanted: Vec<WantedVolume>,
}

impl Volumes<'_> {
    fn all(&self) -> impl Iterator<Item = &Volume> {
        self.cloud.resources.volumes.values().map(AsRef::as_ref)
    }

    fn of(&self, wanted: &WantedVolume) -> Option<&Volume> {
        oldest(&self.cloud.resources.volumes, &wanted.role)
    }

    fn needed(&self) -> impl Iterator<Item = &Volume> {
        self.wanted.iter().filter_map(|wanted| self.of(wanted))
    }

    fn delete_of(&self, volume: &Volume) -> Step {
        self.cloud.step(CloudCall::Delete(ResourceType::Volume, volume.id.clone()))
    }

    fn surplus(&self) -> Phase {
        let is_needed = |volume: &Volume| self.needed().any(|needed| needed.id == volume.id);
        let surplus = self.all().filter(|volume| !is_needed(volume) && can_go(volume));
        Phase::steps(surplus.map(|volume| self.delete_of(volume)))
    }

    fn missing(&self) -> Phase {
        let missing = self.wanted.iter().filter(|wanted| self.of(wanted).is_none());
        let create = |wanted: &WantedVolume| CloudCall::CreateVolume(Box::new(wanted.create.clone()));
        Phase::steps(missing.map(|wanted| self.cloud.step(create(wanted))))
    }

    /// The reason stays visible until the volume is replaced.
    fn failed(&self, now: Timestamp) -> Phase {
        let Some(volume) = self.needed().find(|volume| volume.status.starts_with("error")) else { return Phase::Done };
        let age = created(volume).map_or(REPLACE_FAILED_AFTER, |created| now.as_second() - created.as_second());
        if age >= REPLACE_FAILED_AFTER {
            return Phase::Steps(vec![self.delete_of(volume)]);
        }
        let wait = Duration::from_secs(u64::try_from(REPLACE_FAILED_AFTER - age).unwrap_or(1).max(1));
        Phase::Blocked(Reason {
            code: "VolumeCreateFailed",
            message: format!(
                "volume {} is in status {}: the cloud could not make it (type, size or zone); it will be replaced",
                volume.name, volume.status
            ),
            wake: Wake::After(wait),
        })
    }

    fn available(&self) -> Phase {
        match self.needed().find(|volume| volume.status != "available") {
            Some(volume) => waiting("VolumeNotReady", &format!("volume {} is {}", volume.name, volume.status)),
            None => Phase::Done,
        }
    }
}

impl Part for Volumes<'_> {
    fn build(&self, now: Timestamp) -> Phase {
        if self.has_server {
            return Phase::Done;
        }
        self.surplus().then(|| self.missing()).then(|| self.failed(now)).then(|| self.available())
    }

    fn delete(&self, _now: Timestamp) -> Phase {
        let gone = Phase::steps(self.all().filter(|volume| can_go(volume)).map(|volume| self.delete_of(volume)));
        gone.then(|| match self.all().next() {
            Some(volume) => {
                let text = format!("waiting for volume {} ({}) to be deleted", volume.name, volume.status);
                waiting("WaitingForVolumeDeletion", &text)
            }
            None => Phase::Done,
        })
    }
}

/// Cinder refuses to delete what is attached or on its way somewhere.
fn can_go(volume: &Volume) -> bool {
    volume.status == "available" || (volume.status.starts_with("error") && volume.attachments.is_empty())
}

fn waiting(code: &'static str, text: &str) -> Phase {
    Phase::wait_for(code, text.to_owned(), LOOK_AGAIN)
}

/// Without a zone; it is UTC.
fn created(volume: &Volume) -> Option<Timestamp> {
    let (text, _) = volume.age();
    text.parse().or_else(|_| format!("{text}Z").parse()).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cloud::tests::{cloud, described};
    use crate::cloud::{KEY_METADATA, Resource};
    use crate::owner_key::OwnerKey;
    use crate::testing::at;

    fn volume(id: &str, role: &str, status: &str, created: i64) -> Resource {
        let metadata = [(KEY_METADATA.to_owned(), OwnerKey::new("c", "o", role).to_string())].into();
        let created_at = at(created).to_string().trim_end_matches('Z').to_owned();
        let name = format!("m-{role}");
        Resource::Volume(Arc::new(Volume {
            id: id.into(),
            name,
            status: status.into(),
            metadata,
            created_at,
            ..Volume::default()
        }))
    }

    fn wanted(role: &str) -> WantedVolume {
        WantedVolume {
            role: role.into(),
            create: CreateVolume { name: format!("m-{role}"), ..CreateVolume::default() },
        }
    }

    #[test]
    fn volumes_are_made_waited_for_and_replaced_until_there_is_a_server() {
        let both =
            |root: &str, data: &str| vec![volume("r", "volume-root", root, 0), volume("d", "volume-data", data, 0)];
        for (what, present, now, has_server, expected) in [
            ("none", vec![], 0, false, "create volume m-volume-root; create volume m-volume-data"),
            ("one", vec![volume("r", "volume-root", "available", 0)], 0, false, "create volume m-volume-data"),
            (
                "one is made",
                both("available", "creating"),
                0,
                false,
                "wait VolumeNotReady: volume m-volume-data is creating",
            ),
            ("both are there", both("available", "available"), 0, false, "done"),
            (
                "one failed",
                both("available", "error"),
                10,
                false,
                "blocked VolumeCreateFailed: volume m-volume-data is in status error: the cloud could not make it (type, size or zone); it will be replaced",
            ),
            ("it failed a while ago", both("available", "error"), 60, false, "delete Volume d"),
            (
                "a twin and one that nobody wants",
                [
                    both("available", "available"),
                    vec![volume("r2", "volume-root", "available", 1), volume("x", "volume-x", "available", 0)],
                ]
                .concat(),
                0,
                false,
                "delete Volume r2; delete Volume x",
            ),
            (
                "a twin that is still being made goes later",
                [both("available", "available"), vec![volume("r2", "volume-root", "creating", 1)]].concat(),
                0,
                false,
                "done",
            ),
            ("a server has them", both("in-use", "in-use"), 0, true, "done"),
            ("a server has had them", vec![], 0, true, "done"),
        ] {
            let cloud = cloud(present);
            let part =
                Volumes { cloud: &cloud, has_server, wanted: vec![wanted("volume-root"), wanted("volume-data")] };
            assert_eq!(described(part.build(at(now))), expected, "{what}");
        }
    }

    #[test]
    fn what_is_left_goes_when_cinder_lets_it() {
        for (what, present, expected) in [
            ("nothing", vec![], "done"),
            (
                "left",
                vec![volume("r", "volume-root", "available", 0), volume("d", "volume-data", "error", 0)],
                "delete Volume d; delete Volume r",
            ),
            (
                "still attached",
                vec![volume("r", "volume-root", "in-use", 0)],
                "wait WaitingForVolumeDeletion: waiting for volume m-volume-root (in-use) to be deleted",
            ),
            (
                "going",
                vec![volume("r", "volume-root", "deleting", 0)],
                "wait WaitingForVolumeDeletion: waiting for volume m-volume-root (deleting) to be deleted",
            ),
        ] {
            let cloud = cloud(present);
            let part = Volumes { cloud: &cloud, has_server: false, wanted: vec![] };
            assert_eq!(described(part.delete(at(0))), expected, "{what}");
        }
    }
}
