use serde_json::json;

use super::*;
use crate::cloud::PROJECT_ANNOTATION;
use crate::testing::{condition, deleting, merge, object, planned, said, world};

const ORC: &str = "openstack.k-orc.cloud/v1alpha1";

fn image(spec: &Value) -> Value {
    let metadata = json!({ "annotations": { PROJECT_ANNOTATION: "p" }, "finalizers": [FINALIZER] });
    let credentials = json!({ "cloudName": "openstack", "secretName": "s" });
    let mut image =
        object(ORC, "Image", "node", json!({ "metadata": metadata, "spec": { "cloudCredentialsRef": credentials } }));
    merge(&mut image["spec"], spec);
    image
}

fn managed() -> Value {
    json!({ "managementPolicy": "managed", "resource": {
        "tags": ["kube"], "visibility": "private",
        "properties": { "minDiskGB": 10, "hardware": { "cpuCores": 2, "qemuGuestAgent": true, "diskBus": "scsi" }, "operatingSystem": { "distro": "ubuntu" } },
        "content": { "diskFormat": "qcow2", "download": { "url": "https://images.example.org/node.qcow2" } },
    } })
}

fn imported_by_name() -> Value {
    json!({ "managementPolicy": "unmanaged", "import": { "filter": { "name": "ubuntu" } } })
}

fn glance(id: &str, status: &str) -> Glance {
    Glance { id: id.into(), name: "node".into(), status: status.into(), ..Glance::default() }
}

fn world_of(spec: &Value, change: impl FnOnce(&mut Facts)) -> World {
    let mut world: World = world(image(spec), vec![]);
    world.facts.cloud.project = "p".into();
    change(&mut world.facts);
    world
}

#[test]
fn om7_an_image_is_found_or_made_and_waited_for() {
    let own = |images: Vec<Glance>| move |facts: &mut Facts| facts.own = images;
    type Change = Box<dyn FnOnce(&mut Facts)>;
    let rows: Vec<(&str, Value, Change, &str)> = vec![
        ("managed", managed(), Box::new(|_| ()), "create image node"),
        (
            "queued",
            managed(),
            Box::new(own(vec![glance("i", "queued")])),
            "import image i from https://images.example.org/node.qcow2",
        ),
        (
            "importing",
            managed(),
            Box::new(own(vec![glance("i", "importing")])),
            "wait ImageNotReady: image node is importing",
        ),
        ("active", managed(), Box::new(own(vec![glance("i", "active")])), "done"),
        ("made twice", managed(), Box::new(own(vec![glance("i", "active"), glance("j", "queued")])), "delete Image j"),
        (
            "failed",
            managed(),
            Box::new(own(vec![glance("i", "killed")])),
            "blocked ImageFailed: image node is killed in the cloud: delete it there, and it is made again",
        ),
        (
            "not there yet",
            imported_by_name(),
            Box::new(|facts| facts.lookup = Lookup::one("ubuntu".into(), vec![])),
            "wait ImageNotFound: spec.import ubuntu matches no image; it must match exactly one",
        ),
        (
            "there",
            imported_by_name(),
            Box::new(|facts| {
                facts.lookup = Lookup::Found("i".into());
                facts.found = Some(glance("i", "active"));
            }),
            "done",
        ),
    ];
    for (what, spec, change, expected) in rows {
        assert_eq!(said(&planned(&world_of(&spec, change))), expected, "{what}");
    }
}

#[test]
fn what_is_not_built_is_refused_by_name_and_for_good() {
    let mut hashed = managed();
    hashed["resource"]["content"]["download"]["hash"] = json!({ "algorithm": "sha256", "value": "x" });
    let plan = planned(&world_of(&hashed, |_| ()));
    assert!(said(&plan).starts_with("blocked NotBuiltYet: spec.resource.content.download.hash"), "{}", said(&plan));
    assert_eq!(condition(&plan, "Progressing").unwrap().1, "InvalidConfiguration");
    let nothing = json!({ "managementPolicy": "unmanaged" });
    assert!(said(&planned(&world_of(&nothing, |_| ()))).starts_with("blocked InvalidConfiguration: spec.import"));
}

#[test]
fn the_create_call_has_the_properties_as_glance_names_them_and_our_key() {
    let wanted = wanted(&world_of(&managed(), |_| ()));
    assert_eq!(
        wanted,
        json!({
            "name": "node", "disk_format": "qcow2", "container_format": "bare", "visibility": "private", "tags": ["kube"], "min_disk": 10,
            "hw_cpu_cores": "2", "hw_qemu_guest_agent": "yes", "hw_disk_bus": "scsi", "os_distro": "ubuntu", "hangar_key": "[hangar:/node-uid/image]",
        })
    );
}

#[test]
fn what_another_controller_holds_is_left_to_it() {
    let mut theirs = image(&managed());
    theirs["metadata"]["finalizers"] = json!([OTHERS_FINALIZER]);
    assert!(!Images::is_ours(&Object(theirs)));
    assert!(Images::is_ours(&Object(image(&managed()))));
}

#[test]
fn only_what_was_made_goes_and_only_if_it_is_to() {
    let released = r#"patch Image n/node {"metadata":{"finalizers":[]}}"#;
    let mut detached = managed();
    detached["managedOptions"] = json!({ "onDelete": "detach" });
    for (what, spec, expected) in [("made", managed(), "delete Image i"), ("detached", detached, released)] {
        let world = world_of(&spec, |facts| facts.own = vec![glance("i", "active")]);
        assert_eq!(said(&planned(&deleting(world, Some(FINALIZER)))), expected, "{what}");
    }
    let world = world_of(&imported_by_name(), |facts| facts.found = Some(glance("i", "active")));
    assert_eq!(said(&planned(&deleting(world, Some(FINALIZER)))), released);
}

#[test]
fn whoever_names_an_image_waits_until_it_is_available() {
    let of = |status: Value| Object(object(ORC, "Image", "node", json!({ "status": status })));
    let ready = of(json!({ "id": "i", "conditions": [{ "type": "Available", "status": "True" }] }));
    assert_eq!(lookup("node", Some(&ready)), Ok(Lookup::Found("i".into())));
    let waiting =
        of(json!({ "conditions": [{ "type": "Available", "status": "False", "message": "image node is importing" }] }));
    for (image, expected) in [
        (None, "there is no Image node in this namespace: create it, or correct spec.image.imageRef"),
        (Some(&waiting), "waiting for Image node to be available: image node is importing"),
        (Some(&of(json!({}))), "waiting for Image node to be available"),
    ] {
        assert_eq!(lookup("node", image).unwrap_err().message, expected);
    }
}
