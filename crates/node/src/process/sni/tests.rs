//! Routes, Gateways and Ingresses in, tables and statuses out.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::proxy::Pool;
use super::attach::{Attached, World, attach};
use super::backends::{Find, Port};
use super::hosts::Table;
use super::ingresses::{self, Verdict};
use super::objects::{Gateway, Route, Seen};
use super::status::{self, Facts};
use super::{CONTROLLER, says};

/// Service `a` in namespace `n` with port 6443, and nothing else.
struct One;

fn backend() -> Pool {
    Pool::new(vec![([127, 0, 0, 9], 6443).into()], false)
}

impl Find for One {
    fn find(&self, namespace: &str, name: &str, port: &Port<'_>) -> Result<Pool, String> {
        let is_port = matches!(port, Port::Number(6443) | Port::Name("https"));
        if (namespace, name, is_port) == ("n", "a", true) { Ok(backend()) } else { Err(format!("there is no {name}")) }
    }
}

fn seen<S: serde::de::DeserializeOwned>(namespace: &str, name: &str, spec: Value) -> Seen<S> {
    let object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "X",
        "metadata": {"namespace": namespace, "name": name, "uid": name, "generation": 3}, "spec": spec,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    Seen::read(&object).unwrap()
}

fn listener(name: &str, hostname: &str, extra: Value) -> Value {
    let mut listener = json!({
        "name": name, "hostname": hostname, "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"},
    });
    for (key, value) in extra.as_object().unwrap() {
        listener[key] = value.clone();
    }
    listener
}

fn gateway(listeners: Value) -> Gateway {
    seen("n", "g", json!({"gatewayClassName": "hangar", "listeners": listeners}))
}

fn route(namespace: &str, hostnames: Value, parent: Value, backend: Value) -> Route {
    let mut reference = json!({"name": "g", "namespace": "n"});
    for (key, value) in parent.as_object().unwrap() {
        reference[key] = value.clone();
    }
    let rules = json!([{"backendRefs": [backend]}]);
    seen(namespace, "r", json!({"parentRefs": [reference], "hostnames": hostnames, "rules": rules}))
}

fn attached(gateway: &Gateway, routes: &[Route]) -> Attached {
    let labels = |value: &str| BTreeMap::from([("team".to_owned(), value.to_owned())]);
    let namespaces = HashMap::from([("n".to_owned(), labels("x")), ("m".to_owned(), labels("y"))]);
    let addresses = HashMap::from([("g".to_owned(), Ipv4Addr::new(127, 1, 64, 9))]);
    attach(&World {
        gateways: std::slice::from_ref(gateway),
        routes,
        addresses: &addresses,
        namespaces: &namespaces,
        find: &One,
    })
}

fn good_backend() -> Value {
    json!({"name": "a", "port": 6443})
}

