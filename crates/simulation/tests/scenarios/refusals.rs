//! What clouds refuse: it is said in their own words with what to do about it, and heals when the cause is gone.

use std::sync::Arc;

use hangar_simulation::{CLUSTER, NAMESPACE, Simulation};
use hangar_simulator::{FaultAction, FaultRule, starter};
use serde_json::{Value, json};

use crate::infrastructure::{INFRASTRUCTURE, Template, documents, is_ready};

/// One thing that is wrong with a cloud, or with what is asked of it.
struct Refusal {
    what: &'static str,
    life: Life,
    breaks: fn(&Simulation),
    /// In one condition of the object concerned.
    says: &'static [&'static str],
    mends: fn(&Simulation),
}

/// Whose life it is.
#[derive(Clone, Copy)]
enum Life {
    /// The example, with machine templates that a user has changed.
    Machine(fn(&mut Value)),
    /// Only the infrastructure.
    Cluster(Template),
    /// The same with an application credential.
    ApplicationCredential,
}

fn same(_: &mut Value) {}

fn quota(simulation: &Simulation, name: &str, limit: i64) {
    simulation.cloud.set_quota("demo", name, limit);
}

fn fault(simulation: &Simulation, service: &str, method: &str, path: &str, action: FaultAction) {
    let rule = FaultRule {
        service: service.into(),
        method: method.into(),
        path_regex: path.into(),
        action,
        ..FaultRule::default()
    };
    simulation.cloud.set_faults(vec![rule]);
}

fn well(simulation: &Simulation) {
    simulation.cloud.set_faults(vec![]);
}

fn unauthorized(code: u16, message: &str) -> FaultAction {
    FaultAction::Fail {
        status: code,
        body: json!({ "error": { "code": code, "title": "Refused", "message": message } }),
    }
}

const AUTHENTICATION: &str = "replace it in the Secret that identityRef leads to";

