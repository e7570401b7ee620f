//! What an OpenStackCluster makes in its cloud: each of upstream's templates comes, is put right and goes, undisturbed, killed between any two steps, and with each call failed
//! before and after it was carried out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hangar_simulation::chance::Die;
use hangar_simulation::cloud_transport::Trouble;
use hangar_simulation::{CAPI, CLUSTER, NAMESPACE, Simulation, manifests};
use hangar_simulator::{Fault, starter};
use serde_json::{Value, json};

use crate::kills::killer;

pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

/// Upstream's templates, as far as the OpenStackCluster is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Template {
    /// Seeds 003 and 004: the control plane is hosted, the network is ours.
    Hosted,
    /// `cluster-template`
    Octavia,
    /// `cluster-template-without-lb`
    WithoutLoadBalancer,
    /// Several networks: an existing one, with subnets by filter.
    ExistingNetwork,
    /// Zones are named, and none is for the control plane.
    Zones,
    Bastion,
}

const ALL: [Template; 6] = [
    Template::Hosted,
    Template::Octavia,
    Template::WithoutLoadBalancer,
    Template::ExistingNetwork,
    Template::Zones,
    Template::Bastion,
];

fn spec(template: Template) -> Value {
    let managed = json!([{ "cidr": "10.8.0.0/24", "dnsNameservers": ["1.1.1.1"] }]);
    let groups = json!({ "allowAllInClusterTraffic": true });
    let external = json!({ "id": starter::PUBLIC_NETWORK_ID });
    let mut spec = json!({
        "identityRef": { "name": CLUSTER, "cloudName": "openstack" },
        "managedSubnets": managed, "managedSecurityGroups": groups, "externalNetwork": external, "tags": ["blue"],
    });
    match template {
        Template::Hosted => {
            spec["disableAPIServerFloatingIP"] = true.into();
            spec["apiServerFixedIP"] = "".into();
        }
        Template::Octavia => {
            spec["apiServerLoadBalancer"] =
                json!({ "enabled": true, "additionalPorts": [8132], "allowedCIDRs": ["192.0.2.0/24"] });
        }
        Template::WithoutLoadBalancer => spec["tags"] = json!([]),
        Template::ExistingNetwork => {
            spec["managedSubnets"] = json!(null);
            spec["network"] = json!({ "filter": { "name": starter::NETWORK } });
            spec["subnets"] = json!([{ "filter": { "name": starter::SUBNET, "ipVersion": 4 } }]);
        }
        Template::Zones => {
            spec["controlPlaneAvailabilityZones"] = json!([starter::ZONE]);
            spec["controlPlaneOmitAvailabilityZone"] = true.into();
        }
        Template::Bastion => {
            spec["bastion"] = json!({
                "enabled": true,
                "spec": { "flavor": "m1.small", "image": { "filter": { "name": starter::IMAGES[0].0 } }, "sshKeyName": "demo" },
            });
        }
    }
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    spec
}

/// Credential, Cluster and OpenStackCluster: nothing else has to be there for the infrastructure.
pub fn documents(simulation: &Simulation, name: &str, template: Template) -> Vec<Value> {
    let kinds = ["Secret", "Cluster", "OpenStackCluster"];
    let mut documents = simulation.example(name);
    documents.retain(|object| kinds.contains(&object["kind"].as_str().unwrap()));
    for object in &mut documents {
        if object["kind"] == "OpenStackCluster" {
            object["spec"] = spec(template);
            object["spec"]["identityRef"]["name"] = name.into();
        }
        if object["kind"] == "Cluster" && template != Template::Hosted {
            object["spec"]["controlPlaneRef"] = json!({ "apiVersion": "controlplane.cluster.x-k8s.io/v1beta1", "kind": "KubeadmControlPlane", "name": name });
        }
    }
    documents
}

fn infrastructure(simulation: &Simulation) -> Option<Arc<Value>> {
    simulation.management.get(INFRASTRUCTURE, "OpenStackCluster", NAMESPACE, CLUSTER)
}

fn condition(simulation: &Simulation, kind: &str) -> Value {
    let object = infrastructure(simulation).unwrap();
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

pub fn is_ready(simulation: &Simulation, template: Template) -> bool {
    let Some(object) = infrastructure(simulation) else { return false };
    let bastion = template != Template::Bastion || object["status"]["bastion"]["floatingIP"].is_string();
    object["status"]["ready"] == true && bastion
}

async fn comes(simulation: &Simulation, template: Template) {
    simulation.apply_documents(documents(simulation, CLUSTER, template)).await;
    simulation.until(&format!("{template:?} is ready"), || is_ready(simulation, template)).await;
}

async fn lives(simulation: &Simulation, template: Template) {
    comes(simulation, template).await;
    simulation.delete_cluster().await;
}

pub fn counted(simulation: &Simulation) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    simulation.left_in_cloud().into_iter().for_each(|item| *counts.entry(item.kind).or_default() += 1);
    counts
}

