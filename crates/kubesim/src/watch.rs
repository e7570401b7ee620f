//! Watches: what happened after a version, and then everything as it happens.
//!
//! Holds: events come in order and none is left out, or the watch ends; an object that stops matching the selector is reported as deleted.

use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::KubeApi;
use super::answer::metadata;
use super::refusal::Refusal;
use super::resource::Resource;
use super::selector::Selector;
use super::store::{Event, Store};
use super::verbs::outward;

/// What a watch wants to see.
pub(super) struct Watch {
    pub resource: Resource,
    pub version: String,
    pub selector: Selector,
    /// Everything after this has to be told.
    pub after: u64,
    /// Objects that are told first, as if they had just been added.
    pub initial: Vec<Value>,
    /// Whether the end of `initial` is announced.
    pub announce: bool,
    /// Only the metadata of objects is told.
    pub metadata_only: bool,
    pub ends: Option<Duration>,
    pub delay: Duration,
}

/// Where a watch is.
struct Progress {
    api: KubeApi,
    watch: Watch,
    /// How many times watches had been cut when this one began.
    cuts: u64,
    deadline: Option<Instant>,
    ended: bool,
}

/// What is to be sent next.
enum Next {
    Lines(String),
    Wait(Option<Instant>),
    Last(String),
}

pub(super) type Frames = Result<Frame<Bytes>, std::io::Error>;

pub(super) fn stream(api: KubeApi, watch: Watch) -> impl Stream<Item = Frames> + Send + 'static {
    let cuts = api.cuts();
    let deadline = watch.ends.map(|after| Instant::now() + after);
    let progress = Progress { api, watch, cuts, deadline, ended: false };
    futures::stream::unfold(progress, |mut progress| async move {
        let frame = progress.frame().await?;
        Some((frame, progress))
    })
}

impl Progress {
    async fn frame(&mut self) -> Option<Frames> {
        if self.ended {
            return None;
        }
        let api = self.api.clone();
        loop {
            // Before looking, so that nothing that happens meanwhile is missed.
            let mut news = std::pin::pin!(api.news());
            news.as_mut().enable();
            if self.api.cuts() != self.cuts {
                self.ended = true;
                let lost = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "the connection was cut");
                return Some(Err(lost));
            }
            match self.next() {
                Next::Lines(lines) => return Some(Ok(Frame::data(Bytes::from(lines)))),
                Next::Last(lines) => {
                    self.ended = true;
                    return Some(Ok(Frame::data(Bytes::from(lines))));
                }
                Next::Wait(until) => {
                    let until = until.into_iter().chain(self.deadline).min();
                    let time = async {
                        match until {
                            Some(until) => tokio::time::sleep_until(until).await,
                            None => std::future::pending().await,
                        }
                    };
                    tokio::select! {
                        biased;
                        () = news => {}
                        () = time => {}
                    }
                }
            }
        }
    }

    fn next(&mut self) -> Next {
        let initial = std::mem::take(&mut self.watch.initial);
        let announce = std::mem::take(&mut self.watch.announce);
        let mut lines: String = initial.into_iter().map(|object| line("ADDED", &self.form(object))).collect();
        if announce {
            lines += &bookmark(&self.watch, json!({ "k8s.io/initial-events-end": "true" }));
        }
        let now = Instant::now();
        let due = now.checked_sub(self.watch.delay).unwrap_or(now);
        let api = self.api.clone();
        let store = api.store();
        if self.watch.after < store.forgotten {
            let (after, oldest) = (self.watch.after, store.forgotten);
            let expired = Refusal::plain(410, &format!("too old resource version: {after} ({oldest})"));
            return Next::Last(lines + &line("ERROR", &expired.body()));
        }
        let mut later = None;
        for event in after(&store, self.watch.after) {
            if event.at > due {
                later = Some(event.at + self.watch.delay);
                break;
            }
            self.watch.after = event.version;
            lines += &self.tell(event).unwrap_or_default();
        }
        if !lines.is_empty() {
            Next::Lines(lines)
        } else if self.deadline.is_some_and(|deadline| deadline <= now) {
            Next::Last(bookmark(&self.watch, json!({})))
        } else {
            Next::Wait(later)
        }
    }

    fn form(&self, object: Value) -> Value {
        if self.watch.metadata_only { metadata(object) } else { object }
    }

    /// The event from where this watch stands.
    fn tell(&self, event: &Event) -> Option<String> {
        let Watch { resource, version, selector, .. } = &self.watch;
        if event.key.kind != resource.kind || event.key.group != resource.group {
            return None;
        }
        let was = event.old.as_ref().is_some_and(|old| selector.matches(old));
        let is = !event.gone && selector.matches(&event.object);
        let what = match (was, is) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return None,
        };
        Some(line(what, &self.form(outward(resource, version, &event.object))))
    }
}

/// Versions rise along the log.
fn after(store: &Store, version: u64) -> impl Iterator<Item = &Event> {
    let start = store.log.partition_point(|event| event.version <= version);
    store.log.range(start..)
}

fn line(what: &str, object: &Value) -> String {
    // The type comes first, as a real API server writes it: a client need not keep the object in suspense until it knows what happened.
    format!("{{\"type\":\"{what}\",\"object\":{object}}}\n")
}

fn bookmark(watch: &Watch, annotations: Value) -> String {
    let facts = watch.resource.facts;
    let api_version = facts.map_or_else(|| "v1".to_owned(), |facts| format!("{}/{}", facts.group, watch.version));
    let mut object = json!({
        "kind": watch.resource.kind, "apiVersion": api_version,
        "metadata": { "resourceVersion": watch.after.to_string(), "creationTimestamp": null },
    });
    if annotations.as_object().is_some_and(|annotations| !annotations.is_empty()) {
        object["metadata"]["annotations"] = annotations;
    }
    line("BOOKMARK", &object)
}
