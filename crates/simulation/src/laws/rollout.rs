//! Of a MachineDeployment there are never fewer available Machines than it allows because of a deletion of Hangar's, and never more Machines
//! than it allows.

use hangar_api::ObjectKey;
use hangar_kubesim::Write;
use serde_json::Value;

use super::{Book, HANGAR, is_object_deleting};
use crate::world::condition;

const GROUP: &str = "cluster.x-k8s.io";
const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";
const CLUSTER_LABEL: &str = "cluster.x-k8s.io/cluster-name";

impl Book {
    /// Called before the write is in the view.
    pub(super) fn rollout(&mut self, write: &Write<'_>) {
        if write.user != HANGAR || write.key.group != GROUP || write.key.kind != "Machine" || self.two_act_at_once {
            return;
        }
        let Some(machine) = write.after.or(write.before) else { return };
        let Some(deployment) = self.deployment_of(write.key, machine) else { return };
        let goes = write.after.is_none_or(is_object_deleting);
        match write.before {
            Some(before) if goes && !is_object_deleting(before) && self.is_known_as_available(before) => {
                self.enough_are_left(write.key, &deployment);
            }
            None => self.not_too_many(write.key, &deployment),
            _ => {}
        }
    }

    /// One that was given up because it was not available may have become so in that moment.
    fn is_known_as_available(&self, machine: &Value) -> bool {
        let conditions = machine["status"]["conditions"].as_array().into_iter().flatten();
        let mut available = conditions.filter(|one| one["type"] == "Available" && one["status"] == "True");
        let since =
            available.next().and_then(|one| one["lastTransitionTime"].as_str()?.parse::<jiff::Timestamp>().ok());
        // Times of conditions are whole seconds.
        let news_take = i64::try_from(self.news_take.as_secs()).unwrap_or(i64::MAX);
        since.is_some_and(|since| (self.clock)().as_second() - since.as_second() > news_take)
    }

    fn enough_are_left(&mut self, machine: &ObjectKey, deployment: &ObjectKey) {
        let left = self.machines_of(deployment).filter(|(key, _)| *key != machine);
        let left = left.filter(|(_, other)| condition(other, "Available")).count() as i64;
        let needed = self.newest_and_earlier(deployment, |spec| {
            let replicas = spec["replicas"].as_i64().unwrap_or(1);
            replicas - share(&rolling(spec)["maxUnavailable"], replicas, 0, false)
        });
        let Some(needed) = needed.into_iter().min() else { return };
        if left < needed {
            let what = format!(
                "Hangar deleted {machine}, which was available: {left} are left, {deployment} needs {needed} at any time"
            );
            self.violation("rollout", what);
        }
    }

    fn not_too_many(&mut self, machine: &ObjectKey, deployment: &ObjectKey) {
        let count = self.machines_of(deployment).count() as i64 + 1;
        let most = self.newest_and_earlier(deployment, |spec| {
            let replicas = spec["replicas"].as_i64().unwrap_or(1);
            replicas + share(&rolling(spec)["maxSurge"], replicas, 1, true)
        });
        let Some(most) = most.into_iter().max() else { return };
        if count > most {
            let what = format!("Hangar created {machine}: that makes {count}, {deployment} allows {most} at any time");
            self.violation("rollout", what);
        }
    }

    /// The deployment that a Machine belongs to, unless that goes away as a whole.
    fn deployment_of(&self, key: &ObjectKey, machine: &Value) -> Option<ObjectKey> {
        let label = |name: &str| machine["metadata"]["labels"][name].as_str();
        let deployment = ObjectKey::new(GROUP, "MachineDeployment", &key.namespace, label(DEPLOYMENT_LABEL)?);
        let cluster = ObjectKey::new(GROUP, "Cluster", &key.namespace, label(CLUSTER_LABEL)?);
        let stays = |key: &ObjectKey| self.objects.get(key).is_some_and(|object| !is_object_deleting(object));
        (stays(&deployment) && stays(&cluster)).then_some(deployment)
    }

    /// Its Machines that are not being deleted.
    fn machines_of<'a>(&'a self, deployment: &'a ObjectKey) -> impl Iterator<Item = (&'a ObjectKey, &'a Value)> {
        let all = self.objects.range(ObjectKey::new(GROUP, "Machine", &deployment.namespace, "")..);
        let all = all.take_while(|(key, _)| key.group == GROUP && key.kind == "Machine");
        all.filter(|(key, machine)| {
            key.namespace == deployment.namespace
                && machine["metadata"]["labels"][DEPLOYMENT_LABEL] == *deployment.name
                && !is_object_deleting(machine)
        })
    }

    /// By what the user wants now, and by what the user wanted if that changed a moment ago.
    fn newest_and_earlier(&self, deployment: &ObjectKey, number: impl Fn(&Value) -> i64) -> Vec<i64> {
        let newest = self.objects.get(deployment);
        let earlier = self.earlier.get(deployment).filter(|(since, _)| since.elapsed() <= self.news_take);
        newest.into_iter().chain(earlier.map(|(_, object)| object)).map(|object| number(&object["spec"])).collect()
    }
}

fn rolling(spec: &Value) -> &Value {
    &spec["rollout"]["strategy"]["rollingUpdate"]
}

/// A number or a percentage of the replicas.
fn share(value: &Value, replicas: i64, default: i64, up: bool) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or(default),
        Value::String(text) => match text.strip_suffix('%').and_then(|percent| percent.parse::<i64>().ok()) {
            Some(percent) if up => (percent * replicas + 99) / 100,
            Some(percent) => percent * replicas / 100,
            None => text.parse().unwrap_or(default),
        },
        _ => default,
    }
}
