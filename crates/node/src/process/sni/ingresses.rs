//! Ingresses whose TLS is passed through: their hosts become names of one listener, which all of them share.
//!
//! Holds: pure; what cannot be served that way is refused with a word on how it could.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::{Ingress, IngressBackend, IngressClass};
use kube::ResourceExt as _;

use super::super::proxy::Pool;
use super::CONTROLLER;
use super::backends::{Find, Port};
use super::hosts::{Host, Split, Table};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// How the usual controllers are told to pass TLS through.
const PASSTHROUGH: [&str; 4] = [
    "nginx.ingress.kubernetes.io/ssl-passthrough",
    "haproxy.org/ssl-passthrough",
    "haproxy-ingress.github.io/ssl-passthrough",
    "ingress.kubernetes.io/ssl-passthrough",
];

/// What becomes of an Ingress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// With what is still wrong, if anything is.
    OptionalWatch(Option<(&'static str, String)>),
    Refused(&'static str, String),
    /// Another controller's.
    Foreign,
}

/// The names of all Ingresses, the oldest first, and what is said of each.
pub(super) fn table(
    ingresses: &[Arc<Ingress>],
    classes: &[Arc<IngressClass>],
    find: &dyn Find,
) -> (Table, Vec<(Arc<Ingress>, Verdict)>) {
    let mut table = Table::default();
    let mut order: Vec<&Arc<Ingress>> = ingresses.iter().collect();
    order.sort_by_key(|ingress| {
        (ingress.metadata.creation_timestamp.as_ref().map(|time| time.0), ingress.namespace(), ingress.name_any())
    });
    let verdicts = order.into_iter().map(|ingress| (ingress.clone(), add(ingress, classes, find, &mut table)));
    let verdicts = verdicts.collect();
    (table, verdicts)
}

fn add(ingress: &Ingress, classes: &[Arc<IngressClass>], find: &dyn Find, table: &mut Table) -> Verdict {
    if ingress.metadata.deletion_timestamp.is_some() {
        return Verdict::Foreign;
    }
    let spec = ingress.spec.clone().unwrap_or_default();
    let annotated = || ingress.annotations().get(CLASS_ANNOTATION).cloned();
    let Some(class) = spec.ingress_class_name.clone().or_else(annotated) else { return Verdict::Foreign };
    match classes.iter().find(|known| known.name_any() == class) {
        Some(known) if known.spec.as_ref().and_then(|spec| spec.controller.as_deref()) == Some(CONTROLLER) => {}
        Some(_) => return Verdict::Foreign,
        None => {
            let note = format!("there is no IngressClass {class}: remove ingressClassName, or use {}", super::CLASS);
            return Verdict::Refused("UnknownIngressClass", note);
        }
    }
    if !passes_through(ingress) {
        let note = format!(
            "TLS termination is not supported: annotate the Ingress with {}: \"true\", or use a Service of type LoadBalancer",
            PASSTHROUGH[0]
        );
        return Verdict::Refused("TLSPassthroughOnly", note);
    }
    let mut wrong = None;
    for (host, backend) in backends(&spec) {
        let found = match backend {
            Ok(backend) => pool(ingress, backend, find).map_err(|note| ("BackendNotFound", note)),
            Err(note) => Err(("PathIgnored", note)),
        };
        match found {
            Ok(pool) => table.add(Host::of_ingress(&host), Split::new(vec![(1, pool)])),
            Err(trouble) => wrong = Some(trouble),
        }
    }
    Verdict::OptionalWatch(wrong)
}

fn passes_through(ingress: &Ingress) -> bool {
    PASSTHROUGH.iter().any(|key| ingress.annotations().get(*key).is_some_and(|value| value == "true"))
}

/// One backend for each host: paths cannot be seen in what is passed through, so `/` counts, or the only one there is.
fn backends(spec: &k8s_openapi::api::networking::v1::IngressSpec) -> BTreeMap<String, Result<&IngressBackend, String>> {
    let mut all = BTreeMap::new();
    if let Some(backend) = &spec.default_backend {
        all.insert(String::new(), Ok(backend));
    }
    for rule in spec.rules.iter().flatten() {
        let host = rule.host.clone().unwrap_or_default();
        let paths = rule.http.as_ref().map(|http| http.paths.as_slice()).unwrap_or_default();
        let root = paths.iter().find(|path| matches!(path.path.as_deref().unwrap_or("/"), "/" | ""));
        let note = || {
            format!(
                "host {host} has several paths and none of them is /: paths cannot be matched with TLS passthrough, add the path /"
            )
        };
        match (root, paths) {
            (Some(path), _) | (None, [path]) => all.insert(host, Ok(&path.backend)),
            (None, []) => spec.default_backend.as_ref().and_then(|backend| all.insert(host, Ok(backend))),
            (None, _) => all.insert(host.clone(), Err(note())),
        };
    }
    all
}

fn pool(ingress: &Ingress, backend: &IngressBackend, find: &dyn Find) -> Result<Pool, String> {
    let service = backend.service.as_ref().ok_or("a backend is not a Service: only Services are supported")?;
    let port = service.port.as_ref();
    let number = port.and_then(|port| port.number).map(Port::Number);
    let port = number.or_else(|| port?.name.as_deref().map(Port::Name));
    let port = port.ok_or_else(|| format!("backend {} has no port", service.name))?;
    find.find(&ingress.namespace().unwrap_or_default(), &service.name, &port)
}
