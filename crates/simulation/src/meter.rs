//! How much CPU time the fakes take, so that a benchmark of the controllers can leave it out.
//!
//! Flows: whatever runs within [`Meter::measure`], [`Meter::future`], [`Meter::service`] or [`Meter::transport`] is timed by the thread's CPU
//! clock. Holds: nested measurements count once; a meter that is off reads no clock.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hangar_kubesim::{AnswerBody, ApiService};
use hangar_openstack::Transport;
use hyper::body::{Body, Frame, SizeHint};
use rustix::time::{ClockId, clock_gettime};
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt as _, service_fn};

/// Clones add to the same sum. For a single thread.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<Sum>>);

#[derive(Default)]
struct Sum {
    nanos: AtomicU64,
    depth: AtomicU64,
}

/// CPU time of a clock.
fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// CPU time of all threads of this process.
pub fn process_time() -> Duration {
    clock(ClockId::ProcessCPUTime)
}

/// CPU time of the thread that asks.
pub fn thread_time() -> Duration {
    clock(ClockId::ThreadCPUTime)
}

impl Meter {
    pub fn on() -> Self {
        Self(Some(Arc::default()))
    }

    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.as_ref().map_or(0, |sum| sum.nanos.load(Ordering::Relaxed)))
    }

    pub fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some(sum) = &self.0 else { return work() };
        if sum.depth.fetch_add(1, Ordering::Relaxed) > 0 {
            let done = work();
            sum.depth.fetch_sub(1, Ordering::Relaxed);
            return done;
        }
        let began = thread_time();
        let done = work();
        let took = thread_time().saturating_sub(began);
        sum.depth.fetch_sub(1, Ordering::Relaxed);
        sum.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        done
    }

    /// Every poll is measured.
    pub fn future<F: Future>(&self, future: F) -> Metered<F> {
        Metered { meter: self.clone(), future: Box::pin(future) }
    }

    /// Every request and every frame of its answer is measured.
    pub fn service(&self, service: ApiService) -> kube::Client {
        let meter = self.clone();
        let measured = service_fn(move |request| {
            let (service, body_meter) = (service.clone(), meter.clone());
            meter.future(async move {
                let answer = service.oneshot(request).await?;
                Ok::<_, std::convert::Infallible>(answer.map(|body| MeteredBody { meter: body_meter, body }))
            })
        });
        kube::Client::new(measured, "default")
    }

    /// Every call to the cloud is measured.
    pub fn transport(&self, transport: Transport) -> Transport {
        let meter = self.clone();
        BoxCloneSyncService::new(service_fn(move |request| {
            let transport = transport.clone();
            meter.future(async move { transport.oneshot(request).await })
        }))
    }
}

pub struct Metered<F> {
    meter: Meter,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.meter.measure(|| this.future.as_mut().poll(context))
    }
}

struct MeteredBody {
    meter: Meter,
    body: AnswerBody,
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let this = &mut *self;
        this.meter.measure(|| Pin::new(&mut this.body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
