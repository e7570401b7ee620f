//! When a container that ended is started again: as the kubelet does it, the first time soon, then 10 s doubling up to 5 min.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);
/// Run for so long, a container starts with a clean record.
const CLEAN: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Backoff {
    next: Option<Duration>,
}

impl Backoff {
    /// The pause before the next start of something that ran for `ran`.
    pub fn after(&mut self, ran: Duration) -> Duration {
        if ran >= CLEAN {
            self.next = None;
        }
        let pause = self.next.unwrap_or(SOON);
        self.next = Some(self.next.map_or(FIRST, |next| (next * 2).min(LONGEST)));
        pause
    }
}

/// Whether a container with this policy is started again after this exit code.
pub(super) fn restarts(policy: &str, exit_code: i32) -> bool {
    match policy {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_a_long_run_clears_the_record() {
        let mut backoff = Backoff::default();
        let short = Duration::from_secs(1);
        let pauses: Vec<u64> = (0..8).map(|_| backoff.after(short).as_secs()).collect();
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.after(CLEAN), SOON);
    }

    #[test]
    fn the_policy_decides() {
        let rows = [
            ("Always", 0, true),
            ("Always", 1, true),
            ("OnFailure", 0, false),
            ("OnFailure", 1, true),
            ("Never", 1, false),
        ];
        for (policy, code, expected) in rows {
            assert_eq!(restarts(policy, code), expected, "{policy} {code}");
        }
    }
}
