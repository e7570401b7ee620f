//! Quotas, as a plain tenant sees them.

use hangar_openstack::*;

use crate::place::Place;

#[tokio::test]
async fn a_tenant_is_told_what_its_project_may_have_and_has() {
    let place = Place::find().await;
    let project = place.demo.project_id().await.unwrap();
    let networks = async || place.demo.network_usage(&project).await.unwrap()["network"];
    let before = networks().await;
    place.admin.set_network_quota(&project, "network", before.used + 1).await.unwrap();
    let network = CreateNetwork { name: place.name("counted"), ..CreateNetwork::default() };
    let network = place.demo.create_network(&network).await.unwrap();
    let after = networks().await;
    assert_eq!((after.limit, after.used), (before.used + 1, before.used + 1));
    let another = CreateNetwork { name: place.name("too-many"), ..CreateNetwork::default() };
    let refused = place.demo.create_network(&another).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Quota, "{refused}");
    place.demo.delete_network(&network.id).await.unwrap();
    place.admin.set_network_quota(&project, "network", -1).await.unwrap();
    assert_eq!(networks().await.limit, -1);
    for name in ["subnet", "router", "port", "floatingip", "security_group", "security_group_rule"] {
        assert!(place.demo.network_usage(&project).await.unwrap().contains_key(name), "{name}");
    }

    place.admin.set_compute_quota(&project, "instances", 7).await.unwrap();
    let told = place.demo.compute_limits().await.unwrap();
    assert_eq!(told["maxTotalInstances"], 7);
    for name in ["totalInstancesUsed", "maxTotalCores", "totalCoresUsed", "maxTotalRAMSize", "totalRAMUsed"] {
        assert!(told[name].is_i64(), "{name}: {told}");
    }
    place.admin.set_compute_quota(&project, "instances", -1).await.unwrap();
    assert_eq!(place.demo.compute_limits().await.unwrap()["maxTotalInstances"], -1);

    let told = place.demo.volume_limits().await.unwrap();
    for name in ["maxTotalVolumes", "totalVolumesUsed", "maxTotalVolumeGigabytes", "totalGigabytesUsed"] {
        assert!(told[name].is_i64(), "{name}: {told}");
    }
    // Both have none, or have one: what matters is that a plain tenant may ask.
    let limit = place.demo.load_balancer_limit(&project).await.unwrap();
    assert!(limit.is_none_or(|limit| limit > 0), "{limit:?}");
}
