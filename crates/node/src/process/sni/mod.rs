//! Control planes by name: TLSRoutes of the Gateway API, and Ingresses whose TLS is passed through.
//!
//! Flows: GatewayClasses, Gateways, TLSRoutes, Ingresses, Services and pods -> tables of server names (`attach`, `ingresses`) -> listeners, the same
//! as for Services ([`super::proxy`]) -> statuses. Holds: a Gateway has an address of its own, all Ingresses have one together, and both survive a
//! restart; nothing is terminated; a status is written only if it says something new.

mod attach;
mod backends;
mod condition;
mod definitions;
mod hosts;
mod ingresses;
mod objects;
mod optional_watch;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::Node;
use super::balancer_addresses::{Choice, Owners};
use super::listeners::Listeners;
use super::proxy::{Rules, Way};
use attach::{Attached, World, attach};
use backends::Backends;
pub use definitions::install_gateway_api;
pub(super) use hosts::Table;
use ingresses::Verdict;
pub(super) use objects::GROUP as GATEWAY_API;
use objects::{Class, Gateway, Route, Seen};
use optional_watch::OptionalWatch;
use status::Facts;

/// What classes name that are served here.
const CONTROLLER: &str = "hangar.dev/sni";
/// The GatewayClass and the IngressClass that are there from the start.
const CLASS: &str = "hangar";
/// The first one is every client's default, the second one needs no privilege.
const INGRESS_PORTS: [u16; 2] = [443, 8443];

struct Sni {
    node: Arc<Node>,
    classes: OptionalWatch,
    gateways: OptionalWatch,
    routes: OptionalWatch,
    listeners: Listeners,
    /// Events that were written, by the object's uid.
    condition: HashSet<(String, String)>,
    /// Whether our GatewayClass was written since the definitions are there.
    has_class: bool,
}

pub(super) async fn run(node: Arc<Node>) {
    if let Err(error) = definitions::ingress_class(&node.client).await {
        tracing::warn!(%error, "the IngressClass {CLASS} could not be written");
    }
    let watch = |kind, plural, versions| OptionalWatch::start(node.client.clone(), kind, plural, versions);
    let mut sni = Sni {
        classes: watch("GatewayClass", "gatewayclasses", &["v1", "v1beta1"]),
        gateways: watch("Gateway", "gateways", &["v1", "v1beta1"]),
        routes: watch("TLSRoute", "tlsroutes", &["v1", "v1alpha3", "v1alpha2"]),
        node: node.clone(),
        listeners: Listeners::default(),
        condition: HashSet::new(),
        has_class: false,
    };
    let watched = &node.watched;
    let (mut classes, mut gateways, mut routes) = (sni.classes.changes(), sni.gateways.changes(), sni.routes.changes());
    let (mut services, mut pods, mut namespaces) =
        (watched.services.changes(), watched.pods.changes(), watched.namespaces.changes());
    let (mut ingresses, mut ingress_classes) = (watched.ingresses.changes(), watched.ingress_classes.changes());
    loop {
        sni.pass().await;
        let went_on = tokio::select! {
            changed = classes.changed() => changed.is_ok(),
            changed = gateways.changed() => changed.is_ok(),
            changed = routes.changed() => changed.is_ok(),
            changed = services.changed() => changed.is_ok(),
            changed = pods.changed() => changed.is_ok(),
            changed = namespaces.changed() => changed.is_ok(),
            changed = ingresses.changed() => changed.is_ok(),
            changed = ingress_classes.changed() => changed.is_ok(),
            () = sni.listeners.again() => true,
        };
        if !went_on {
            return;
        }
    }
}

/// Addresses of Gateways, and what is to be said about them, all by uid.
#[derive(Default)]
struct Addresses {
    given: HashMap<String, Ipv4Addr>,
    /// Why there is none, or not the one asked for.
    complaints: HashMap<String, String>,
    /// What was done to the machine.
    added: HashMap<String, String>,
}

impl Sni {
    /// Our GatewayClass comes with the definitions, whoever installed them.
    async fn ensure_class(&mut self) {
        let resource = self.classes.resource();
        if let Some(resource) = resource.as_ref().filter(|_| !self.has_class)
            && let Err(error) = definitions::gateway_class(&self.node.client, resource).await
        {
            tracing::warn!(%error, "the GatewayClass {CLASS} could not be written");
        }
        self.has_class = resource.is_some();
    }

