//! What a Service asks for beyond its ports: an address, who may connect, and things that cannot be had here.
//!
//! Holds: pure; whatever is asked for is honoured or said.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;

/// How load balancers are told which address to take; all of them mean the same as `spec.loadBalancerIP`, which is deprecated.
const ADDRESS: [&str; 4] = [
    "metallb.io/loadBalancerIPs",
    "metallb.universe.tf/loadBalancerIPs",
    "kube-vip.io/loadbalancerIPs",
    "lbipam.cilium.io/ips",
];
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// Instructions for load balancers of clouds.
const CLOUD_ANNOTATIONS: [&str; 3] =
    ["service.beta.kubernetes.io/", "loadbalancer.openstack.org/", "load-balancer.hetzner.cloud/"];

/// The address that the load balancer should have; empty if any will do. Of several the first counts.
pub(super) fn requested_address(service: &Service) -> &str {
    let annotated = || ADDRESS.iter().find_map(|key| service.annotations().get(*key).map(String::as_str));
    let spec = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_deref());
    let asked = spec.filter(|address| !address.is_empty()).or_else(annotated).unwrap_or_default();
    asked.split(',').next().unwrap_or_default().trim()
}

/// Networks that may use the load balancer; everybody may if none is named.
pub(super) fn sources(service: &Service) -> Vec<IpNet> {
    let ranges = service.spec.iter().flat_map(|spec| spec.load_balancer_source_ranges.iter().flatten());
    let named: Vec<&str> = ranges.map(String::as_str).collect();
    let annotated = service.annotations().get(SOURCE_RANGES).filter(|_| named.is_empty());
    let annotated = annotated.into_iter().flat_map(|text| text.split(','));
    named.into_iter().chain(annotated).filter_map(|range| range.trim().parse().ok()).collect()
}

/// What is asked for in vain: a reason and a sentence each.
pub(super) fn unsupported_settings(service: &Service) -> Vec<(&'static str, String)> {
    let Some(spec) = &service.spec else { return vec![] };
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    let mut said = vec![];
    if kind == "ExternalName" {
        let target = spec.external_name.as_deref().unwrap_or_default();
        let note = format!("ExternalName is not supported on the local plane: use {target} directly");
        return vec![("ExternalNameNotResolved", note)];
    }
    if spec.selector.as_ref().is_none_or(|selector| selector.is_empty()) {
        let note = "Services without a selector are not supported on the local plane, EndpointSlices are ignored: add a selector";
        said.push(("NoSelector", note.to_owned()));
    }
    let other = spec.ports.iter().flatten().filter(|port| !matches!(port.protocol.as_deref(), None | Some("TCP")));
    let other: Vec<String> =
        other.map(|port| format!("{}/{}", port.port, port.protocol.as_deref().unwrap_or_default())).collect();
    if !other.is_empty() {
        let note = format!("only TCP is supported on the local plane, not served: {}", other.join(", "));
        said.push(("ProtocolNotForwarded", note));
    }
    let foreign = service
        .annotations()
        .keys()
        .filter(|key| key.as_str() != SOURCE_RANGES && CLOUD_ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix)));
    let foreign: Vec<&str> = foreign.map(String::as_str).collect();
    if kind == "LoadBalancer" && !foreign.is_empty() {
        let note = format!("{} are ignored on the local plane", foreign.join(", "));
        said.push(("AnnotationIgnored", note));
    }
    said
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(annotations: Value, spec: Value) -> Service {
        let object = json!({"metadata": {"name": "s", "namespace": "n", "annotations": annotations}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn an_address_is_asked_for_in_the_usual_ways() {
        let rows = [
            (json!({}), json!({}), ""),
            (json!({}), json!({"loadBalancerIP": "127.8.0.1"}), "127.8.0.1"),
            (json!({"metallb.universe.tf/loadBalancerIPs": "127.8.0.2, ::1"}), json!({}), "127.8.0.2"),
            (json!({"kube-vip.io/loadbalancerIPs": "127.8.0.3"}), json!({"loadBalancerIP": ""}), "127.8.0.3"),
            (json!({"metallb.io/loadBalancerIPs": "127.8.0.4"}), json!({"loadBalancerIP": "127.8.0.5"}), "127.8.0.5"),
        ];
        for (annotations, spec, address) in rows {
            assert_eq!(requested_address(&service(annotations.clone(), spec.clone())), address, "{annotations} {spec}");
        }
    }

    #[test]
    fn source_ranges_come_from_the_spec_or_the_annotation() {
        let annotation = json!({SOURCE_RANGES: "10.0.0.0/8, 192.168.0.0/16"});
        assert_eq!(sources(&service(annotation.clone(), json!({}))).len(), 2);
        let spec = json!({"loadBalancerSourceRanges": ["127.0.0.0/8"]});
        assert_eq!(sources(&service(annotation, spec)), ["127.0.0.0/8".parse::<IpNet>().unwrap()]);
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        let selector = json!({"app": "x"});
        let rows = [
            (json!({}), json!({"selector": selector, "ports": [{"port": 1}]}), vec![]),
            (
                json!({}),
                json!({"type": "ExternalName", "externalName": "example.com"}),
                vec!["ExternalNameNotResolved"],
            ),
            (json!({}), json!({"ports": [{"port": 1}]}), vec!["NoSelector"]),
            (
                json!({}),
                json!({"selector": selector, "ports": [{"port": 53, "protocol": "UDP"}]}),
                vec!["ProtocolNotForwarded"],
            ),
            (
                json!({"loadbalancer.openstack.org/proxy-protocol": "true", SOURCE_RANGES: "10.0.0.0/8"}),
                json!({"type": "LoadBalancer", "selector": selector}),
                vec!["AnnotationIgnored"],
            ),
        ];
        for (annotations, spec, reasons) in rows {
            let said = unsupported_settings(&service(annotations, spec.clone()));
            assert_eq!(said.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), reasons, "{spec}");
        }
    }
}
