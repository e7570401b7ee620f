//! The way to the simulated cloud, as late and as stale as a real one can be.
//!
//! Holds: a stale list is an answer that this cloud gave before to the very same question, at most [`STALE_FOR`] ago, as a lagging replica
//! of a database gives it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hangar_openstack::Transport;
use http::{Method, Request, Response};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt as _, service_fn};

/// Nothing older is shown.
pub const STALE_FOR: Duration = Duration::from_secs(10);

/// What becomes of a call on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// The request arrives this much later.
    SlowThere(Duration),
    /// The answer arrives this much later.
    SlowBack(Duration),
    /// A list shows what it showed a while ago.
    Stale,
    /// It is asked twice, as when a proxy repeats a request; the second answer is given.
    Twice,
    /// It never arrives.
    LostThere,
    /// It arrives, and its answer is lost.
    LostBack,
}

pub type Hook = Arc<dyn Fn(&Request<Bytes>) -> Trouble + Send + Sync>;

/// Clones share the hook and what was seen.
#[derive(Clone, Default)]
pub struct CloudTransport(Arc<Inner>);

#[derive(Default)]
struct Inner {
    hook: Mutex<Option<Hook>>,
    seen: Mutex<BTreeMap<String, (Instant, Response<Bytes>)>>,
}

impl CloudTransport {
    pub fn set_hook(&self, hook: Option<Hook>) {
        *self.0.hook.lock().unwrap() = hook;
    }

    /// The same cloud, by way of the hook.
    pub fn wrap(&self, transport: Transport) -> Transport {
        let way = self.clone();
        BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
            let (way, transport) = (way.clone(), transport.clone());
            async move { way.call(transport, request).await }
        }))
    }

    async fn call(
        &self,
        transport: Transport,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, hangar_openstack::BoxError> {
        let hook = self.0.hook.lock().unwrap().clone();
        let Some(hook) = hook else { return transport.oneshot(request).await };
        let question = (request.method() == Method::GET).then(|| request.uri().to_string());
        let trouble = hook(&request);
        if let (Trouble::Stale, Some(question)) = (trouble, &question)
            && let Some((at, answer)) = self.0.seen.lock().unwrap().get(question)
            && at.elapsed() < STALE_FOR
        {
            return Ok(answer.clone());
        }
        if let Trouble::SlowThere(time) = trouble {
            tokio::time::sleep(time).await;
        }
        if trouble == Trouble::LostThere {
            return Err("lost on its way".into());
        }
        if trouble == Trouble::Twice {
            transport.clone().oneshot(request.clone()).await?;
        }
        let answer = transport.oneshot(request).await?;
        if trouble == Trouble::LostBack {
            return Err("its answer was lost".into());
        }
        if let Some(question) = question.filter(|_| answer.status().is_success()) {
            self.0.seen.lock().unwrap().insert(question, (Instant::now(), answer.clone()));
        }
        if let Trouble::SlowBack(time) = trouble {
            tokio::time::sleep(time).await;
        }
        Ok(answer)
    }
}
