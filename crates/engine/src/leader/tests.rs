use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hangar_kubesim::{Fault, KubeApi, KubeApiOptions};
use serde_json::Value;

use super::*;
use crate::queue::Queue;

const LEASE: &str = "hangar";
const NAMESPACE: &str = "hangar-system";

fn api(seed: u64) -> KubeApi {
    KubeApi::new(KubeApiOptions { seed, latency: Duration::from_millis(5), ..KubeApiOptions::default() })
}

fn candidate(api: &KubeApi, identity: &str) -> Candidate {
    let (began, since) = ("2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap(), Instant::now());
    Candidate {
        client: api.client_as(identity),
        namespace: NAMESPACE.to_owned(),
        name: LEASE.to_owned(),
        identity: identity.to_owned(),
        terms: Terms::default(),
        clock: Arc::new(move || began + since.elapsed()),
        metrics: None,
    }
}

fn lease(api: &KubeApi) -> Value {
    api.get("coordination.k8s.io", "Lease", NAMESPACE, LEASE).map(|lease| lease["spec"].clone()).unwrap_or_default()
}

/// Works until it is told to stop, and then as long again as it takes to end.
async fn work_until(term: CancellationToken, to_end: Duration) -> Ended {
    term.cancelled().await;
    tokio::time::sleep(to_end).await;
    Ended::Stopped
}

async fn until(what: &str, reached: impl Fn() -> bool) {
    let wait = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(4 * 3600), wait).await.is_ok(), "it never came that {what}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_when_it_is_free_or_has_not_changed_for_as_long_as_it_lasts() {
    let (now, terms, seconds) = (Instant::now() + Duration::from_secs(100), Terms::default(), Duration::from_secs);
    let held = |holder: &str, lasts: Option<i32>| LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: lasts,
        ..LeaseSpec::default()
    };
    for (what, lease, unchanged_for, expected) in [
        ("none", None, 0, Move::Create),
        ("nobody's", Some(LeaseSpec::default()), 0, Move::Take),
        ("given back", Some(held("", Some(1))), 0, Move::Take),
        ("just renewed", Some(held("other", Some(15))), 0, Move::Wait(seconds(2))),
        ("nearly at its end", Some(held("other", Some(15))), 14, Move::Wait(seconds(1))),
        ("at its end", Some(held("other", Some(15))), 15, Move::Take),
        ("its holder asked for a minute", Some(held("other", Some(60))), 59, Move::Wait(seconds(1))),
        ("nonsense is as long as ours", Some(held("other", Some(-1))), 14, Move::Wait(seconds(1))),
        ("nothing is as long as ours", Some(held("other", None)), 15, Move::Take),
    ] {
        let seen = Seen { holder: None, renewed: None, since: now - seconds(unchanged_for) };
        assert_eq!(next_move(lease.as_ref(), &seen, now, &terms), expected, "{what}");
    }
}

