//! `cargo xtask walk`: day two with kubectl, on the local plane: grow, roll out, drain, break, heal. What must hold on the way is watched, not looked at in the end.
//!
//! It takes some minutes, most of them until Kubernetes itself notices that a node is dead.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;
mod watched;

use std::time::Instant;

use plane::{Plane, condition, until};
use serde_json::{Value, json};
use watched::Watched;

const CLUSTER: &str = "capi-quickstart";
const NAME: &str = "capi-quickstart-md-0";
const DEPLOYMENT: &str = "machinedeployment/capi-quickstart-md-0";
/// In the version that is stored: the newest one has other names.
const TEMPLATE: &str = "openstackmachinetemplate.v1beta1.infrastructure.cluster.x-k8s.io/capi-quickstart-md-0";

struct Walk {
    plane: Plane,
    templates: u32,
}

#[test]
#[ignore = "takes minutes: `cargo xtask walk` runs it"]
fn day_two() {
    let mut walk = Walk { plane: Plane::new(), templates: 0 };
    walk.plane.ok(&["up", "examples/kamaji-openstack.yaml"]);
    walk.grows_and_shrinks();
    walk.rolls_out("one at a time", json!({ "maxSurge": 1, "maxUnavailable": 0 }), 10, 11);
    walk.rolls_out("30 %", json!({ "maxSurge": "30%", "maxUnavailable": "30%" }), 7, 13);
    walk.is_replaced_by_hand();
    walk.scales_while_paused();
    walk.drains_within_a_budget();
    walk.waits_for_a_hook();
    walk.heals_within_its_limit();
    walk.is_scaled_as_the_autoscaler_does();
    let began = Instant::now();
    walk.plane.kubectl(&["delete", "cluster", CLUSTER, "--timeout=300s"]);
    row("deleted", began, "");
    assert_eq!(walk.plane.inventory(), Vec::<Value>::new(), "something is left in the cloud");
}

fn row(what: &str, began: Instant, more: &str) {
    println!("| {what:<44} | {:>6.1} s | {more}", began.elapsed().as_secs_f64());
}

impl Walk {
    fn patch(&self, what: &str, fields: &Value) {
        self.plane.kubectl(&["patch", what, "--type=merge", "-p", &fields.to_string()]);
    }

    fn scale(&self, replicas: usize) {
        self.plane.kubectl(&["scale", DEPLOYMENT, &format!("--replicas={replicas}")]);
        self.is_available(replicas);
    }

    fn is_available(&self, replicas: usize) {
        until(&format!("{replicas} machines to be available and current"), || {
            let status = self.plane.get(DEPLOYMENT)["status"].clone();
            let is = |field: &str| status[field].as_u64().unwrap_or_default() == replicas as u64;
            is("replicas") && is("availableReplicas") && is("upToDateReplicas")
        });
    }

    fn machines(&self) -> Vec<Value> {
        self.plane.get("machines")["items"].as_array().cloned().unwrap_or_default()
    }

