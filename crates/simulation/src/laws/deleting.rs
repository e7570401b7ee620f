//! For an object that is being deleted, nothing more is made in the cloud.

use hangar_simulator::CloudWrite;

use super::{Book, Resource};

impl Book {
    pub(super) fn made_while_deleting(
        &mut self,
        write: &CloudWrite<'_>,
        before: Option<&Resource>,
        after: Option<&Resource>,
    ) {
        let (None, Some(key)) = (before, after.and_then(|resource| resource.key.as_ref())) else { return };
        let known = |since: &tokio::time::Instant| since.elapsed() > self.news_take + self.calls_take;
        let mut going = self.going.iter().filter(|(_, since)| known(since)).map(|(object, _)| object);
        let owner = going
            .find(|object| self.objects.get(object).is_some_and(|object| object["metadata"]["uid"] == *key.object_uid));
        if let Some(owner) = owner.cloned() {
            let (table, id) = (write.table, write.id);
            let what = format!("Hangar created {id} of {table} with {key} while {owner} is being deleted");
            self.violation("deleting", what);
        }
    }
}
