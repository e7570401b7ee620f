//! What Prometheus is told: controller-runtime's names for what it counts too, so that existing dashboards work, and ours beside them.
//!
//! Flows: passes, requests and the queue -> numbers in memory -> OpenMetrics text when somebody asks. Holds: nothing here changes what is done.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hangar_api::ObjectKey;
use hangar_planner::Gauge;
pub use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::pass::PassError;
use crate::queue::{Depth, Outcome, Queue};

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// In seconds; most passes take less than a millisecond.
const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0];

type Labels<const N: usize> = [(&'static str, String); N];
type Histograms = Family<Labels<1>, Histogram, fn() -> Histogram>;

/// Shared by everybody who has something to count; cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    queue: Arc<Queue>,
    passes: Family<Labels<2>, Counter>,
    errors: Family<Labels<1>, Counter>,
    panics: Family<Labels<1>, Counter>,
    pass_time: Histograms,
    waiting_time: Histograms,
    leads: Family<Labels<1>, prometheus_client::metrics::gauge::Gauge>,
    /// What planners say of single objects.
    gauges: Mutex<BTreeMap<ObjectKey, Vec<Gauge>>>,
    ready: AtomicBool,
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Metrics {
    pub fn new(queue: Arc<Queue>) -> Self {
        let passes = Family::<Labels<2>, Counter>::default();
        let (errors, panics) = (Family::<Labels<1>, Counter>::default(), Family::<Labels<1>, Counter>::default());
        let pass_time: Histograms = Family::new_with_constructor(histogram);
        let waiting_time: Histograms = Family::new_with_constructor(histogram);
        let mut registry = Registry::default();
        registry.register("controller_runtime_reconcile", "Passes by controller and result", passes.clone());
        registry.register("controller_runtime_reconcile_errors", "Passes that failed", errors.clone());
        registry.register("controller_runtime_reconcile_panics", "Passes that panicked", panics.clone());
        registry.register("controller_runtime_reconcile_time_seconds", "How long passes take", pass_time.clone());
        registry.register("workqueue_queue_duration_seconds", "How long keys wait for a pass", waiting_time.clone());
        let leads = Family::default();
        registry.register(
            "leader_election_master_status",
            "Whether this process holds the Lease",
            Family::clone(&leads),
        );
        let gauges = Mutex::default();
        let ready = AtomicBool::new(false);
        let all = Inner { registry, queue, passes, errors, panics, pass_time, waiting_time, leads, gauges, ready };
        Self(Arc::new(all))
    }

    /// A pass ended; `result` is one of controller-runtime's.
    pub fn pass(&self, kind: &str, result: &'static str, waited: Duration, took: Duration) {
        let controller = kind.to_lowercase();
        self.0.passes.get_or_create(&[("controller", controller.clone()), ("result", result.to_owned())]).inc();
        if result == "error" {
            self.0.errors.get_or_create(&[("controller", controller.clone())]).inc();
        }
        self.0.waiting_time.get_or_create(&[("name", controller.clone())]).observe(waited.as_secs_f64());
        self.0.pass_time.get_or_create(&[("controller", controller)]).observe(took.as_secs_f64());
    }

    pub fn panic(&self, kind: &str) {
        self.0.panics.get_or_create(&[("controller", kind.to_lowercase())]).inc();
    }

    /// Whether this process holds the Lease of this name.
    pub fn leads(&self, lease: &str, leads: bool) {
        self.0.leads.get_or_create(&[("name", lease.to_owned())]).set(leads.into());
    }

    /// What is known of one object now.
    pub fn gauges(&self, key: &ObjectKey, gauges: Vec<Gauge>) {
        let mut all = self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        if gauges.is_empty() {
            all.remove(key);
        } else {
            all.insert(key.clone(), gauges);
        }
    }

    pub fn set_ready(&self) {
        self.0.ready.store(true, Ordering::Relaxed);
    }

    /// Whether every kind has been listed and passes are made.
    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Relaxed)
    }

    /// All there is, and what others know.
    pub fn text(&self, others: Vec<Box<dyn Collector>>) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode_registry(&mut text, &self.0.registry)?;
        let mut more = Registry::default();
        let gauges = self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner).clone();
        more.register_collector(Box::new(OfObjects(gauges)));
        let depth = self.0.queue.depth();
        more.register_collector(total("workqueue_adds", "Keys that were put into the queue", depth.added));
        more.register_collector(total("workqueue_retries", "Keys that are tried again after a failure", depth.retried));
        more.register_collector(Box::new(OfQueue(depth)));
        others.into_iter().for_each(|other| more.register_collector(other));
        text::encode_registry(&mut text, &more)?;
        text::encode_eof(&mut text)?;
        Ok(text)
    }
}

#[derive(Debug)]
struct OfObjects(BTreeMap<ObjectKey, Vec<Gauge>>);