    async fn pass(&mut self) {
        self.ensure_class().await;
        let node = self.node.clone();
        let watched = &node.watched;
        let (services, pods) = (watched.services.all(), watched.pods.all());
        let find = Backends { node: &node, services: &services, pods: &pods };
        let (classes, gateways, routes) = self.gateway_api();
        let addresses = self.addresses(&gateways);
        let namespaces = watched.namespaces.all();
        let namespaces =
            namespaces.iter().map(|namespace| (namespace.name_any(), namespace.labels().clone())).collect();
        let world = World {
            gateways: &gateways,
            routes: &routes,
            addresses: &addresses.given,
            namespaces: &namespaces,
            find: &find,
        };
        let attached = attach(&world);
        let (table, verdicts) = ingresses::table(&watched.ingresses.all(), &watched.ingress_classes.all(), &find);

        let named = |table: &Table| Rules { way: Way::ByName(table.clone()), sources: vec![] };
        let mut wanted: BTreeMap<SocketAddr, Rules> =
            attached.tables.iter().map(|(address, table)| (*address, named(table))).collect();
        if verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::OptionalWatch(_))) {
            let address = node.balancers.of_ingresses();
            wanted.extend(INGRESS_PORTS.map(|port| ((address, port).into(), named(&table))));
        }
        self.listeners.follow(wanted).await;
        self.tell_gateways(&classes, &gateways, &addresses, &attached).await;
        self.tell_routes(&routes, &attached).await;
        self.tell_ingresses(&verdicts).await;
    }

    /// Classes and Gateways of ours, and all routes. Nothing before everything was listed once: a Gateway whose routes are not known yet
    /// would be told that it has none, and a route that its Gateway is gone.
    fn gateway_api(&self) -> (Vec<Class>, Vec<Gateway>, Vec<Route>) {
        if !self.is_listed() {
            return Default::default();
        }
        let mut classes: Vec<Class> = read(&self.classes);
        classes.retain(|class| class.spec.controller_name == CONTROLLER);
        let mut gateways: Vec<Gateway> = read(&self.gateways);
        gateways.retain(|gateway| classes.iter().any(|class| class.name == gateway.spec.gateway_class_name));
        (classes, gateways, read(&self.routes))
    }

    fn is_listed(&self) -> bool {
        [&self.classes, &self.gateways, &self.routes].into_iter().all(OptionalWatch::is_listed)
    }

    fn addresses(&self, gateways: &[Gateway]) -> Addresses {
        let balancers = &self.node.balancers;
        // Before the first lists nothing is known of Gateways, and nothing may be taken back from them.
        if self.is_listed() {
            balancers.retain(Owners::Gateways, |uid| gateways.iter().any(|gateway| gateway.uid == uid));
        }
        for gateway in gateways {
            let standing = gateway.status["addresses"][0]["value"].as_str().and_then(|text| text.parse().ok());
            if let Some(address) = standing.filter(Ipv4Addr::is_loopback) {
                balancers.keep(Owners::Gateways, &gateway.uid, address);
            }
        }
        let mut found = Addresses::default();
        for gateway in gateways {
            let asked = gateway.spec.addresses.iter().find(|address| !address.value.is_empty());
            let choice = match asked.map(|asked| (asked.kind.as_deref(), asked.value.as_str())) {
                Some((None | Some("IPAddress"), value)) => balancers.choose(Owners::Gateways, &gateway.uid, value),
                Some((Some(kind), _)) => {
                    let note = format!("addresses of type {kind} cannot be had: ask for an IPAddress, or for none");
                    Choice { complaint: Some(note), ..Choice::default() }
                }
                None => balancers.choose(Owners::Gateways, &gateway.uid, ""),
            };
            let uid = || gateway.uid.clone();
            choice.address.map(|address| found.given.insert(uid(), address));
            choice.complaint.map(|complaint| found.complaints.insert(uid(), complaint));
            choice.added.map(|added| found.added.insert(uid(), added));
        }
        found
    }

    async fn tell_gateways(&self, classes: &[Class], gateways: &[Gateway], addresses: &Addresses, attached: &Attached) {
        let now = now();
        for class in classes {
            write(&self.node.client, &self.classes, class, status::of_class(class, &now)).await;
        }
        for gateway in gateways {
            if let Some((note, resource)) = addresses.added.get(&gateway.uid).zip(self.gateways.resource()) {
                self.node.events.normal_on(gateway.reference(&resource), "AddressAdded", note).await;
            }
            let address = addresses.given.get(&gateway.uid).copied();
            let complaint = addresses.complaints.get(&gateway.uid).cloned();
            let status = status::of_gateway(gateway, &self.facts(gateway, address, complaint, attached), &now);
            write(&self.node.client, &self.gateways, gateway, status).await;
        }
    }

    fn facts(
        &self,
        gateway: &Gateway,
        address: Option<Ipv4Addr>,
        complaint: Option<String>,
        attached: &Attached,
    ) -> Facts {
        let (mut refused, mut routes) = (HashMap::new(), HashMap::new());
        for listener in &gateway.spec.listeners {
            let there = address.map(|address| (address, listener.port).into());
            if let Some(why) = there.and_then(|there| self.listeners.refusal(&there)) {
                refused.insert(listener.port, why.to_owned());
            }
            let count = attached.counts.get(&(gateway.uid.clone(), listener.name.clone()));
            routes.insert(listener.name.clone(), count.copied().unwrap_or_default());
        }
        Facts { address, complaint, refused, routes }
    }

    async fn tell_routes(&self, routes: &[Route], attached: &Attached) {
        let now = now();
        for (route, verdicts) in routes.iter().zip(&attached.verdicts) {
            if let Some(status) = status::of_route(route, verdicts, &now) {
                write(&self.node.client, &self.routes, route, status).await;
            }
        }
    }

    async fn tell_ingresses(&mut self, verdicts: &[(Arc<Ingress>, Verdict)]) {
        let node = self.node.clone();
        let address = node.balancers.of_ingresses();
        for (ingress, verdict) in verdicts {
            let trouble = match verdict {
                Verdict::OptionalWatch(trouble) => trouble.clone(),
                Verdict::Refused(reason, note) => Some((*reason, note.clone())),
                Verdict::Foreign => continue,
            };
            let uid = ingress.uid().unwrap_or_default();
            if let Some((reason, note)) = trouble
                && self.condition.insert((uid, note.clone()))
            {
                node.events.warning(&**ingress, reason, &note).await;
            }
            let ports = INGRESS_PORTS.map(|port| {
                let mut told = json!({"port": port, "protocol": "TCP"});
                if self.listeners.refusal(&(address, port).into()).is_some() {
                    told["error"] = json!("PortUnavailable");
                }
                told
            });
            let wanted = match verdict {
                Verdict::OptionalWatch(_) => json!([{"ip": address.to_string(), "ports": ports}]),
                _ => Value::Null,
            };
            let standing = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
            if serde_json::to_value(standing).is_ok_and(|standing| standing != wanted) {
                let api: Api<Ingress> = Api::namespaced(node.client.clone(), &ingress.namespace().unwrap_or_default());
                let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": wanted}}}));
                if let Err(error) = api.patch_status(&ingress.name_any(), &PatchParams::default(), &patch).await {
                    tracing::warn!(ingress = %ingress.name_any(), %error, "the address could not be written");
                }
            }
        }
        self.condition.retain(|(uid, _)| verdicts.iter().any(|(ingress, _)| ingress.uid().as_ref() == Some(uid)));
    }
}