fn edit(simulation: &Simulation, change: impl FnOnce(&mut Value)) {
    let edited = simulation.management.edit(INFRASTRUCTURE, "OpenStackCluster", NAMESPACE, CLUSTER, change);
    assert!(edited, "there is no OpenStackCluster to edit");
}

#[tokio::test(start_paused = true)]
async fn oc1_oc10_every_template_comes_says_what_it_has_and_goes_without_a_trace() {
    for template in ALL {
        let mut simulation = Simulation::new(201);
        simulation.start(None);
        comes(&simulation, template).await;
        let expected: &[(&str, usize)] = match template {
            Template::Hosted => &[("network", 1), ("port", 1), ("router", 1), ("security-group", 2), ("subnet", 1)],
            Template::Octavia => &[
                ("floating-ip", 1),
                ("load-balancer", 1),
                ("network", 1),
                ("port", 2),
                ("router", 1),
                ("security-group", 2),
                ("subnet", 1),
            ],
            Template::WithoutLoadBalancer | Template::Zones => {
                &[("floating-ip", 1), ("network", 1), ("port", 1), ("router", 1), ("security-group", 2), ("subnet", 1)]
            }
            Template::ExistingNetwork => &[("floating-ip", 1), ("security-group", 2)],
            Template::Bastion => &[
                ("floating-ip", 2),
                ("network", 1),
                ("port", 2),
                ("router", 1),
                ("security-group", 3),
                ("server", 1),
                ("subnet", 1),
            ],
        };
        let expected: BTreeMap<String, usize> =
            expected.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
        assert_eq!(counted(&simulation), expected, "{template:?}");
        let object = infrastructure(&simulation).unwrap();
        let (status, endpoint) = (&object["status"], &object["spec"]["controlPlaneEndpoint"]["host"]);
        assert_eq!(endpoint.is_string(), template != Template::Hosted, "{template:?}: {endpoint}");
        for kind in [
            "Ready",
            "NetworkReady",
            "RouterReady",
            "SecurityGroupsReady",
            "APIEndpointReady",
            "OpenStackAuthenticationSucceeded",
        ] {
            assert_eq!(condition(&simulation, kind)["status"], "True", "{template:?} {kind}");
        }
        let zone = &status["failureDomains"][starter::ZONE]["controlPlane"];
        assert_eq!(*zone, template != Template::Zones, "{template:?}");
        if template == Template::Octavia {
            assert_eq!(status["apiServerLoadBalancer"]["ip"], *endpoint);
            assert_ne!(status["apiServerLoadBalancer"]["internalIP"], *endpoint);
            // The user's network, the cluster's subnet and the router's address.
            assert_eq!(status["apiServerLoadBalancer"]["allowedCIDRs"].as_array().unwrap().len(), 3);
        }
        // At rest nothing is written.
        tokio::time::sleep(Duration::from_secs(30)).await;
        simulation.management.clear_requests();
        simulation.cloud.clear_journal();
        tokio::time::sleep(Duration::from_secs(600)).await;
        let writes: Vec<_> = simulation.management.requests().into_iter().filter(|call| call.is_write()).collect();
        assert!(writes.is_empty(), "{template:?}: {writes:#?}");
        let calls = simulation.cloud.journal();
        let touched: Vec<_> = calls.iter().filter(|call| call.method != "GET" && call.service != "identity").collect();
        assert!(touched.is_empty(), "{template:?}: {touched:#?}");
        println!("{template:?}: {} calls in ten minutes at rest", calls.len());
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn oc2_infrastructure_without_a_load_balancer_costs_half_of_what_it_costs_upstream() {
    let mut simulation = Simulation::new(202);
    simulation.start(None);
    comes(&simulation, Template::WithoutLoadBalancer).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let calls = simulation.cloud.journal();
    let lines: Vec<String> =
        calls.iter().map(|call| format!("{} {} {}", call.method, call.service, call.path)).collect();
    println!("{} calls: {lines:#?}", calls.len());
    // Upstream: 65.
    assert!(calls.len() <= 20, "{lines:#?}");
    simulation.cloud.clear_journal();
    simulation.delete_cluster().await;
    println!("{} calls to delete it", simulation.cloud.journal().len());
    simulation.stop().await;
}

/// While Octavia is at work, it alone is asked, and ever less often.
#[tokio::test(start_paused = true)]
async fn infrastructure_with_a_load_balancer_costs_little_more() {
    let mut simulation = Simulation::new(213);
    simulation.start(None);
    comes(&simulation, Template::Octavia).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let paths = || -> Vec<String> {
        simulation
            .cloud
            .journal()
            .iter()
            .map(|call| format!("{} {} {}", call.method, call.service, call.path))
            .collect()
    };
    let coming = paths();
    println!("{} calls: {coming:#?}", coming.len());
    assert!(coming.len() <= 40, "{coming:#?}");
    simulation.cloud.clear_journal();
    simulation.delete_cluster().await;
    let going = paths();
    println!("{} calls to delete it: {going:#?}", going.len());
    assert!(going.len() <= 40, "{going:#?}");
    simulation.stop().await;
}

/// The user's router and the addresses of ours outside.
#[tokio::test(start_paused = true)]
async fn oc3_a_router_may_be_the_users_and_ours_may_have_a_certain_address() {
    for theirs in [true, false] {
        let mut simulation = Simulation::new(214);
        let mut documents = documents(&simulation, CLUSTER, Template::Hosted);
        let it = documents.iter_mut().find(|it| it["kind"] == "OpenStackCluster").unwrap();
        if theirs {
            it["spec"]["router"] = json!({ "id": starter::ROUTER_ID });
        } else {
            it["spec"]["externalRouterIPs"] =
                json!([{ "fixedIP": "172.24.4.77", "subnet": { "id": starter::PUBLIC_SUBNET_ID } }]);
        }
        simulation.start(None);
        simulation.apply_documents(documents).await;
        simulation.until("it is ready", || is_ready(&simulation, Template::Hosted)).await;
        let status = infrastructure(&simulation).unwrap()["status"].clone();
        assert_eq!(status["router"]["id"] == starter::ROUTER_ID, theirs);
        assert_eq!(status["router"]["ips"] == json!(["172.24.4.77"]), !theirs, "{status}");
        assert_eq!(simulation.in_cloud("router").len(), usize::from(!theirs));
        simulation.delete_cluster().await;
        assert!(client(&simulation).router(starter::ROUTER_ID).await.is_ok(), "the user's is still there");
        simulation.stop().await;
    }
}

pub fn in_world(life: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(life);
}

/// One life with a death at the given call of the hook; how many there were.
fn dies(template: Template, at: Option<u64>) -> u64 {
    let (hook, count) = killer(at);
    in_world(async {
        let mut simulation = Simulation::new(203);
        simulation.start(Some(hook));
        lives(&simulation, template).await;
        simulation.stop().await;
    });
    count.load(Ordering::Relaxed)
}

#[test]
fn oc11_a_death_between_any_two_steps_of_any_template_does_no_harm() {
    for template in ALL {
        let steps = dies(template, None);
        assert!(steps > 8, "{template:?}: the steps were not counted");
        for at in 0..steps {
            println!("{template:?}: death at call {at} of {steps}");
            dies(template, Some(at));
        }
    }
}

/// One life in which one call to the cloud fails; how many there were.
fn fails(template: Template, at: Option<u64>, fault: Fault) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let counted = count.clone();
    in_world(async {
        let mut simulation = Simulation::new(204);
        // A lost answer may make something twice, for a while.
        simulation.laws.excuse_duplicates();
        simulation.apply_documents(documents(&simulation, CLUSTER, template)).await;
        simulation.cloud.set_fault_hook(Arc::new(move |call| match call.method.as_str() {
            "GET" => Fault::None,
            _ if Some(counted.fetch_add(1, Ordering::Relaxed)) == at => fault,
            _ => Fault::None,
        }));
        simulation.start(None);
        simulation.until(&format!("{template:?} is ready"), || is_ready(&simulation, template)).await;
        assert_eq!(simulation.there_twice(), Vec::<String>::new(), "{}", simulation.state());
        simulation.delete_cluster().await;
        simulation.stop().await;
    });
    count.load(Ordering::Relaxed)
}

#[test]
fn oc11_each_call_of_any_template_may_fail_before_it_is_carried_out() {
    each_fails(Fault::Before);
}

#[test]
fn oc11_each_answer_of_any_template_may_be_lost() {
    each_fails(Fault::After);
}

fn each_fails(fault: Fault) {
    for template in ALL {
        let calls = fails(template, None, fault);
        assert!(calls > 5, "{template:?}: the calls were not counted");
        for at in 0..calls {
            println!("{template:?}: {fault:?} at call {at} of {calls}");
            fails(template, Some(at), fault);
        }
    }
}

/// A day in the life of a bastion.
#[tokio::test(start_paused = true)]
async fn oc8_a_bastion_is_disabled_changed_and_deleted_by_hand() {
    let mut simulation = Simulation::new(205);
    simulation.start(None);
    comes(&simulation, Template::Bastion).await;
    let server = || simulation.in_cloud("server").first().map(|item| item.id.clone());
    let first = server().unwrap();
    edit(&simulation, |it| it["spec"]["bastion"]["spec"]["flavor"] = "m1.medium".into());
    simulation
        .until("it is made anew", || server().is_some_and(|id| id != first) && is_ready(&simulation, Template::Bastion))
        .await;
    let second = server().unwrap();
    simulation.cloud.delete_behind("compute", "servers", &second);
    simulation.until("it is back", || server().is_some_and(|id| id != second)).await;
    edit(&simulation, |it| it["spec"]["bastion"]["enabled"] = false.into());
    simulation
        .until("it is gone", || {
            let counts = counted(&simulation);
            server().is_none() && counts["floating-ip"] == 1 && counts["security-group"] == 2 && counts["port"] == 1
        })
        .await;
    assert_eq!(infrastructure(&simulation).unwrap()["status"]["ready"], true, "nobody waits for a bastion");
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// What somebody deletes or changes is put right within a minute.
#[tokio::test(start_paused = true)]
async fn oc12_what_somebody_deletes_comes_back_within_a_minute() {
    for (template, kind, service, collection) in [
        (Template::Octavia, "router", "network", "routers"),
        (Template::Octavia, "port", "network", "ports"),
        (Template::Octavia, "security-group", "network", "security-groups"),
        (Template::Octavia, "load-balancer", "load-balancer", "loadbalancers"),
        (Template::Hosted, "network", "network", "networks"),
        (Template::Hosted, "subnet", "network", "subnets"),
        (Template::Bastion, "port", "network", "ports"),
        (Template::Bastion, "server", "compute", "servers"),
    ] {
        let mut simulation = Simulation::new(206);
        simulation.start(None);
        comes(&simulation, template).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let counts = counted(&simulation);
        let ours = simulation.in_cloud(kind).into_iter().find(|item| item.owner.contains("[hangar:")).unwrap();
        simulation.cloud.delete_behind(service, collection, &ours.id);
        let back = || counted(&simulation) == counts && is_ready(&simulation, template);
        simulation.until_within(Duration::from_secs(90), &format!("{kind} is back"), back).await;
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}

/// What hangs below a load balancer has no key of its own.
#[tokio::test(start_paused = true)]
async fn oc12_what_somebody_takes_from_below_a_load_balancer_comes_back_within_a_minute() {
    let mut simulation = Simulation::new(220);
    simulation.start(None);
    comes(&simulation, Template::Octavia).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let cloud = client(&simulation);
    let there = async || {
        let count = [
            cloud.listeners(None).await.unwrap().len(),
            cloud.pools(None).await.unwrap().len(),
            cloud.health_monitors(None).await.unwrap().len(),
        ];
        (count, is_ready(&simulation, Template::Octavia))
    };
    let whole = there().await;
    for what in ["monitor", "pool", "listener"] {
        match what {
            "monitor" => cloud.delete_health_monitor(&cloud.health_monitors(None).await.unwrap()[0].id).await.unwrap(),
            "pool" => cloud.delete_pool(&cloud.pools(None).await.unwrap()[0].id).await.unwrap(),
            _ => cloud.delete_listener(&cloud.listeners(None).await.unwrap()[0].id).await.unwrap(),
        }
        let mut waited = 0;
        while waited < 100 && (waited < 10 || there().await != whole) {
            simulation.wait(Duration::from_secs(2)).await;
            waited += 2;
        }
        assert_eq!(there().await, whole, "{what}");
    }
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// The address that was handed out is asked for again, and no other: most clouds give it to administrators only, so a person has to know.
#[tokio::test(start_paused = true)]
async fn oc12_a_floating_ip_that_somebody_deletes_is_named_within_a_minute() {
    let mut simulation = Simulation::new(221);
    simulation.start(None);
    comes(&simulation, Template::WithoutLoadBalancer).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let ours = simulation.in_cloud("floating-ip").remove(0);
    simulation.cloud.delete_behind("network", "floatingips", &ours.id);
    let named = || {
        let endpoint = condition(&simulation, "APIEndpointReady");
        endpoint["status"] == "False" && endpoint["message"].to_string().contains("floatingips")
    };
    simulation.until_within(Duration::from_secs(90), "it is named", named).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// The same for what somebody changes.
#[tokio::test(start_paused = true)]
async fn oc12_what_somebody_changes_is_put_right_within_a_minute() {
    let mut simulation = Simulation::new(216);
    simulation.start(None);
    comes(&simulation, Template::Octavia).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let cloud = client(&simulation);
    let id = |kind: &str| {
        let ours = simulation.in_cloud(kind).into_iter().find(|item| item.owner.contains("[hangar:"));
        ours.unwrap_or_else(|| panic!("no {kind}")).id
    };
    let (network, subnet, router, group) = (id("network"), id("subnet"), id("router"), id("security-group"));
    let rules = async || {
        let all = cloud.security_groups(&hangar_openstack::SecurityGroupQuery::default()).await.unwrap();
        all.into_iter().find(|it| it.id == group).unwrap().security_group_rules
    };
    let (rules_before, listener) = (rules().await.len(), cloud.listeners(None).await.unwrap().remove(0));
    cloud.update_network(&network, &json!({ "admin_state_up": false })).await.unwrap();
    cloud.update_subnet(&subnet, &json!({ "dns_nameservers": ["8.8.8.8"] })).await.unwrap();
    cloud.set_tags("networks", &network, &[]).await.unwrap();
    cloud.delete_security_group_rule(&rules().await.last().unwrap().id).await.unwrap();
    let foreign = hangar_openstack::CreateSecurityGroupRule {
        security_group_id: group.clone(),
        direction: "ingress".into(),
        ethertype: Some("IPv4".into()),
        protocol: Some("tcp".into()),
        port_range_min: Some(1),
        port_range_max: Some(65535),
        ..hangar_openstack::CreateSecurityGroupRule::default()
    };
    cloud.create_security_group_rules(&[foreign]).await.unwrap();
    cloud.set_allowed_cidrs(&listener.id, &[]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(90)).await;
    let found = cloud.network(&network).await.unwrap();
    assert_eq!((found.admin_state_up, &found.tags[..]), (true, &["blue".to_owned()][..]));
    assert_eq!(cloud.subnet(&subnet).await.unwrap().dns_nameservers, ["1.1.1.1"]);
    let now = rules().await;
    assert_eq!(now.len(), rules_before);
    assert!(!now.iter().any(|rule| rule.port_range_max == Some(65535)), "a door that somebody opened is shut again");
    let allowed = cloud.listeners(None).await.unwrap().into_iter().find(|it| it.id == listener.id).unwrap();
    assert_eq!(allowed.allowed_cidrs.map(|list| list.len()), Some(3));
    assert!(cloud.router(&router).await.unwrap().external_gateway_info.is_some());
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// CAPO finds what is its own by name: two management planes with the same names in one project adopt and delete each other's resources.
#[tokio::test(start_paused = true)]
async fn oc13_what_another_management_plane_made_under_the_same_names_is_neither_used_nor_touched() {
    for template in ALL {
        let mut simulation = Simulation::new(207);
        simulation.plant_namesakes(CLUSTER).await;
        simulation.start(None);
        comes(&simulation, template).await;
        let ours = counted(&simulation);
        let network = infrastructure(&simulation).unwrap()["status"]["network"]["id"].as_str().unwrap().to_owned();
        assert!(!simulation.laws.knows_foreign(&network), "{template:?}");
        assert!(ours["security-group"] >= 2, "{template:?}: {ours:?}");
        simulation.delete_cluster().await;
        assert_eq!(simulation.cloud.inventory().of_kind("router").count(), 1, "{template:?}: theirs is still there");
        simulation.stop().await;
    }
}

fn client(simulation: &Simulation) -> hangar_openstack::Cloud {
    let yaml = simulation.cloud.clouds_yaml("http://cloud.test");
    let config = hangar_openstack::CloudConfig::parse(yaml.as_bytes(), "openstack", None, None).unwrap();
    hangar_openstack::Cloud::new(config, simulation.cloud.transport())
}

/// What the cloud controller and the CSI driver of the tenant leave in the cluster's network.
async fn leave_behind(simulation: &Simulation) {
    use hangar_openstack::{CreateFloatingIp, CreateLoadBalancer, CreateVolume};
    let cloud = client(simulation);
    let object = infrastructure(simulation).unwrap();
    let subnet = object["status"]["network"]["subnets"][0]["id"].as_str().unwrap().to_owned();
    let balancer = CreateLoadBalancer {
        name: format!("kube_service_{CLUSTER}_default_web"),
        vip_subnet_id: Some(subnet),
        ..CreateLoadBalancer::default()
    };
    let balancer = cloud.create_load_balancer(&balancer).await.unwrap();
    let ip = CreateFloatingIp {
        floating_network_id: starter::PUBLIC_NETWORK_ID.into(),
        port_id: balancer.vip_port_id,
        description: Some(format!("Floating IP for Kubernetes external service default/web from cluster {CLUSTER}")),
        ..CreateFloatingIp::default()
    };
    cloud.create_floating_ip(&ip).await.unwrap();
    for (name, cluster) in [("pvc-1", CLUSTER), ("pvc-2", "another")] {
        let metadata = [("cinder.csi.openstack.org/cluster".to_owned(), cluster.to_owned())].into();
        let volume = CreateVolume { name: name.into(), size: 1, metadata, ..CreateVolume::default() };
        let volume = cloud.create_volume(&volume).await.unwrap();
        if cluster != CLUSTER {
            simulation.laws.is_foreign_resource("volumes", &volume.id);
        }
    }
}

/// CAPO 842: the deletion of a cluster hangs because of load balancers that its cloud controller made, and says nothing of them.
#[tokio::test(start_paused = true)]
async fn oc14_what_the_tenants_controllers_left_is_named_and_goes_if_somebody_asks() {
    let mut simulation = Simulation::new(208);
    simulation.start(None);
    comes(&simulation, Template::WithoutLoadBalancer).await;
    leave_behind(&simulation).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    simulation.management.delete("cluster.x-k8s.io", "Cluster", NAMESPACE, CLUSTER);
    let named = || {
        let message = condition(&simulation, "Ready")["message"].as_str().unwrap_or_default().to_owned();
        message.contains("kube_service_capi-quickstart_default_web") && message.contains("floating IP")
    };
    simulation.until("what is left is named", named).await;
    let counts = counted(&simulation);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(counted(&simulation), counts, "nothing is deleted unless somebody asks");
    edit(&simulation, |it| {
        it["metadata"]["annotations"]["hangar.dev/delete-tenant-resources"] = "load-balancers,volumes".into();
    });
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// Groups of Services, which the cloud controller makes if it manages them.
#[tokio::test(start_paused = true)]
async fn oc14_groups_of_services_go_with_their_load_balancers_and_those_of_others_stay() {
    let mut simulation = Simulation::new(217);
    simulation.start(None);
    comes(&simulation, Template::WithoutLoadBalancer).await;
    leave_behind(&simulation).await;
    let cloud = client(&simulation);
    for (number, cluster) in [CLUSTER, "another"].into_iter().enumerate() {
        let group = hangar_openstack::CreateSecurityGroup {
            name: format!("lb-sg-{number}-default-web"),
            description: Some(format!("Security Group for default/web Service LoadBalancer in cluster {cluster}")),
            ..Default::default()
        };
        let group = cloud.create_security_group(&group).await.unwrap();
        if cluster != CLUSTER {
            simulation.laws.is_foreign_resource("security_groups", &group.id);
        }
    }
    edit(&simulation, |it| {
        it["metadata"]["annotations"]["hangar.dev/delete-tenant-resources"] = "load-balancers,volumes".into();
    });
    simulation.delete_cluster().await;
    simulation.stop().await;
}

#[tokio::test(start_paused = true)]
async fn oc5_a_load_balancer_has_the_flavor_that_is_named_and_one_that_is_not_there_is_named() {
    for (flavor, id) in [starter::LOAD_BALANCER_FLAVOR, ("huge", "")] {
        let mut simulation = Simulation::new(218);
        let mut documents = documents(&simulation, CLUSTER, Template::Octavia);
        let it = documents.iter_mut().find(|it| it["kind"] == "OpenStackCluster").unwrap();
        it["spec"]["apiServerLoadBalancer"]["flavor"] = flavor.into();
        simulation.start(None);
        simulation.apply_documents(documents).await;
        if id.is_empty() {
            let words = "spec.apiServerLoadBalancer.flavor huge matches no load balancer flavor; the cloud has small";
            simulation.until("it is named", || condition(&simulation, "Ready")["message"] == words).await;
        } else {
            simulation.until("it is ready", || is_ready(&simulation, Template::Octavia)).await;
            let balancers = client(&simulation).load_balancers(None).await.unwrap();
            assert_eq!(balancers[0].flavor_id.as_deref(), Some(id));
        }
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}

/// Nobody waits for a bastion, and a bastion waits for its image.
#[tokio::test(start_paused = true)]
async fn oc8_a_bastion_waits_for_the_image_that_it_names() {
    let mut simulation = Simulation::new(219);
    let mut documents = documents(&simulation, CLUSTER, Template::Bastion);
    let it = documents.iter_mut().find(|it| it["kind"] == "OpenStackCluster").unwrap();
    it["spec"]["bastion"]["spec"]["image"] = json!({ "imageRef": { "name": "jump" } });
    simulation.start(None);
    simulation.apply_documents(documents).await;
    simulation.until("the rest is ready", || is_ready(&simulation, Template::WithoutLoadBalancer)).await;
    let waits = || condition(&simulation, "BastionReady")["message"].to_string().contains("there is no Image jump");
    simulation.until("it waits", waits).await;
    let image = json!({ "apiVersion": "openstack.k-orc.cloud/v1alpha1", "kind": "Image", "metadata": { "name": "jump", "namespace": NAMESPACE },
        "spec": { "cloudCredentialsRef": { "secretName": CLUSTER, "cloudName": "openstack" }, "managementPolicy": "unmanaged",
            "import": { "filter": { "name": starter::IMAGES[0].0 } } } });
    simulation.apply(&image).await;
    simulation.until("it is there", || is_ready(&simulation, Template::Bastion)).await;
    simulation.management.delete("openstack.k-orc.cloud", "Image", NAMESPACE, "jump");
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// Neutron only says that a network is in use; a person needs to know by what (CAPO 1792, 2121).
#[tokio::test(start_paused = true)]
async fn oc15_what_keeps_a_network_is_named_until_it_is_gone() {
    let mut simulation = Simulation::new(209);
    simulation.start(None);
    comes(&simulation, Template::Hosted).await;
    let network = infrastructure(&simulation).unwrap()["status"]["network"]["id"].as_str().unwrap().to_owned();
    let port = hangar_openstack::CreatePort { network_id: network, name: "by-hand".into(), ..Default::default() };
    let port = client(&simulation).create_port(&port).await.unwrap();
    simulation.management.delete("cluster.x-k8s.io", "Cluster", NAMESPACE, CLUSTER);
    let named = || condition(&simulation, "Ready")["message"].as_str().unwrap_or_default().contains("by-hand");
    simulation.until("the port is named", named).await;
    simulation.cloud.delete_behind("network", "ports", &port.id);
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// CAPO 1425 and 668: the address of the API went with a machine, or with somebody else's; 1265: it travelled.
#[tokio::test(start_paused = true)]
async fn oc7_the_address_of_the_api_is_the_clusters_and_one_that_the_user_gave_stays() {
    for given in [false, true] {
        let mut simulation = Simulation::new(210);
        let ip = hangar_openstack::CreateFloatingIp {
            floating_network_id: starter::PUBLIC_NETWORK_ID.into(),
            ..hangar_openstack::CreateFloatingIp::default()
        };
        let theirs = client(&simulation).create_floating_ip(&ip).await.unwrap();
        simulation.laws.is_foreign_resource("floating_ips", &theirs.id);
        let mut documents = documents(&simulation, CLUSTER, Template::WithoutLoadBalancer);
        if given {
            let it = documents.iter_mut().find(|it| it["kind"] == "OpenStackCluster").unwrap();
            it["spec"]["apiServerFloatingIP"] = theirs.floating_ip_address.clone().into();
        }
        simulation.start(None);
        simulation.apply_documents(documents).await;
        simulation.until("it is ready", || is_ready(&simulation, Template::WithoutLoadBalancer)).await;
        let endpoint = infrastructure(&simulation).unwrap()["spec"]["controlPlaneEndpoint"]["host"].clone();
        assert_eq!(endpoint == theirs.floating_ip_address, given);
        assert_eq!(simulation.in_cloud("floating-ip").len(), usize::from(!given));
        simulation.delete_cluster().await;
        assert_eq!(simulation.cloud.inventory().of_kind("floating-ip").count(), 1, "the user's is still there");
        simulation.stop().await;
    }
}

/// No name server, rule or zone needs a new cluster.
#[tokio::test(start_paused = true)]
async fn oc16_what_may_change_changes_in_place() {
    let mut simulation = Simulation::new(211);
    simulation.start(None);
    comes(&simulation, Template::Octavia).await;
    let before: Vec<String> = simulation.left_in_cloud().into_iter().map(|item| item.id).collect();
    edit(&simulation, |it| {
        it["spec"]["managedSubnets"][0]["dnsNameservers"] = json!(["9.9.9.9"]);
        it["spec"]["apiServerLoadBalancer"]["allowedCIDRs"] = json!(["198.51.100.0/24"]);
        it["spec"]["apiServerLoadBalancer"]["monitor"] =
            json!({ "delay": 30, "timeout": 7, "maxRetries": 2, "maxRetriesDown": 4 });
        it["spec"]["managedSecurityGroups"]["allowAllInClusterTraffic"] = false.into();
        it["spec"]["controlPlaneAvailabilityZones"] = json!(["another"]);
    });
    let status = || infrastructure(&simulation).unwrap()["status"].clone();
    simulation
        .until("the load balancer lets others in", || {
            let allowed = status()["apiServerLoadBalancer"]["allowedCIDRs"].to_string();
            allowed.contains("198.51.100.0/24") && !allowed.contains("192.0.2.0/24") && status()["ready"] == true
        })
        .await;
    let cloud = client(&simulation);
    let subnets = cloud.subnets(&hangar_openstack::SubnetQuery::default()).await.unwrap();
    let subnet = subnets.iter().find(|subnet| subnet.description.contains("[hangar:")).unwrap();
    assert_eq!(subnet.dns_nameservers, ["9.9.9.9"]);
    let monitors = cloud.health_monitors(None).await.unwrap();
    assert!(monitors.iter().all(|it| (it.delay, it.timeout, it.max_retries, it.max_retries_down) == (30, 7, 2, 4)));
    assert_eq!(status()["failureDomains"][starter::ZONE]["controlPlane"], false);
    let groups = simulation.in_cloud("security-group");
    let all = cloud.security_groups(&hangar_openstack::SecurityGroupQuery::default()).await.unwrap();
    let etcd = |group: &hangar_openstack::SecurityGroup| {
        group.security_group_rules.iter().any(|rule| rule.port_range_min == Some(2379))
    };
    assert!(all.iter().any(|group| groups.iter().any(|item| item.id == group.id) && etcd(group)));
    let after: Vec<String> = simulation.left_in_cloud().into_iter().map(|item| item.id).collect();
    assert_eq!(before, after, "nothing was made anew");
    simulation.delete_cluster().await;
    simulation.stop().await;
}

/// A user deletes the cluster while Octavia is at work, at any moment.
#[tokio::test(start_paused = true)]
async fn oc11_a_cluster_that_is_deleted_at_any_moment_goes_without_a_trace() {
    for template in ALL {
        for moment in (0..4_000).step_by(250) {
            let mut simulation = Simulation::new(212);
            simulation.start(None);
            simulation.apply_documents(documents(&simulation, CLUSTER, template)).await;
            tokio::time::sleep(Duration::from_millis(moment)).await;
            // `kubectl delete -f`: what was not adopted yet is the user's to delete.
            simulation.management.delete(INFRASTRUCTURE, "OpenStackCluster", NAMESPACE, CLUSTER);
            simulation.delete_cluster().await;
            simulation.stop().await;
        }
    }
}

/// The example: workers behind a hosted control plane, on a network of their own, with a bastion.
#[tokio::test(start_paused = true)]
async fn the_example_with_a_network_of_its_own_comes_grows_and_goes() {
    let name = "managed-network";
    let mut simulation = Simulation::new(215);
    simulation.start(None);
    simulation.apply_documents(manifests::managed_network(&simulation.cloud.clouds_yaml("http://cloud.test"))).await;
    let has = |machines: usize| {
        simulation.machines().len() == machines
            && simulation.machines().iter().all(|machine| hangar_simulation::condition(machine, "Available"))
            && simulation.in_cloud("server").len() == machines + 1
    };
    simulation.until("the worker and the bastion are there", || has(1)).await;
    simulation
        .management
        .edit(CAPI, "MachineDeployment", NAMESPACE, "managed-network-md-0", |it| it["spec"]["replicas"] = 3.into());
    simulation.until("there are three workers", || has(3)).await;
    let subnet = client(&simulation).subnets(&hangar_openstack::SubnetQuery::default()).await.unwrap();
    let subnet = subnet.into_iter().find(|subnet| subnet.cidr == "10.8.0.0/24").unwrap();
    let ports = client(&simulation).ports(&hangar_openstack::PortQuery::default()).await.unwrap();
    let there =
        ports.iter().filter(|port| port.network_id == subnet.network_id && port.device_owner.starts_with("compute:"));
    assert_eq!(there.count(), 4, "workers and bastion are on the network that was made for them");
    simulation.delete_clusters(&[name]).await;
    simulation.stop().await;
}

/// Whatever gets lost on the way, whenever the process dies, and however old a list is.
async fn troubled(template: Template, seed: u64) {
    let mut simulation = Simulation::new(seed);
    simulation.laws.excuse_duplicates();
    simulation.laws.excuse_late_calls(Duration::from_secs(3));
    simulation.apply_documents(documents(&simulation, CLUSTER, template)).await;
    let die = Die::new(seed);
    let (cloud, way) = (die.clone(), die.clone());
    simulation.cloud.set_fault_hook(Arc::new(move |_| match cloud.throw() {
        0..60 => Fault::Before,
        60..120 => Fault::After,
        _ => Fault::None,
    }));
    simulation.transport.set_hook(Some(Arc::new(move |_| match way.throw() {
        0..100 => Trouble::Stale,
        100..150 => Trouble::SlowThere(Duration::from_secs(3)),
        150..200 => Trouble::SlowBack(Duration::from_secs(3)),
        _ => Trouble::None,
    })));
    simulation.start(Some(Arc::new(move |_, _| die.throw() < 20)));
    simulation.until(&format!("{template:?} is ready"), || is_ready(&simulation, template)).await;
    simulation.delete_cluster().await;
    simulation.stop().await;
}

#[test]
fn oc11_random_faults_deaths_and_stale_lists_do_no_harm() {
    let seeds = std::env::var("HANGAR_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    for template in ALL {
        for seed in 0..seeds {
            println!("{template:?}: seed {seed}");
            in_world(troubled(template, 300 + seed));
        }
    }
}

/// Two processes without a lease: what they make twice is there once after a while, and the endpoint is that of what stays.
#[tokio::test(start_paused = true)]
async fn oc11_what_two_processes_make_twice_is_there_once_after_a_while() {
    for template in ALL {
        for seed in 400..406 {
            let mut simulation = Simulation::new(seed);
            simulation.laws.excuse_duplicates();
            simulation.laws.excuse_two_at_once();
            simulation.start(None);
            simulation.start(None);
            comes(&simulation, template).await;
            simulation.stop_engines().await;
            simulation.start(None);
            simulation.until("nothing is there twice", || simulation.there_twice().is_empty()).await;
            tokio::time::sleep(Duration::from_secs(180)).await;
            assert!(is_ready(&simulation, template), "{template:?} {seed}: {}", simulation.state());
            let object = infrastructure(&simulation).unwrap();
            let host = object["spec"]["controlPlaneEndpoint"]["host"].as_str().unwrap_or_default();
            let addresses: Vec<String> = simulation.in_cloud("floating-ip").into_iter().map(|item| item.name).collect();
            assert!(
                host.is_empty() || addresses.contains(&host.to_owned()),
                "{template:?} {seed}: {host} {addresses:?}"
            );
            simulation.delete_cluster().await;
            simulation.stop().await;
        }
    }
}
