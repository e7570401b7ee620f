//! News as Kubernetes Events, beside the passes.
//!
//! Flows: news of a pass -> a bounded queue -> one task -> an Event for each object and reason, whose count goes up. Holds: a pass neither waits for an Event nor fails
//! with one: what does not fit or is refused is dropped. What was said with the same words a short while ago is not said again, so that nothing is written at rest.
//! Names follow from object and reason: a process that starts again counts on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hangar_planner::events::News;
use hangar_planner::intent::fingerprint;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::Clock;

const COMPONENT: &str = "hangar";
/// More than a burst of all workers.
const MOST_WAITING: usize = 256;
/// No answer must not be the end of all events.
const PATIENCE: Duration = Duration::from_secs(15);
/// What is tried again every minute is the same for as long as it goes on.
const SAME_FOR: Duration = Duration::from_secs(600);
const MOST_KNOWN: usize = 4_096;
/// Of a note, which Kubernetes limits to 1,024 bytes.
const LONGEST_NOTE: usize = 1_000;
const LONGEST_NAME: usize = 200;

/// Where passes leave their news; clones are the same.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<News>,
    receiver: Arc<Mutex<Option<mpsc::Receiver<News>>>>,
}

impl Default for Events {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        Self { sender, receiver: Arc::new(Mutex::new(Some(receiver))) }
    }
}

impl Events {
    pub fn tell(&self, news: impl IntoIterator<Item = News>) {
        for news in news {
            // Full: there is too much news for anybody to read.
            drop(self.sender.try_send(news));
        }
    }

    /// Writes what it is told, for ever.
    pub(crate) async fn write(self, client: Client, clock: Clock) {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut receiver) = receiver else { return };
        drop(self);
        let mut said = Said::default();
        while let Some(news) = receiver.recv().await {
            if !said.is_new(&news) {
                continue;
            }
            match tokio::time::timeout(PATIENCE, write(&client, &news, clock())).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(object = %news.about, %error, "an event was not written"),
                Err(_) => tracing::debug!(object = %news.about, "an event was not written in time"),
            }
        }
    }
}

/// Who was told of what, and when last.
#[derive(Default)]
struct Said(BTreeMap<(String, String), (String, Instant)>);

impl Said {
    fn is_new(&mut self, news: &News) -> bool {
        if self.0.len() >= MOST_KNOWN {
            self.0.retain(|_, (_, at)| at.elapsed() < SAME_FOR);
        }
        if self.0.len() >= MOST_KNOWN {
            self.0.clear();
        }
        let key = (news.uid.clone(), news.reason.clone());
        let before = self.0.insert(key, (news.note.clone(), Instant::now()));
        before.is_none_or(|(note, at)| note != news.note || at.elapsed() >= SAME_FOR)
    }
}

async fn write(client: &Client, news: &News, now: Timestamp) -> Result<(), kube::Error> {
    let namespace = if news.about.namespace.is_empty() { "default" } else { &news.about.namespace };
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let event = event(news, namespace, now);
    let name = event["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let body: Event = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
    match events.create(&PostParams::default(), &body).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        answer => return answer.map(drop),
    }
    let count = events.get_opt(&name).await?.and_then(|event| event.count).unwrap_or(1).saturating_add(1);
    let again = json!({ "count": count, "lastTimestamp": time(now), "message": body.message });
    events.patch(&name, &PatchParams::default(), &Patch::Merge(&again)).await.map(drop)
}

fn event(news: &News, namespace: &str, now: Timestamp) -> Value {
    let about = &news.about;
    let name: String = about.name.chars().take(LONGEST_NAME).collect();
    let note: String = news.note.chars().take(LONGEST_NOTE / 4).collect();
    let note = if news.note.len() <= LONGEST_NOTE { news.note.clone() } else { format!("{note}...") };
    json!({
        "metadata": { "name": format!("{name}.{}", fingerprint(&json!([news.uid, news.reason]))), "namespace": namespace },
        "involvedObject": {
            "apiVersion": news.api_version, "kind": about.kind, "namespace": about.namespace, "name": about.name, "uid": news.uid,
        },
        "type": if news.is_warning { "Warning" } else { "Normal" },
        "reason": news.reason, "message": note, "count": 1, "firstTimestamp": time(now), "lastTimestamp": time(now),
        "source": { "component": COMPONENT }, "reportingComponent": COMPONENT, "reportingInstance": COMPONENT,
    })
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use hangar_api::ObjectKey;
    use hangar_kubesim::{Fault, KubeApi, KubeApiOptions};

    use super::*;

    fn news(name: &str, note: &str) -> News {
        News {
            about: ObjectKey::new("cluster.x-k8s.io", "Machine", "n", name),
            uid: format!("{name}-uid"),
            api_version: "cluster.x-k8s.io/v1beta2".into(),
            is_warning: true,
            reason: "QuotaExceeded".into(),
            note: note.into(),
        }
    }

    fn start(api: &KubeApi) -> Events {
        let events = Events::default();
        let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        tokio::spawn(events.clone().write(api.client(), clock));
        events
    }

    async fn settle() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn found(api: &KubeApi) -> Vec<(String, i64)> {
        let all = api.list("", "Event").into_iter();
        all.map(|event| (event["message"].as_str().unwrap().to_owned(), event["count"].as_i64().unwrap())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_for_each_object_and_reason_is_counted_and_the_same_words_are_not() {
        let api = KubeApi::new(KubeApiOptions::default());
        let events = start(&api);
        events.tell([news("a", "cores"), news("a", "cores"), news("b", "cores"), news("a", "memory")]);
        settle().await;
        assert_eq!(found(&api), [("memory".to_owned(), 2), ("cores".to_owned(), 1)]);
        let event = api.list("", "Event").remove(0);
        assert_eq!((&event["involvedObject"]["uid"], &event["type"]), (&json!("a-uid"), &json!("Warning")));
        // What is tried again every minute is no news, however long it goes on.
        api.clear_requests();
        for _ in 0..30 {
            events.tell([news("a", "memory")]);
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        assert!(api.requests().is_empty());
        // Another process counts on; and what happens again after a while is news.
        start(&api).tell([news("a", "memory")]);
        tokio::time::sleep(SAME_FOR).await;
        events.tell([news("a", "memory")]);
        settle().await;
        assert_eq!(found(&api)[0], ("memory".to_owned(), 4));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_events_and_a_refusal_is_the_end_of_one() {
        let api = KubeApi::new(KubeApiOptions::default());
        let idle = Events::default();
        idle.tell((0..1_000).map(|number| news(&format!("m{number}"), "x")));
        api.set_fault_hook(Arc::new(|_| Fault::Before(403)));
        let events = start(&api);
        events.tell([news("a", "x")]);
        settle().await;
        assert_eq!(api.requests().len(), 1, "it is not tried again");
        api.clear_fault_hook();
        events.tell([news("a", "y")]);
        settle().await;
        assert_eq!(found(&api).len(), 1);
    }

    #[test]
    fn names_and_notes_are_as_long_as_kubernetes_takes() {
        let long = News { note: "ä".repeat(2_000), ..news(&"m".repeat(253), "") };
        let event = event(&long, "n", Timestamp::UNIX_EPOCH);
        assert!(event["metadata"]["name"].as_str().unwrap().len() <= 253);
        assert!(event["message"].as_str().unwrap().len() <= 1_024);
    }
}
