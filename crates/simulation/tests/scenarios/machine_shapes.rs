//! Machines with everything that their spec can ask for: disks, trunks, groups by name. Killed between any two steps, with answers that get lost: nothing is made twice,
//! nothing is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hangar_engine::pass::StepHook;
use hangar_openstack::wire::CreateSecurityGroup;
use hangar_simulation::chance::Die;
use hangar_simulation::{CLUSTER, Simulation};
use serde_json::{Value, json};

/// What the names in [`shape`] mean.
pub async fn name(simulation: &Simulation) {
    let cloud = simulation.cloud_client();
    let group = CreateSecurityGroup { name: "extra".into(), ..CreateSecurityGroup::default() };
    let group = cloud.create_security_group(&group).await.unwrap();
    let together = cloud.create_server_group("together", "soft-anti-affinity").await.unwrap();
    simulation.laws.is_foreign_resource("security_groups", &group.id);
    simulation.laws.is_foreign_resource("server_groups", &together.id);
}

/// The example, whose machines have two volumes, a local disk, a trunk, and groups that are found by name.
async fn apply(simulation: &Simulation) {
    name(simulation).await;
    simulation.apply_changed(CLUSTER, shape).await;
}

pub fn shape(object: &mut Value) {
    if object["kind"] != "OpenStackMachineTemplate" {
        return;
    }
    let spec = &mut object["spec"]["template"]["spec"];
    spec["rootVolume"] = json!({ "sizeGiB": 20, "availabilityZone": { "from": "Name", "name": "nova" } });
    spec["additionalBlockDevices"] = json!([
        { "name": "data", "sizeGiB": 5, "storage": { "type": "Volume" } },
        { "name": "scratch", "sizeGiB": 2, "storage": { "type": "Local" } },
    ]);
    spec["securityGroups"] = json!([{ "filter": { "name": "extra" } }]);
    spec["serverGroup"] = json!({ "filter": { "name": "together" } });
    spec["trunk"] = true.into();
    spec["tags"] = json!(["team-a"]);
    spec["schedulerHintAdditionalProperties"] =
        json!([{ "name": "near", "value": { "type": "String", "string": "rack-1" } }]);
    spec["ports"] = json!([{
        "network": { "filter": { "name": "demo-net" } },
        "fixedIPs": [{ "subnet": { "filter": { "name": "demo-subnet" } } }],
    }]);
}

fn counts(simulation: &Simulation) -> [usize; 4] {
    ["server", "port", "volume", "trunk"].map(|kind| simulation.in_cloud(kind).len())
}

#[tokio::test(start_paused = true)]
async fn om2_om3_om4_a_machine_with_disks_trunks_and_names_by_filter_comes_grows_and_goes() {
    let mut simulation = Simulation::new(201);
    simulation.start(None);
    apply(&simulation).await;
    simulation.becomes_available(1).await;
    assert_eq!(counts(&simulation), [1, 1, 2, 1]);
    let cloud = simulation.cloud_client();
    let ours = simulation.in_cloud("server").remove(0);
    let server = cloud.server(&ours.id).await.unwrap();
    assert_eq!(server.image, None, "it boots from its volume");
    let port = simulation.in_cloud("port").remove(0);
    let ports = cloud.ports(&hangar_openstack::PortQuery::default()).await.unwrap();
    let port = ports.into_iter().find(|it| it.id == port.id).unwrap();
    assert_eq!((port.tags.as_slice(), port.security_groups.len()), (&["team-a".to_owned()][..], 2));
    let names: Vec<String> = simulation.in_cloud("volume").into_iter().map(|volume| volume.name).collect();
    assert!(
        names.contains(&format!("{}-root", ours.name)) && names.contains(&format!("{}-data", ours.name)),
        "{names:?}"
    );
    simulation.scale(3);
    simulation.becomes_available(3).await;
    assert_eq!(counts(&simulation), [3, 3, 6, 3]);
    simulation.scale(1);
    simulation.becomes_available(1).await;
    simulation.until("the disks of the others are gone", || counts(&simulation) == [1, 1, 2, 1]).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// A life with a death at the given call of the hook; how many calls there were.
async fn live_and_die(at: Option<u64>) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    let hook: StepHook = Arc::new(move |_, _| Some(counted.fetch_add(1, Ordering::Relaxed)) == at);
    let mut simulation = Simulation::new(202);
    simulation.start(Some(hook));
    apply(&simulation).await;
    simulation.becomes_available(1).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
    count.load(Ordering::Relaxed)
}