#[test]
fn terms_under_which_two_could_lead_are_refused() {
    let terms = |duration: u64, renew_within: u64, retry: u64| {
        let [duration, renew_within, retry] = [duration, renew_within, retry].map(Duration::from_secs);
        Terms { duration, renew_within, retry }.check()
    };
    assert_eq!(Terms::default().check(), Ok(()));
    assert_eq!(terms(60, 40, 5), Ok(()));
    for (what, refused) in [
        ("nobody else waits until we have stopped", terms(10, 10, 2)),
        ("one attempt would be the last", terms(15, 10, 10)),
        ("without a pause", terms(15, 10, 0)),
        ("for ever", terms(4000, 10, 2)),
    ] {
        assert!(refused.is_err(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_leader_ends_its_work_before_the_new_one_begins() {
    let api = api(1);
    let at_work = Arc::new(AtomicUsize::new(0));
    let shutdowns = [CancellationToken::new(), CancellationToken::new()];
    let mut processes = vec![];
    for (name, shutdown) in ["a", "b"].into_iter().zip(shutdowns.clone()) {
        let (candidate, at_work) = (candidate(&api, name), at_work.clone());
        processes.push(tokio::spawn(async move {
            let work = |term| async move {
                assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                // Longer than a Lease lasts: it is renewed until the work has ended.
                let ended = work_until(term, Duration::from_secs(40)).await;
                at_work.fetch_sub(1, Ordering::SeqCst);
                ended
            };
            lead(candidate, &shutdown, work).await
        }));
        until("the first one leads", || lease(&api)["holderIdentity"] == "a").await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(lease(&api)["holderIdentity"], "a", "a Lease that is renewed is kept");
    let [first, second] = shutdowns;
    first.cancel();
    let asked = Instant::now();
    until("the second one leads", || lease(&api)["holderIdentity"] == "b").await;
    assert!(asked.elapsed() >= Duration::from_secs(40), "not before the work has ended");
    assert!(asked.elapsed() < Duration::from_secs(45), "it was given back, so that nobody waits until it ends");
    assert_eq!(lease(&api)["leaseTransitions"], 1);
    second.cancel();
    for process in processes {
        assert_eq!(process.await.unwrap(), Ok(Ended::Stopped));
    }
    assert_eq!(lease(&api)["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn who_died_is_followed_when_the_lease_has_ended() {
    let api = api(2);
    let never = CancellationToken::new();
    let died = lead(candidate(&api, "a"), &never, |_| async { Ended::Killed }).await;
    assert_eq!(died, Ok(Ended::Killed));
    assert_eq!(lease(&api)["holderIdentity"], "a", "whoever dies gives nothing back");
    let began = Instant::now();
    let followed = lead(candidate(&api, "b"), &never, |_| async { Ended::Stopped }).await;
    assert_eq!(followed, Ok(Ended::Stopped));
    assert!(began.elapsed() >= Terms::default().duration, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_same_process_finds_its_own_lease_again_and_cannot_keep_one_that_was_taken() {
    let api = api(3);
    let never = CancellationToken::new();
    let began = Instant::now();
    for _ in 0..2 {
        let died = lead(candidate(&api, "a"), &never, |_| async { Ended::Killed }).await;
        assert_eq!(died, Ok(Ended::Killed));
    }
    assert!(began.elapsed() < Duration::from_secs(1), "nobody waits for oneself");
    let other = api.clone();
    let lost = lead(candidate(&api, "a"), &never, |_| async move {
        other.edit("coordination.k8s.io", "Lease", NAMESPACE, LEASE, |lease| {
            lease["spec"]["holderIdentity"] = "b".into()
        });
        std::future::pending().await
    });
    let lost = lost.await.unwrap_err();
    assert_eq!(lost.to_string(), "lost the Lease hangar-system/hangar: it was taken or deleted; stopped acting");
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_stops_in_time() {
    let api = api(4);
    let never = CancellationToken::new();
    let cut = api.clone();
    let lost = lead(candidate(&api, "a"), &never, |_| async move {
        cut.set_fault_hook(Arc::new(|_| Fault::Delay(Duration::from_secs(3600))));
        std::future::pending().await
    });
    let began = Instant::now();
    let lost = lost.await.unwrap_err();
    assert!(began.elapsed() < Terms::default().duration, "before anybody else may take it: {:?}", began.elapsed());
    assert_eq!(lost.why, "it could not be renewed within 10 s");
}

/// Requests fail, answers get lost or come late, processes die, and somebody always leads again; never two.
#[tokio::test(start_paused = true)]
async fn whatever_fails_never_two_lead() {
    for seed in 0..40_u64 {
        let api = api(seed);
        let die = Arc::new(AtomicUsize::new(0));
        let throw = move |sides: u64| {
            let throw = die.fetch_add(1, Ordering::SeqCst) as u64;
            let mixed = (seed << 32 | throw).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            ((mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) % sides
        };
        let faults = throw.clone();
        api.set_fault_hook(Arc::new(move |_| match faults(16) {
            0..2 => Fault::Before(500),
            2..5 => Fault::After,
            5 => Fault::Delay(Duration::from_secs(faults(32))),
            _ => Fault::None,
        }));
        let (at_work, terms) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut processes = tokio::task::JoinSet::new();
        for name in ["a", "b", "c"] {
            let (candidate, at_work, terms, throw) =
                (candidate(&api, name), at_work.clone(), terms.clone(), throw.clone());
            processes.spawn(async move {
                loop {
                    let (at_work, terms, throw) = (at_work.clone(), terms.clone(), throw.clone());
                    let work = |term: CancellationToken| async move {
                        let _present = Present::enter(&at_work);
                        terms.fetch_add(1, Ordering::SeqCst);
                        let _ = tokio::time::timeout(Duration::from_secs(throw(128)), term.cancelled()).await;
                        if throw(2) == 0 { Ended::Killed } else { Ended::Stopped }
                    };
                    let _ = lead(candidate.clone(), &CancellationToken::new(), work).await;
                }
            });
        }
        until(&format!("there were twenty terms (seed {seed})"), || terms.load(Ordering::SeqCst) >= 20).await;
        processes.shutdown().await;
    }
}

/// At most one is at work.
struct Present(Arc<AtomicUsize>);

impl Present {
    fn enter(at_work: &Arc<AtomicUsize>) -> Self {
        assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "two lead at once");
        Self(at_work.clone())
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_say_who_leads() {
    let api = api(5);
    let metrics = Metrics::new(Arc::new(Queue::default()));
    let candidate = Candidate { metrics: Some(metrics.clone()), ..candidate(&api, "a") };
    let (shutdown, during) = (CancellationToken::new(), metrics.clone());
    let text = |metrics: &Metrics| metrics.text(vec![]).unwrap();
    let ended = lead(candidate, &shutdown, |_| async move {
        assert!(text(&during).contains("leader_election_master_status{name=\"hangar\"} 1"), "{}", text(&during));
        Ended::Stopped
    });
    assert_eq!(ended.await, Ok(Ended::Stopped));
    assert!(text(&metrics).contains("leader_election_master_status{name=\"hangar\"} 0"));
}
