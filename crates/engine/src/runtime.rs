//! Watches in, passes out.
//!
//! Holds: one watch for each kind; no pass before every kind has been listed once; a failed watch starts again by itself, with a pause.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use hangar_api::conditions::{Condition, Status};
use hangar_api::names::CLUSTER_NAME_LABEL;
use hangar_api::{Kind as _, ObjectKey, registry};
use hangar_planner::report::READY;
use kube::Client;
use kube::api::{Api, ApiResource};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Change};
use crate::changes::{concerns_itself, is_said_by_others};
use crate::notices::{self, Noticed, Notices};
use crate::pass::{Executor, PassError, Registration};
use crate::providers::Wanted;
use crate::queue::{Outcome, Queue};
use crate::reads::{GroupKind, Link, Read};
use crate::received::Received;

mod workers;

use workers::Workers;

/// The controllers of one program: any subset of those that there are.
pub type Controllers<X> = Vec<&'static Registration<X>>;

/// How objects name each other, as far as the controllers follow it.
pub fn links<X>(controllers: &[&'static Registration<X>]) -> Vec<(GroupKind, Link)> {
    let reads = controllers.iter().flat_map(|one| one.reads.iter().map(|read| ((one.group, one.kind), read)));
    reads.flat_map(|(own, read)| read.links(own)).collect()
}

/// The fields of each kind's status that some controller reads.
pub fn status_fields<X>(controllers: &[&'static Registration<X>]) -> BTreeMap<GroupKind, BTreeSet<&'static str>> {
    let mut fields: BTreeMap<GroupKind, BTreeSet<&'static str>> = BTreeMap::new();
    // A reference leads to a provider's object, of any kind that somebody here writes; the core's own kinds are read by name.
    let core = hangar_api::kinds::Cluster::GROUP;
    let own: Vec<GroupKind> =
        controllers.iter().map(|one| (one.group, one.kind)).filter(|(group, _)| *group != core).collect();
    for read in controllers.iter().flat_map(|one| one.reads) {
        let kinds = read.path.last().map_or(vec![], |hop| hop.kind.map_or_else(|| own.clone(), |kind| vec![kind]));
        let read: Vec<&str> = read.fields.iter().filter_map(|field| field.strip_prefix("/status")).collect();
        for kind in kinds {
            fields.entry(kind).or_default().extend(&read);
        }
    }
    fields
}

/// The running engine's inputs.
pub struct Engine<X: 'static> {
    pub client: Client,
    pub cache: Cache,
    pub changes: mpsc::UnboundedReceiver<Change>,
    pub changed: mpsc::UnboundedSender<Change>,
    /// Keys to look at for reasons that no watch here sees.
    pub wakes: mpsc::UnboundedReceiver<ObjectKey>,
    pub queue: Arc<Queue>,
    pub notices: Notices,
    pub controllers: Controllers<X>,
    pub context: Arc<X>,
    pub workers: usize,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Nothing of it is under way any more.
    Stopped,
    /// Cut off in the middle, as a process that dies is.
    Killed,
}

impl<X: Executor> Engine<X> {
    /// Runs until told to stop, and then until the passes that are under way have ended, or until a simulation kills it.
    pub async fn run(self, shutdown: CancellationToken) -> Ended {
        let queue = self.queue;
        let mut tasks = JoinSet::new();
        let (listed, mut all_listed) = watch::channel(0_usize);
        let kinds = watched(&self.controllers);
        self.cache.providers().await_definitions();
        let router = Router::new(&self.controllers, self.cache.clone());
        let (first, cache) = (kinds.clone(), self.cache.clone());
        let (notices, noticed) = (self.notices, router.noticing.clone());
        let watches =
            Watches { client: self.client, cache: self.cache, changed: self.changed, listed, notices, noticed };
        kinds.iter().for_each(|kind| drop(tasks.spawn(watches.clone().observe(*kind))));
        let (missing, found) = mpsc::unbounded_channel();
        tasks.spawn(route(self.changes, self.wakes, router, queue.clone(), missing));
        tasks.spawn(watches.follow(kinds, found));
        tasks.spawn(cache.clone().keep_packed());
        tasks.spawn(self.context.passes().clone().write_events());
        tokio::select! {
            () = shutdown.cancelled() => return Ended::Stopped,
            // Kinds that are only referred to may be listed before the others: it is not their number that counts.
            _ = all_listed.wait_for(|_| first.iter().all(|(group, kind)| cache.is_listed(group, kind))) => {}
        }
        self.context.passes().metrics.set_ready();
        let dispatch = Arc::new(Dispatch { controllers: self.controllers, context: self.context });
        let ended = Workers::new(queue, dispatch).run(self.workers, &shutdown).await;
        tasks.shutdown().await;
        ended
    }
}

/// The kinds that the controllers are for or read by name. What references lead to is watched when the first one is seen.
fn watched<X>(controllers: &[&'static Registration<X>]) -> BTreeSet<GroupKind> {
    let own = controllers.iter().map(|one| (one.group, one.kind));
    let read = controllers.iter().flat_map(|one| one.reads).flat_map(|read| read.path);
    let read = read.filter(|hop| hop.is_kept()).filter_map(|hop| hop.kind);
    own.chain(read).chain([(hangar_api::kinds::Cluster::GROUP, hangar_api::kinds::Cluster::KIND)]).collect()
}

/// Who is concerned by a change.
struct Router {
    /// Kinds that have a controller, with the conditions that it writes if others write some, too.
    own: BTreeMap<GroupKind, &'static [&'static str]>,
    /// By the kind that changes: the own kind of whoever reads it, and how.
    by_kind: BTreeMap<GroupKind, Vec<(GroupKind, &'static Read)>>,
    /// Reads that lead to any kind.
    by_reference: Vec<(GroupKind, &'static Read)>,
    noticing: Noticed,
    cache: Cache,
}

impl Router {
    fn new<X>(controllers: &[&'static Registration<X>], cache: Cache) -> Self {
        let reads = controllers.iter().flat_map(|one| one.reads.iter().map(|read| ((one.group, one.kind), read)));
        // Every object may be paused with its cluster.
        let paused = controllers.iter().map(|one| ((one.group, one.kind), &PAUSED));
        let own = controllers.iter().map(|one| ((one.group, one.kind), one.conditions)).collect();
        let noticing = notices::noticed(controllers);
        let mut router = Self { own, by_kind: BTreeMap::new(), by_reference: vec![], noticing, cache };
        for (own, read) in reads.chain(paused) {
            match read.path.last().and_then(|hop| hop.kind) {
                Some(kind) => router.by_kind.entry(kind).or_default().push((own, read)),
                None => router.by_reference.push((own, read)),
            }
        }
        router
    }

    fn concerned(&self, change: &Change) -> BTreeSet<ObjectKey> {
        let mut keys = BTreeSet::new();
        let kind = (change.key.group.as_str(), change.key.kind.as_str());
        let own = self.own.get(&kind).filter(|_| change.new.is_some());
        if own.is_some_and(|conditions| concerns_itself(change) || is_said_by_others(change, conditions)) {
            keys.insert(change.key.clone());
        }
        for (own, read) in self.by_kind.get(&kind).into_iter().flatten().chain(&self.by_reference) {
            keys.extend(read.concerned(*own, change, &self.cache));
        }
        keys
    }

    fn enqueue(&self, queue: &Queue, key: ObjectKey) {
        let group = self.cache.group(&key);
        queue.add(key, group);
    }

    /// What the object names, and itself if something is noticed for its kind from then on.
    fn named(&self, change: &Change) -> Vec<ObjectKey> {
        let links = change.new.as_deref().map_or_else(Vec::new, |object| self.cache.links_of(object));
        let notices = self.noticing.keys().any(|kind| *kind == (change.key.group.as_str(), change.key.kind.as_str()));
        links.into_iter().chain(notices.then(|| change.key.clone())).collect()
    }
}

const PAUSED: Read = crate::reads::read(&[crate::reads::cluster()], &["/spec/paused"]);

/// One watch for each kind.
#[derive(Clone)]
struct Watches {
    client: Client,
    cache: Cache,
    changed: mpsc::UnboundedSender<Change>,
    listed: watch::Sender<usize>,
    notices: Notices,
    noticed: Noticed,
}

impl Watches {
    /// Watches further kinds as references to them are seen.
    async fn follow(mut self, watched: BTreeSet<GroupKind>, mut found: mpsc::UnboundedReceiver<ObjectKey>) {
        let (mut watched, mut tasks) = (watched, JoinSet::new());
        let (mut wanted, mut definitions) = Wanted::new(self.cache.providers());
        loop {
            let key = tokio::select! {
                biased;
                key = found.recv() => key,
                _ = definitions.recv() => Some(ObjectKey::new("", "", "", "")),
            };
            let Some(key) = key else { break };
            let Some(facts) = registry::kind(&key.group, &key.kind) else {
                wanted.want(&mut tasks, &self.client, key);
                wanted.found().into_iter().for_each(|kind| drop(tasks.spawn(self.clone().watch(kind, None))));
                continue;
            };
            let noticed = self.noticed.remove(&(facts.group, facts.kind)).unwrap_or_default();
            self.notices.observe(&mut tasks, noticed, &self.client, &self.changed);
            if watched.insert((facts.group, facts.kind)) {
                tasks.spawn(self.clone().observe((facts.group, facts.kind)));
            }
        }
        tasks.shutdown().await;
    }

    async fn observe(self, (group, kind): GroupKind) {
        let facts = registry::kind(group, kind);
        let version = facts.map_or("v1", |facts| facts.hub().name);
        // Of the kinds of Kubernetes itself only what belongs to a cluster.
        let labels = facts.is_none().then(|| CLUSTER_NAME_LABEL.to_owned());
        self.watch(ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)), labels).await;
    }

    async fn watch(self, resource: ApiResource, labels: Option<String>) {
        let (group, kind) = (resource.group.as_str(), resource.kind.as_str());
        let api: Api<Received> = Api::all_with(self.client.clone(), &resource);
        let config = watcher::Config { label_selector: labels, ..watcher::Config::default() };
        let mut stream = Box::pin(watcher(api, config));
        let (mut before, mut listed, mut first) = (BTreeMap::new(), BTreeSet::new(), true);
        let send = |change: Option<Change>| change.into_iter().for_each(|change| drop(self.changed.send(change)));
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => {
                    before = self.cache.versions_of(group, kind);
                    listed.clear();
                }
                Ok(watcher::Event::InitApply(object)) => {
                    let object = object.into_listed(&resource);
                    listed.insert(object.key());
                    send(self.cache.put(object));
                }
                Ok(watcher::Event::InitDone) => {
                    self.cache.retain(&before, &listed).into_iter().for_each(|change| send(Some(change)));
                    before.clear();
                    if std::mem::take(&mut first) {
                        self.cache.set_listed(group, kind);
                        self.listed.send_modify(|count| *count += 1);
                    }
                }
                Ok(watcher::Event::Apply(object)) => send(self.cache.put(object.into_object())),
                Ok(watcher::Event::Delete(object)) => send(self.cache.remove(&object.into_object())),
                Err(error) => {
                    tracing::debug!(kind, %error, "watch failed, it starts again");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }
}

async fn route(
    mut changes: mpsc::UnboundedReceiver<Change>,
    mut wakes: mpsc::UnboundedReceiver<ObjectKey>,
    router: Router,
    queue: Arc<Queue>,
    named: mpsc::UnboundedSender<ObjectKey>,
) {
    loop {
        // In this order, so that two runs with the same events do the same.
        tokio::select! {
            biased;
            Some(change) = changes.recv() => {
                router.named(&change).into_iter().for_each(|key| drop(named.send(key)));
                router.concerned(&change).into_iter().for_each(|key| router.enqueue(&queue, key));
            }
            Some(key) = wakes.recv() => router.enqueue(&queue, key),
            else => return,
        }
    }
}

/// The controllers, by kind.
struct Dispatch<X: 'static> {
    controllers: Controllers<X>,
    context: Arc<X>,
}

impl<X: Executor> Dispatch<X> {
    async fn pass(&self, key: &ObjectKey) -> Result<Outcome, PassError> {
        let of_kind = |one: &&&Registration<X>| (one.group, one.kind) == (key.group.as_str(), key.kind.as_str());
        let Some(controller) = self.controllers.iter().find(of_kind) else { return Ok(Outcome::Settled) };
        match AssertUnwindSafe((controller.pass)(&self.context, key)).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(panic) => self.panicked(controller, key, &words(&*panic)).await,
        }
    }

    /// One object that breaks a controller must not stop the others.
    async fn panicked(&self, controller: &Registration<X>, key: &ObjectKey, words: &str) -> Result<Outcome, PassError> {
        tracing::error!(object = %key, panic = words, "this is a bug in Hangar");
        let passes = self.context.passes();
        passes.metrics.panic(&key.kind);
        let Some(object) = passes.management.cache().get(key) else { return Ok(Outcome::Failed) };
        let text = format!("this is a bug in Hangar, see its log: {words}");
        let condition = Condition::new(READY, Status::False, "InternalError", text);
        let status = (controller.amended)(&object, condition, (passes.clock)());
        passes.amend(&object, status).await.map(|_| Outcome::Failed)
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked without a message").to_owned()
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests;