pub fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(work)
}

/// Steps of others are tried elsewhere: those of the machine are at the end of coming and at the beginning of going.
#[test]
fn a_death_at_any_third_step_leaves_no_disk_and_no_trunk() {
    let all = run(live_and_die(None));
    for at in (1..all).step_by(3) {
        println!("death at call {at} of {all}");
        run(live_and_die(Some(at)));
    }
}

#[test]
fn lost_answers_make_no_disk_twice() {
    for seed in 211..217 {
        run(async {
            let mut simulation = Simulation::new(seed);
            simulation.laws.excuse_duplicates();
            apply(&simulation).await;
            let die = Die::new(seed);
            simulation.cloud.set_fault_hook(Arc::new(move |call| match die.throw() {
                0..200 if call.method != "GET" => hangar_simulator::Fault::After,
                200..300 if call.method != "GET" => hangar_simulator::Fault::Before,
                _ => hangar_simulator::Fault::None,
            }));
            simulation.start(None);
            simulation.becomes_available(1).await;
            simulation.until("there is one of each", || counts(&simulation) == [1, 1, 2, 1]).await;
            simulation.delete_cluster().await;
            simulation.stop().await;
        });
    }
}

/// Cinder says no for a while: the reason is seen, and it heals by itself.
#[tokio::test(start_paused = true)]
async fn volumes_that_cannot_be_made_are_named_and_made_later() {
    let mut simulation = Simulation::new(203);
    apply(&simulation).await;
    simulation.cloud.set_fault_hook(Arc::new(|call| match call.service.as_str() {
        "volume" if call.method == "POST" => hangar_simulator::Fault::Before,
        _ => hangar_simulator::Fault::None,
    }));
    simulation.start(None);
    let said = |simulation: &Simulation| {
        let machines = simulation.management.list("infrastructure.cluster.x-k8s.io", "OpenStackMachine");
        machines.iter().any(|machine| machine["status"]["conditions"].to_string().contains("cinder"))
    };
    simulation.until("the machine says why", || said(&simulation)).await;
    simulation.cloud.set_fault_hook(Arc::new(|_| hangar_simulator::Fault::None));
    simulation.becomes_available(1).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

pub const POOL: &str = "OpenStackFloatingIPPool";

/// The example, whose machines have a floating IP from a pool.
pub async fn apply_with_pool(simulation: &Simulation, also: fn(&mut Value)) {
    let identity = json!({ "name": CLUSTER, "cloudName": "openstack" });
    simulation
        .apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": POOL,
            "metadata": { "name": "public", "namespace": "default" },
            "spec": { "identityRef": identity, "reclaimPolicy": "Delete" },
        }))
        .await;
    let change = |object: &mut Value| {
        also(object);
        if object["kind"] == "OpenStackMachineTemplate" {
            let pool = json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": POOL, "name": "public" });
            object["spec"]["template"]["spec"]["floatingIPPoolRef"] = pool;
        }
    };
    simulation.apply_changed(CLUSTER, change).await;
}

async fn bound(simulation: &Simulation) -> usize {
    let all = simulation.cloud_client().floating_ips(&hangar_openstack::FloatingIpQuery::default()).await.unwrap();
    all.iter().filter(|ip| ip.port_id.is_some()).count()
}

