//! The managed security groups of a cluster.
//! Flows: groups -> surplus rules go, missing ones are made, all of a group in one call -> tags -> surplus groups go. Holds: only groups that carry our key are touched, found by
//! that key alone, so that they are found whatever became of the spec since.

use hangar_openstack_types::{CreateSecurityGroup, CreateSecurityGroupRule, SecurityGroup};
use jiff::Timestamp;
use serde_json::Value;

use super::cluster_owner::ClusterOwner;
use super::resources::oldest;
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
    oldest(&cloud.resources.security_groups, role.key_role())
}

impl SecurityGroups<'_> {
    fn roles(&self) -> impl Iterator<Item = Role> {
        Role::NODES.into_iter().chain(self.bastion.then_some(Role::Bastion))
    }

    fn delete_of(&self, id: &str) -> Step {
        self.cloud.delete(ResourceType::SecurityGroup, id)
    }

    /// Of two with one key the older one stays: an answer was lost. A bastion's goes with it.
    fn surplus(&self) -> Phase {
        let counts: Vec<&str> =
            self.roles().filter_map(|role| of(self.cloud, role)).map(|group| group.id.as_str()).collect();
        let surplus = self.cloud.resources.security_groups.keys().filter(|id| !counts.contains(&id.as_str()));
        Phase::steps(surplus.map(|id| self.delete_of(id)))
    }

    fn groups(&self) -> Phase {
        let missing = self.roles().filter(|role| of(self.cloud, *role).is_none());
        Phase::steps(missing.map(|role| {
            self.cloud.step(CloudCall::CreateSecurityGroup(CreateSecurityGroup {
                name: role.group_name(self.owner.namespace, self.owner.cluster_name),
                description: Some(self.owner.key(role.key_role()).describe("Cluster API managed group")),
                ..CreateSecurityGroup::default()
            }))
        }))
    }

    fn rules(&self) -> Phase {
        let id = |role| of(self.cloud, role).map(|group| group.id.as_str());
        let (Some(control_plane), Some(worker)) = (id(Role::ControlPlane), id(Role::Worker)) else {
            return Phase::Done;
        };
        let bastion = id(Role::Bastion).filter(|_| self.bastion);
        let around = rules::Surroundings {
            ids: rules::Ids { control_plane, worker, bastion },
            cidrs: &self.cidrs,
            api_ports: &self.api_ports,
        };
        let groups = self.roles().filter_map(|role| Some((role, of(self.cloud, role)?)));
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
        let groups = self.roles().filter_map(|role| of(self.cloud, role));
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