#[test]
fn a_route_is_accepted_or_told_why_not() {
    let all = json!({"allowedRoutes": {"namespaces": {"from": "All"}}});
    let selected =
        json!({"allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "y"}}}}});
    let http = json!({"allowedRoutes": {"kinds": [{"kind": "HTTPRoute"}]}});
    let terminated = json!({"tls": {"mode": "Terminate"}});
    let rows = [
        ("n", "a.example.com", json!({}), json!({}), "Accepted"),
        ("n", "a.example.com", json!({"sectionName": "main", "port": 443}), json!({}), "Accepted"),
        ("n", "a.example.com", json!({"sectionName": "other"}), json!({}), "NoMatchingParent"),
        ("n", "a.example.com", json!({"port": 6443}), json!({}), "NoMatchingParent"),
        ("n", "a.example.org", json!({}), json!({}), "NoMatchingListenerHostname"),
        ("m", "a.example.com", json!({}), json!({}), "NotAllowedByListeners"),
        ("m", "a.example.com", json!({}), all, "Accepted"),
        ("m", "a.example.com", json!({}), selected.clone(), "Accepted"),
        ("n", "a.example.com", json!({}), selected, "NotAllowedByListeners"),
        ("n", "a.example.com", json!({}), http, "NotAllowedByListeners"),
        ("n", "a.example.com", json!({}), terminated, "NotAllowedByListeners"),
    ];
    for (namespace, host, parent, extra, reason) in rows {
        let gateway = gateway(json!([listener("main", "*.example.com", extra.clone())]));
        let route = route(namespace, json!([host]), parent.clone(), good_backend());
        let found = attached(&gateway, &[route]);
        let verdict = &found.verdicts[0][0];
        assert_eq!(verdict.accepted.reason, reason, "{namespace} {host} {parent} {extra}");
        assert_eq!(verdict.accepted.holds, reason == "Accepted");
        let count = found.counts.get(&("g".to_owned(), "main".to_owned())).copied().unwrap_or_default();
        assert_eq!(count, usize::from(reason == "Accepted"));
    }
    let foreign = route("n", json!([]), json!({"name": "somebody-elses"}), good_backend());
    assert!(attached(&gateway(json!([listener("main", "", json!({}))])), &[foreign]).verdicts[0].is_empty());
}

#[test]
fn backends_are_found_or_told_why_not() {
    let rows = [
        (good_backend(), "ResolvedRefs"),
        (json!({"name": "a"}), "BackendNotFound"),
        (json!({"name": "a", "port": 1}), "BackendNotFound"),
        (json!({"name": "b", "port": 6443}), "BackendNotFound"),
        (json!({"name": "a", "port": 6443, "namespace": "m"}), "RefNotPermitted"),
        (json!({"name": "a", "port": 6443, "kind": "Bucket", "group": "x.io"}), "InvalidKind"),
    ];
    for (backend, reason) in rows {
        let gateway = gateway(json!([listener("main", "", json!({}))]));
        let route = route("n", json!(["a.example.com"]), json!({}), backend.clone());
        let found = attached(&gateway, &[route]);
        let resolved = &found.verdicts[0][0].resolved;
        assert_eq!((resolved.reason, resolved.holds), (reason, reason == "ResolvedRefs"), "{backend}");
    }
}

fn leads(table: &Table, name: &str) -> Option<Option<Pool>> {
    table.find(Some(name)).map(|split| split.pick(0).cloned())
}

#[test]
fn names_of_several_listeners_on_one_port_are_one_table() {
    let gateway =
        gateway(json!([listener("one", "a.example.com", json!({})), listener("two", "*.example.org", json!({}))]));
    let found = attached(&gateway, &[route("n", json!([]), json!({}), good_backend())]);
    let address: SocketAddr = "127.1.64.9:443".parse().unwrap();
    let table = &found.tables[&address];
    for (name, known) in [("a.example.com", true), ("x.example.org", true), ("b.example.com", false)] {
        assert_eq!(leads(table, name), known.then(|| Some(backend())), "{name}");
    }
}

fn reason<'a>(conditions: &'a Value, kind: &str) -> (&'a str, &'a str) {
    let found = conditions.as_array().unwrap().iter().find(|condition| condition["type"] == kind).unwrap();
    (found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
}

#[test]
fn a_gateways_status_tells_of_each_listener() {
    let gateway = gateway(json!([
        listener("good", "a.example.com", json!({})),
        listener("twice", "b.example.com", json!({})),
        listener("again", "b.example.com", json!({})),
        listener("web", "", json!({"protocol": "HTTPS", "port": 8443})),
        listener("taken", "", json!({"port": 22})),
    ]));
    let facts = Facts {
        address: Some(Ipv4Addr::new(127, 1, 64, 9)),
        refused: HashMap::from([(22, "taken".to_owned())]),
        routes: HashMap::from([("good".to_owned(), 2)]),
        complaint: None,
    };
    let status = status::of_gateway(&gateway, &facts, "now");
    assert_eq!(reason(&status["conditions"], "Accepted"), ("True", "ListenersNotValid"));
    assert_eq!(reason(&status["conditions"], "Programmed"), ("True", "Programmed"));
    assert_eq!(status["addresses"][0], json!({"type": "IPAddress", "value": "127.1.64.9"}));
    assert_eq!(status["listeners"][0]["attachedRoutes"], 2);
    let rows = [
        (0, "Accepted", ("True", "Accepted")),
        (0, "Programmed", ("True", "Programmed")),
        (1, "Conflicted", ("True", "HostnameConflict")),
        (2, "Programmed", ("False", "Invalid")),
        (3, "Accepted", ("False", "UnsupportedProtocol")),
        (4, "Accepted", ("False", "PortUnavailable")),
    ];
    for (at, kind, told) in rows {
        assert_eq!(reason(&status["listeners"][at]["conditions"], kind), told, "{at} {kind}");
    }
    let mut again = gateway.clone();
    again.status = status.clone();
    assert!(says(&again.status, &status::of_gateway(&again, &facts, "later")), "nothing new is said");
    let without = Facts { complaint: Some("no".into()), ..Facts::default() };
    let status = status::of_gateway(&gateway, &without, "now");
    assert_eq!(reason(&status["conditions"], "Accepted"), ("False", "UnsupportedAddress"));
    assert_eq!(reason(&status["conditions"], "Programmed"), ("False", "AddressNotAssigned"));
}

#[test]
fn what_others_say_of_a_route_stays() {
    let gateway = gateway(json!([listener("main", "", json!({}))]));
    let mut one = route("n", json!(["a.example.com"]), json!({}), good_backend());
    let others = json!({"parentRef": {"name": "x"}, "controllerName": "example.com/other", "conditions": []});
    one.status = json!({"parents": [others]});
    let found = attached(&gateway, std::slice::from_ref(&one));
    let status = status::of_route(&one, &found.verdicts[0], "now").unwrap();
    assert_eq!((&status["parents"][0], &status["parents"][1]["controllerName"]), (&others, &json!(CONTROLLER)));
    one.status = status;
    assert_eq!(status::of_route(&one, &[], "now").unwrap(), json!({"parents": [others]}), "we take back what we said");
    one.status = Value::Null;
    assert_eq!(status::of_route(&one, &[], "now"), None);
}

#[test]
fn an_ingress_is_served_if_tls_is_passed_through() {
    let class = json!({"metadata": {"name": "hangar"}, "spec": {"controller": CONTROLLER}});
    let other = json!({"metadata": {"name": "other"}, "spec": {"controller": "example.com/other"}});
    let classes = [class, other].map(|class| Arc::new(serde_json::from_value(class).unwrap()));
    let nginx = "nginx.ingress.kubernetes.io/ssl-passthrough";
    let path = |path: &str, port: Value| json!({"path": path, "pathType": "Prefix", "backend": {"service": {"name": "a", "port": port}}});
    let root = || json!([path("/", json!({"name": "https"}))]);
    let rows = [
        ("hangar", json!({nginx: "true"}), root(), "served"),
        (
            "hangar",
            json!({"haproxy.org/ssl-passthrough": "true"}),
            json!([path("/api", json!({"number": 6443}))]),
            "served",
        ),
        (
            "hangar",
            json!({nginx: "true"}),
            json!([path("/a", json!({"number": 6443})), path("/b", json!({"number": 6443}))]),
            "PathIgnored",
        ),
        ("hangar", json!({nginx: "true"}), json!([path("/", json!({"number": 1}))]), "BackendNotFound"),
        ("hangar", json!({nginx: "false"}), root(), "TLSPassthroughOnly"),
        ("hangar", json!({}), root(), "TLSPassthroughOnly"),
        ("nginx", json!({nginx: "true"}), root(), "UnknownIngressClass"),
        ("other", json!({}), root(), "foreign"),
    ];
    for (class, annotations, paths, expected) in rows {
        let ingress = Arc::new(
            serde_json::from_value(json!({
                "metadata": {"namespace": "n", "name": "i", "annotations": annotations},
                "spec": {"ingressClassName": class, "rules": [{"host": "a.example.com", "http": {"paths": paths}}]},
            }))
            .unwrap(),
        );
        let (table, verdicts) = ingresses::table(&[ingress], &classes, &One);
        let told = match &verdicts[0].1 {
            Verdict::OptionalWatch(None) => "served",
            Verdict::OptionalWatch(Some((reason, _))) | Verdict::Refused(reason, _) => reason,
            Verdict::Foreign => "foreign",
        };
        assert_eq!(told, expected, "{class} {annotations} {paths}");
        let leads = leads(&table, "a.example.com");
        assert_eq!(leads, (expected == "served").then(|| Some(backend())), "{class} {annotations} {paths}");
    }
}
