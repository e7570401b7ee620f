//! How each sort of resource is listed, and what is asked when a list leaves doubt.
//!
//! Holds: a sort that nobody in a project needs is never asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use hangar_openstack::{
    Cloud, Error, FloatingIp, FloatingIpQuery, Member, Network, NetworkQuery, Pool, Port, PortQuery, Router,
    RouterQuery, SecurityGroup, SecurityGroupQuery, Server, ServerQuery, Subnet, SubnetQuery, Trunk, TrunkQuery,
    Volume,
};
use hangar_planner::cloud::{LoadBalancerTree, Owned, Resource, has_twins, server};
use tokio::sync::Mutex;

use super::Project;
use super::list::List;

/// Resources of one owner, by id.
pub type OfOwner<T> = BTreeMap<String, Arc<T>>;

/// One sort of resource in a project.
pub trait Sort: Owned + Into<Resource> + Send + Sync + Sized + 'static {
    /// What this process made a moment ago needs no list; others must see what happened to it since.
    const NEW_NEEDS_NO_LIST: bool = true;

    fn list_of(project: &Project) -> &Mutex<List<Self>>;

    /// All of the project's.
    fn read(cloud: &Cloud, project: &Project) -> impl Future<Output = Result<Vec<Self>, Error>> + Send;

    /// Made a moment ago, and not in the list: whether that may mean that it is gone.
    fn is_unsure(&self, _of_owner: &OfOwner<Self>) -> bool {
        false
    }

    /// Asked about those of which we are not sure.
    fn show(&self, _cloud: &Cloud) -> impl Future<Output = Result<Option<Self>, Error>> + Send {
        async { Ok(None) }
    }
}

/// Nothing if there is none.
fn found<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

impl Sort for Server {
    fn list_of(project: &Project) -> &Mutex<List<Self>> {
        &project.servers
    }
    async fn read(cloud: &Cloud, _project: &Project) -> Result<Vec<Self>, Error> {
        let mut servers = cloud.servers(&ServerQuery::default()).await?;
        servers.retain(|it| !server::is_gone(it));
        Ok(servers)
    }
    /// Told to go or one of two. Nova knows, and of two its clock says which one is older: by clocks of their own two processes would each delete
    /// what the other has made.
    fn is_unsure(&self, of_owner: &OfOwner<Self>) -> bool {
        server::is_deleting(self) || has_twins(of_owner)
    }
    async fn show(&self, cloud: &Cloud) -> Result<Option<Self>, Error> {
        Ok(found(cloud.server(&self.id).await)?.filter(|it| !server::is_gone(it)))
    }
}

impl Sort for Volume {
    fn list_of(project: &Project) -> &Mutex<List<Self>> {
        &project.volumes
    }
    async fn read(cloud: &Cloud, _project: &Project) -> Result<Vec<Self>, Error> {
        cloud.volumes(None).await
    }
    fn is_unsure(&self, of_owner: &OfOwner<Self>) -> bool {
        self.status == "deleting" || has_twins(of_owner)
    }
    async fn show(&self, cloud: &Cloud) -> Result<Option<Self>, Error> {
        found(cloud.volume(&self.id).await)
    }
}

