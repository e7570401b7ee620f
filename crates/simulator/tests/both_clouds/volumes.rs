use hangar_openstack::*;

use crate::place::{Place, kind, until};

async fn status(cloud: &Cloud, id: &str, wanted: &str) {
    until(wanted, async || (cloud.volume(id).await.unwrap().status == wanted).then_some(())).await;
}

#[tokio::test]
async fn volumes_are_made_attached_and_go_with_their_server() {
    let place = Place::find().await;
    let cloud = &place.demo;
    let site = place.network("10.95.0.0/24", "203.0.113.0/26").await;
    let image = place.image().await;
    let flavor = place.admin.create_flavor(&place.name("flavor"), 1, 512, 1).await.unwrap();
    let wanted = CreateVolume { name: place.name("v"), size: 1, ..CreateVolume::default() };
    let volume = cloud.create_volume(&wanted).await.unwrap();
    assert_eq!((volume.status.as_str(), volume.size), ("creating", 1));
    status(cloud, &volume.id, "available").await;
    assert_eq!(cloud.volume(&volume.id).await.unwrap().bootable, "false");
    assert_eq!(cloud.volumes(Some(&place.name("v"))).await.unwrap()[0].id, volume.id);
    assert!(cloud.volumes(Some(&place.name("none"))).await.unwrap().is_empty());
    assert!(!cloud.volume_types().await.unwrap().is_empty());
    assert_eq!(kind(cloud.create_volume(&CreateVolume { size: 0, ..wanted.clone() }).await), ErrorKind::BadRequest);
    let zone = CreateVolume { availability_zone: Some("nope".into()), ..wanted.clone() };
    assert_eq!(kind(cloud.create_volume(&zone).await), ErrorKind::BadRequest);
    let strange = CreateVolume { volume_type: Some("nope".into()), ..wanted.clone() };
    assert_eq!(kind(cloud.create_volume(&strange).await), ErrorKind::NotFound);
    let from = CreateVolume { image_id: Some("00000000-0000-4000-8000-000000000000".into()), ..wanted.clone() };
    assert_eq!(kind(cloud.create_volume(&from).await), ErrorKind::BadRequest);
    assert_eq!(kind(cloud.extend_volume(&volume.id, 1).await), ErrorKind::BadRequest);

    let device = BlockDevice {
        boot_index: 0,
        source_type: "image".into(),
        destination_type: "volume".into(),
        uuid: Some(image.id.clone()),
        volume_size: Some(1),
        delete_on_termination: true,
        ..BlockDevice::default()
    };
    let server = CreateServer {
        name: place.name("server"),
        flavor_id: flavor.id.clone(),
        networks: vec![ServerNetwork { port: None, uuid: Some(site.network.id.clone()) }],
        block_device_mapping_v2: vec![device],
        ..CreateServer::default()
    };
    let id = cloud.create_server(&server).await.unwrap();
    until("ACTIVE", async || {
        let server = cloud.server(&id).await.unwrap();
        assert_ne!(server.status, "ERROR", "{:?}", server.fault);
        (server.status == "ACTIVE").then_some(())
    })
    .await;
    let server = cloud.server(&id).await.unwrap();
    assert_eq!(server.image, None, "a server that boots from a volume has no image");
    let root = server.volumes[0].clone();
    assert!(root.delete_on_termination);
    status(cloud, &root.id, "in-use").await;
    assert_eq!(cloud.volume(&root.id).await.unwrap().attachments[0].server_id, id);

    assert_eq!(cloud.attach_volume(&id, &volume.id).await.unwrap().volume_id, volume.id);
    status(cloud, &volume.id, "in-use").await;
    assert_eq!(kind(cloud.attach_volume(&id, &volume.id).await), ErrorKind::BadRequest);
    assert_eq!(kind(cloud.delete_volume(&volume.id).await), ErrorKind::BadRequest);
    cloud.detach_volume(&id, &volume.id).await.unwrap();
    status(cloud, &volume.id, "available").await;
    assert_eq!(kind(cloud.detach_volume(&id, &volume.id).await), ErrorKind::NotFound);

    cloud.delete_server(&id).await.unwrap();
    until("not found", async || cloud.server(&id).await.is_err_and(|error| error.is_not_found()).then_some(())).await;
    until("the volume gone", async || {
        cloud.volume(&root.id).await.is_err_and(|error| error.is_not_found()).then_some(())
    })
    .await;
    cloud.delete_volume(&volume.id).await.unwrap();
    until("the volume gone", async || {
        cloud.volume(&volume.id).await.is_err_and(|error| error.is_not_found()).then_some(())
    })
    .await;
    place.admin.delete_flavor(&flavor.id).await.unwrap();
    cloud.delete_image(&image.id).await.unwrap();
    place.remove(&site).await;
}
