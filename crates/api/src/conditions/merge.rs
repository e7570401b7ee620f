//! How several conditions become one: a summary of one object's, an aggregate over many objects, a mirror of another object's.
//!
//! Holds: issues come before unknowns, and those before mere information; what has not been reported is unknown, never good; a condition
//! of negative polarity (`Deleting`, `Paused`) is an issue when it is true. Messages are bounded: at most three of them, each with at most
//! three names.

use super::{Condition, Status};

const MOST_MESSAGES: usize = 3;
const MOST_NAMES: usize = 3;

/// Whether a condition is good or bad when it is true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    Positive,
    Negative,
}

/// One condition of an object, as it counts in a summary.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    pub kind: &'a str,
    pub condition: Option<&'a Condition>,
    pub polarity: Polarity,
}

/// How much a condition matters, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Issue,
    Unknown,
    Information,
}

impl Part<'_> {
    fn weight(&self) -> Weight {
        weight(self.condition, self.polarity)
    }

    fn words(&self) -> String {
        match self.condition {
            Some(condition) => or_reason(condition).to_owned(),
            None => format!("Condition {} not yet reported", self.kind),
        }
    }
}

fn weight(condition: Option<&Condition>, polarity: Polarity) -> Weight {
    match (condition.map(|condition| condition.status.as_str()), polarity) {
        (Some("True"), Polarity::Positive) | (Some("False"), Polarity::Negative) => Weight::Information,
        (Some("False"), Polarity::Positive) | (Some("True"), Polarity::Negative) => Weight::Issue,
        _ => Weight::Unknown,
    }
}

/// One condition from several of one object that are all good when true.
pub fn summary(kind: &str, parts: &[&Condition]) -> Condition {
    let parts: Vec<Part> = parts
        .iter()
        .map(|part| Part { kind: &part.kind, condition: Some(part), polarity: Polarity::Positive })
        .collect();
    summarize(kind, &parts)
}

/// One condition from several of one object: true if none is an issue or unknown; else issues come first, as lines of `* Type: message`.
pub fn summarize(kind: &str, parts: &[Part]) -> Condition {
    let worst = parts.iter().map(Part::weight).min().unwrap_or(Weight::Information);
    let lines = |wanted: Weight| {
        let of_weight = parts.iter().filter(move |part| part.weight() == wanted);
        of_weight.map(|part| line(part.kind, &part.words()))
    };
    if worst == Weight::Information {
        // Good conditions are mentioned only if they say something.
        let telling = parts.iter().filter(|part| part.condition.is_some_and(|condition| !condition.message.is_empty()));
        let told: Vec<String> = telling.map(|part| line(part.kind, &part.words())).collect();
        return Condition::new(kind, Status::True, kind, told.join("\n"));
    }
    let message = lines(Weight::Issue).chain(lines(Weight::Unknown)).collect::<Vec<_>>().join("\n");
    with_weight(kind, worst, message)
}

fn with_weight(kind: &str, worst: Weight, message: String) -> Condition {
    match worst {
        Weight::Issue => Condition::new(kind, Status::False, &format!("Not{kind}"), message),
        Weight::Unknown => Condition::new(kind, Status::Unknown, &format!("{kind}Unknown"), message),
        Weight::Information => Condition::new(kind, Status::True, kind, message),
    }
}

/// A message of several lines stands below its name.
fn line(name: &str, words: &str) -> String {
    if words.contains('\n') {
        let indented: Vec<String> = words.lines().map(|line| format!("  {line}")).collect();
        return format!("* {name}:\n{}", indented.join("\n"));
    }
    format!("* {name}: {words}")
}

/// One condition from the same condition of many objects: equal messages are one line that names the objects. Whoever is listed first is
/// named first, so the control plane's come first if the caller says so.
pub fn aggregate(kind: &str, parts: &[(String, Option<&Condition>)]) -> Condition {
    let mut groups: Vec<(Weight, String, Vec<&str>)> = vec![];
    for (name, condition) in parts {
        let weight = weight(*condition, Polarity::Positive);
        if weight == Weight::Information {
            continue;
        }
        let words = condition.map_or("not reported yet", or_reason);
        match groups.iter_mut().find(|(other, said, _)| *other == weight && said == words) {
            Some((_, _, names)) => names.push(name),
            None => groups.push((weight, words.to_owned(), vec![name])),
        }
    }
    groups.sort_by_key(|(weight, _, _)| *weight);
    let Some(worst) = groups.first().map(|(weight, _, _)| *weight) else {
        return Condition::new(kind, Status::True, kind, "");
    };
    if let [(_, words, names)] = groups.as_slice()
        && let [name] = names.as_slice()
    {
        return with_weight(kind, worst, format!("{name}: {words}"));
    }
    let shown = groups.iter().take(MOST_MESSAGES).map(|(_, words, names)| line(&several(names), words));
    let mut lines: Vec<String> = shown.collect();
    let others: usize = groups.iter().skip(MOST_MESSAGES).map(|(_, _, names)| names.len()).sum();
    if others > 0 {
        lines.push(format!("... and {others} more"));
    }
    with_weight(kind, worst, lines.join("\n"))
}

fn several(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_NAMES) {
        0 => shown,
        more => format!("{shown}, ... ({more} more)"),
    }
}