impl Sort for LoadBalancerTree {
    fn list_of(project: &Project) -> &Mutex<List<Self>> {
        &project.load_balancers
    }
    async fn read(cloud: &Cloud, project: &Project) -> Result<Vec<Self>, Error> {
        let all = cloud.load_balancers(None).await?.into_iter().filter(|balancer| balancer.project_id == *project.id());
        let all = all.map(|balancer| Self { balancer, ..Self::default() });
        // Others' are not our business.
        let mut ours: Vec<Self> = all.filter(|tree| tree.owner_key().is_some()).collect();
        let is_settled = |tree: &Self| !tree.balancer.provisioning_status.starts_with("PENDING");
        if !ours.iter().any(is_settled) {
            return Ok(ours);
        }
        let (listeners, pools, monitors) =
            (cloud.listeners(None).await?, cloud.pools(None).await?, cloud.health_monitors(None).await?);
        for tree in ours.iter_mut().filter(|tree| is_settled(tree)) {
            let is_below = |references: &[hangar_openstack::Reference]| {
                references.iter().any(|reference| reference.id == tree.balancer.id)
            };
            tree.listeners = listeners.iter().filter(|it| is_below(&it.loadbalancers)).cloned().collect();
            tree.pools = pools.iter().filter(|it| is_below(&it.loadbalancers)).cloned().collect();
            let ids: Vec<&str> = tree.pools.iter().map(|pool| pool.id.as_str()).collect();
            let is_of_pool =
                |it: &&hangar_openstack::HealthMonitor| it.pools.iter().any(|pool| ids.contains(&pool.id.as_str()));
            tree.monitors = monitors.iter().filter(is_of_pool).cloned().collect();
            for pool in &tree.pools {
                tree.members.insert(pool.id.clone(), members(cloud, project, pool).await?);
            }
            tree.no_monitors = project.no_monitors.lock().await.contains(&tree.balancer.id);
        }
        Ok(ours)
    }
    fn is_unsure(&self, of_owner: &OfOwner<Self>) -> bool {
        self.balancer.provisioning_status == "PENDING_DELETE" || has_twins(of_owner)
    }
    async fn show(&self, cloud: &Cloud) -> Result<Option<Self>, Error> {
        let balancer = found(cloud.load_balancer(&self.balancer.id).await)?;
        // Some releases show for a while what is gone.
        let balancer = balancer.filter(|balancer| balancer.provisioning_status != "DELETED");
        Ok(balancer.map(|balancer| Self { balancer, ..self.clone() }))
    }
}

/// An address of a member never changes: they are asked for only if a pool has others than before.
async fn members(cloud: &Cloud, project: &Project, pool: &Pool) -> Result<Vec<Member>, Error> {
    if pool.members.is_empty() {
        return Ok(vec![]);
    }
    let ids =
        |members: &[Member]| members.iter().map(|member| member.id.clone()).collect::<std::collections::BTreeSet<_>>();
    let wanted = pool.members.iter().map(|member| member.id.clone()).collect();
    let known = project.members.lock().await.get(&pool.id).cloned();
    if let Some(known) = known.filter(|known| ids(known) == wanted) {
        return Ok(known);
    }
    let read = cloud.members(&pool.id, None).await?;
    project.members.lock().await.insert(pool.id.clone(), read.clone());
    Ok(read)
}

/// The sorts of Neutron, which all have a query with the project.
macro_rules! of_neutron {
    ($($type:ty, $list:ident, $query:ident, $new_needs_no_list:expr;)*) => {
        $(impl Sort for $type {
            const NEW_NEEDS_NO_LIST: bool = $new_needs_no_list;
            fn list_of(project: &Project) -> &Mutex<List<Self>> {
                &project.$list
            }
            async fn read(cloud: &Cloud, project: &Project) -> Result<Vec<Self>, Error> {
                cloud.$list(&$query { project_id: Some(project.id().to_owned()), ..$query::default() }).await
            }
        })*
    };
}

of_neutron! {
    // Nova takes and unbinds them meanwhile.
    Port, ports, PortQuery, false;
    SecurityGroup, security_groups, SecurityGroupQuery, true;
    Network, networks, NetworkQuery, true;
    Subnet, subnets, SubnetQuery, true;
    Router, routers, RouterQuery, true;
    FloatingIp, floating_ips, FloatingIpQuery, true;
}

impl Sort for Trunk {
    fn list_of(project: &Project) -> &Mutex<List<Self>> {
        &project.trunks
    }
    /// Clouds without the extension have none.
    async fn read(cloud: &Cloud, project: &Project) -> Result<Vec<Self>, Error> {
        let query = TrunkQuery { project_id: Some(project.id().to_owned()), ..TrunkQuery::default() };
        Ok(found(cloud.trunks(&query).await)?.unwrap_or_default())
    }
}
