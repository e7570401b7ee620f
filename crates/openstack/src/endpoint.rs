//! From a catalog to the URL calls are made below.
//!
//! Holds: no version discovery. Compute and volume URLs carry their version, the others usually do not and get theirs; a version that is already there is kept, slashes at the end do not matter.

use crate::Service;
use crate::wire::CatalogEntry;

/// The base URL of a service without a slash at the end.
pub(crate) fn find(
    catalog: &[CatalogEntry],
    service: Service,
    interface: &str,
    region: Option<&str>,
) -> Result<String, String> {
    let kinds = service_types(service);
    let kind = kinds[0];
    let fits = |wanted: &str, region: Option<&str>, entry: &CatalogEntry| {
        entry
            .endpoints
            .iter()
            .find(|endpoint| {
                endpoint.interface == wanted
                    && region.is_none_or(|name| endpoint.region == name || endpoint.region_id == name)
            })
            .map(|endpoint| endpoint.url.clone())
    };
    let url = kinds.iter().find_map(|kind| {
        catalog.iter().filter(|entry| entry.kind == *kind).find_map(|entry| fits(interface, region, entry))
    });
    match (url, region) {
        (Some(url), _) => Ok(versioned(service, &url)),
        (None, Some(region)) => {
            Err(format!("the catalog has no {interface} endpoint of type {kind} in region {region}: check region_name"))
        }
        (None, None) => Err(format!("the catalog has no {interface} endpoint of type {kind}")),
    }
}

pub(crate) fn versioned(service: Service, url: &str) -> String {
    let base = url.trim_end_matches('/');
    let version = match service {
        Service::Keystone => "v3",
        Service::Nova => "v2.1",
        Service::Neutron => "v2.0",
        Service::Glance => "v2",
        Service::Cinder => "v3",
        Service::Octavia => "v2.0",
    };
    if base.split('/').skip(3).any(is_version) { base.to_owned() } else { format!("{base}/{version}") }
}

/// Names that catalogs have for a service, the proper one first.
fn service_types(service: Service) -> &'static [&'static str] {
    match service {
        Service::Keystone => &["identity"],
        Service::Nova => &["compute"],
        Service::Neutron => &["network"],
        Service::Glance => &["image"],
        Service::Cinder => &["block-storage", "volumev3", "volume"],
        Service::Octavia => &["load-balancer"],
    }
}

fn is_version(segment: &str) -> bool {
    segment.strip_prefix('v').is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit()) && rest.chars().all(|c| c.is_ascii_digit() || c == '.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Endpoint;

    #[test]
    fn versions_are_added_only_where_missing() {
        let table = [
            (Service::Keystone, "https://k:5000", "https://k:5000/v3"),
            (Service::Keystone, "https://k/identity/v3/", "https://k/identity/v3"),
            (Service::Nova, "https://c/compute/v2.1", "https://c/compute/v2.1"),
            (Service::Nova, "https://c/v2.1/0123abcd/", "https://c/v2.1/0123abcd"),
            (Service::Neutron, "https://n:9696/", "https://n:9696/v2.0"),
            (Service::Neutron, "https://n:9696/v2.0", "https://n:9696/v2.0"),
            (Service::Glance, "https://v2.example.org/image", "https://v2.example.org/image/v2"),
        ];
        for (service, url, expected) in table {
            assert_eq!(versioned(service, url), expected);
        }
    }

    #[test]
    fn interface_and_region_choose_the_endpoint() {
        let endpoint = |interface: &str, region: &str| Endpoint {
            interface: interface.to_owned(),
            region: region.to_owned(),
            url: format!("http://{interface}.{region}"),
            ..Endpoint::default()
        };
        let catalog = vec![CatalogEntry {
            kind: "network".to_owned(),
            endpoints: vec![endpoint("internal", "one"), endpoint("public", "one"), endpoint("public", "two")],
            ..CatalogEntry::default()
        }];
        let find = |interface, region| find(&catalog, Service::Neutron, interface, region);
        assert_eq!(find("public", None).unwrap(), "http://public.one/v2.0");
        assert_eq!(find("public", Some("two")).unwrap(), "http://public.two/v2.0");
        assert!(find("internal", Some("two")).unwrap_err().contains("in region two"));
    }
}
