//! What a Prometheus sees of our calls, under the names that operators of Cluster API know.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::Method;

/// Upper ends in seconds.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Default)]
pub(crate) struct Metrics(Mutex<BTreeMap<String, Series>>);

#[derive(Default, Clone)]
struct Series {
    requests: u64,
    errors: u64,
    seconds: f64,
    buckets: [u64; BUCKETS.len()],
}

impl Metrics {
    pub(crate) fn observe(&self, method: &Method, path: &str, ok: bool, took: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let series = all.entry(request(method, path)).or_default();
        let seconds = took.as_secs_f64();
        series.requests += 1;
        series.errors += u64::from(!ok);
        series.seconds += seconds;
        for (end, count) in BUCKETS.iter().zip(&mut series.buckets) {
            *count += u64::from(seconds <= *end);
        }
    }

    /// In the text format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut text = String::new();
        // Writing to a String cannot fail.
        let mut line = |args: std::fmt::Arguments<'_>| {
            let _ = writeln!(text, "{args}");
        };
        line(format_args!("# TYPE capo_openstack_api_requests_total counter"));
        for (request, series) in &all {
            line(format_args!("capo_openstack_api_requests_total{{request=\"{request}\"}} {}", series.requests));
        }
        line(format_args!("# TYPE capo_openstack_api_request_errors_total counter"));
        for (request, series) in &all {
            line(format_args!("capo_openstack_api_request_errors_total{{request=\"{request}\"}} {}", series.errors));
        }
        const NAME: &str = "capo_openstack_api_request_duration_seconds";
        line(format_args!("# TYPE {NAME} histogram"));
        for (request, series) in &all {
            for (end, count) in BUCKETS.iter().zip(series.buckets) {
                line(format_args!("{NAME}_bucket{{request=\"{request}\",le=\"{end}\"}} {count}"));
            }
            line(format_args!("{NAME}_bucket{{request=\"{request}\",le=\"+Inf\"}} {}", series.requests));
            line(format_args!("{NAME}_sum{{request=\"{request}\"}} {}", series.seconds));
            line(format_args!("{NAME}_count{{request=\"{request}\"}} {}", series.requests));
        }
        text
    }
}

/// `server_create`: the resource and what is done to it. Ids never get in here.
fn request(method: &Method, path: &str) -> String {
    let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "lbaas").collect();
    // `pools/ID/members` is about members, `servers/ID/action` about the server.
    let (collection, below) = match segments.as_slice() {
        [_, _, "action", ..] | [_, _, "tags", ..] | [_, "detail"] => (segments[0], segments[2..].first()),
        [_, _, inner, rest @ ..] => (*inner, rest.first()),
        [collection, rest @ ..] => (*collection, rest.first()),
        [] => ("root", None),
    };
    let one = below.is_some() || matches!(segments.as_slice(), [_, id] if *id != "detail");
    let verb = match *method {
        Method::GET if one => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::DELETE => "delete",
        _ => "update",
    };
    let name = collection.trim_start_matches("os-").replace('-', "_");
    format!("{}_{verb}", name.strip_suffix('s').unwrap_or(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_named_by_resource_and_verb() {
        let table = [
            (Method::GET, "/servers/detail", "server_list"),
            (Method::GET, "/servers/1f", "server_get"),
            (Method::POST, "/servers", "server_create"),
            (Method::POST, "/servers/1f/action", "server_create"),
            (Method::DELETE, "/ports/1f", "port_delete"),
            (Method::PUT, "/ports/1f/tags", "port_update"),
            (Method::GET, "/lbaas/pools/1f/members", "member_list"),
            (Method::GET, "/lbaas/loadbalancers/1f", "loadbalancer_get"),
            (Method::GET, "/os-server-groups", "server_group_list"),
        ];
        for (method, path, expected) in table {
            assert_eq!(request(&method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn the_text_has_counters_and_a_histogram() {
        let metrics = Metrics::default();
        metrics.observe(&Method::GET, "/ports", true, Duration::from_millis(20));
        metrics.observe(&Method::GET, "/ports", false, Duration::from_secs(20));
        let text = metrics.text();
        for line in [
            "capo_openstack_api_requests_total{request=\"port_list\"} 2",
            "capo_openstack_api_request_errors_total{request=\"port_list\"} 1",
            "capo_openstack_api_request_duration_seconds_bucket{request=\"port_list\",le=\"0.01\"} 0",
            "capo_openstack_api_request_duration_seconds_bucket{request=\"port_list\",le=\"0.025\"} 1",
            "capo_openstack_api_request_duration_seconds_bucket{request=\"port_list\",le=\"+Inf\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
