//! Octavia's calls. Every change leaves the load balancer in `PENDING_*`; the next one is refused with a conflict until
//! that is over.

use http::Method;
use serde_json::{Value, json};

use crate::cloud::Extra;
use crate::query::{Pairs, escape};
use crate::wire::{
    CreateHealthMonitor, CreateListener, CreateLoadBalancer, CreateMember, CreatePool, HealthMonitor, Listener,
    LoadBalancer, LoadBalancerFlavor, Member, Pool, Provider,
};
use crate::{Cloud, Error, Service};

const OCTAVIA: Service = Service::Octavia;

fn named(name: Option<&str>) -> Pairs {
    name.map(|name| ("name", name.to_owned())).into_iter().collect()
}

impl Cloud {
    pub async fn load_balancers(&self, name: Option<&str>) -> Result<Vec<LoadBalancer>, Error> {
        self.list(OCTAVIA, "/lbaas/loadbalancers", "loadbalancers", &named(name)).await
    }

    /// Whether this cloud has Octavia at all.
    pub async fn has_load_balancers(&self) -> Result<bool, Error> {
        self.has(OCTAVIA).await
    }

    pub async fn load_balancer(&self, id: &str) -> Result<LoadBalancer, Error> {
        self.show(OCTAVIA, &format!("/lbaas/loadbalancers/{}", escape(id)), "loadbalancer").await
    }

    pub async fn create_load_balancer(&self, body: &CreateLoadBalancer) -> Result<LoadBalancer, Error> {
        self.create(OCTAVIA, "/lbaas/loadbalancers", "loadbalancer", body).await
    }

    /// With `cascade` everything below goes too; without it, it must be gone already.
    pub async fn delete_load_balancer(&self, id: &str, cascade: bool) -> Result<(), Error> {
        let path = format!("/lbaas/loadbalancers/{}", escape(id));
        let query = if cascade { "cascade=true" } else { "" };
        self.tell(OCTAVIA, Method::DELETE, &path, Extra { query, ..Extra::default() }).await
    }

    pub async fn load_balancer_providers(&self) -> Result<Vec<Provider>, Error> {
        self.list(OCTAVIA, "/lbaas/providers", "providers", &vec![]).await
    }

    pub async fn load_balancer_flavors(&self) -> Result<Vec<LoadBalancerFlavor>, Error> {
        self.list(OCTAVIA, "/lbaas/flavors", "flavors", &vec![]).await
    }

    /// How many the project may have; nothing if there is no limit.
    pub async fn load_balancer_limit(&self, project: &str) -> Result<Option<u64>, Error> {
        let quota: Value = self.show(OCTAVIA, &format!("/lbaas/quotas/{}", escape(project)), "quota").await?;
        // The second name is that of older releases.
        let limit = ["loadbalancer", "load_balancer"].into_iter().find_map(|name| quota[name].as_i64());
        Ok(limit.and_then(|limit| u64::try_from(limit).ok()))
    }

    pub async fn listeners(&self, name: Option<&str>) -> Result<Vec<Listener>, Error> {
        self.list(OCTAVIA, "/lbaas/listeners", "listeners", &named(name)).await
    }

    pub async fn create_listener(&self, body: &CreateListener) -> Result<Listener, Error> {
        self.create(OCTAVIA, "/lbaas/listeners", "listener", body).await
    }

    /// Only what is in `changes`, such as `{"allowed_cidrs": [...]}`.
    pub async fn update_listener(&self, id: &str, changes: &Value) -> Result<Listener, Error> {
        self.update(OCTAVIA, &format!("/lbaas/listeners/{}", escape(id)), "listener", changes, None).await
    }

    pub async fn set_allowed_cidrs(&self, listener: &str, cidrs: &[String]) -> Result<Listener, Error> {
        let path = format!("/lbaas/listeners/{}", escape(listener));
        self.update(OCTAVIA, &path, "listener", &json!({"allowed_cidrs": cidrs}), None).await
    }

    pub async fn delete_listener(&self, id: &str) -> Result<(), Error> {
        self.delete(OCTAVIA, &format!("/lbaas/listeners/{}", escape(id))).await
    }

    pub async fn pools(&self, name: Option<&str>) -> Result<Vec<Pool>, Error> {
        self.list(OCTAVIA, "/lbaas/pools", "pools", &named(name)).await
    }

    pub async fn create_pool(&self, body: &CreatePool) -> Result<Pool, Error> {
        self.create(OCTAVIA, "/lbaas/pools", "pool", body).await
    }

    pub async fn delete_pool(&self, id: &str) -> Result<(), Error> {
        self.delete(OCTAVIA, &format!("/lbaas/pools/{}", escape(id))).await
    }

    pub async fn members(&self, pool: &str, name: Option<&str>) -> Result<Vec<Member>, Error> {
        self.list(OCTAVIA, &format!("/lbaas/pools/{}/members", escape(pool)), "members", &named(name)).await
    }

    pub async fn create_member(&self, pool: &str, body: &CreateMember) -> Result<Member, Error> {
        self.create(OCTAVIA, &format!("/lbaas/pools/{}/members", escape(pool)), "member", body).await
    }

    /// These and no others, in one request.
    pub async fn set_members(&self, pool: &str, members: &[CreateMember]) -> Result<(), Error> {
        let path = format!("/lbaas/pools/{}/members", escape(pool));
        let body = json!({"members": members});
        self.tell(OCTAVIA, Method::PUT, &path, Extra { body: Some(&body), ..Extra::default() }).await
    }

    pub async fn delete_member(&self, pool: &str, id: &str) -> Result<(), Error> {
        self.delete(OCTAVIA, &format!("/lbaas/pools/{}/members/{}", escape(pool), escape(id))).await
    }

    pub async fn health_monitors(&self, name: Option<&str>) -> Result<Vec<HealthMonitor>, Error> {
        self.list(OCTAVIA, "/lbaas/healthmonitors", "healthmonitors", &named(name)).await
    }

    pub async fn create_health_monitor(&self, body: &CreateHealthMonitor) -> Result<HealthMonitor, Error> {
        self.create(OCTAVIA, "/lbaas/healthmonitors", "healthmonitor", body).await
    }

    /// Only what is in `changes`, such as `{"delay": 10}`.
    pub async fn update_health_monitor(&self, id: &str, changes: &Value) -> Result<HealthMonitor, Error> {
        self.update(OCTAVIA, &format!("/lbaas/healthmonitors/{}", escape(id)), "healthmonitor", changes, None).await
    }

    pub async fn delete_health_monitor(&self, id: &str) -> Result<(), Error> {
        self.delete(OCTAVIA, &format!("/lbaas/healthmonitors/{}", escape(id))).await
    }
}
