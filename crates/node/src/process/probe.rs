//! Probes: the question, and the count of answers that makes it a verdict.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::{Container, ExecAction, HTTPGetAction, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::exec_context::ExecContext;
use super::isolation::Isolation;

/// Looks at something that starts.
const STARTUP_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Counts answers of one probe.
#[derive(Debug)]
pub(super) struct ThresholdCounter {
    success: i32,
    failure: i32,
    /// Positive: successes in a row, negative: failures in a row.
    run: i32,
}

impl ThresholdCounter {
    pub fn new(probe: &Probe) -> Self {
        let at_least_one = |threshold: Option<i32>, otherwise| threshold.unwrap_or(otherwise).max(1);
        Self {
            success: at_least_one(probe.success_threshold, 1),
            failure: at_least_one(probe.failure_threshold, 3),
            run: 0,
        }
    }

    /// A verdict, if this answer makes one. A probe that goes on failing keeps saying so.
    pub fn record(&mut self, passed: bool) -> Option<bool> {
        self.run = match (passed, self.run) {
            (true, run) if run > 0 => run.saturating_add(1),
            (true, _) => 1,
            (false, run) if run < 0 => run.saturating_sub(1),
            (false, _) => -1,
        };
        if self.run >= self.success {
            Some(true)
        } else if -self.run >= self.failure {
            Some(false)
        } else {
            None
        }
    }
}

/// When to ask: by the clock, as a kubelet does, so that an answer that takes its time does not put off the next question.
///
/// What starts is also looked at in between, if that costs no process: who waits for it waits no longer than it takes.
pub(super) struct ProbeTimer {
    ticks: Interval,
    period: Duration,
    due: Instant,
}

impl ProbeTimer {
    pub fn new(probe: &Probe, is_startup: bool) -> Self {
        let period = seconds(probe.period_seconds, 10);
        let delay = Duration::from_secs(u64::try_from(probe.initial_delay_seconds.unwrap_or(0)).unwrap_or(0));
        let due = Instant::now() + delay;
        let eager = is_startup && probe.exec.is_none();
        let mut ticks = tokio::time::interval_at(due, if eager { STARTUP_POLL_INTERVAL } else { period });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self { ticks, period, due }
    }

    /// Whether the question is one of those that the probe asks for: only these may fail.
    pub async fn next(&mut self) -> bool {
        self.ticks.tick().await;
        let now = Instant::now();
        let counts = now >= self.due;
        while now >= self.due {
            self.due += self.period;
        }
        counts
    }
}

fn seconds(value: Option<i32>, otherwise: u64) -> Duration {
    Duration::from_secs(
        value.and_then(|value| u64::try_from(value).ok()).filter(|&value| value > 0).unwrap_or(otherwise),
    )
}

/// What a probe needs to know about the container it asks.
pub(super) struct Target<'a> {
    pub container: &'a Container,
    pub ip: Ipv4Addr,
    pub context: &'a ExecContext,
    pub isolation: &'a Isolation,
}

