//! Certificates that nodes ask for with a bootstrap token: watched in a tenant while somebody waits for one, and only then.
//!
//! Flows: who waits, for which user -> one watch -> what is undecided, by user -> whoever waits for that user is woken. Holds: nothing is polled; the last who no longer
//! waits ends the watch; what was decided is forgotten.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use hangar_api::{Object, ObjectKey};
use kube::Client;
use kube::api::{Api, ApiResource};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::received::Received;

/// Only these ask by token.
const BOOTSTRAP: &str = "system:bootstrap:";

/// The watch of one cluster; it ends with this.
pub(super) struct Requests {
    book: Arc<Mutex<Book>>,
    watch: AbortHandle,
}

#[derive(Default)]
struct Book {
    /// Who waits for which user.
    waiting: BTreeMap<ObjectKey, String>,
    undecided: BTreeMap<String, Arc<Object>>,
}

fn open(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Requests {
    pub(super) fn watch(client: Client, wakes: mpsc::UnboundedSender<ObjectKey>) -> Self {
        let book: Arc<Mutex<Book>> = Arc::default();
        let watch = tokio::spawn(observe(client, book.clone(), wakes)).abort_handle();
        Self { book, watch }
    }

    /// What this user has asked for; whoever asks is woken when there is more.
    pub(super) fn of(&self, who: ObjectKey, user: &str) -> Vec<Arc<Object>> {
        let mut book = open(&self.book);
        book.waiting.insert(who, user.to_owned());
        book.undecided.values().filter(|request| request.text("/spec/username") == user).cloned().collect()
    }

    /// Whether anybody still waits.
    pub(super) fn leave(&self, who: &ObjectKey) -> bool {
        let mut book = open(&self.book);
        book.waiting.remove(who);
        !book.waiting.is_empty()
    }

    pub(super) fn decided(&self, name: &str) {
        open(&self.book).undecided.remove(name);
    }
}

impl Book {
    fn put(&mut self, request: Object, wakes: &mpsc::UnboundedSender<ObjectKey>) {
        let user = request.text("/spec/username").to_owned();
        let is_decided = request.get("/status/conditions").as_array().is_some_and(|all| !all.is_empty());
        if is_decided || !user.starts_with(BOOTSTRAP) {
            self.undecided.remove(request.name());
            return;
        }
        self.undecided.insert(request.name().to_owned(), Arc::new(request));
        for (who, _) in self.waiting.iter().filter(|(_, of)| **of == user) {
            drop(wakes.send(who.clone()));
        }
    }
}

async fn observe(client: Client, book: Arc<Mutex<Book>>, wakes: mpsc::UnboundedSender<ObjectKey>) {
    let kind = GroupVersionKind::gvk("certificates.k8s.io", "v1", "CertificateSigningRequest");
    let api: Api<Received> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    let mut stream = Box::pin(watcher(api, watcher::Config::default()));
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => open(&book).undecided.clear(),
            Ok(watcher::Event::InitApply(request) | watcher::Event::Apply(request)) => {
                open(&book).put(request.into_object(), &wakes);
            }
            Ok(watcher::Event::Delete(request)) => drop(open(&book).undecided.remove(request.into_object().name())),
            Ok(watcher::Event::InitDone) => {}
            Err(_) => tokio::time::sleep(std::time::Duration::from_secs(1)).await,
        }
    }
}