    fn machine(&self) -> String {
        self.machines()[0]["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// Users change a template by making another one.
    fn other_template(&mut self) {
        self.templates += 1;
        let mut template = self.plane.get(TEMPLATE);
        let name = format!("{NAME}-{}", self.templates);
        template["metadata"] = json!({ "name": name, "namespace": "default" });
        template["spec"]["template"]["spec"]["flavor"] = ["m1.medium", "m1.small"][self.templates as usize % 2].into();
        let made = self.plane.run_with(&["kubectl", "--", "apply", "-f", "-"], &template.to_string());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let reference = json!({ "infrastructureRef": { "name": name } });
        self.patch(DEPLOYMENT, &json!({ "spec": { "template": { "spec": reference } } }));
    }

    fn strategy(&self, kind: &str, rolling: Value) {
        let rolling = if kind == "OnDelete" { Value::Null } else { rolling };
        self.patch(
            DEPLOYMENT,
            &json!({ "spec": { "rollout": { "strategy": { "type": kind, "rollingUpdate": rolling } } } }),
        );
    }

    fn grows_and_shrinks(&self) {
        for replicas in [50, 1] {
            let began = Instant::now();
            self.scale(replicas);
            row(&format!("scaled to {replicas}"), began, "");
        }
    }

    fn rolls_out(&mut self, what: &str, rolling: Value, least: usize, most: usize) {
        self.strategy("RollingUpdate", rolling);
        self.scale(10);
        let old: Vec<Value> = self.machines().iter().map(|machine| machine["metadata"]["name"].clone()).collect();
        let watched = Watched::start(&self.plane, CLUSTER);
        let began = Instant::now();
        self.other_template();
        until("every machine to be another one", || {
            self.machines().iter().all(|machine| !old.contains(&machine["metadata"]["name"]))
        });
        self.is_available(10);
        let seen = watched.stop();
        row(&format!("10 machines replaced, {what}"), began, &format!("{seen:?}"));
        assert!(seen.fewest_nodes >= least && seen.most_machines <= most, "{seen:?}");
        assert!(seen.changes > 20, "the watch saw nothing: {seen:?}");
    }

    fn is_replaced_by_hand(&mut self) {
        self.scale(3);
        self.strategy("OnDelete", Value::Null);
        let began = Instant::now();
        self.other_template();
        until("the new revision to be known", || {
            self.plane.get(DEPLOYMENT)["status"]["upToDateReplicas"].as_u64().unwrap_or(0) == 0
        });
        let first = self.machine();
        self.plane.kubectl(&["delete", "machine", &first, "--timeout=120s"]);
        until("one machine of the new revision", || {
            let status = self.plane.get(DEPLOYMENT)["status"].clone();
            status["upToDateReplicas"] == 1 && status["availableReplicas"] == 3
        });
        let sets = self.plane.get("machinesets")["items"].as_array().cloned().unwrap();
        let mut sizes: Vec<u64> = sets.iter().filter_map(|set| set["status"]["replicas"].as_u64()).collect();
        sizes.retain(|size| *size > 0);
        sizes.sort_unstable();
        assert_eq!(sizes, [1, 2], "only what was deleted is replaced");
        row("OnDelete: one deleted, one replaced", began, "");
        self.strategy("RollingUpdate", json!({ "maxSurge": 1, "maxUnavailable": 0 }));
        self.is_available(3);
    }

    fn scales_while_paused(&self) {
        let began = Instant::now();
        let pause = |paused: bool| self.patch("cluster/capi-quickstart", &json!({ "spec": { "paused": paused } }));
        pause(true);
        until("the deployment to be paused", || condition(&self.plane.get(DEPLOYMENT), "Paused").0 == "True");
        let before = self.plane.get("machines")["items"].clone();
        self.plane.kubectl(&["scale", DEPLOYMENT, "--replicas=5"]);
        self.plane.kubectl(&["annotate", "machines", "--all", "touched=yes"]);
        until("the annotations to be there", || {
            self.machines().iter().all(|machine| machine["metadata"]["annotations"]["touched"] == "yes")
        });
        assert_eq!(self.machines().len(), before.as_array().unwrap().len(), "nothing is made while it is paused");
        pause(false);
        self.is_available(5);
        row("scaled while the cluster is paused", began, "");
    }

    fn drains_within_a_budget(&self) {
        self.scale(3);
        let tenant = |arguments: &[&str]| self.plane.tenant(CLUSTER, arguments);
        tenant(&["create", "deployment", "web", "--image=registry.k8s.io/pause:3.10", "--replicas=6"]);
        tenant(&["create", "poddisruptionbudget", "web", "--selector=app=web", "--max-unavailable=1"]);
        tenant(&["wait", "deployment/web", "--for=jsonpath={.status.readyReplicas}=6", "--timeout=120s"]);
        let watched = Watched::start(&self.plane, CLUSTER);
        let began = Instant::now();
        self.plane.kubectl(&["delete", "machine", &self.machine(), "--timeout=240s"]);
        self.is_available(3);
        tenant(&["wait", "deployment/web", "--for=jsonpath={.status.readyReplicas}=6", "--timeout=120s"]);
        let seen = watched.stop();
        row("drained with a budget of one pod", began, &format!("{seen:?}"));
        assert!(seen.fewest_pods >= 5, "{seen:?}");
    }

    fn waits_for_a_hook(&self) {
        let (machine, began) = (self.machine(), Instant::now());
        let hook = "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup";
        self.plane.kubectl(&["annotate", "machine", &machine, &format!("{hook}=operator")]);
        self.plane.kubectl(&["delete", "machine", &machine, "--wait=false"]);
        let what = format!("machine/{machine}");
        until("the machine to wait for the hook", || {
            condition(&self.plane.get(&what), "Deleting").1.contains("backup")
        });
        assert_eq!(self.plane.tenant(CLUSTER, &["get", "node", &machine, "-o", "jsonpath={.spec.unschedulable}"]), "");
        self.plane.kubectl(&["annotate", "machine", &machine, &format!("{hook}-")]);
        self.plane.kubectl(&["wait", &what, "--for=delete", "--timeout=240s"]);
        self.is_available(3);
        row("held by a pre-drain hook", began, "");
    }

    fn heals_within_its_limit(&self) {
        let began = Instant::now();
        let check = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
            "metadata": { "name": "workers", "namespace": "default" },
            "spec": {
                "clusterName": CLUSTER, "selector": { "matchLabels": { "cluster.x-k8s.io/deployment-name": NAME } },
                "checks": { "unhealthyNodeConditions": [
                    { "type": "Ready", "status": "Unknown", "timeoutSeconds": 1 }, { "type": "Ready", "status": "False", "timeoutSeconds": 1 },
                ] },
                "remediation": { "triggerIf": { "unhealthyLessThanOrEqualTo": 1 } },
            },
        });
        let made = self.plane.run_with(&["kubectl", "--", "apply", "-f", "-"], &check.to_string());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // Two at once are above the limit: nothing happens but a word about it.
        let [first, second] =
            [0, 1].map(|number| self.machines()[number]["metadata"]["name"].as_str().unwrap().to_owned());
        watched::stop_servers(&self.plane, &[&first, &second]);
        until("both to be unhealthy", || self.plane.get("machinehealthcheck/workers")["status"]["currentHealthy"] == 1);
        until("the limit to be spoken of", || {
            condition(&self.plane.get("machinehealthcheck/workers"), "RemediationAllowed").0 == "False"
        });
        let names: Vec<Value> = self.machines().iter().map(|machine| machine["metadata"]["name"].clone()).collect();
        assert!(names.contains(&first.as_str().into()) && names.contains(&second.as_str().into()), "{names:?}");
        row("two dead nodes, limit one: left alone", began, "");
        let began = Instant::now();
        // An operator takes one of them out of the check: the other one is replaced.
        self.plane.kubectl(&["annotate", "machine", &first, "cluster.x-k8s.io/skip-remediation=yes"]);
        until("the second one to be replaced", || self.plane.get(&format!("machine/{second}")).is_null());
        assert!(!self.plane.get(&format!("machine/{first}")).is_null(), "it was to be skipped");
        self.plane.kubectl(&["delete", "machine", &first, "--timeout=240s"]);
        self.is_available(3);
        row("one dead node replaced, one by hand", began, "");
    }

