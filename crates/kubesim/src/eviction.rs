//! The Eviction subresource of pods: a deletion that disruption budgets may refuse.
//!
//! Holds: the budget's own status decides, as in the API server; nobody here computes it, so a test says how much disruption is allowed.

use hangar_api::{Object, ObjectKey, selector};
use serde_json::{Value, json};

use super::refusal::Refusal;
use super::verbs::{Answer, Request};

const BUDGET: (&str, &str) = ("policy", "PodDisruptionBudget");

impl Request<'_> {
    pub fn evict(&mut self, eviction: &Value) -> Answer {
        let pod = Object(self.get()?.1);
        let options = &eviction["deleteOptions"];
        let ended = ["Succeeded", "Failed"].contains(&pod.text("/status/phase"));
        let all = self.store.all(BUDGET.0, BUDGET.1).map(|budget| Object(Value::clone(budget)));
        let about = |budget: &Object| {
            budget.namespace() == pod.namespace() && selector::matches(budget.get("/spec/selector"), &pod.labels())
        };
        let budgets: Vec<Object> = all.filter(about).collect();
        match budgets.as_slice() {
            _ if ended || pod.is_deleting() => {}
            [] => {}
            [budget] => self.disrupt(&pod, budget)?,
            _ => {
                let why =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Refusal::plain(500, why));
            }
        }
        self.delete(options)?;
        Ok((201, json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 })))
    }

    fn disrupt(&mut self, pod: &Object, budget: &Object) -> Result<(), Refusal> {
        let allowed = budget.get("/status/disruptionsAllowed").as_u64().unwrap_or(0);
        let key = ObjectKey::new(BUDGET.0, BUDGET.1, budget.namespace(), budget.name());
        let Some(stored) = self.store.get(&key).cloned().filter(|_| allowed > 0) else {
            let count = |field: &str| budget.get(&format!("/status/{field}")).as_u64().unwrap_or(0);
            let why = format!(
                "The disruption budget {} needs {} healthy pods and has {} currently",
                budget.name(),
                count("desiredHealthy"),
                count("currentHealthy")
            );
            return Err(Refusal::disruption(&self.resource, pod.name(), why));
        };
        let mut spent = Value::clone(&stored.object);
        spent["status"]["disruptionsAllowed"] = (allowed - 1).into();
        if let Some(resource) = self.store.resource(BUDGET.0, "poddisruptionbudgets") {
            self.store.commit(&key, &resource, spent, stored.owners, self.now);
        }
        Ok(())
    }
}
