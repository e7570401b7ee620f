//! Objects that users made and that only their changes count of: nothing of them is kept but how often they changed.
//!
//! Flows: a watch of metadata, from when the first object that may name one is seen -> the count goes up -> whoever names it is woken. Holds: whoever reads one
//! asks for its count before; a count that is the same later means that what was read is still true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use hangar_api::{Object, ObjectKey};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cache::Change;
use crate::pass::Registration;
use crate::reads::GroupKind;

/// By the kind that names others: their kinds, and the field selectors of their watches.
pub type Noticed = BTreeMap<GroupKind, BTreeMap<GroupKind, &'static str>>;

/// What the controllers want to notice.
pub(crate) fn noticed<X>(controllers: &[&'static Registration<X>]) -> Noticed {
    let mut noticed = Noticed::new();
    let reads = controllers.iter().flat_map(|one| one.reads.iter().map(|read| ((one.group, one.kind), read)));
    for (by, kind, fields) in reads.filter_map(|(own, read)| read.noticed(own)) {
        noticed.entry(by).or_default().insert(kind, fields);
    }
    noticed
}

/// How often each object changed since somebody asked for it first; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Notices(Arc<Mutex<BTreeMap<ObjectKey, u64>>>);

impl Notices {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be asked for before the object is read.
    pub fn changes(&self, key: &ObjectKey) -> u64 {
        *self.counts().entry(key.clone()).or_default()
    }

    /// Nobody asked for what is not counted.
    fn note(&self, key: &ObjectKey) -> bool {
        self.counts().get_mut(key).map(|count| *count += 1).is_some()
    }

    fn asked_for(&self, group: &str, kind: &str) -> Vec<ObjectKey> {
        let counts = self.counts();
        counts.keys().filter(|key| key.group == group && key.kind == kind).cloned().collect()
    }

    /// A watch of each kind.
    pub(crate) fn observe(
        &self,
        tasks: &mut JoinSet<()>,
        kinds: BTreeMap<GroupKind, &'static str>,
        client: &Client,
        changed: &mpsc::UnboundedSender<Change>,
    ) {
        for (kind, fields) in kinds {
            tasks.spawn(self.clone().watch(client.clone(), kind, fields, changed.clone()));
        }
    }

    async fn watch(
        self,
        client: Client,
        kind: GroupKind,
        fields: &'static str,
        changed: mpsc::UnboundedSender<Change>,
    ) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(kind.0, "v1", kind.1));
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &resource);
        let fields = Some(fields.to_owned()).filter(|fields| !fields.is_empty());
        let config = watcher::Config { field_selector: fields, ..watcher::Config::default() };
        let mut stream = Box::pin(watcher(api, config));
        let named = |object: &PartialObjectMeta<DynamicObject>| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            Object::named("v1", kind.1, &text(&object.metadata.namespace), &text(&object.metadata.name))
        };
        // Whoever names it may not have asked yet, and hears of it all the same.
        let send = |object: Object| {
            self.note(&object.key());
            drop(changed.send(Change { key: object.key(), old: None, new: Some(Arc::new(object)) }));
        };
        let mut listed = BTreeSet::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(object)) => {
                    let object = named(&object);
                    listed.insert(object.key());
                    send(object);
                }
                Ok(watcher::Event::InitDone) => {
                    let gone = self.asked_for(kind.0, kind.1).into_iter().filter(|key| !listed.contains(key));
                    gone.for_each(|key| send(Object::named("v1", kind.1, &key.namespace, &key.name)));
                    listed.clear();
                }
                Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object)) => send(named(&object)),
                Err(error) => {
                    tracing::debug!(kind = kind.1, %error, "watch failed, it starts again");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }
}
