//! Lifecycle hooks: something that is done right after a container started, and something before it is told to go.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{LifecycleHandler, Probe};

use super::probe::Target;

/// A hook has no limit of its own; after a start, nobody waits longer than this.
const LONGEST: i32 = 600;

/// Does what the hook says; the error says what was wrong.
pub(super) async fn carry_out(target: &Target<'_>, hook: &LifecycleHandler) -> Result<(), String> {
    if let Some(sleep) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    let question = Probe {
        exec: hook.exec.clone(),
        http_get: hook.http_get.clone(),
        tcp_socket: hook.tcp_socket.clone(),
        timeout_seconds: Some(LONGEST),
        ..Probe::default()
    };
    target.ask(&question).await
}

/// The hook before the end counts against the grace period; what is left of it is returned, and what went wrong.
pub(super) async fn pre_stop(
    target: &Target<'_>,
    hook: Option<&LifecycleHandler>,
    grace: Duration,
) -> (Duration, Option<String>) {
    let (Some(hook), false) = (hook, grace.is_zero()) else { return (grace, None) };
    let began = Instant::now();
    let outcome = tokio::time::timeout(grace, carry_out(target, hook)).await;
    let trouble = match outcome {
        Ok(answer) => answer.err(),
        Err(_) => Some(format!("it took longer than the grace period of {} s", grace.as_secs())),
    };
    // As the kubelet does: a process always has a moment to end by itself.
    (grace.saturating_sub(began.elapsed()).max(Duration::from_secs(2)), trouble)
}