impl Collector for OfObjects {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut by_name: BTreeMap<&str, Vec<(&ObjectKey, &Gauge)>> = BTreeMap::new();
        for (key, gauges) in &self.0 {
            gauges.iter().for_each(|gauge| by_name.entry(gauge.name).or_default().push((key, gauge)));
        }
        for (name, all) in by_name {
            let help = all.first().map_or("", |(_, gauge)| gauge.help);
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (key, gauge) in all {
                let labels = [("kind", &key.kind), ("namespace", &key.namespace), ("name", &key.name)];
                family
                    .encode_family(&labels.map(|(label, value)| (label, value.as_str())))?
                    .encode_gauge(&gauge.value)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct OfQueue(Depth);

impl Collector for OfQueue {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let depth = &self.0;
        let by_kind = |counts: &BTreeMap<String, usize>, label: &'static str| -> Vec<(Labels<1>, f64)> {
            counts.iter().map(|(kind, count)| ([(label, kind.to_lowercase())], *count as f64)).collect()
        };
        gauges(&mut encoder, "workqueue_depth", "Keys that wait for a pass", &by_kind(&depth.waiting, "name"))?;
        let working = by_kind(&depth.working, "controller");
        gauges(&mut encoder, "controller_runtime_active_workers", "Passes that are being made", &working)
    }
}

fn gauges<S: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: &[(S, f64)],
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    values.iter().try_for_each(|(labels, value)| family.encode_family(labels)?.encode_gauge(value))
}

fn total(name: &'static str, help: &'static str, value: u64) -> Box<dyn Collector> {
    Box::new(Counters { name, help, values: vec![([], value)] })
}

/// Counts that somebody else keeps, by labels.
#[derive(Debug)]
pub struct Counters<const N: usize> {
    pub name: &'static str,
    pub help: &'static str,
    pub values: Vec<([(&'static str, String); N], u64)>,
}

impl<const N: usize> Collector for Counters<N> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let none: Option<&prometheus_client::metrics::exemplar::Exemplar<Labels<1>, u64>> = None;
        let mut family = encoder.encode_descriptor(self.name, self.help, None, MetricType::Counter)?;
        self.values.iter().try_for_each(|(labels, value)| match N {
            0 => family.encode_counter(value, none),
            _ => family.encode_family(labels)?.encode_counter(value, none),
        })
    }
}

/// In the words of controller-runtime.
pub(crate) fn result(outcome: &Result<Outcome, PassError>) -> &'static str {
    match outcome {
        Ok(Outcome::Settled) => "success",
        Ok(Outcome::After(_)) => "requeue_after",
        Ok(Outcome::Failed) => "error",
        Err(PassError::LookAgain(_) | PassError::Killed) => "requeue",
        Err(PassError::Api(_)) => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Group;

    #[test]
    fn everything_is_said_with_the_names_that_dashboards_know() {
        let queue = Arc::new(Queue::default());
        queue.add(ObjectKey::new("cluster.x-k8s.io", "Machine", "n", "m"), Group::default());
        let metrics = Metrics::new(queue);
        metrics.pass("Machine", "success", Duration::from_millis(2), Duration::from_micros(700));
        metrics.pass("Machine", "error", Duration::ZERO, Duration::from_secs(2));
        metrics.panic("Machine");
        let plane = ObjectKey::new("g", "KamajiControlPlane", "n", "p");
        let gauge = |value| Gauge { name: "hangar_certificate_expiration_timestamp_seconds", help: "When", value };
        metrics.gauges(&plane, vec![gauge(1.5e9)]);
        let calls = Counters {
            name: "hangar_cloud_calls",
            help: "Calls",
            values: vec![([("call", "nova GET servers".to_owned())], 3)],
        };
        let tokens = Counters { name: "hangar_cloud_tokens", help: "Tokens", values: vec![([], 1)] };
        let text = metrics.text(vec![Box::new(calls), Box::new(tokens)]).unwrap();
        for line in [
            r#"controller_runtime_reconcile_total{controller="machine",result="success"} 1"#,
            r#"controller_runtime_reconcile_errors_total{controller="machine"} 1"#,
            r#"controller_runtime_reconcile_panics_total{controller="machine"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_bucket{le="0.001",controller="machine"} 1"#,
            r#"controller_runtime_reconcile_time_seconds_count{controller="machine"} 2"#,
            r#"workqueue_queue_duration_seconds_bucket{le="0.0025",name="machine"} 2"#,
            r#"workqueue_depth{name="machine"} 1"#,
            "workqueue_adds_total 1",
            "workqueue_retries_total 0",
            r#"hangar_certificate_expiration_timestamp_seconds{kind="KamajiControlPlane",namespace="n",name="p"} 1500000000"#,
            r#"hangar_cloud_calls_total{call="nova GET servers"} 3"#,
            "hangar_cloud_tokens_total 1",
        ] {
            assert!(text.lines().any(|one| one.starts_with(line)), "{line}\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        metrics.gauges(&plane, vec![]);
        assert!(!metrics.text(vec![]).unwrap().contains("hangar_certificate"), "what is gone is not said any more");
    }
}