async fn pool_life(seed: u64, hook: Option<StepHook>) {
    let mut simulation = Simulation::new(seed);
    simulation.start(hook);
    apply_with_pool(&simulation, |_| {}).await;
    simulation.becomes_available(1).await;
    simulation.scale(3);
    simulation.becomes_available(3).await;
    assert_eq!((bound(&simulation).await, simulation.in_cloud("floating-ip").len()), (3, 3));
    simulation.scale(1);
    simulation.becomes_available(1).await;
    simulation.until("the floating IPs of the others go back", || simulation.in_cloud("floating-ip").len() == 1).await;
    // It waits for the last claim.
    simulation.management.delete("infrastructure.cluster.x-k8s.io", POOL, "default", "public");
    simulation.delete_cluster().await;
    simulation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn om6_machines_get_floating_ips_from_a_pool_and_give_them_back() {
    pool_life(221, None).await;
}

#[test]
fn a_death_at_any_tenth_step_loses_no_floating_ip() {
    for at in (1..300).step_by(10) {
        let count = AtomicU64::new(0);
        let hook: StepHook = Arc::new(move |_, _| count.fetch_add(1, Ordering::Relaxed) == at);
        run(pool_life(222, Some(hook)));
    }
}

const ORC: &str = "openstack.k-orc.cloud";

/// An Image that the cloud downloads, one that it has already, and machines that name one of them.
#[tokio::test(start_paused = true)]
async fn om7_machines_wait_for_the_image_that_they_name() {
    let mut simulation = Simulation::new(231);
    simulation.start(None);
    let change = |object: &mut Value| {
        if object["kind"] == "OpenStackMachineTemplate" {
            object["spec"]["template"]["spec"]["image"] = json!({ "imageRef": { "name": "node" } });
        }
    };
    simulation.apply_changed(CLUSTER, change).await;
    let machine = |simulation: &Simulation| {
        simulation.management.list("infrastructure.cluster.x-k8s.io", "OpenStackMachine").pop().unwrap_or_default()
    };
    let says =
        |simulation: &Simulation, text: &str| machine(simulation)["status"]["conditions"].to_string().contains(text);
    simulation
        .until("the machine asks for the Image", || says(&simulation, "there is no Image node in this namespace"))
        .await;
    let image = |name: &str, spec: Value| {
        let credentials = json!({ "secretName": CLUSTER, "cloudName": "openstack" });
        let mut spec = spec;
        spec["cloudCredentialsRef"] = credentials;
        json!({ "apiVersion": format!("{ORC}/v1alpha1"), "kind": "Image", "metadata": { "name": name, "namespace": "default" }, "spec": spec })
    };
    let download = json!({ "diskFormat": "qcow2", "download": { "url": "https://images.example.org/node.qcow2" } });
    simulation
        .apply(&image("node", json!({ "managementPolicy": "managed", "resource": { "content": download } })))
        .await;
    let import = json!({ "filter": { "name": "ubuntu-2204-kube-v1.34.4" } });
    simulation.apply(&image("there", json!({ "managementPolicy": "unmanaged", "import": import }))).await;
    let id = |name: &str| simulation.management.get(ORC, "Image", "default", name).unwrap()["status"]["id"].clone();
    simulation.until("both have an id", || id("node").is_string() && id("there").is_string()).await;
    simulation.becomes_available(1).await;
    let server = simulation.cloud_client().server(&simulation.in_cloud("server").remove(0).id).await.unwrap();
    assert_eq!(json!(server.image.unwrap().id), id("node"));
    assert_eq!(simulation.in_cloud("image").len(), 1);
    for name in ["node", "there"] {
        simulation.management.delete(ORC, "Image", "default", name);
    }
    simulation.until("only what was made is deleted", || simulation.in_cloud("image").is_empty()).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// A server that is no Machine: it needs a credential and nothing else of a cluster.
#[tokio::test(start_paused = true)]
async fn om8_a_server_of_its_own_comes_and_goes() {
    let mut simulation = Simulation::new(241);
    simulation.start(None);
    simulation.apply_example().await;
    simulation
        .apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "OpenStackServer",
            "metadata": { "name": "jump", "namespace": "default" },
            "spec": {
                "flavor": "m1.small", "image": { "filter": { "name": "ubuntu-2204-kube-v1.34.4" } }, "sshKeyName": "demo",
                "identityRef": { "name": CLUSTER, "cloudName": "openstack" },
                "ports": [{ "network": { "filter": { "name": "demo-net" } } }], "rootVolume": { "sizeGiB": 10 },
            },
        }))
        .await;
    let status = |simulation: &Simulation| {
        let group = "infrastructure.cluster.x-k8s.io";
        simulation.management.get(group, "OpenStackServer", "default", "jump").map(|it| it["status"].clone())
    };
    simulation.until("it runs", || status(&simulation).is_some_and(|status| status["ready"] == true)).await;
    assert_eq!(status(&simulation).unwrap()["instanceState"], "ACTIVE");
    simulation.management.delete("infrastructure.cluster.x-k8s.io", "OpenStackServer", "default", "jump");
    simulation
        .until("it is gone, with its disk", || {
            simulation.in_cloud("volume").is_empty() && status(&simulation).is_none()
        })
        .await;
    simulation.becomes_available(1).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// The example that shows them all.
