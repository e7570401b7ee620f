//! Neutron's calls for routers, floating IPs and trunks.

use http::Method;
use serde_json::{Value, json};

use crate::cloud::Extra;
use crate::query::{FloatingIpQuery, RouterQuery, TrunkQuery, escape};
use crate::wire::{CreateFloatingIp, CreateRouter, CreateTrunk, FloatingIp, Router, RouterInterface, SubPort, Trunk};
use crate::{Cloud, Error, Service};

const NEUTRON: Service = Service::Neutron;

impl Cloud {
    pub async fn routers(&self, query: &RouterQuery) -> Result<Vec<Router>, Error> {
        self.list(NEUTRON, "/routers", "routers", &query.pairs()).await
    }

    pub async fn router(&self, id: &str) -> Result<Router, Error> {
        self.show(NEUTRON, &format!("/routers/{}", escape(id)), "router").await
    }

    pub async fn create_router(&self, body: &CreateRouter) -> Result<Router, Error> {
        self.create(NEUTRON, "/routers", "router", body).await
    }

    /// Only what is in `changes`; `{"external_gateway_info": {}}` takes the gateway away.
    pub async fn update_router(&self, id: &str, changes: &Value) -> Result<Router, Error> {
        self.update(NEUTRON, &format!("/routers/{}", escape(id)), "router", changes, None).await
    }

    pub async fn delete_router(&self, id: &str) -> Result<(), Error> {
        self.delete(NEUTRON, &format!("/routers/{}", escape(id))).await
    }

    pub async fn add_router_interface(&self, router: &str, subnet: &str) -> Result<RouterInterface, Error> {
        let path = format!("/routers/{}/add_router_interface", escape(router));
        self.put(NEUTRON, &path, &json!({"subnet_id": subnet})).await
    }

    pub async fn remove_router_interface(&self, router: &str, subnet: &str) -> Result<RouterInterface, Error> {
        let path = format!("/routers/{}/remove_router_interface", escape(router));
        self.put(NEUTRON, &path, &json!({"subnet_id": subnet})).await
    }

    /// A port of its own becomes the router's.
    pub async fn add_router_port(&self, router: &str, port: &str) -> Result<RouterInterface, Error> {
        let path = format!("/routers/{}/add_router_interface", escape(router));
        self.put(NEUTRON, &path, &json!({"port_id": port})).await
    }

    /// The port goes with it.
    pub async fn remove_router_port(&self, router: &str, port: &str) -> Result<(), Error> {
        let path = format!("/routers/{}/remove_router_interface", escape(router));
        self.put::<RouterInterface>(NEUTRON, &path, &json!({"port_id": port})).await.map(drop)
    }

    pub async fn floating_ips(&self, query: &FloatingIpQuery) -> Result<Vec<FloatingIp>, Error> {
        self.list(NEUTRON, "/floatingips", "floatingips", &query.pairs()).await
    }

    pub async fn floating_ip(&self, id: &str) -> Result<FloatingIp, Error> {
        self.show(NEUTRON, &format!("/floatingips/{}", escape(id)), "floatingip").await
    }

    pub async fn create_floating_ip(&self, body: &CreateFloatingIp) -> Result<FloatingIp, Error> {
        self.create(NEUTRON, "/floatingips", "floatingip", body).await
    }

    /// To a port, or off it; with `revision` only while nobody else changed it, otherwise it is a conflict.
    pub async fn bind_floating_ip(
        &self,
        id: &str,
        port: Option<&str>,
        revision: Option<u64>,
    ) -> Result<FloatingIp, Error> {
        let path = format!("/floatingips/{}", escape(id));
        self.update(NEUTRON, &path, "floatingip", &json!({"port_id": port}), revision).await
    }

    pub async fn delete_floating_ip(&self, id: &str) -> Result<(), Error> {
        self.delete(NEUTRON, &format!("/floatingips/{}", escape(id))).await
    }

    pub async fn trunks(&self, query: &TrunkQuery) -> Result<Vec<Trunk>, Error> {
        self.list(NEUTRON, "/trunks", "trunks", &query.pairs()).await
    }

    pub async fn create_trunk(&self, body: &CreateTrunk) -> Result<Trunk, Error> {
        self.create(NEUTRON, "/trunks", "trunk", body).await
    }

    pub async fn delete_trunk(&self, id: &str) -> Result<(), Error> {
        self.delete(NEUTRON, &format!("/trunks/{}", escape(id))).await
    }

    pub async fn add_sub_ports(&self, trunk: &str, ports: &[SubPort]) -> Result<Trunk, Error> {
        self.put(NEUTRON, &format!("/trunks/{}/add_subports", escape(trunk)), &json!({"sub_ports": ports})).await
    }

    pub async fn remove_sub_ports(&self, trunk: &str, ports: &[String]) -> Result<(), Error> {
        let path = format!("/trunks/{}/remove_subports", escape(trunk));
        let ports: Vec<Value> = ports.iter().map(|id| json!({"port_id": id})).collect();
        let body = json!({"sub_ports": ports});
        self.tell(NEUTRON, Method::PUT, &path, Extra { body: Some(&body), ..Extra::default() }).await
    }
}