    /// The calls of cluster-autoscaler's provider for Cluster API: sizes by the scale subresource, and what a machine is like from the template's status while there is none.
    fn is_scaled_as_the_autoscaler_does(&self) {
        let began = Instant::now();
        let group = "cluster.x-k8s.io/cluster-api-autoscaler-node-group";
        self.plane.kubectl(&["annotate", DEPLOYMENT, &format!("{group}-min-size=0"), &format!("{group}-max-size=5")]);
        self.resize(0);
        until("no machine to be left", || self.machines().is_empty());
        let template = self.plane.get(DEPLOYMENT)["spec"]["template"]["spec"]["infrastructureRef"]["name"].clone();
        let template = format!("openstackmachinetemplate/{}", template.as_str().unwrap());
        let capacity = self.plane.until(&template, |it| it["status"]["capacity"]["cpu"].is_string());
        assert!(capacity["status"]["capacity"]["memory"].as_str().unwrap().ends_with("Mi"), "{capacity}");
        self.resize(2);
        self.is_available(2);
        let marked = self.machine();
        self.plane.kubectl(&["annotate", "machine", &marked, "cluster.x-k8s.io/delete-machine=autoscaler"]);
        self.resize(1);
        until("the marked machine to be gone", || {
            let machines = self.machines();
            machines.len() == 1 && machines[0]["metadata"]["name"] != marked.as_str()
        });
        self.is_available(1);
        row("to zero, from zero, and one that was chosen", began, "");
    }

    fn resize(&self, replicas: u32) {
        let path = format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/default/machinedeployments/{NAME}/scale");
        let mut scale: Value = serde_json::from_str(&self.plane.kubectl(&["get", "--raw", &path])).unwrap();
        scale["spec"]["replicas"] = replicas.into();
        let made = self.plane.run_with(&["kubectl", "--", "replace", "--raw", &path, "-f", "-"], &scale.to_string());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
}
