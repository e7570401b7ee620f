//! A control plane that is reached by its name: through a Gateway with TLSRoutes, and through an Ingress that passes TLS on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod inner;
mod plane;

use std::path::Path;
use std::process::Output;

use plane::{Plane, address_of, condition};
use serde_json::Value;

const ROUTED: &str = "inner.clusters.example";
const INGRESS: &str = "inner.ingress.example";

#[test]
fn an_api_server_is_reached_by_its_name() {
    let plane = Plane::new();
    plane.ok(&["up", "--gateway-api"]);
    let kubeconfig = inner::pki(&plane, "https://nowhere.example", &[ROUTED, INGRESS]);
    let manifests = plane::repository().join("crates/hangar/tests/inner/exposed.yaml");
    plane.until("gatewayclass/hangar", Value::is_object);
    plane.kubectl(&["apply", "-f", manifests.to_str().unwrap()]);
    plane.kubectl(&["rollout", "status", "deployment/inner", "--timeout=150s"]);

    let gateway = plane.until("gateway/front", |gateway| gateway["status"]["listeners"][0]["attachedRoutes"] == 1);
    let ingress = plane.until("ingress/inner", |ingress| !address_of(ingress).is_empty());
    let (front, shared) = (gateway["status"]["addresses"][0]["value"].as_str().unwrap(), address_of(&ingress));
    statuses(&plane, &gateway);

    let (gateway_url, ingress_url) = (format!("https://{front}:6443"), format!("https://{shared}:8443"));
    let ways = [(gateway_url.as_str(), ROUTED), (ingress_url.as_str(), INGRESS)];
    for (url, name) in ways {
        let said = || String::from_utf8(ask(&plane, &kubeconfig, url, name, &["version"]).stdout).unwrap();
        // A pod that is ready is found a moment later.
        plane::until(&format!("an answer of {url} {name}"), || said().contains("Server Version: v1.34.4"));
    }
    let kept = ask(&plane, &kubeconfig, &gateway_url, ROUTED, &["create", "configmap", "kept"]);
    assert!(kept.status.success(), "{}", errors(&kept));
    // Names of the other way in, and names that nobody has, are refused before a certificate is shown.
    for (url, name) in [(&gateway_url, INGRESS), (&ingress_url, ROUTED), (&gateway_url, "nobody.clusters.example")] {
        let refused = ask(&plane, &kubeconfig, url, name, &["version", "--request-timeout=20s"]);
        let said = errors(&refused);
        assert!(!refused.status.success() && said.contains("unrecognized name"), "{url} {name}: {said}");
    }

    let before = versions(&plane);
    plane.ok(&["down"]);
    plane.ok(&["up"]);
    plane.kubectl(&["rollout", "status", "deployment/inner", "--timeout=150s"]);
    let again = plane.get("gateway/front");
    assert_eq!(again["status"]["addresses"][0]["value"], front, "addresses survive");
    for (url, name) in ways {
        let found = || ask(&plane, &kubeconfig, url, name, &["get", "configmap", "kept"]);
        plane::until("the name after a restart", || found().status.success());
    }
    assert_eq!(versions(&plane), before, "nothing new was written");
    plane.kubectl(&["delete", "gateway/front", "ingress/inner"]);
    plane::until("the listener to close", || std::net::TcpStream::connect(format!("{front}:6443")).is_err());
    plane.until("tlsroute/inner", |route| route["status"]["parents"].as_array().is_some_and(Vec::is_empty));
}

/// Everything that leads to the control plane by its name, as it was last written.
fn versions(plane: &Plane) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = plane.get("gatewayclasses,gateways,tlsroutes,ingresses");
    let found: Vec<(String, String)> = found["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| {
            let name = format!("{} {}", text(&item["kind"]), text(&item["metadata"]["name"]));
            (name, text(&item["metadata"]["resourceVersion"]))
        })
        .collect();
    assert_eq!(found.len(), 6, "{found:?}");
    found
}

fn statuses(plane: &Plane, gateway: &Value) {
    assert_eq!(condition(&plane.get("gatewayclass/hangar"), "Accepted").0, "True");
    assert_eq!((condition(gateway, "Accepted").0, condition(gateway, "Programmed").0), ("True".into(), "True".into()));
    let reason = |object: &Value, kind: &str| {
        let conditions = object["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()["reason"].clone()
    };
    assert_eq!(reason(&gateway["status"]["listeners"][1], "Accepted"), "UnsupportedProtocol");
    for (name, accepted, resolved) in
        [("inner", "Accepted", "ResolvedRefs"), ("elsewhere", "NoMatchingListenerHostname", "BackendNotFound")]
    {
        plane.until(&format!("tlsroute/{name}"), |route| {
            let parent = &route["status"]["parents"][0];
            reason(parent, "Accepted") == accepted && reason(parent, "ResolvedRefs") == resolved
        });
    }
    let is_told = |events: &Value| {
        let events = events["items"].as_array().cloned().unwrap_or_default();
        events.iter().any(|event| {
            event["involvedObject"]["name"] == "terminated"
                && event["reason"] == "TLSPassthroughOnly"
                && event["message"].as_str().is_some_and(|note| note.contains("ssl-passthrough"))
        })
    };
    plane.until("events", is_told);
    assert_eq!(address_of(&plane.get("ingress/terminated")), "");
}

/// As a user does whose machine does not resolve the name.
fn ask(plane: &Plane, kubeconfig: &Path, url: &str, name: &str, arguments: &[&str]) -> Output {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let own = ["kubectl", "--", &kubeconfig, "--server", url, "--tls-server-name", name];
    plane.run(&[&own, arguments].concat())
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
