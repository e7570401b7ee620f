//! What is not ours is never written, adopted or deleted.

use hangar_kubesim::Write;
use hangar_simulator::CloudWrite;

use super::Book;

impl Book {
    pub(super) fn foreign_object(&mut self, write: &Write<'_>) {
        // A Machine whose Cluster is not here is told so in its status; that adopts nothing.
        if self.foreign_objects.contains(write.key) && write.subresource != "status" {
            let change = if write.after.is_some() { "wrote" } else { "deleted" };
            self.violation("foreign", format!("Hangar {change} the foreign {} ({})", write.key, write.verb));
        }
    }

    /// What the cloud does by itself (a server becomes ACTIVE) is no violation, but nobody takes foreign things away.
    pub(super) fn foreign_resource(&mut self, write: &CloudWrite<'_>) {
        let foreign = self.foreign_resources.contains(&(write.table.to_owned(), write.id.to_owned()));
        if foreign && (!write.by.is_empty() || write.row.is_none()) {
            let change = if write.row.is_some() { "changed" } else { "deleted" };
            self.violation("foreign", format!("Hangar {change} the foreign resource {} of {}", write.id, write.table));
        }
    }
}
