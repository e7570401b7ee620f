//! The managed security groups of a cluster.
//! Flows: groups -> surplus rules go, missing ones are made, all of a group in one call -> tags -> surplus groups go. Holds: only groups that carry our key are touched, found by
//! that key alone, so that they are found whatever became of the spec since.

use hangar_openstack_types::{CreateSecurityGroup, CreateSecurityGroupRule, SecurityGroup};
use jiff::Timestamp;
use serde_json::Value;

use super::cluster_owner::ClusterOwner;
use super::quota::{Counted, Needs};
use super::rules::{self, Role};
use super::{Cloud, CloudCall, ResourceType};
use crate::plan::Phase;
use crate::planner::Part;
use crate::step::Step;

pub struct SecurityGroups<'a> {
    pub cloud: &'a Cloud,
    pub owner: ClusterOwner<'a>,
    /// `spec.managedSecurityGroups`; null if there are to be none.
    pub spec: &'a Value,
    /// Whether there is a bastion, which has a group of its own.
    pub bastion: bool,
    /// Ranges from which Services are reached.
    pub cidrs: Vec<&'a str>,
    pub api_ports: Vec<u16>,
}

/// The group for these machines.
pub fn of(cloud: &Cloud, role: Role) -> Option<&SecurityGroup> {
    cloud.counting(&cloud.resources.security_groups, role.key_role())
}

impl SecurityGroups<'_> {
    fn roles(&self) -> impl Iterator<Item = Role> {
        Role::NODES.into_iter().chain(self.bastion.then_some(Role::Bastion))
    }

    fn of(&self, role: Role) -> Option<&SecurityGroup> {
        of(self.cloud, role)
    }

    fn delete_of(&self, id: &str) -> Step {
        self.cloud.delete(ResourceType::SecurityGroup, id)
    }

    /// Of two with one key one stays: an answer was lost. A bastion's goes with it.
    fn surplus(&self) -> Phase {
        let counts: Vec<&str> = self.roles().filter_map(|role| self.of(role)).map(|group| group.id.as_str()).collect();
        let used = &self.cloud.uses.by_machines;
        let is_surplus = |id: &&String| !counts.contains(&id.as_str()) && !used.contains(*id);
        let surplus = self.cloud.resources.security_groups.keys().filter(is_surplus);
        Phase::steps(surplus.map(|id| self.delete_of(id)))
    }

    fn groups(&self) -> Phase {
        let missing = self.roles().filter(|role| self.of(*role).is_none());
        Phase::steps(missing.map(|role| {
            self.cloud.step(CloudCall::CreateSecurityGroup(CreateSecurityGroup {
                name: role.group_name(self.owner.namespace, self.owner.cluster_name),
                description: Some(self.owner.key(role.key_role()).describe("Cluster API managed group")),
                ..CreateSecurityGroup::default()
            }))
        }))
    }

    /// Groups that are not there yet, with their rules; those that Neutron adds by itself count, too.
    pub fn needs(&self, cidrs: &[&str], api_ports: &[u16]) -> Needs {
        let mut needs = Needs::default();
        if self.spec.is_null() {
            return needs;
        }
        let ids = rules::Ids {
            control_plane: Role::ControlPlane.name(),
            worker: Role::Worker.name(),
            bastion: self.bastion.then_some(Role::Bastion.name()),
        };
        let around = rules::Surroundings { ids, cidrs, api_ports };
        for role in self.roles().filter(|role| self.of(*role).is_none()) {
            let count = rules::defaults("").len() + rules::wanted(self.spec, role, &around).len();
            needs.add(Counted::SecurityGroups, 1);
            needs.add(Counted::SecurityGroupRules, u64::try_from(count).unwrap_or(u64::MAX));
        }
        needs
    }

    fn rules(&self) -> Phase {
        let id = |role| self.of(role).map(|group| group.id.as_str());
        let (Some(control_plane), Some(worker)) = (id(Role::ControlPlane), id(Role::Worker)) else {
            return Phase::Done;
        };
        let bastion = id(Role::Bastion).filter(|_| self.bastion);
        let around = rules::Surroundings {
            ids: rules::Ids { control_plane, worker, bastion },
            cidrs: &self.cidrs,
            api_ports: &self.api_ports,
        };
        let groups = self.roles().filter_map(|role| Some((role, self.of(role)?)));
        Phase::steps(groups.flat_map(|(role, group)| self.rules_of(group, rules::wanted(self.spec, role, &around))))
    }

    fn rules_of(&self, group: &SecurityGroup, wanted: Vec<CreateSecurityGroupRule>) -> Vec<Step> {
        let present = &group.security_group_rules;
        let wanted: Vec<_> = rules::defaults(&group.id).into_iter().chain(wanted).collect();
        let surplus = present
            .iter()
            .filter(|rule| !rules::is_default(rule) && !wanted.iter().any(|wanted| rules::is_wanted(rule, wanted)));
        let delete = |id: &String| CloudCall::DeleteRule { group_id: group.id.clone(), id: id.clone() };
        let mut steps: Vec<Step> = surplus.map(|rule| self.cloud.step(delete(&rule.id))).collect();
        let missing: Vec<_> =
            wanted.into_iter().filter(|wanted| !present.iter().any(|rule| rules::is_wanted(rule, wanted))).collect();
        if !missing.is_empty() {
            steps.push(self.cloud.step(CloudCall::CreateRules { group_id: group.id.clone(), rules: missing }));
        }
        steps
    }

    fn tags(&self) -> Phase {
        let groups = self.roles().filter_map(|role| self.of(role));
        let tag = |it: &SecurityGroup| self.owner.tag(self.cloud, ResourceType::SecurityGroup, &it.id, &it.tags);
        Phase::steps(groups.filter_map(tag))
    }
}

impl Part for SecurityGroups<'_> {
    fn build(&self, _now: Timestamp) -> Phase {
        if self.spec.is_null() {
            return Phase::Done;
        }
        self.groups().then(|| self.rules()).then(|| self.tags()).then(|| self.surplus())
    }

    fn delete(&self, _now: Timestamp) -> Phase {
        let all = self.cloud.resources.security_groups.keys();
        Phase::steps(all.map(|id| self.delete_of(id)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cloud::tests::cloud;
    use crate::cloud::{Resource, Uses};
    use crate::owner_key::OwnerKey;
    use crate::testing::at;

    /// A list that was late showed the older one only when machines had ports in the younger one already.
    #[test]
    fn of_two_groups_that_which_machines_know_counts() {
        let group = |id: &str, created: i64| {
            let description = OwnerKey::new("c", "o", Role::Worker.key_role()).describe("x");
            let created_at = Some(at(created).to_string());
            Resource::SecurityGroup(Arc::new(SecurityGroup {
                id: id.into(),
                description,
                created_at,
                ..SecurityGroup::default()
            }))
        };
        let table = [
            (&[] as &[&str], &[] as &[&str], "older"),
            (&["younger"], &[], "younger"),
            (&["gone"], &[], "older"),
            (&["older"], &["younger"], "younger"),
        ];
        for (named, used, expected) in table {
            let mut cloud = cloud(vec![group("older", 0), group("younger", 5)]);
            let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
            cloud.uses = Uses { named: ids(named), by_machines: ids(used) };
            assert_eq!(of(&cloud, Role::Worker).map(|group| group.id.as_str()), Some(expected));
        }
    }
}
