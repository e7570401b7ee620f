//! What is said of rotations: when the next one begins, where one is, and what it waits for.

use hangar_api::conditions::{Condition, Status};
use jiff::Timestamp;

use super::Hosting;
use super::roots::{PROVIDED_BY_ANNOTATION, Root};
use super::rotation::{CONFIRMED_ANNOTATION, Stage, Waiting, rotate_after};

const KIND: &str = "AuthoritiesCurrent";
/// So many names are read; more are counted.
const NAMES: usize = 5;

impl Hosting<'_> {
    /// Moments are said, never how much time is left: nothing is written at rest.
    pub fn rotation_condition(&self) -> Option<Condition> {
        let problems: Vec<_> = Root::ALL.into_iter().filter_map(|root| self.rotation_problem(root)).collect();
        if let Some((reason, _)) = problems.first() {
            let texts: Vec<&str> = problems.iter().map(|(_, text)| text.as_str()).collect();
            return Some(Condition::new(KIND, Status::False, reason, texts.join("; ")));
        }
        let secrets = Root::ALL.into_iter().filter_map(|root| Some((root, self.root_object(root)?)));
        let own = secrets.filter(|(_, secret)| secret.annotation(PROVIDED_BY_ANNOTATION).is_none());
        let next = own.filter_map(|(root, secret)| rotate_after(root, secret)).min()?;
        let text = format!("the next certificate authority is rotated after {next}");
        Some(Condition::new(KIND, Status::True, "RotationScheduled", text))
    }

    fn rotation_problem(&self, root: Root) -> Option<(&'static str, String)> {
        let secret = self.root_object(root)?;
        if let Some(source) = secret.annotation(PROVIDED_BY_ANNOTATION) {
            let text = format!(
                "{} asks for a rotation, but {} is yours: replace the content of Secret {source}",
                root.request_annotation(),
                root.words()
            );
            return self.is_rotation_requested(root, secret).then_some(("ProvidedByUser", text));
        }
        let stage = Stage::of(secret);
        let step = match (stage, root) {
            (Stage::Rest, _) => return None,
            (Stage::Trust, Root::EncryptionKey) => "step 1 of 3, all API servers learn the new one",
            (Stage::Sign, Root::EncryptionKey) => "step 2 of 3, the new one writes and both are read",
            (Stage::Trust, _) => "step 1 of 3, the old one signs and both are trusted",
            (Stage::Sign, _) => "step 2 of 3, the new one signs and both are trusted",
        };
        // It goes along with the cluster's authority, and waits for the same.
        let other = self.root_object(Root::ClusterAuthority).filter(|_| root == Root::FrontProxyAuthority);
        if other.is_some_and(|other| Stage::of(other) == stage) {
            return None;
        }
        let begin = format!("rotation of {} ({step})", root.words());
        Some(match self.waiting_in_words(root, secret) {
            Waiting::ForPods => ("RotationInProgress", format!("{begin}: waiting for all pods to restart")),
            Waiting::Until(at) => ("RotationInProgress", format!("{begin}: the next step follows after {at}")),
            Waiting::ForTenant => ("RotationInProgress", format!("{begin}: waiting for the tenant to list its nodes")),
            Waiting::ForSecrets(why) => {
                ("WaitingForSecrets", format!("{begin}: not all Secrets could be written again: {why}"))
            }
            Waiting::ForNodes(names, by_itself) => {
                ("WaitingForNodes", format!("{begin}: {}", nodes_text(stage, &names, by_itself)))
            }
        })
    }
}

fn nodes_text(stage: Stage, names: &[String], by_itself: Option<Timestamp>) -> String {
    let more = names.len().saturating_sub(NAMES);
    let mut list = names[..names.len() - more].join(", ");
    if more > 0 {
        list += &format!(" and {more} more");
    }
    let why = if stage == Stage::Trust { "trust only the old one" } else { "may have a certificate of the old one" };
    let wait = match by_itself {
        Some(at) if stage == Stage::Sign => format!(", wait until {at}"),
        _ => String::new(),
    };
    format!(
        "these {why}: {list}; replace them (spec.rollout.after of their MachineDeployment){wait}, or, if they no longer do, set the annotation {CONFIRMED_ANNOTATION}={}",
        stage.word()
    )
}
