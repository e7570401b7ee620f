//! The managed security groups of a cluster.
//! Flows: twins go -> groups -> surplus rules go, missing ones are made. Holds: only groups that carry our key are touched, found by that key alone, so that they
//! are found whatever became of the spec since.

use hangar_openstack_types::{CreateSecurityGroup, SecurityGroup};
use jiff::Timestamp;
use serde_json::Value;

use super::resources::oldest;
use super::rules::{self, Role};
use super::{Cloud, CloudCall, ResourceType};
use crate::owner_key::OwnerKey;
use crate::plan::Phase;
use crate::planner::Part;
use crate::step::Step;

pub struct SecurityGroups<'a> {
    pub cloud: &'a Cloud,
    /// `spec.managedSecurityGroups`; null if there are to be none.
    pub spec: &'a Value,
    pub namespace: &'a str,
    pub cluster_name: &'a str,
    pub cluster_uid: &'a str,
    pub object_uid: &'a str,
    /// Ranges from which Services are reached.
    pub cidrs: Vec<&'a str>,
}

/// The group for these machines.
pub fn of(cloud: &Cloud, role: Role) -> Option<&SecurityGroup> {
    oldest(&cloud.resources.security_groups, role.key_role())
}

impl SecurityGroups<'_> {
    /// Two with one key: an answer was lost. The older one stays.
    fn twins(&self) -> Phase {
        let counts: Vec<&str> =
            Role::ALL.into_iter().filter_map(|role| of(self.cloud, role)).map(|group| group.id.as_str()).collect();
        let twins = self.cloud.resources.security_groups.keys().filter(|id| !counts.contains(&id.as_str()));
        Phase::steps(twins.map(|id| self.delete_of(id)))
    }

    fn delete_of(&self, id: &str) -> Step {
        self.cloud.step(CloudCall::Delete(ResourceType::SecurityGroup, id.to_owned()))
    }

    fn groups(&self) -> Phase {
        let missing = Role::ALL.into_iter().filter(|role| of(self.cloud, *role).is_none());
        Phase::steps(missing.map(|role| {
            let key = OwnerKey::new(self.cluster_uid, self.object_uid, role.key_role());
            self.cloud.step(CloudCall::CreateSecurityGroup(CreateSecurityGroup {
                name: role.group_name(self.namespace, self.cluster_name),
                description: Some(key.describe("Cluster API managed group")),
                ..CreateSecurityGroup::default()
            }))
        }))
    }

    fn rules(&self) -> Phase {
        let (Some(control_plane), Some(worker)) = (of(self.cloud, Role::ControlPlane), of(self.cloud, Role::Worker))
        else {
            return Phase::Done;
        };
        let ids = rules::Ids { control_plane: &control_plane.id, worker: &worker.id };
        let mut steps = vec![];
        for (role, group) in [(Role::ControlPlane, control_plane), (Role::Worker, worker)] {
            steps.extend(self.rules_of(group, &rules::wanted(self.spec, role, &ids, &self.cidrs)));
        }
        Phase::steps(steps)
    }

    fn rules_of(&self, group: &SecurityGroup, wanted: &[hangar_openstack_types::CreateSecurityGroupRule]) -> Vec<Step> {
        let present = &group.security_group_rules;
        let surplus = present
            .iter()
            .filter(|rule| !rules::is_default(rule) && !wanted.iter().any(|wanted| rules::is_wanted(rule, wanted)));
        let delete = |id: &String| CloudCall::DeleteRule { group_id: group.id.clone(), id: id.clone() };
        let mut steps: Vec<Step> = surplus.map(|rule| self.cloud.step(delete(&rule.id))).collect();
        let missing: Vec<_> = wanted
            .iter()
            .filter(|wanted| !present.iter().any(|rule| rules::is_wanted(rule, wanted)))
            .cloned()
            .collect();
        if !missing.is_empty() {
            steps.push(self.cloud.step(CloudCall::CreateRules { group_id: group.id.clone(), rules: missing }));
        }
        steps
    }
}

impl Part for SecurityGroups<'_> {
    fn build(&self, _now: Timestamp) -> Phase {
        if self.spec.is_null() {
            return Phase::Done;
        }
        self.twins().then(|| self.groups()).then(|| self.rules())
    }

    fn delete(&self, _now: Timestamp) -> Phase {
        let all = self.cloud.resources.security_groups.keys();
        Phase::steps(all.map(|id| self.delete_of(id)))
    }
}
