use std::sync::Arc;

use hangar_api::Kind as _;
use serde_json::json;

use super::*;
use crate::step::Effect;
use crate::world::Objects;

/// Fields of a patch into an object, as an API server does it.
fn merge(target: &mut serde_json::Value, fields: &serde_json::Value) {
    match (target, fields) {
        (serde_json::Value::Object(target), serde_json::Value::Object(fields)) => {
            for (name, value) in fields {
                merge(target.entry(name).or_insert(json!(null)), value);
            }
        }
        (target, fields) => *target = fields.clone(),
    }
}

/// One pass, as the engine runs it: the Machines that it made.
fn pass(set: &Object, world: &mut World) -> (usize, usize) {
    let (mut made, mut largest) = (0, 0);
    for _ in 0..20 {
        let plan = crate::plan(world, "2026-01-01T00:00:00Z".parse().unwrap());
        if plan.steps.is_empty() {
            return (made, largest);
        }
        largest = largest.max(plan.steps.len());
        for step in plan.steps {
            let applied = match step {
                Step::Create(mut object) => {
                    made += usize::from(object.kind() == Machine::KIND);
                    object.0["metadata"]["uid"] = object.name().to_owned().into();
                    object
                }
                Step::Patch { fields, .. } => {
                    let mut object = world.object().clone();
                    merge(&mut object.0, &fields);
                    object
                }
                other => panic!("{other:?} of {}", set.name()),
            };
            world.absorb(&Effect::Applied(Arc::new(applied)));
        }
    }
    panic!("no end of rounds");
}

#[test]
fn a_pass_makes_a_batch_whatever_number_is_asked_for() {
    for (replicas, expected) in [(2_147_483_647_i64, 50), (120, 50), (30, 30), (0, 0), (-1, 0)] {
        let mut set = Object::named("cluster.x-k8s.io/v1beta2", "MachineSet", "n", "s");
        set.0["metadata"]["uid"] = "set".into();
        set.0["spec"] = json!({
            "clusterName": "c", "replicas": replicas, "selector": {},
            "template": {"spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": {}}},
        });
        let mut cluster = Object::named("cluster.x-k8s.io/v1beta2", "Cluster", "n", "c");
        cluster.0["spec"] = json!({});
        let mut objects = Objects::default();
        objects.insert(Arc::new(cluster));
        set.0["spec"]["template"]["spec"]["infrastructureRef"] = json!({"apiGroup": "g", "kind": "K", "name": "t"});
        let mut template = Object::named("g/v1", "K", "n", "t");
        template.0["spec"] = json!({"template": {"spec": {}}});
        objects.insert(Arc::new(template));
        let mut world = World::new(Arc::new(set.clone()), objects).unwrap();
        world.facts = Names::of(&set, vec![]);
        let (made, largest) = pass(&set, &mut world);
        assert_eq!(made, expected, "{replicas}");
        assert!(largest <= 100, "{largest} steps at once");
    }
}
