use proptest::prelude::*;

use super::*;
use crate::cloud::CloudAnswer;
use crate::step::Effect;

fn named(api: &str, kind: &str, name: &str, uid: &str) -> Object {
    let mut object = Object::named(api, kind, "default", name);
    object.0["metadata"]["uid"] = uid.into();
    object.0["metadata"]["resourceVersion"] = "1".into();
    object
}

fn world() -> World {
    let mut object = named("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackMachine", "m-0", "m-uid");
    object.0["metadata"]["finalizers"] = json!([OPENSTACK_MACHINE_FINALIZER]);
    object.0["spec"] =
        json!({"flavor": "m1.small", "image": {"id": "i"}, "ports": [{"network": {"id": "net"}, "tags": ["blue"]}]});
    let mut infrastructure = named("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackCluster", "c", "oc-uid");
    infrastructure.0["status"] =
        json!({"initialization": {"provisioned": true}, "workerSecurityGroup": {"id": "sg"}, "network": {"id": "net"}});
    let mut owner = named("cluster.x-k8s.io/v1beta2", "Machine", "m-0", "ma-uid");
    owner.0["spec"] = json!({"failureDomain": "nova"});
    World {
        machine: object.typed().unwrap(),
        object,
        owner: Some(owner),
        cluster: Some(named("cluster.x-k8s.io/v1beta2", "Cluster", "c", "c-uid")),
        infrastructure: Some(infrastructure),
        user_data: Some(UserData("#cloud-config".into())),
        cloud: Some(CloudView {
            flavor: Named::Id("f".into()),
            image: Named::Id("i".into()),
            port_networks: vec![Some("net".into())],
            ..CloudView::default()
        }),
        refusal: None,
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A cloud that forgets nothing: what a lost answer leaves behind is still there.
#[derive(Default)]
struct Cloud {
    ports: Vec<Port>,
    servers: Vec<Server>,
    next: usize,
    created: usize,
}

impl Cloud {
    fn call(&mut self, call: &CloudCall, now: i64) -> Effect {
        self.next += 1;
        let id = format!("id-{:04}", self.next);
        Effect::Cloud(match call {
            CloudCall::CreatePort(port) => {
                self.created += 1;
                let port = Port {
                    id,
                    name: port.name.clone(),
                    key: port.key.clone(),
                    created_at: at(now).to_string(),
                    ..Port::default()
                };
                self.ports.push(port.clone());
                CloudAnswer::Port(port)
            }
            CloudCall::CreateServer(server) => {
                self.created += 1;
                let ports = server.port_ids.clone();
                let server = Server {
                    id: id.clone(),
                    name: server.name.clone(),
                    status: "BUILD".into(),
                    key: server.key.clone(),
                    created_at: at(now).to_string(),
                    ..Server::default()
                };
                self.servers.push(server.clone());
                for port in self.ports.iter_mut().filter(|port| ports.contains(&port.id)) {
                    port.device_id.clone_from(&id);
                }
                CloudAnswer::Server(server)
            }
            CloudCall::TagPort { id, tags } => {
                self.ports.iter_mut().filter(|port| port.id == *id).for_each(|port| port.tags.clone_from(tags));
                CloudAnswer::PortTagged { id: id.clone(), tags: tags.clone() }
            }
            CloudCall::DeletePort { id } => {
                self.ports.retain(|port| port.id != *id);
                CloudAnswer::PortGone { id: id.clone() }
            }
            CloudCall::DeleteServer { id } => {
                self.servers.retain(|server| server.id != *id);
                for port in self.ports.iter_mut().filter(|port| port.device_id == *id) {
                    port.device_id.clear();
                }
                CloudAnswer::ServerGoing { id: id.clone() }
            }
            other => panic!("{other:?}"),
        })
    }

    fn observe(&self, world: &mut World) {
        let view = world.cloud.get_or_insert_with(CloudView::default);
        view.ports.clone_from(&self.ports);
        view.servers.clone_from(&self.servers);
    }
}

/// Runs passes until nothing is planned; before each call `lost` says whether the process dies, and whether before or after it.
fn live(world: &mut World, cloud: &mut Cloud, mut lost: impl FnMut() -> Option<bool>) {
    for now in 0..200 {
        cloud.observe(world);
        loop {
            let plan = plan(world, at(now));
            let Some(step) = plan.steps.first() else { break };
            let fate = lost();
            if fate == Some(false) {
                break;
            }
            match step {
                Step::Cloud(call) => drop(cloud.call(call, now)),
                Step::Patch { fields, .. } if fields["spec"]["providerID"].is_string() => {
                    world.object.0["spec"]["providerID"] = fields["spec"]["providerID"].clone();
                }
                Step::Patch { .. } => world.object.0["metadata"]["finalizers"] = json!([]),
                other => panic!("{other:?}"),
            }
            if fate == Some(true) {
                break;
            }
            cloud.observe(world);
        }
        cloud
            .servers
            .iter_mut()
            .filter(|server| server.status == "BUILD")
            .for_each(|server| server.status = "ACTIVE".into());
    }
}

#[test]
fn a_machine_costs_one_port_and_one_server() {
    let (mut world, mut cloud) = (world(), Cloud::default());
    live(&mut world, &mut cloud, || None);
    assert_eq!((cloud.ports.len(), cloud.servers.len(), cloud.created), (1, 1, 2));
    assert_eq!(world.object.text("/spec/providerID"), format!("openstack:///{}", cloud.servers[0].id));
    assert_eq!(plan(&world, at(300)).progress, Progress::Done);
}

#[test]
fn every_create_carries_the_key() {
    let mut world = world();
    let plan_now = plan(&world, at(0));
    let Some(Step::Cloud(CloudCall::CreatePort(port))) = plan_now.steps.first() else { panic!("{plan_now:?}") };
    assert_eq!(OwnerKey::find_in(&port.description), Some(OwnerKey::new("c-uid", "m-uid", "port-0")));
    assert_eq!(port.security_groups.as_deref(), Some(["sg".to_owned()].as_slice()));
    world.cloud.as_mut().unwrap().ports.push(Port {
        id: "p".into(),
        key: port.key.clone(),
        tags: port.tags.clone(),
        ..Port::default()
    });
    let plan_now = plan(&world, at(0));
    let Some(Step::Cloud(CloudCall::CreateServer(server))) = plan_now.steps.first() else { panic!("{plan_now:?}") };
    assert_eq!(server.metadata[KEY_METADATA], "[hangar:c-uid/m-uid/server]");
    assert_eq!(server.availability_zone.as_deref(), Some("nova"));
    assert!(!format!("{server:?}").contains("cloud-config"));
}

#[test]
fn the_clouds_words_reach_the_condition_and_it_heals() {
    let mut world = world();
    world.refusal =
        Some(Reason { code: "Quota", message: "Quota exceeded for instances".into(), wake: crate::Wake::Retry });
    let status = plan(&world, at(0)).status.unwrap();
    assert_eq!(status["conditions"][0]["message"], "Quota exceeded for instances");
    world.refusal = None;
    let mut cloud = Cloud::default();
    live(&mut world, &mut cloud, || None);
    assert_eq!(plan(&world, at(300)).progress, Progress::Done);
}

#[test]
fn an_unknown_flavor_is_named_with_the_known_ones() {
    let mut world = world();
    world.cloud.as_mut().unwrap().flavor = Named::Unknown { wanted: "huge".into(), known: vec!["m1.small".into()] };
    let plan = plan(&world, at(0));
    assert_eq!(plan.progress.reason().unwrap().message, "the cloud has no flavor huge; it has m1.small");
}

#[test]
fn a_server_that_never_ran_is_replaced() {
    let (mut world, mut cloud) = (world(), Cloud::default());
    let key = Some(OwnerKey::new("c-uid", "m-uid", "port-0"));
    cloud.ports.push(Port { id: "p".into(), key, tags: vec!["blue".into()], ..Port::default() });
    cloud.servers.push(Server {
        id: "bad".into(),
        status: "ERROR".into(),
        fault: Some("No valid host".into()),
        created_at: at(0).to_string(),
        ..Server::default()
    });
    cloud.observe(&mut world);
    assert!(plan(&world, at(1)).progress.reason().unwrap().message.contains("No valid host"));
    live(&mut world, &mut cloud, || None);
    assert_eq!(cloud.servers.len(), 1);
    assert_ne!(cloud.servers[0].id, "bad");
}

proptest! {
    /// Whatever is lost, and wherever the process dies: in the end there is one of each, and after deletion nothing.
    #[test]
    fn any_sequence_of_losses_ends_in_the_same_world(losses in prop::collection::vec(prop::option::weighted(0.5, any::<bool>()), 0..40)) {
        let (mut world, mut cloud) = (world(), Cloud::default());
        let mut fates = losses.clone().into_iter();
        live(&mut world, &mut cloud, || fates.next().flatten());
        prop_assert_eq!((cloud.ports.len(), cloud.servers.len()), (1, 1));
        prop_assert_eq!(&cloud.ports[0].tags, &["blue"]);
        prop_assert_eq!(plan(&world, at(300)).steps, vec![]);

        world.object.0["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        cloud.ports.push(Port { id: "foreign".into(), ..Port::default() });
        let mut fates = losses.into_iter();
        // Observation hands over only what carries our key.
        let mut ours = Cloud { ports: cloud.ports.iter().filter(|port| port.key.is_some()).cloned().collect(), servers: cloud.servers, ..Cloud::default() };
        live(&mut world, &mut ours, || fates.next().flatten());
        prop_assert_eq!((ours.ports.len(), ours.servers.len()), (0, 0));
        prop_assert!(world.object.finalizers().is_empty());
    }
}
