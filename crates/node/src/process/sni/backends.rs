//! From a reference to a Service and its port to the pods behind them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use kube::ResourceExt as _;

use super::super::Node;
use super::super::proxy::Pool;
use super::super::services::pool;
use super::condition::Condition;
use super::hosts::Split;
use super::objects::{BackendRef, Route};

/// Services and pods as they are in one pass.
pub(super) struct Backends<'a> {
    pub node: &'a Node,
    pub services: &'a [Arc<Service>],
    pub pods: &'a [Arc<Pod>],
}

/// A port of a Service, by number or by name.
pub(super) enum Port<'a> {
    Number(i32),
    Name(&'a str),
}

/// Finds the pods behind a port of a Service, or says what is missing.
pub(super) trait Find: Sync {
    fn find(&self, namespace: &str, name: &str, port: &Port<'_>) -> Result<Pool, String>;
}

impl Find for Backends<'_> {
    fn find(&self, namespace: &str, name: &str, port: &Port<'_>) -> Result<Pool, String> {
        let is_it = |service: &&Arc<Service>| {
            service.metadata.name.as_deref() == Some(name) && service.namespace().as_deref() == Some(namespace)
        };
        let service =
            self.services.iter().find(is_it).ok_or_else(|| format!("there is no Service {namespace}/{name}"))?;
        let port = port_of(service, port)?;
        Ok(pool(self.node, service, port, self.pods))
    }
}

fn port_of<'a>(service: &'a Service, port: &Port<'_>) -> Result<&'a ServicePort, String> {
    let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
    let spec = service.spec.as_ref();
    if spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName") {
        return Err(format!("Service {namespace}/{name} is of type ExternalName and has no pods"));
    }
    let is_it = |known: &&ServicePort| match port {
        Port::Number(number) => known.port == *number,
        Port::Name(name) => known.name.as_deref() == Some(*name),
    };
    let wanted = || match port {
        Port::Number(number) => number.to_string(),
        Port::Name(name) => (*name).to_owned(),
    };
    let mut ports = spec.into_iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.find(is_it).ok_or_else(|| format!("Service {namespace}/{name} has no port {}", wanted()))
}

/// The backends of a route with their weights; a reference that leads nowhere keeps its weight and is said.
pub(super) fn split(find: &dyn Find, route: &Route) -> (Split, Condition) {
    let mut condition = Condition::met("ResolvedRefs", "all backends were found");
    let mut shares = vec![];
    // A connection has nothing but its name to be told apart by, so of several rules the first counts.
    for reference in route.spec.rules.first().into_iter().flat_map(|rule| &rule.backend_refs) {
        let found = resolve(find, route, reference);
        shares.push((reference.weight.unwrap_or(1), found.as_ref().cloned().unwrap_or_default()));
        if let Err(refusal) = found {
            condition = refusal;
        }
    }
    if shares.is_empty() {
        condition =
            Condition::unmet("BackendNotFound", "the route has no backend: add one to spec.rules[0].backendRefs");
    }
    (Split::new(shares), condition)
}

fn resolve(find: &dyn Find, route: &Route, reference: &BackendRef) -> Result<Pool, Condition> {
    let (group, kind) = (reference.group.as_deref().unwrap_or(""), reference.kind.as_deref().unwrap_or("Service"));
    if !group.is_empty() || kind != "Service" {
        return Err(Condition::unmet(
            "InvalidKind",
            &format!("backend {} is a {kind}: only Services are supported", reference.name),
        ));
    }
    let namespace = reference.namespace.as_deref().unwrap_or(&route.namespace);
    if namespace != route.namespace {
        let note = format!(
            "Service {namespace}/{} is in another namespace, and ReferenceGrants are not supported: \
             move the route to namespace {namespace}",
            reference.name
        );
        return Err(Condition::unmet("RefNotPermitted", &note));
    }
    let Some(port) = reference.port else {
        return Err(Condition::unmet("BackendNotFound", &format!("backend {} has no port", reference.name)));
    };
    find.find(namespace, &reference.name, &Port::Number(port))
        .map_err(|note| Condition::unmet("BackendNotFound", &note))
}
