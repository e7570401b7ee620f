//! As whom a container runs: the security context of its pod and its own, as far as a process can have them.
//!
//! Holds: only root can become somebody else; a node that is not root refuses to pretend and says so. Where the node is root, containers have
//! the capabilities that container runtimes give, and those of their own wish; elsewhere they have what the user has.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, Pod, SecurityContext};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    pub user: Option<i64>,
    group: Option<i64>,
    groups: Vec<i64>,
    no_new_privileges: bool,
    /// What it may do at most, as `setpriv` names it; None: everything.
    capabilities: Option<BTreeSet<String>>,
}

/// What container runtimes leave to containers.
const DEFAULT_CAPABILITIES: [&str; 14] = [
    "audit_write",
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "mknod",
    "net_bind_service",
    "net_raw",
    "setfcap",
    "setgid",
    "setpcap",
    "setuid",
    "sys_chroot",
];

/// None for a privileged container, or one that wants all of them.
fn capabilities(context: Option<&SecurityContext>) -> Option<BTreeSet<String>> {
    if context.and_then(|context| context.privileged) == Some(true) {
        return None;
    }
    let wish = context.and_then(|context| context.capabilities.as_ref());
    let named = |names: Option<&Vec<String>>| -> BTreeSet<String> {
        let plain = |name: &String| name.to_lowercase().trim_start_matches("cap_").to_owned();
        names.into_iter().flatten().map(plain).collect()
    };
    let add = named(wish.and_then(|wish| wish.add.as_ref()));
    let drop = named(wish.and_then(|wish| wish.drop.as_ref()));
    if add.contains("all") {
        return None;
    }
    let usual = DEFAULT_CAPABILITIES
        .iter()
        .map(|name| (*name).to_owned())
        .filter(|name| !drop.contains("all") && !drop.contains(name));
    Some(usual.chain(add).collect())
}

impl Identity {
    /// The container's word goes before the pod's. The error says what cannot be had.
    pub fn of(pod: &Pod, container: &Container) -> Result<Self, String> {
        let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let own = container.security_context.as_ref();
        let user = own.and_then(|own| own.run_as_user).or(of_pod.and_then(|pod| pod.run_as_user));
        let group = own.and_then(|own| own.run_as_group).or(of_pod.and_then(|pod| pod.run_as_group));
        let not_root = own.and_then(|own| own.run_as_non_root).or(of_pod.and_then(|pod| pod.run_as_non_root));
        if not_root == Some(true) && user.unwrap_or(0) == 0 && (user.is_some() || is_root()) {
            return Err("container has runAsNonRoot and would run as root: set runAsUser".to_owned());
        }
        let mut groups: Vec<i64> = of_pod.and_then(|pod| pod.supplemental_groups.clone()).unwrap_or_default();
        groups.extend(of_pod.and_then(|pod| pod.fs_group));
        let no_new_privileges = own.and_then(|own| own.allow_privilege_escalation) == Some(false);
        Ok(Self { user, group, groups, no_new_privileges, capabilities: capabilities(own) })
    }

    /// What this node cannot give, in words for an event.
    pub fn unsupported(&self) -> Option<String> {
        let wanted = self.user.filter(|_| !is_root())?;
        Some(format!("runAsUser {wanted} is ignored: only a node that runs as root can start processes as other users"))
    }

    /// The words before a command that make it run as this one.
    pub fn command_prefix(&self) -> Vec<String> {
        let mut words = vec![];
        if is_root() && (self.user.is_some() || self.group.is_some() || !self.groups.is_empty()) {
            words.push(format!("--reuid={}", self.user.unwrap_or(0)));
            words.push(format!("--regid={}", self.group.unwrap_or(0)));
            let groups: Vec<String> = self.groups.iter().map(i64::to_string).collect();
            words.push(if groups.is_empty() {
                "--clear-groups".into()
            } else {
                format!("--groups={}", groups.join(","))
            });
        }
        if let Some(capabilities) = self.capabilities.as_ref().filter(|_| is_root()) {
            let set: Vec<String> = capabilities.iter().map(|name| format!(",+{name}")).collect();
            words.push(format!("--bounding-set=-all{}", set.concat()));
            words.push("--inh-caps=-all".to_owned());
        }
        if self.no_new_privileges {
            words.push("--no-new-privs".to_owned());
        }
        if !words.is_empty() {
            words.insert(0, "setpriv".to_owned());
            words.push("--".to_owned());
        }
        words
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn identity(pod: Value, own: Value) -> Result<Identity, String> {
        let container = json!({"name": "c", "securityContext": own});
        let pod = serde_json::from_value(json!({"spec": {"securityContext": pod, "containers": [container.clone()]}}));
        Identity::of(&pod.unwrap(), &serde_json::from_value(container).unwrap())
    }

    #[test]
    fn the_container_goes_before_its_pod() {
        let found =
            identity(json!({"runAsUser": 1000, "fsGroup": 7, "supplementalGroups": [8]}), json!({"runAsUser": 5}));
        let found = found.unwrap();
        assert_eq!((found.user, &found.groups[..]), (Some(5), &[8, 7][..]));
        if is_root() {
            assert_eq!(found.command_prefix()[..4], ["setpriv", "--reuid=5", "--regid=0", "--groups=8,7"]);
            assert_eq!(found.unsupported(), None);
        }
        assert!(identity(json!({}), json!({"privileged": true})).unwrap().command_prefix().is_empty());
    }

    #[test]
    fn capabilities_are_the_usual_ones_and_those_of_ones_wish() {
        let of = |own: Value| identity(json!({}), own).unwrap().capabilities;
        assert_eq!(of(json!({"capabilities": {"add": ["ALL"]}})), None);
        let few = of(json!({"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}})).unwrap();
        assert_eq!(few, BTreeSet::from(["net_admin".to_owned()]));
        assert_eq!(of(json!({"capabilities": {"drop": ["KILL"]}})).unwrap().len(), DEFAULT_CAPABILITIES.len() - 1);
    }

    #[test]
    fn root_is_refused_where_it_is_not_wanted() {
        assert!(identity(json!({"runAsNonRoot": true}), json!({"runAsUser": 0})).is_err());
        assert!(identity(json!({"runAsNonRoot": true}), json!({"runAsUser": 1})).is_ok());
    }
}
