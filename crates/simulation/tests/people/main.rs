//! People and troubles from a seed: several clusters, scaled, changed, paused, edited, deleted and applied again at any moment, while requests fail, answers get lost,
//! lists are stale and the process dies. `cargo xtask simulate` runs thousands of seeds; a failing one is made shorter and printed.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

mod history;
mod life;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use history::{Action, Deed, History, Moment, Troubles};
use life::Counts;

/// What CI runs.
const SEEDS: u64 = 24;
const CLUSTERS: usize = 2;
/// More are hardly more to learn from.
const MOST_FAILURES: usize = 10;
/// Runs with which a failing history is made shorter.
const ATTEMPTS: usize = 30;

fn run(history: &History) -> Result<Counts, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let words = Arc::new(Mutex::new(String::new()));
    let heard = words.clone();
    let before = std::panic::take_hook();
    // Said once, with the history, when no shorter one fails.
    std::panic::set_hook(Box::new(move |panic| *heard.lock().unwrap() = panic.to_string()));
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(life::live(history))));
    std::panic::set_hook(before);
    outcome.map_err(|_| words.lock().unwrap().clone())
}

/// The shortest history that was found which still fails, and how.
fn shortest(mut history: History, mut words: String) -> (History, String) {
    let mut attempts = 0;
    'shorter: loop {
        for other in history.shorter() {
            attempts += 1;
            if attempts > ATTEMPTS {
                return (history, words);
            }
            if let Err(other_words) = run(&other) {
                (history, words) = (other, other_words);
                continue 'shorter;
            }
        }
        return (history, words);
    }
}

fn explained(history: History, words: String) -> String {
    let whole = life::summary(&history);
    let (history, words) = shortest(history, words);
    let words: String = words.chars().take(6_000).collect();
    format!("\n{words}\n\nthe whole history: {whole}\n\nthe shortest that fails: {}", life::summary(&history))
}

/// In one line, without places, times and names of histories.
fn gist(words: &str) -> String {
    let mut lines = words.lines().filter(|line| !line.starts_with("panicked at") && !line.ends_with("violations"));
    let line = lines.next().unwrap_or_default();
    let line = line.split_once("Z ").map_or(line, |(_, what)| what);
    line.chars().take(160).collect()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn whatever_people_do_and_whatever_fails_no_law_is_broken() {
    let clusters = number("HANGAR_CLUSTERS").map_or(CLUSTERS, |count| count.clamp(1, 100) as usize);
    if let Some(seed) = number("HANGAR_SEED") {
        let history = History::draw(seed, clusters);
        println!("{}", life::summary(&history));
        tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false).init();
        run(&history).unwrap_or_else(|words| panic!("{words}"));
        return;
    }
    let (first, count) = (number("HANGAR_FIRST_SEED").unwrap_or(0), number("HANGAR_SEEDS").unwrap_or(SEEDS));
    let (mut counts, mut failed) = (Counts::default(), vec![]);
    for seed in first..first + count {
        let history = History::draw(seed, clusters);
        match run(&history) {
            Ok(more) => counts.add(more),
            Err(words) if std::env::var_os("HANGAR_UNTIL_BROKEN").is_some() => {
                // How a panic begins is its place.
                println!("broken by seed {seed}: {}", gist(&words));
                return;
            }
            Err(words) => {
                println!("{}", explained(history, words));
                failed.push(seed);
            }
        }
        assert!(failed.len() < MOST_FAILURES, "of the seeds {first} to {seed} failed {failed:?}, as is said above");
        if seed % 100 == 99 {
            println!("{} seeds, {counts:?}", seed + 1 - first);
        }
    }
    assert!(failed.is_empty(), "of {count} seeds from {first} on {failed:?} failed, as is said above");
    println!("{count} seeds with {clusters} clusters each: all laws held; {counts:?}");
}

/// A rollout that begins while the deployment still grows gives up Machines that are not available, and two of them become available in that moment.
#[test]
fn who_becomes_available_while_it_is_given_up_breaks_no_law() {
    let troubles =
        Troubles { management: false, cloud: false, tenants: false, deaths: false, twin: history::Twin::None };
    let action = |millis, cluster, deed| Action { moment: Moment::After(Duration::from_millis(millis)), cluster, deed };
    let actions = vec![action(12_117, 3, Deed::Scale(4)), action(2, 3, Deed::ChangeTemplate)];
    let history = History { seed: 10, clusters: 5, actions, troubles };
    run(&history).unwrap_or_else(|words| panic!("{words}"));
}

#[test]
fn the_same_history_is_the_same_run() {
    for seed in [3, 5] {
        let history = History::draw(seed, 2);
        assert_eq!(history, History::draw(seed, 2));
        assert_eq!(run(&history), run(&history), "seed {seed}");
    }
}

#[test]
fn a_failing_history_is_made_shorter() {
    let history = History::draw(7, 2);
    let shorter = history.shorter();
    assert!(shorter.iter().all(|other| *other != history && other.actions.len() <= history.actions.len()));
    assert!(shorter.iter().any(|other| other.actions.len() < history.actions.len()));
    let bare = History {
        actions: vec![],
        troubles: history::Troubles {
            management: false,
            cloud: false,
            tenants: false,
            deaths: false,
            twin: history::Twin::None,
        },
        ..history
    };
    assert!(bare.shorter().is_empty(), "there is an end");
}