const ALL: &[Refusal] = &[
    Refusal {
        what: "wrong password",
        life: Life::Machine(same),
        breaks: |it| it.cloud.set_password("demo", "another"),
        says: &["keystone refused", "(401)", AUTHENTICATION],
        mends: |it| it.cloud.set_password("demo", starter::PASSWORD),
    },
    Refusal {
        what: "application credential that has expired",
        life: Life::ApplicationCredential,
        breaks: |it| {
            let refused = unauthorized(401, "The request you have made requires authentication.");
            fault(it, "identity", "POST", "auth/tokens", refused);
        },
        says: &["The request you have made requires authentication.", AUTHENTICATION],
        mends: well,
    },
    Refusal {
        what: "application credential that was deleted",
        life: Life::ApplicationCredential,
        breaks: |it| {
            let refused = unauthorized(404, "Could not find Application Credential: 7a.");
            fault(it, "identity", "POST", "auth/tokens", refused);
        },
        says: &["Could not find Application Credential", AUTHENTICATION],
        mends: well,
    },
    Refusal {
        what: "image that is not there",
        life: Life::Machine(|spec| spec["image"] = json!({ "filter": { "name": "missing" } })),
        breaks: |_| {},
        says: &["spec.image.filter missing matches no image; it must match exactly one"],
        mends: |it| image(it, json!({ "name": "missing" })),
    },
    Refusal {
        what: "flavor that is not there",
        life: Life::Machine(|spec| spec["flavor"] = "missing".into()),
        breaks: |_| {},
        says: &["spec.flavor missing matches no flavor; the cloud has m1.large, m1.medium, m1.small"],
        mends: |it| {
            let admin = it.cloud.clouds_yaml_of("http://cloud.test", &[("openstack", "admin")], None);
            let config = hangar_openstack::CloudConfig::parse(admin.as_bytes(), "openstack", None, None).unwrap();
            let cloud = hangar_openstack::Cloud::new(config, it.cloud.transport());
            tokio::spawn(async move { cloud.create_flavor("missing", 1, 1024, 10).await.map(drop) });
        },
    },
    Refusal {
        what: "flavor that is too small",
        life: Life::Machine(|spec| spec["image"] = json!({ "filter": { "name": "large" } })),
        breaks: |it| image(it, json!({ "name": "large", "min_ram": 65536 })),
        says: &["nova refused POST /servers (400)", "Flavor's memory is too small for requested image"],
        mends: |it| {
            let cloud = it.cloud_client();
            tokio::spawn(async move {
                let query = hangar_openstack::ImageQuery { name: Some("large".into()), ..Default::default() };
                let image = cloud.images(&query).await?.remove(0);
                let smaller = json!([{ "op": "replace", "path": "/min_ram", "value": 512 }]);
                cloud.patch_image(&image.id, &smaller).await.map(drop)
            });
        },
    },
    Refusal {
        what: "zone that is not there",
        life: Life::Machine(same),
        breaks: |it| it.cloud.add_zone(starter::ZONE, false),
        says: &["nova refused POST /servers (400)", "The requested availability zone is not available"],
        mends: |it| it.cloud.add_zone(starter::ZONE, true),
    },
    Refusal {
        what: "quota of servers",
        life: Life::Machine(same),
        breaks: |it| quota(it, "instances", 1),
        says: &["servers: 1 needed, 1 of 1 used", "openstack quota set --instances 2"],
        mends: |it| quota(it, "instances", 10),
    },
    Refusal {
        what: "quota of cores and memory",
        life: Life::Machine(same),
        breaks: |it| {
            quota(it, "cores", 4);
            quota(it, "ram", 8192);
        },
        says: &["cores: 1 needed, 4 of 4 used; MiB of memory: 2048 needed, 8192 of 8192 used", "--cores 5 --ram 10240"],
        mends: |it| {
            quota(it, "cores", 10);
            quota(it, "ram", 20480);
        },
    },
    Refusal {
        what: "quota of ports",
        life: Life::Machine(same),
        breaks: |it| quota(it, "port", 3),
        says: &["ports: 1 needed, ", "openstack quota set --ports"],
        mends: |it| quota(it, "port", 100),
    },
    Refusal {
        what: "quota of volumes",
        life: Life::Machine(|spec| spec["rootVolume"] = json!({ "sizeGiB": 20 })),
        breaks: |it| quota(it, "volumes", 0),
        says: &["volumes: 1 needed, 0 of 0 used", "openstack quota set --volumes 1"],
        mends: |it| quota(it, "volumes", 10),
    },
    Refusal {
        what: "quota of gigabytes",
        life: Life::Machine(|spec| spec["rootVolume"] = json!({ "sizeGiB": 20 })),
        breaks: |it| quota(it, "gigabytes", 19),
        says: &["GiB of volumes: 20 needed, 0 of 19 used", "openstack quota set --gigabytes 20"],
        mends: |it| quota(it, "gigabytes", 100),
    },
    Refusal {
        what: "quota of security groups",
        life: Life::Cluster(Template::WithoutLoadBalancer),
        breaks: |it| quota(it, "security_group", 2),
        says: &["security groups: 2 needed, 2 of 2 used", "openstack quota set --secgroups 4"],
        mends: |it| quota(it, "security_group", 10),
    },
    Refusal {
        what: "quota of floating IPs",
        life: Life::Cluster(Template::WithoutLoadBalancer),
        breaks: |it| quota(it, "floatingip", 0),
        says: &["floating IPs: 1 needed, 0 of 0 used", "openstack quota set --floating-ips 1"],
        mends: |it| quota(it, "floatingip", 10),
    },
    Refusal {
        what: "cloud that cannot be reached",
        life: Life::Cluster(Template::Octavia),
        breaks: |it| fault(it, "*", "*", "", FaultAction::Drop),
        says: &["keystone", "check auth_url, and the way to the cloud from here"],
        mends: well,
    },
    Refusal {
        what: "Nova that is away",
        life: Life::Machine(same),
        breaks: |it| fault(it, "compute", "*", "", FaultAction::ProxyPage(503)),
        says: &["nova refused", "(503)"],
        mends: well,
    },
    Refusal {
        what: "host that is full",
        life: Life::Machine(same),
        breaks: |it| fault(it, "compute", "POST", "^/servers$", FaultAction::NoValidHost),
        says: &["No valid host was found", "it will be replaced"],
        mends: well,
    },
    Refusal {
        what: "Octavia in ERROR",
        life: Life::Cluster(Template::Octavia),
        breaks: |it| {
            let cloud = it.cloud.clone();
            it.cloud.observe(Arc::new(move |write| {
                let is_made = write.table == "load_balancers"
                    && write.row.is_some_and(|row| row["provisioning_status"] == "PENDING_CREATE");
                if is_made {
                    let (cloud, id) = (cloud.clone(), write.id.to_owned());
                    tokio::spawn(async move {
                        tokio::time::sleep(std::time::Duration::from_secs(30)).await;
                        cloud.set_load_balancer_status(&id, "ERROR");
                    });
                }
            }));
        },
        says: &["is in ERROR: ask the operators of the cloud for its failover, or delete it to have it made again"],
        mends: |it| {
            for balancer in it.in_cloud("load-balancer") {
                it.cloud.set_load_balancer_status(&balancer.id, "ACTIVE");
            }
        },
    },
];