/// A condition of another object, under a name of ours. Where that object does not report it, the flag of its contract says as much.
pub fn mirror(kind: &str, source_kind: &str, source: Option<&Condition>, flag: Option<bool>) -> Condition {
    match (source, flag) {
        (Some(source), _) => {
            Condition { kind: kind.to_owned(), last_transition_time: None, observed_generation: None, ..source.clone() }
        }
        (None, Some(true)) => Condition::new(kind, Status::True, kind, ""),
        (None, Some(false)) => {
            Condition::new(kind, Status::False, &format!("Not{kind}"), format!("{source_kind} is not ready yet"))
        }
        (None, None) => {
            let message = format!("Condition {kind} not yet reported from {source_kind}");
            Condition::new(kind, Status::Unknown, "NotYetReported", message)
        }
    }
}

fn or_reason(condition: &Condition) -> &str {
    if condition.message.is_empty() { &condition.reason } else { &condition.message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(kind: &str, message: &str) -> Condition {
        Condition::new(kind, Status::False, "Broken", message)
    }

    #[test]
    fn a_summary_lists_issues_before_unknowns() {
        let good = Condition::new("A", Status::True, "A", "");
        let unknown = Condition::new("B", Status::Unknown, "Later", "");
        let bad = bad("C", "the cloud said no");
        assert!(summary("Ready", &[&good]).is_true());
        assert_eq!(summary("Ready", &[&good, &unknown]).status, "Unknown");
        assert_eq!(summary("Ready", &[&unknown, &bad]).message, "* C: the cloud said no\n* B: Later");
        assert_eq!(summary("Ready", &[&unknown, &bad]).reason, "NotReady");
    }

    #[test]
    fn negative_conditions_are_issues_when_they_are_true_and_absent_ones_are_unknown() {
        let deleting = Condition::new("Deleting", Status::True, "Draining", "2 pods left");
        let calm = Condition::new("Deleting", Status::False, "NotDeleting", "");
        let part = |kind, condition, polarity| Part { kind, condition, polarity };
        let table = [
            (part("Deleting", Some(&deleting), Polarity::Negative), "False", "* Deleting: 2 pods left"),
            (part("Deleting", Some(&calm), Polarity::Negative), "True", ""),
            (
                part("NodeHealthy", None, Polarity::Positive),
                "Unknown",
                "* NodeHealthy: Condition NodeHealthy not yet reported",
            ),
        ];
        for (part, status, message) in table {
            let merged = summarize("Ready", &[part]);
            assert_eq!((merged.status.as_str(), merged.message.as_str()), (status, message));
        }
    }

    #[test]
    fn what_is_good_is_mentioned_if_it_says_something() {
        let told = Condition::new("A", Status::True, "A", "almost full");
        assert_eq!(summary("Ready", &[&told]).message, "* A: almost full");
        assert_eq!(summary("Ready", &[&bad("C", "* a\n* b")]).message, "* C:\n  * a\n  * b");
    }

    #[test]
    fn an_aggregate_says_each_message_once_and_names_three_objects_at_most() {
        let no = bad("Ready", "no");
        let parts: Vec<_> = (0..5).map(|index| (format!("m{index}"), Some(&no))).collect();
        assert_eq!(aggregate("MachinesReady", &parts).message, "* m0, m1, m2, ... (2 more): no");
        assert_eq!(aggregate("MachinesReady", &parts[..1]).message, "m0: no");
        let each: Vec<Condition> = (0..5).map(|index| bad("Ready", &format!("reason {index}"))).collect();
        let parts: Vec<_> =
            each.iter().enumerate().map(|(index, condition)| (format!("m{index}"), Some(condition))).collect();
        assert_eq!(
            aggregate("MachinesReady", &parts).message,
            "* m0: reason 0\n* m1: reason 1\n* m2: reason 2\n... and 2 more"
        );
    }

    #[test]
    fn an_aggregate_of_nothing_but_unknowns_is_unknown() {
        let no = bad("Ready", "no");
        let merged = aggregate("MachinesReady", &[("a".into(), None), ("b".into(), None)]);
        assert_eq!((merged.status.as_str(), merged.message.as_str()), ("Unknown", "* a, b: not reported yet"));
        let merged = aggregate("MachinesReady", &[("a".into(), None), ("b".into(), Some(&no))]);
        assert_eq!((merged.status.as_str(), merged.message.as_str()), ("False", "* b: no\n* a: not reported yet"));
        assert!(aggregate("MachinesReady", &[]).is_true());
    }

    #[test]
    fn a_mirror_says_what_the_other_object_says_or_what_its_flag_means() {
        let ready = Condition { observed_generation: Some(3), ..bad("Ready", "quota") };
        let mirrored = mirror("InfrastructureReady", "OpenStackMachine", Some(&ready), Some(true));
        assert_eq!((mirrored.kind.as_str(), mirrored.message.as_str()), ("InfrastructureReady", "quota"));
        assert_eq!(mirrored.observed_generation, None);
        let table = [(Some(true), "True"), (Some(false), "False"), (None, "Unknown")];
        for (flag, status) in table {
            assert_eq!(mirror("InfrastructureReady", "OpenStackMachine", None, flag).status, status);
        }
    }
}
