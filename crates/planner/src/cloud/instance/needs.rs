//! What of a server is still to be made, as clouds count it.

use super::{Instance, Size};
use crate::cloud::quota::{Counted, Needs};
use crate::cloud::{Resources, oldest, server};

impl Instance<'_> {
    /// Nothing once there is a server: what hangs on it is its own.
    pub fn needs(&self, there: &Resources) -> Needs {
        let mut needs = Needs::default();
        if oldest(&there.servers, server::ROLE).is_some() {
            return needs;
        }
        needs.add(Counted::Servers, 1);
        if let Some(Size { cores, memory_mib }) = self.resolved.size {
            needs.add(Counted::Cores, cores);
            needs.add(Counted::Memory, memory_mib);
        }
        for port in self.ports() {
            needs.add(Counted::Ports, u64::from(oldest(&there.ports, &port.role).is_none()));
        }
        for volume in self.volumes() {
            if oldest(&there.volumes, &volume.role).is_none() {
                needs.add(Counted::Volumes, 1);
                needs.add(Counted::Gigabytes, volume.create.size);
            }
        }
        needs
    }
}
