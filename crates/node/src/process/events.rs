//! Events on pods, Services and claims. An event that cannot be written is not worth stopping for.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

pub(super) struct Events {
    recorder: Recorder,
}

impl Events {
    pub fn new(client: kube::Client, node: &str) -> Self {
        let reporter = Reporter { controller: "hangar-node".into(), instance: Some(node.to_owned()) };
        Self { recorder: Recorder::new(client, reporter) }
    }

    pub async fn normal<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, note: &str) {
        self.publish(EventType::Normal, &about.object_ref(&()), reason, note).await;
    }

    pub async fn warning<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, note: &str) {
        self.publish(EventType::Warning, &about.object_ref(&()), reason, note).await;
    }

    async fn publish(&self, type_: EventType, about: &ObjectReference, reason: &str, note: &str) {
        let note: String = note.chars().take(1000).collect();
        let event =
            Event { type_, reason: reason.to_owned(), note: Some(note), action: reason.to_owned(), secondary: None };
        if let Err(error) = self.recorder.publish(&event, about).await {
            tracing::debug!(reason, %error, "could not write an event");
        }
    }
}
