//! Definitions of GatewayClass, Gateway and TLSRoute, and our classes.
//!
//! Holds: the definitions are installed only when they are asked for, since each costs the API server megabytes; small, in our own words: what
//! is looked at has a schema, everything else is kept as it came; those that the Gateway API itself publishes may be put over ours at any time
//! and are then left alone.

use k8s_openapi::api::networking::v1::IngressClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::objects::GROUP;
use super::{CLASS, CONTROLLER};

/// Where the Gateway API's own definitions say which release they are of.
const BUNDLE: &str = "gateway.networking.k8s.io/bundle-version";
/// Counted up when a definition changes.
const OURS: &str = "hangar-1";

/// Installs the definitions of the Gateway API where there are none; they stay until somebody deletes them.
pub async fn install_gateway_api(client: &Client) -> kube::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply("hangar-node").force();
    for definition in definitions() {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let there = api.get_metadata_opt(&name).await?;
        let bundle = there.as_ref().map(|there| there.annotations().get(BUNDLE).map_or("", String::as_str));
        let is_wanted = bundle.is_none_or(|bundle| bundle.starts_with("hangar-") && bundle != OURS);
        if is_wanted {
            api.patch(&name, &params, &Patch::Apply(&definition)).await?;
        }
        let _ = await_condition(api.clone(), &name, conditions::is_crd_established()).await;
    }
    Ok(())
}

pub(super) async fn gateway_class(client: &Client, kind: &ApiResource) -> kube::Result<()> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
    if api.get_metadata_opt(CLASS).await?.is_none() {
        let class = json!({
            "apiVersion": kind.api_version, "kind": "GatewayClass", "metadata": {"name": CLASS},
            "spec": {"controllerName": CONTROLLER, "description": "TLS passthrough by server name (SNI), on loopback addresses"},
        });
        api.patch(CLASS, &PatchParams::apply("hangar-node").force(), &Patch::Apply(class)).await?;
    }
    Ok(())
}

/// The default class, unless there is another default.
pub(super) async fn ingress_class(client: &Client) -> kube::Result<()> {
    const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
    let api: Api<IngressClass> = Api::all(client.clone());
    let there = api.list(&ListParams::default()).await?.items;
    if there.iter().any(|class| class.name_any() == CLASS) {
        return Ok(());
    }
    let taken = there.iter().any(|class| class.annotations().get(DEFAULT).is_some_and(|value| value == "true"));
    let class = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
        "metadata": {"name": CLASS, "annotations": {DEFAULT: (!taken).to_string()}},
        "spec": {"controller": CONTROLLER},
    });
    api.patch(CLASS, &PatchParams::apply("hangar-node").force(), &Patch::Apply(class)).await?;
    Ok(())
}

fn definitions() -> [Value; 3] {
    let text = || json!({"type": "string"});
    let port = || json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535});
    let class = json!({"required": ["controllerName"], "properties": {"controllerName": text()}});
    let listener = open(json!({
        "required": ["name", "port", "protocol"],
        "properties": {"name": text(), "hostname": text(), "port": port(), "protocol": text()},
    }));
    let gateway = json!({
        "required": ["gatewayClassName", "listeners"],
        "properties": {
            "gatewayClassName": text(),
            "listeners": {
                "type": "array", "minItems": 1, "maxItems": 64, "items": listener,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            },
            "addresses": list(json!({"properties": {"type": text(), "value": text()}})),
        },
    });
    let parent = json!({"required": ["name"], "properties": {"name": text(), "namespace": text(), "sectionName": text(), "port": port()}});
    let backend = json!({
        "required": ["name"],
        "properties": {
            "name": text(), "namespace": text(), "port": port(),
            "weight": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1_000_000, "default": 1},
        },
    });
    let route = json!({
        "required": ["rules"],
        "properties": {
            "parentRefs": list(parent),
            "hostnames": {"type": "array", "maxItems": 16, "items": text()},
            "rules": list(json!({"properties": {"name": text(), "backendRefs": list(backend)}})),
        },
    });
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    let age = || json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    let accepted = ".status.conditions[?(@.type==\"Accepted\")].status";
    let programmed = ".status.conditions[?(@.type==\"Programmed\")].status";
    [
        definition(
            ["GatewayClass", "gatewayclass", "gatewayclasses", "gc"],
            "Cluster",
            &["v1", "v1beta1"],
            class,
            json!([column("Controller", ".spec.controllerName"), column("Accepted", accepted), age()]),
        ),
        definition(
            ["Gateway", "gateway", "gateways", "gtw"],
            "Namespaced",
            &["v1", "v1beta1"],
            gateway,
            json!([
                column("Class", ".spec.gatewayClassName"),
                column("Address", ".status.addresses[*].value"),
                column("Programmed", programmed),
                age(),
            ]),
        ),
        definition(
            ["TLSRoute", "tlsroute", "tlsroutes", ""],
            "Namespaced",
            &["v1", "v1alpha3", "v1alpha2"],
            route,
            json!([column("Hostnames", ".spec.hostnames"), age()]),
        ),
    ]
}

/// An object that keeps what it is not told about.
fn open(mut schema: Value) -> Value {
    schema["type"] = json!("object");
    schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    schema
}

fn list(item: Value) -> Value {
    json!({"type": "array", "maxItems": 64, "items": open(item)})
}

fn definition(names: [&str; 4], scope: &str, versions: &[&str], spec: Value, columns: Value) -> Value {
    let [kind, singular, plural, short] = names;
    let schema = json!({
        "type": "object", "required": ["spec"],
        "properties": {"spec": open(spec), "status": open(json!({}))},
    });
    let version = |(at, name): (usize, &&str)| {
        json!({
            "name": name, "served": true, "storage": at == 0, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": columns,
        })
    };
    let shorts: Vec<&str> = Some(short).filter(|short| !short.is_empty()).into_iter().collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{GROUP}"),
            "annotations": {
                BUNDLE: OURS,
                // The API server wants a word on every definition in a group of Kubernetes' own.
                "api-approved.kubernetes.io": "unapproved, a reduced version of the published definition",
            },
        },
        "spec": {
            "group": GROUP, "scope": scope,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "singular": singular, "plural": plural,
                "shortNames": shorts, "categories": ["gateway-api"],
            },
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}