impl Target<'_> {
    /// Asks once; the error says what was wrong.
    pub async fn ask(&self, probe: &Probe) -> Result<(), String> {
        let limit = seconds(probe.timeout_seconds, 1);
        let question = async {
            if let Some(action) = &probe.http_get {
                self.http(action).await
            } else if let Some(action) = &probe.tcp_socket {
                let address = (action.host.clone().unwrap_or_else(|| self.ip.to_string()), self.port(&action.port)?);
                tokio::net::TcpStream::connect(address).await.map(drop).map_err(|error| error.to_string())
            } else if let Some(action) = &probe.exec {
                self.exec(action).await
            } else if let Some(action) = &probe.grpc {
                let port = self.port(&IntOrString::Int(action.port))?;
                super::grpc_health::ask(&self.ip.to_string(), port, action.service.as_deref().unwrap_or_default()).await
            } else {
                Err("the probe has no action: set httpGet, tcpSocket, exec or grpc".into())
            }
        };
        tokio::time::timeout(limit, question).await.map_err(|_| format!("timeout after {} s", limit.as_secs()))?
    }

    fn port(&self, port: &IntOrString) -> Result<u16, String> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(name) => {
                let named = self.container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name));
                named.map(|port| port.container_port).or_else(|| name.parse().ok())
            }
        };
        number
            .and_then(|number| u16::try_from(number).ok())
            .ok_or_else(|| "the container has no port of that name".to_owned())
    }

    async fn http(&self, action: &HTTPGetAction) -> Result<(), String> {
        let scheme = action.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
        let host = action.host.clone().filter(|host| !host.is_empty()).unwrap_or_else(|| self.ip.to_string());
        let path = action.path.as_deref().unwrap_or("/").trim_start_matches('/');
        let url = format!("{scheme}://{host}:{}/{path}", self.port(&action.port)?);
        let mut request = http::Request::get(&url).header(http::header::USER_AGENT, "kube-probe/hangar");
        for header in action.http_headers.iter().flatten() {
            request = request.header(&header.name, &header.value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            // A probe asks whether somebody is there, not who: the kubelet does not check certificates either.
            .with_tls_config(hangar_pki::unverified_client().map_err(|error| error.to_string())?)
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        let answer = client.request(request).await.map_err(|error| chain(&error))?;
        match answer.status().as_u16() {
            200..400 => Ok(()),
            status => Err(format!("HTTP probe failed with statuscode: {status}")),
        }
    }

    async fn exec(&self, action: &ExecAction) -> Result<(), String> {
        let words: Vec<String> = action.command.iter().flatten().cloned().collect();
        let output = self.context.command(self.isolation, &words)?.output().await;
        let output = output.map_err(|error| format!("{}: {error}", words.join(" ")))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stdout).trim()))
    }
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_make_verdicts() {
        let probe = Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Probe::default() };
        let mut counter = ThresholdCounter::new(&probe);
        let answers = [true, true, false, false, true, false, false, false, false, true, true];
        let verdicts: Vec<Option<bool>> = answers.into_iter().map(|answer| counter.record(answer)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(verdicts, [None, yes, None, None, None, None, None, no, no, None, yes]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_starts_is_looked_at_in_between() {
        let probe = |action: serde_json::Value| -> Probe {
            let mut probe = serde_json::json!({"periodSeconds": 1, "initialDelaySeconds": 2});
            probe.as_object_mut().unwrap().extend(action.as_object().cloned().unwrap());
            serde_json::from_value(probe).unwrap()
        };
        let http = probe(serde_json::json!({"httpGet": {"port": 1}}));
        let exec = probe(serde_json::json!({"exec": {"command": ["true"]}}));
        for (probe, is_startup, second) in [(&http, true, 2250), (&http, false, 3000), (&exec, true, 3000)] {
            let began = Instant::now();
            let mut timer = ProbeTimer::new(probe, is_startup);
            assert!(timer.next().await);
            assert_eq!(began.elapsed(), Duration::from_secs(2));
            assert_eq!(timer.next().await, second == 3000);
            assert_eq!(began.elapsed(), Duration::from_millis(second));
            // An answer that took its time.
            tokio::time::sleep(Duration::from_millis(1600)).await;
            assert!(timer.next().await, "a question that was due is not forgotten");
        }
    }

    #[tokio::test]
    async fn a_port_may_have_a_name_and_somebody_must_listen() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        // A port that is taken, so that nobody else gets it, and not listened on.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let [open, shut] = [listener.local_addr(), closed.local_addr()].map(|address| address.unwrap().port());
        let container: Container = serde_json::from_value(serde_json::json!({
            "name": "c", "ports": [{"name": "api", "containerPort": open}, {"name": "shut", "containerPort": shut}],
        }))
        .unwrap();
        let directory = tempfile::tempdir().unwrap();
        let here = || directory.path().to_owned();
        let context = ExecContext { directory: here(), hosts: here(), home: here(), ..ExecContext::default() };
        let isolation = Isolation::default();
        let target =
            Target { container: &container, ip: Ipv4Addr::LOCALHOST, context: &context, isolation: &isolation };
        let probe = |port: &str| serde_json::from_value(serde_json::json!({"tcpSocket": {"port": port}})).unwrap();
        assert_eq!(target.ask(&probe("api")).await, Ok(()));
        assert!(target.ask(&probe("shut")).await.is_err());
        assert!(target.ask(&probe("nameless")).await.is_err());
        let exec: Probe =
            serde_json::from_value(serde_json::json!({"exec": {"command": ["sh", "-c", "echo no; exit 4"]}})).unwrap();
        assert!(target.ask(&exec).await.unwrap_err().contains("no"));
    }
}