fn read<S: serde::de::DeserializeOwned>(served: &OptionalWatch) -> Vec<Seen<S>> {
    served.all().iter().filter_map(|object| Seen::read(object)).collect()
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes a status that says something new.
async fn write<S>(client: &Client, served: &OptionalWatch, object: &Seen<S>, status: Value) {
    let Some(resource) = served.resource().filter(|_| !says(&object.status, &status)) else { return };
    let api: Api<DynamicObject> = match object.namespace.as_str() {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let patch = Patch::Merge(json!({"metadata": {"uid": object.uid}, "status": status}));
    match api.patch_status(&object.name, &PatchParams::default(), &patch).await {
        Ok(_) => {}
        // Gone, or another object of the same name.
        Err(kube::Error::Api(error)) if error.code == 404 || error.code == 409 => {}
        Err(error) => {
            tracing::warn!(kind = resource.kind, name = object.name, %error, "the could not write the pod status")
        }
    }
}

/// Whether everything that is to be said is said already; the published definitions fill in more.
fn says(standing: &Value, wanted: &Value) -> bool {
    match (standing, wanted) {
        (Value::Object(standing), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| standing.get(key).is_some_and(|known| says(known, value)))
        }
        (Value::Array(standing), Value::Array(wanted)) => {
            standing.len() == wanted.len() && standing.iter().zip(wanted).all(|(known, value)| says(known, value))
        }
        _ => standing == wanted,
    }
}
