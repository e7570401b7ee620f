//! What the controllers must be allowed to do in the management cluster, and nothing else: the rules of their ClusterRole.
//!
//! Flows: the registry of controllers and of kinds -> rules, by what the engine does with each sort of kind. Holds: no wildcard, no `update`, no
//! `deletecollection`, nothing about RBAC itself. What RBAC cannot say: Secrets are asked for by name (credentials may have any) and watched by label, and a
//! rule about Secrets knows neither labels nor owners, so the controllers may read and write every Secret of the namespaces where the role is bound.

use std::collections::BTreeSet;

use hangar_api::registry::{self, KindFacts};
use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::CONTROLLERS;

const READ: [&str; 3] = ["get", "list", "watch"];
/// Server-side apply is a patch, and a create where there is nothing yet.
const WRITE: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// The rules for all controllers.
pub fn rules() -> Vec<PolicyRule> {
    let own: BTreeSet<(&str, &str)> = CONTROLLERS.iter().map(|one| (one.group, one.kind)).collect();
    let mut rules = vec![];
    for facts in registry::kinds() {
        let is_own = own.contains(&(facts.group, facts.kind));
        // Of templates nothing is written but their status.
        let is_written = is_made(facts) || (is_own && !facts.kind.ends_with("Template"));
        // A reference may name any kind: it is read, and marked as a part of its cluster.
        let verbs: &[&str] = if is_written { &WRITE } else { &["get", "list", "watch", "patch"] };
        rules.push(rule(facts.group, &[facts.plural().to_owned()], verbs));
        if is_own {
            rules.push(rule(facts.group, &[format!("{}/status", facts.plural())], &["patch"]));
            // Whoever says that an owner waits for what it owns must be allowed to hold it.
            rules.push(rule(facts.group, &[format!("{}/finalizers", facts.plural())], &["update"]));
        }
    }
    for (group, kind) in built_in() {
        rules.push(rule(group, &[format!("{}s", kind.to_lowercase())], &WRITE));
    }
    // Which identities a namespace may use follows from its labels.
    rules.push(rule("", &["namespaces".to_owned()], &["get"]));
    // What people see in `kubectl describe`: made, and counted on.
    rules.push(rule("", &["events".to_owned()], &["get", "create", "patch"]));
    // Why a control plane does not start is in its pods alone.
    rules.push(rule("", &["pods".to_owned()], &READ));
    // Which versions of other providers' kinds fulfil the contract is in the labels of their definitions. What they need is in roles of their own.
    rules.push(rule("apiextensions.k8s.io", &["customresourcedefinitions".to_owned()], &READ));
    // Who may read metrics is for the API server to say.
    rules.push(rule("authentication.k8s.io", &["tokenreviews".to_owned()], &["create"]));
    rules.push(rule("authorization.k8s.io", &["subjectaccessreviews".to_owned()], &["create"]));
    rules
}

/// Machines and configs that are made from templates.
fn is_made(facts: &KindFacts) -> bool {
    registry::kind(facts.group, &format!("{}Template", facts.kind)).is_some()
}

/// Kinds of Kubernetes itself that controllers own.
fn built_in() -> BTreeSet<(&'static str, &'static str)> {
    let read = CONTROLLERS.iter().flat_map(|one| one.reads).flat_map(|read| read.path).filter_map(|hop| hop.kind);
    read.filter(|(group, kind)| registry::kind(group, kind).is_none()).collect()
}

fn rule(group: &str, resources: &[String], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.to_vec()),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(group: &str, resource: &str, verb: &str) -> bool {
        rules().iter().any(|rule| {
            rule.api_groups.iter().flatten().any(|one| one == group)
                && rule.resources.iter().flatten().any(|one| one == resource)
                && rule.verbs.iter().any(|one| one == verb)
        })
    }

    #[test]
    fn controllers_may_do_what_they_do_and_no_more() {
        let rows = [
            ("cluster.x-k8s.io", "clusters", "list", true),
            ("cluster.x-k8s.io", "clusters/status", "patch", true),
            ("cluster.x-k8s.io", "machines", "create", true),
            ("infrastructure.cluster.x-k8s.io", "openstackmachinetemplates", "watch", true),
            ("infrastructure.cluster.x-k8s.io", "openstackmachinetemplates", "delete", false),
            ("infrastructure.cluster.x-k8s.io", "metal3machines", "create", true),
            ("infrastructure.cluster.x-k8s.io", "metal3machines/status", "patch", false),
            ("infrastructure.cluster.x-k8s.io", "metal3remediations", "create", true),
            ("infrastructure.cluster.x-k8s.io", "metal3remediations", "delete", true),
            ("cluster.x-k8s.io", "machines/status", "patch", true),
            ("kamaji.clastix.io", "datastores/status", "patch", true),
            ("", "secrets", "patch", true),
            ("", "secrets", "deletecollection", false),
            ("", "services", "delete", true),
            ("apps", "deployments", "create", true),
            ("", "pods", "list", true),
            ("", "events", "create", true),
            ("", "events", "list", false),
            ("authentication.k8s.io", "tokenreviews", "create", true),
            ("authorization.k8s.io", "subjectaccessreviews", "create", true),
            ("", "pods", "create", false),
            ("", "pods/exec", "create", false),
            ("", "nodes", "get", false),
            ("", "namespaces", "delete", false),
            ("", "serviceaccounts/token", "create", false),
            ("rbac.authorization.k8s.io", "clusterroles", "get", false),
            ("apiextensions.k8s.io", "customresourcedefinitions", "watch", true),
            ("apiextensions.k8s.io", "customresourcedefinitions", "patch", false),
        ];
        for (group, resource, verb, expected) in rows {
            assert_eq!(allows(group, resource, verb), expected, "{verb} {resource}.{group}");
        }
    }

    #[test]
    fn no_rule_has_a_wildcard() {
        for rule in rules() {
            let words = rule.api_groups.iter().flatten().chain(rule.resources.iter().flatten()).chain(&rule.verbs);
            assert!(words.clone().all(|word| !word.contains('*')), "{rule:?}");
        }
    }
}
