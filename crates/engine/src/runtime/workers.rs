//! Who works on what the queue hands out.
//!
//! Flows: queue -> worker -> pass; a pass that waits for somebody else goes on by itself, and its worker takes up the next key. Holds: however slow a cloud or a tenant is, only its
//! own clusters wait for it, since the queue hands out no more than so many keys of one cluster at a time; a pass that was begun is let finish when the engine stops.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Dispatch, Ended, chain};
use crate::metrics::result;
use crate::pass::{Executor, PassError};
use crate::queue::{Outcome, Queue};

/// A pass that takes longer waits for somebody else: those that only think take milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long passes that are under way may take to end when the engine is told to stop. A request to a cloud is given up after 30 s, and whoever stops a
/// process waits no longer than that either.
const GRACE: Duration = Duration::from_secs(20);

pub(super) struct Workers<X: 'static> {
    queue: Arc<Queue>,
    dispatch: Arc<Dispatch<X>>,
    killed: CancellationToken,
    /// Passes that wait without a worker.
    waiting: Arc<Mutex<JoinSet<()>>>,
}

impl<X> Clone for Workers<X> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            dispatch: self.dispatch.clone(),
            killed: self.killed.clone(),
            waiting: self.waiting.clone(),
        }
    }
}

impl<X: Executor> Workers<X> {
    pub fn new(queue: Arc<Queue>, dispatch: Arc<Dispatch<X>>) -> Self {
        Self { queue, dispatch, killed: CancellationToken::new(), waiting: Arc::default() }
    }

    /// Until told to stop, and then until what is under way has ended; or until a simulation kills it.
    pub async fn run(self, count: usize, shutdown: &CancellationToken) -> Ended {
        let mut workers = JoinSet::new();
        for _ in 0..count {
            workers.spawn(self.clone().work(shutdown.clone()));
        }
        let ended = tokio::select! {
            biased;
            () = self.killed.cancelled() => Ended::Killed,
            () = self.passes_ended(&mut workers, shutdown) => Ended::Stopped,
        };
        workers.shutdown().await;
        let mut waiting = std::mem::take(&mut *self.waiting());
        waiting.shutdown().await;
        ended
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn work(self, shutdown: CancellationToken) {
        loop {
            let (key, waited) = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                next = self.queue.next() => next,
            };
            let this = self.clone();
            let mut pass = Box::pin(async move {
                let began = Instant::now();
                let outcome = this.dispatch.pass(&key).await;
                let metrics = &this.dispatch.context.passes().metrics;
                metrics.pass(&key.kind, result(&outcome), waited, began.elapsed());
                let outcome = match outcome {
                    Ok(outcome) => outcome,
                    Err(PassError::Killed) => return this.killed.cancel(),
                    Err(PassError::LookAgain(why)) => {
                        tracing::debug!(object = %key, %why, "another look");
                        Outcome::Failed
                    }
                    Err(error) => {
                        tracing::warn!(object = %key, error = %chain(&error), "pass failed");
                        Outcome::Failed
                    }
                };
                this.queue.done(&key, outcome);
            });
            let in_time = tokio::select! {
                biased;
                () = &mut pass => true,
                () = tokio::time::sleep(PATIENCE) => false,
            };
            if !in_time {
                let mut waiting = self.waiting();
                // Those that have ended leave.
                while waiting.try_join_next().is_some() {}
                waiting.spawn(pass);
            }
        }
    }

    /// What a pass has begun it should record: the next process need not find it out then.
    async fn passes_ended(&self, workers: &mut JoinSet<()>, shutdown: &CancellationToken) {
        shutdown.cancelled().await;
        let ended = async {
            while workers.join_next().await.is_some() {}
            // No worker is left that could add one.
            let mut waiting = std::mem::take(&mut *self.waiting());
            while waiting.join_next().await.is_some() {}
        };
        if tokio::time::timeout(GRACE, ended).await.is_err() {
            tracing::warn!("passes that did not end within {} s are cut off", GRACE.as_secs());
        }
    }
}
