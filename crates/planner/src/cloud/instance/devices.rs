//! The disks of a server: from its image, from a volume, and additional ones.
//!
//! Holds: volumes are made before the server, by the owner's key; Nova deletes them with it.

use hangar_api::kinds::{OpenStackServerSpecAdditionalBlockDevice, OpenStackServerSpecRootVolumeAvailabilityZone};
use hangar_openstack_types::{BlockDevice, CreateVolume};

use super::Instance;
use crate::cloud::volumes::WantedVolume;
use crate::cloud::{KEY_METADATA, Resources, oldest};

const ROOT: &str = "root";

impl Instance<'_> {
    fn devices(&self) -> &[OpenStackServerSpecAdditionalBlockDevice] {
        self.spec.additional_block_devices.as_deref().unwrap_or_default()
    }

    pub fn volumes(&self) -> Vec<WantedVolume> {
        let root = self.spec.root_volume.as_ref().map(|root| {
            let (kind, zone) = (root.r#type.clone(), self.volume_zone(root.availability_zone.as_ref()));
            let image_id = self.resolved.image.id().map(str::to_owned);
            self.volume(ROOT, "Root volume", CreateVolume { image_id, ..sized(root.size_gib, kind, zone) })
        });
        let additional = self.devices().iter().filter(|device| device.storage.r#type == "Volume").map(|device| {
            let volume = device.storage.volume.as_ref();
            let zone = self.volume_zone(volume.and_then(|volume| volume.availability_zone.as_ref()));
            let kind = volume.and_then(|volume| volume.r#type.clone());
            self.volume(&device.name, "Additional block device", sized(device.size_gib, kind, zone))
        });
        root.into_iter().chain(additional).collect()
    }

    fn volume(&self, name: &str, what: &str, create: CreateVolume) -> WantedVolume {
        let role = role(name);
        let create = CreateVolume {
            name: format!("{}-{name}", self.name),
            description: Some(format!("{what} for {}", self.name)),
            metadata: [(KEY_METADATA.to_owned(), self.key(&role).to_string())].into(),
            ..create
        };
        WantedVolume { role, create }
    }

    fn volume_zone(&self, wanted: Option<&OpenStackServerSpecRootVolumeAvailabilityZone>) -> Option<String> {
        let wanted = wanted?;
        match wanted.from.as_deref() {
            Some("Machine") => Some(self.zone.to_owned()).filter(|zone| !zone.is_empty()),
            _ => wanted.name.clone(),
        }
    }

    /// None where the image is all that there is: Nova does the right thing by itself.
    pub(super) fn block_devices(&self, there: &Resources) -> Vec<BlockDevice> {
        let from_volume = |name: &str, boot_index: i32, tag: Option<String>| BlockDevice {
            boot_index,
            source_type: "volume".into(),
            destination_type: "volume".into(),
            uuid: oldest(&there.volumes, &role(name)).map(|volume| volume.id.clone()),
            delete_on_termination: true,
            tag,
            ..BlockDevice::default()
        };
        let boot = match &self.spec.root_volume {
            Some(_) => from_volume(ROOT, 0, None),
            None if self.devices().is_empty() => return vec![],
            None => BlockDevice {
                source_type: "image".into(),
                destination_type: "local".into(),
                uuid: self.resolved.image.id().map(str::to_owned),
                delete_on_termination: true,
                ..BlockDevice::default()
            },
        };
        let additional = self.devices().iter().map(|device| {
            let tag = Some(device.name.clone());
            if device.storage.r#type == "Volume" {
                return from_volume(&device.name, -1, tag);
            }
            BlockDevice {
                boot_index: -1,
                source_type: "blank".into(),
                destination_type: "local".into(),
                volume_size: u64::try_from(device.size_gib).ok(),
                delete_on_termination: true,
                tag,
                ..BlockDevice::default()
            }
        });
        std::iter::once(boot).chain(additional).collect()
    }
}

fn role(name: &str) -> String {
    format!("volume-{name}")
}

fn sized(gib: i64, kind: Option<String>, zone: Option<String>) -> CreateVolume {
    let volume_type = kind.filter(|kind| !kind.is_empty());
    CreateVolume {
        size: u64::try_from(gib).unwrap_or_default(),
        volume_type,
        availability_zone: zone,
        ..CreateVolume::default()
    }
}
