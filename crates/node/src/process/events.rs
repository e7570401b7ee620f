//! Events on pods, Services, claims and Gateways. An event that cannot be written is not worth stopping for.
//!
//! Each one is written as it is: callers speak only when they have something new to say, and two containers of one pod that start
//! are two events.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Resource};

const CONTROLLER: &str = "hangar-node";

pub(super) struct Events {
    client: kube::Client,
    node: String,
}

impl Events {
    pub fn new(client: kube::Client, node: &str) -> Self {
        Self { client, node: node.to_owned() }
    }

    pub async fn normal<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, note: &str) {
        self.publish("Normal", about.object_ref(&()), reason, note).await;
    }

    pub async fn warning<K: Resource<DynamicType = ()>>(&self, about: &K, reason: &str, note: &str) {
        self.publish("Warning", about.object_ref(&()), reason, note).await;
    }

    /// On an object of a kind that this program does not know when it is compiled.
    pub async fn normal_on(&self, about: ObjectReference, reason: &str, note: &str) {
        self.publish("Normal", about, reason, note).await;
    }

    async fn publish(&self, type_: &str, about: ObjectReference, reason: &str, note: &str) {
        let now = Timestamp::now();
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), now.as_nanosecond());
        let event = Event {
            metadata: ObjectMeta { name: Some(name), namespace: Some(namespace.clone()), ..Default::default() },
            involved_object: about,
            type_: Some(type_.to_owned()),
            reason: Some(reason.to_owned()),
            // The API takes no more than a kilobyte.
            message: Some(note.chars().take(1000).collect()),
            source: Some(EventSource { component: Some(CONTROLLER.into()), host: Some(self.node.clone()) }),
            reporting_component: Some(CONTROLLER.into()),
            reporting_instance: Some(self.node.clone()),
            action: Some(reason.to_owned()),
            event_time: Some(MicroTime(now)),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Event::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::debug!(reason, %error, "could not write an event");
        }
    }
}
