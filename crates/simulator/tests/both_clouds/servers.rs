use std::collections::BTreeMap;

use hangar_openstack::*;
use serde_json::json;

use crate::place::{Place, kind, until};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFqNfQ0V2R0Z9o8m3xkD1YJ6sUe7tPq4LwXb5cHn2aKd demo";

async fn status(cloud: &Cloud, id: &str, wanted: &str) {
    until(wanted, async || {
        let server = cloud.server(id).await.unwrap();
        assert!(server.status != "ERROR" || wanted == "ERROR", "{:?}", server.fault);
        (server.status == wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_server_lives_from_build_to_not_found() {
    let place = Place::find().await;
    let cloud = &place.demo;
    let site = place.network("10.94.0.0/24", "203.0.113.0/26").await;
    let image = place.image().await;
    let flavor = place.admin.create_flavor(&place.name("flavor"), 1, 512, 1).await.unwrap();
    assert_eq!(kind(place.admin.create_flavor(&place.name("flavor"), 1, 512, 1).await), ErrorKind::Conflict);
    cloud.create_key_pair(&place.name("key"), KEY).await.unwrap();
    assert_eq!(kind(cloud.create_key_pair(&place.name("key"), KEY).await), ErrorKind::Conflict);
    assert_eq!(kind(cloud.create_key_pair(&place.name("bad"), "junk").await), ErrorKind::BadRequest);
    let group = cloud.create_server_group(&place.name("group"), "soft-anti-affinity").await.unwrap();
    assert!(cloud.availability_zones().await.unwrap().iter().any(|zone| zone.name == "nova" && zone.state.available));
    let port = CreatePort { network_id: site.network.id.clone(), name: place.name("port"), ..CreatePort::default() };
    let port = cloud.create_port(&port).await.unwrap();

    let good = CreateServer {
        name: place.name("server"),
        flavor_id: flavor.id.clone(),
        image_id: image.id.clone(),
        networks: vec![ServerNetwork { port: Some(port.id.clone()), uuid: None }],
        user_data: Some("I2Nsb3VkLWNvbmZpZwo=".into()),
        key_name: Some(place.name("key")),
        config_drive: Some(true),
        tags: vec![place.tag.clone()],
        metadata: BTreeMap::from([("role".to_owned(), "worker".to_owned())]),
        scheduler_hints: BTreeMap::from([("group".to_owned(), json!(group.id))]),
        ..CreateServer::default()
    };
    let nobody = "00000000-0000-4000-8000-000000000000".to_owned();
    let wrong = [
        CreateServer { flavor_id: "nope".into(), ..good.clone() },
        CreateServer { image_id: nobody.clone(), ..good.clone() },
        CreateServer { key_name: Some("nope".into()), ..good.clone() },
        CreateServer { availability_zone: Some("nope".into()), ..good.clone() },
        CreateServer { name: String::new(), ..good.clone() },
        CreateServer { networks: vec![ServerNetwork { port: Some(nobody.clone()), uuid: None }], ..good.clone() },
        CreateServer { networks: vec![ServerNetwork { port: None, uuid: Some(nobody.clone()) }], ..good.clone() },
        CreateServer { user_data: Some("A".repeat(65540)), ..good.clone() },
        CreateServer { tags: vec!["a,b".into()], ..good.clone() },
        CreateServer { metadata: BTreeMap::from([("a".to_owned(), "x".repeat(300))]), ..good.clone() },
        CreateServer { scheduler_hints: BTreeMap::from([("group".to_owned(), json!(nobody))]), ..good.clone() },
        CreateServer { scheduler_hints: BTreeMap::from([("group".to_owned(), json!("nonsense"))]), ..good.clone() },
    ];
    for (number, wrong) in wrong.into_iter().enumerate() {
        assert_eq!(kind(cloud.create_server(&wrong).await), ErrorKind::BadRequest, "request {number}");
    }
    let project = cloud.project_id().await.unwrap();
    place.admin.set_compute_quota(&project, "instances", 0).await.unwrap();
    let full = cloud.create_server(&good).await;
    place.admin.set_compute_quota(&project, "instances", -1).await.unwrap();
    assert_eq!(kind(full), ErrorKind::Quota);

    let id = cloud.create_server(&good).await.unwrap();
    assert_eq!(cloud.server(&id).await.unwrap().status, "BUILD");
    status(cloud, &id, "ACTIVE").await;
    let server = cloud.server(&id).await.unwrap();
    assert_eq!(server.tags, std::slice::from_ref(&place.tag));
    assert_eq!((server.metadata["role"].as_str(), server.config_drive.as_str()), ("worker", "True"));
    assert_eq!(
        (server.vm_state.as_deref(), server.power_state, server.task_state.as_deref()),
        (Some("active"), Some(1), None)
    );
    assert_eq!(server.image.as_ref().unwrap().id, image.id);
    assert_eq!(server.flavor.original_name.as_deref(), Some(flavor.name.as_str()));
    assert_eq!(server.key_name, Some(place.name("key")));
    let address = port.fixed_ips[0].ip_address.clone().unwrap();
    assert_eq!(server.addresses[&place.name("net")][0].addr, address);
    let bound = cloud.port(&port.id).await.unwrap();
    assert_eq!(
        (bound.device_id.as_str(), bound.device_owner.as_str(), bound.status.as_str()),
        (id.as_str(), "compute:nova", "ACTIVE")
    );
    assert_eq!(bound.host_id, None, "only administrators see where a port is bound");
    assert_eq!(place.admin.port(&port.id).await.unwrap().vif_type.as_deref(), Some("ovs"));
    assert_eq!(cloud.server_interfaces(&id).await.unwrap()[0].port_id, port.id);
    assert_eq!(
        cloud.server_groups().await.unwrap().iter().find(|known| known.id == group.id).unwrap().members,
        std::slice::from_ref(&id)
    );

    // The name is a regular expression: without anchors it is looked for anywhere.
    let named = |name: String| ServerQuery { name: Some(name), ..ServerQuery::default() };
    assert_eq!(cloud.servers(&named(format!("^{}$", place.name("server")))).await.unwrap().len(), 1);
    assert_eq!(cloud.servers(&named(place.tag.clone())).await.unwrap().len(), 1);
    assert!(cloud.servers(&named(format!("^{}$", place.tag))).await.unwrap().is_empty());
    assert_eq!(kind(cloud.servers(&named("*(".into())).await), ErrorKind::BadRequest);
    let tagged = ServerQuery { tags: vec![place.tag.clone()], ..ServerQuery::default() };
    assert_eq!(cloud.servers(&tagged).await.unwrap()[0].id, id);

    let ip = CreateFloatingIp {
        floating_network_id: site.external.id.clone(),
        port_id: Some(port.id.clone()),
        ..CreateFloatingIp::default()
    };
    let ip = cloud.create_floating_ip(&ip).await.unwrap();
    until("the floating address", async || {
        let server = cloud.server(&id).await.unwrap();
        server
            .addresses
            .values()
            .flatten()
            .any(|one| one.kind == "floating" && one.addr == ip.floating_ip_address)
            .then_some(())
    })
    .await;
    cloud.delete_floating_ip(&ip.id).await.unwrap();

    // A port belongs to one server.
    assert_eq!(kind(cloud.create_server(&good).await), ErrorKind::Conflict);
    cloud.console_output(&id).await.unwrap();
    assert_eq!(kind(cloud.start_server(&id).await), ErrorKind::Conflict);
    cloud.stop_server(&id).await.unwrap();
    status(cloud, &id, "SHUTOFF").await;
    cloud.start_server(&id).await.unwrap();
    status(cloud, &id, "ACTIVE").await;
    cloud.lock_server(&id, true).await.unwrap();
    assert_eq!(kind(cloud.delete_server(&id).await), ErrorKind::Conflict);
    cloud.lock_server(&id, false).await.unwrap();
    cloud.delete_server(&id).await.unwrap();
    until("not found", async || cloud.server(&id).await.is_err_and(|error| error.is_not_found()).then_some(())).await;
    let free = cloud.port(&port.id).await.unwrap();
    assert_eq!((free.device_id.as_str(), free.device_owner.as_str(), free.status.as_str()), ("", "", "DOWN"));

    // Nova takes away the ports that it made.
    let own =
        CreateServer { networks: vec![ServerNetwork { port: None, uuid: Some(site.network.id.clone()) }], ..good };
    let id = cloud.create_server(&own).await.unwrap();
    status(cloud, &id, "ACTIVE").await;
    let of_server = PortQuery { device_id: Some(id.clone()), ..PortQuery::default() };
    assert_eq!(cloud.ports(&of_server).await.unwrap().len(), 1);
    cloud.delete_server(&id).await.unwrap();
    until("not found", async || cloud.server(&id).await.is_err_and(|error| error.is_not_found()).then_some(())).await;
    assert!(cloud.ports(&of_server).await.unwrap().is_empty());

    cloud.delete_port(&port.id).await.unwrap();
    cloud.delete_server_group(&group.id).await.unwrap();
    cloud.delete_key_pair(&place.name("key")).await.unwrap();
    place.admin.delete_flavor(&flavor.id).await.unwrap();
    cloud.delete_image(&image.id).await.unwrap();
    place.remove(&site).await;
}

#[tokio::test]
async fn images_are_found_by_name_and_tag_and_changed() {
    let place = Place::find().await;
    let cloud = &place.demo;
    let image = place.image().await;
    assert_eq!(image.property("os_distro"), Some("debian"));
    let by_tag = ImageQuery { tags: vec![place.tag.clone()], ..ImageQuery::default() };
    assert_eq!(cloud.images(&by_tag).await.unwrap()[0].id, image.id);
    let by_name = ImageQuery { name: Some(place.name("image")), limit: Some(1), ..ImageQuery::default() };
    assert_eq!(cloud.images(&by_name).await.unwrap().len(), 1);
    let changed = cloud
        .patch_image(&image.id, &json!([{"op": "add", "path": "/kube_version", "value": "v1.34.4"}]))
        .await
        .unwrap();
    assert_eq!(changed.property("kube_version"), Some("v1.34.4"));
    let full = cloud.upload_image(&image.id, bytes::Bytes::from_static(b"x")).await;
    assert_eq!(kind(full), ErrorKind::Conflict);
    assert_eq!(kind(cloud.import_image(&image.id, "http://example.org/x").await), ErrorKind::Conflict);
    cloud.delete_image(&image.id).await.unwrap();
    assert!(cloud.images(&by_tag).await.unwrap().is_empty());
}
