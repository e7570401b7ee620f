use hangar_openstack::*;

use crate::place::{Place, kind};

#[tokio::test]
async fn credentials_work_until_they_are_deleted_and_wrong_ones_never() {
    let place = Place::find().await;
    let project = place.demo.project_id().await.unwrap();
    assert_ne!(project, place.admin.project_id().await.unwrap());

    let yaml = place.clouds_yaml();
    let password = yaml.lines().find_map(|line| line.split_once("password: ")).unwrap().1;
    let password = password.split(',').next().unwrap();
    let open = |yaml: &str| {
        let config = CloudConfig::parse(yaml.as_bytes(), "demo", None, None).unwrap();
        Cloud::new(config, http_transport(None).unwrap())
    };
    let wrong = open(&yaml.replace(password, "wrong"));
    assert_eq!(kind(wrong.project_id().await), ErrorKind::Unauthorized);
    assert_eq!(kind(wrong.flavors().await), ErrorKind::Unauthorized);

    let made = place.demo.create_application_credential(&place.name("credential"), Some("s3cret")).await.unwrap();
    assert_eq!(made.secret.as_deref(), Some("s3cret"));
    let listed = place.demo.application_credentials().await.unwrap();
    assert!(listed.iter().any(|known| known.id == made.id && known.secret.is_none()));
    let auth_url = place.demo.config().auth_url().to_owned();
    let by_credential = |secret: &str| {
        open(&format!(
            "clouds: {{demo: {{auth_type: v3applicationcredential, auth: {{auth_url: '{auth_url}', application_credential_id: {}, application_credential_secret: {secret}}}}}}}",
            made.id
        ))
    };
    let good = by_credential("s3cret");
    assert_eq!(good.project_id().await.unwrap(), project);
    good.flavors().await.unwrap();
    assert_eq!(kind(by_credential("other").project_id().await), ErrorKind::Unauthorized);
    place.demo.delete_application_credential(&made.id).await.unwrap();
    // Gone is not the same as wrong: Keystone says 404.
    assert_eq!(kind(by_credential("s3cret").project_id().await), ErrorKind::Unauthorized);
    assert_eq!(kind(place.demo.delete_application_credential(&made.id).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn what_does_not_exist_is_not_found_in_every_service() {
    let place = Place::find().await;
    let (cloud, id) = (&place.demo, "00000000-0000-4000-8000-000000000000");
    let kinds = [
        kind(cloud.server(id).await),
        kind(cloud.delete_server(id).await),
        kind(cloud.flavor(id).await),
        kind(cloud.delete_key_pair(id).await),
        kind(cloud.delete_server_group(id).await),
        kind(cloud.network(id).await),
        kind(cloud.subnet(id).await),
        kind(cloud.port(id).await),
        kind(cloud.delete_port(id).await),
        kind(cloud.router(id).await),
        kind(cloud.floating_ip(id).await),
        kind(cloud.delete_floating_ip(id).await),
        kind(cloud.delete_trunk(id).await),
        kind(cloud.delete_security_group(id).await),
        kind(cloud.delete_security_group_rule(id).await),
        kind(cloud.image(id).await),
        kind(cloud.delete_image(id).await),
        kind(cloud.volume(id).await),
        kind(cloud.delete_volume(id).await),
        kind(cloud.load_balancer(id).await),
        kind(cloud.delete_listener(id).await),
        kind(cloud.delete_pool(id).await),
        kind(cloud.delete_health_monitor(id).await),
        kind(cloud.members(id, None).await),
    ];
    for (number, found) in kinds.into_iter().enumerate() {
        assert_eq!(found, ErrorKind::NotFound, "call {number}");
    }
}

#[tokio::test]
async fn tenants_may_not_do_what_administrators_may() {
    let place = Place::find().await;
    let external = CreateNetwork { name: place.name("x"), external: Some(true), ..CreateNetwork::default() };
    assert_eq!(kind(place.demo.create_network(&external).await), ErrorKind::Forbidden);
    assert_eq!(kind(place.demo.create_flavor(&place.name("f"), 1, 512, 1).await), ErrorKind::Forbidden);
    let public = serde_json::json!({"name": place.name("i"), "visibility": "public"});
    assert_eq!(kind(place.demo.create_image(&public).await), ErrorKind::Forbidden);
    let project = place.demo.project_id().await.unwrap();
    assert_eq!(kind(place.demo.set_network_quota(&project, "port", 1).await), ErrorKind::Forbidden);
    assert_eq!(kind(place.demo.set_compute_quota(&project, "instances", 1).await), ErrorKind::Forbidden);
}