#[tokio::test(start_paused = true)]
async fn the_example_with_machine_shapes_comes_grows_and_goes() {
    let name = "machine-shapes";
    let mut simulation = Simulation::new(251);
    simulation.start(None);
    let documents = hangar_simulation::manifests::machine_shapes(&simulation.cloud.clouds_yaml("http://cloud.test"));
    simulation.apply_documents(documents).await;
    simulation.all_become_available(&[name], 1).await;
    simulation.until("there is one of each", || counts(&simulation) == [1, 3, 2, 1]).await;
    let deployment = |it: &mut Value| it["spec"]["replicas"] = 2.into();
    simulation.management.edit(
        hangar_simulation::CAPI,
        "MachineDeployment",
        "default",
        "machine-shapes-md-0",
        deployment,
    );
    simulation.all_become_available(&[name], 2).await;
    simulation.until("there are two of each", || counts(&simulation) == [2, 5, 4, 2]).await;
    simulation.until("both have an address outside", || simulation.in_cloud("floating-ip").len() == 2).await;
    simulation.management.delete("infrastructure.cluster.x-k8s.io", POOL, "default", name);
    simulation.delete_clusters(&[name]).await;
    simulation.stop().await;
}

/// However many machines have an address from it: the project's floating IPs are looked at for all of them together.
#[tokio::test(start_paused = true)]
async fn oc23_floating_ips_of_a_pool_cost_one_list_a_minute_at_rest() {
    let mut simulation = Simulation::new(252);
    simulation.start(None);
    apply_with_pool(&simulation, |_| {}).await;
    simulation.becomes_available(1).await;
    simulation.scale(5);
    simulation.becomes_available(5).await;
    simulation.wait(std::time::Duration::from_secs(120)).await;
    simulation.cloud.clear_journal();
    simulation.wait(std::time::Duration::from_secs(600)).await;
    let calls = simulation.cloud.journal();
    let of = |what: &str| calls.iter().filter(|call| call.path.contains(what)).count();
    println!("floating IPs {}, networks {}, {} in all", of("/floatingips"), of("/networks"), calls.len());
    assert!(of("/floatingips") <= 12 && of("/networks") <= 2, "{} {}", of("/floatingips"), of("/networks"));
    simulation.management.delete("infrastructure.cluster.x-k8s.io", POOL, "default", "public");
    simulation.delete_cluster().await;
    simulation.stop().await;
}