/// An image of the project's that is active.
fn image(simulation: &Simulation, mut fields: Value) {
    fields["disk_format"] = "qcow2".into();
    fields["container_format"] = "bare".into();
    fields["kube_version"] = "v1.28.10".into();
    let (cloud, laws) = (simulation.cloud_client(), simulation.laws.clone());
    tokio::spawn(async move {
        let image = cloud.create_image(&fields).await?;
        laws.is_foreign_resource("images", &image.id);
        cloud.upload_image(&image.id, bytes::Bytes::from_static(b"image")).await
    });
}

fn says(simulation: &Simulation, words: &[&str]) -> bool {
    let kinds = ["OpenStackMachine", "OpenStackCluster"];
    let objects = kinds.into_iter().flat_map(|kind| simulation.management.list(INFRASTRUCTURE, kind));
    let conditions: Vec<Value> =
        objects.flat_map(|object| object["status"]["conditions"].as_array().cloned().unwrap_or_default()).collect();
    conditions.iter().any(|condition| {
        let message = condition["message"].as_str().unwrap_or_default();
        condition["status"] == "False" && words.iter().all(|word| message.contains(word))
    })
}

async fn begins(simulation: &Simulation, life: Life) {
    match life {
        Life::Machine(change) => {
            let change = |object: &mut Value| {
                if object["kind"] == "OpenStackMachineTemplate" {
                    change(&mut object["spec"]["template"]["spec"]);
                }
            };
            simulation.apply_changed(CLUSTER, change).await;
        }
        Life::Cluster(template) => simulation.apply_documents(documents(simulation, CLUSTER, template)).await,
        Life::ApplicationCredential => {
            let id = simulation.cloud.add_application_credential("demo", "hangar", "secret").unwrap();
            let yaml = format!(
                "clouds: {{openstack: {{region_name: {}, auth_type: v3applicationcredential, auth: {{auth_url: 'http://cloud.test/identity/v3', \
                 application_credential_id: {id}, application_credential_secret: secret}}}}}}",
                starter::REGION
            );
            let mut documents = documents(simulation, CLUSTER, Template::WithoutLoadBalancer);
            let secret = documents.iter_mut().find(|it| it["kind"] == "Secret").unwrap();
            *secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": CLUSTER, "namespace": NAMESPACE },
                "data": { "clouds.yaml": base64(&yaml) } });
            simulation.apply_documents(documents).await;
        }
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Everything that is wrong is found, said and healed, without anybody touching an object.
#[tokio::test(start_paused = true)]
async fn oc21_what_a_cloud_refuses_is_said_in_its_words_with_what_to_do_and_heals() {
    for (number, refusal) in ALL.iter().enumerate() {
        println!("{}", refusal.what);
        let mut simulation = Simulation::new(700 + number as u64);
        // What people made before is there before anything breaks.
        simulation.apply_documents(vec![]).await;
        begins(&simulation, refusal.life).await;
        (refusal.breaks)(&simulation);
        simulation.start(None);
        simulation.until(&format!("{} is named", refusal.what), || says(&simulation, refusal.says)).await;
        (refusal.mends)(&simulation);
        match refusal.life {
            Life::Machine(_) => simulation.becomes_available(1).await,
            Life::Cluster(template) => simulation.until(refusal.what, || is_ready(&simulation, template)).await,
            Life::ApplicationCredential => {
                simulation.until(refusal.what, || is_ready(&simulation, Template::WithoutLoadBalancer)).await;
            }
        }
        simulation.until("nothing is said any more", || !says(&simulation, refusal.says)).await;
        simulation.delete_cluster().await;
        simulation.stop().await;
    }
}
