//! Names of children: from the owner's UID and a counter that is kept on the owner.
//!
//! Flows: the counter on the owner -> raised by a patch that fails if somebody else was faster -> names for this pass. Holds: a name is never
//! used twice; what an earlier pass reserved may have been used, and is not used again. Only a create without an answer is repeated under its own name,
//! so that it meets itself.

use std::ops::Range;

use hangar_api::Object;
use serde_json::{Value, json};

use crate::intent::name_suffix;
use crate::step::Effect;
use crate::world::Absorb;

/// How many names the owner has given out.
pub const NAMES_ANNOTATION: &str = "hangar.dev/names-used";

/// More than any pass asks for: whoever writes another number into the annotation meanwhile does not make us count to it.
const LARGEST_RESERVATION: u64 = 1_000;

/// The names that one pass may use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Names {
    owner: String,
    /// Creates of this process that nobody answered.
    unanswered: Vec<String>,
    used_before: u64,
    reserved: Range<u64>,
}

impl Names {
    /// At the beginning of a pass: only what has to be tried again.
    pub fn of(owner: &Object, unanswered: Vec<String>) -> Self {
        Self { owner: owner.uid().to_owned(), unanswered, used_before: used(owner), reserved: 0..0 }
    }

    /// The fields of a patch that reserves so many.
    pub fn reservation(owner: &Object, count: usize) -> Value {
        let used = used(owner).saturating_add(count as u64);
        json!({ "metadata": { "annotations": { NAMES_ANNOTATION: used.to_string() } } })
    }

    /// Whether this pass has reserved any.
    pub fn has_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// The names that may be used in this pass.
    pub fn usable<'a>(&'a self, owner: &'a Object) -> impl Iterator<Item = String> + 'a {
        self.unanswered.iter().cloned().chain(self.reserved.clone().map(|number| name(owner, number)))
    }
}

fn name(owner: &Object, number: u64) -> String {
    format!("{}-{}", owner.name(), name_suffix(&format!("{}/{number}", owner.uid())))
}

fn used(owner: &Object) -> u64 {
    // An annotation is anybody's: a number that no set comes to does not count.
    let number: Option<u64> = owner.annotation(NAMES_ANNOTATION).and_then(|text| text.parse().ok());
    number.filter(|number| *number < u64::MAX / 2).unwrap_or(0)
}

impl Absorb for Names {
    fn absorb(&mut self, effect: &Effect) {
        if let Effect::Applied(object) = effect
            && object.uid() == self.owner
        {
            let used = used(object);
            if used > self.used_before.max(self.reserved.end) {
                let first = self.used_before.max(self.reserved.end);
                self.reserved = first..used.min(first.saturating_add(LARGEST_RESERVATION));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_annotation_that_somebody_wrote_does_no_harm() {
        let mut owner = Object::named("x/v1", "X", "n", "set");
        owner.0["metadata"]["uid"] = "u".into();
        for text in
            ["18446744073709551615", "18446744073709551614", "9223372036854775806", "-1", "x", "99999999999999999999"]
        {
            let mut names = Names::of(&owner, vec![]);
            owner.0["metadata"]["annotations"] = json!({ NAMES_ANNOTATION: text });
            assert!(Names::reservation(&owner, usize::MAX)["metadata"].is_object());
            names.absorb(&Effect::Applied(Arc::new(owner.clone())));
            assert!(names.usable(&owner).count() <= 1_000, "{text}");
        }
    }

    #[test]
    fn names_are_used_in_the_pass_that_reserved_them_and_never_again() {
        let mut owner = Object::named("x/v1", "X", "n", "set");
        owner.0["metadata"]["uid"] = "u".into();
        let mut seen = BTreeSet::new();
        for pass in 0..50 {
            let mut names = Names::of(&owner, vec![]);
            assert_eq!(names.usable(&owner).count(), 0, "a new pass has no names");
            owner.0["metadata"]["annotations"] = Names::reservation(&owner, 3)["metadata"]["annotations"].clone();
            names.absorb(&Effect::Applied(Arc::new(owner.clone())));
            // Half of the passes die before they use theirs.
            let fresh: Vec<String> = names.usable(&owner).take(if pass % 2 == 0 { 3 } else { 1 }).collect();
            assert!(fresh.into_iter().all(|name| seen.insert(name)));
        }
        assert_eq!(seen.len(), 100);
    }
}
