//! The variables of a container, and the fields of a pod that variables and files may name.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, ResourceFieldSelector, Service};
use kube::ResourceExt as _;

use super::Node;
use super::expand::expand;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SourceError {
    #[error("{kind} {name} not found")]
    Missing { kind: &'static str, name: String },
    #[error("{kind} {name} has no key {key}")]
    NoKey { kind: &'static str, name: String, key: String },
    #[error("field {0} is not supported on the local plane")]
    Field(String),
    #[error("{what} of {name} is not supported on the local plane")]
    Unsupported { what: &'static str, name: String },
}

/// All variables; later ones may refer to earlier ones.
pub(super) fn environment(
    node: &Node,
    pod: &Pod,
    container: &Container,
    ip: Ipv4Addr,
) -> Result<BTreeMap<String, String>, SourceError> {
    let namespace = pod.namespace().unwrap_or_default();
    let api = node.options.api_server;
    let spec = pod.spec.as_ref();
    let mut variables = BTreeMap::from([
        ("HOSTNAME".to_owned(), spec.and_then(|spec| spec.hostname.clone()).unwrap_or_else(|| pod.name_any())),
        ("KUBERNETES_SERVICE_HOST".to_owned(), api.ip().to_string()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), api.port().to_string()),
    ]);
    if spec.and_then(|spec| spec.enable_service_links) != Some(false) {
        let services = node.watched.services.all();
        let near = services.iter().filter(|service| service.namespace().as_deref() == Some(&namespace));
        near.filter(|service| service.name_any() != "kubernetes").for_each(|one| variables.extend(links(one)));
    }
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let data = if let Some(from) = &source.secret_ref {
            keys(secret(node, &namespace, &from.name), from.optional)?
        } else if let Some(from) = &source.config_map_ref {
            keys(config_map(node, &namespace, &from.name), from.optional)?
        } else {
            BTreeMap::new()
        };
        variables.extend(data.into_iter().map(|(key, value)| (format!("{prefix}{key}"), text(&value))));
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(node, pod, &container.name, &namespace, variable, ip, &variables)? {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

/// The variables by which a pod finds a Service without asking for its name.
fn links(service: &Service) -> Vec<(String, String)> {
    let Some(spec) = &service.spec else { return vec![] };
    let Some(ip) = spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None") else { return vec![] };
    let word = |text: &str| text.to_uppercase().replace(['-', '.'], "_");
    let name = word(&service.name_any());
    let mut all = vec![(format!("{name}_SERVICE_HOST"), ip.to_owned())];
    for (index, port) in spec.ports.iter().flatten().enumerate() {
        let (number, protocol) = (port.port, port.protocol.clone().unwrap_or_else(|| "TCP".into()));
        let url = format!("{}://{ip}:{number}", protocol.to_lowercase());
        if index == 0 {
            all.push((format!("{name}_SERVICE_PORT"), number.to_string()));
            all.push((format!("{name}_PORT"), url.clone()));
        }
        if let Some(named) = &port.name {
            all.push((format!("{name}_SERVICE_PORT_{}", word(named)), number.to_string()));
        }
        let one = format!("{name}_PORT_{number}_{protocol}");
        all.push((format!("{one}_PROTO"), protocol.to_lowercase()));
        all.push((format!("{one}_PORT"), number.to_string()));
        all.push((format!("{one}_ADDR"), ip.to_owned()));
        all.push((one, url));
    }
    all
}

/// What a container asked for or is limited to, in the unit that was asked for; a limit that is not set is the machine's.
pub(super) fn resource_of(pod: &Pod, own: &str, from: &ResourceFieldSelector) -> Result<String, SourceError> {
    let name = from.container_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(own);
    let spec = pod.spec.as_ref();
    let all = spec.into_iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let unsupported = || SourceError::Unsupported { what: "the resource", name: from.resource.clone() };
    let container = all.into_iter().find(|container| container.name == name).ok_or_else(unsupported)?;
    let (kind, resource) = from.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = container.resources.as_ref();
    let given = match kind {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return Err(unsupported()),
    };
    let given = given.and_then(|given| given.get(resource)).map(|quantity| quantity.0.clone());
    let value = match (given, kind, resource) {
        (Some(text), ..) => quantity(&text).ok_or_else(unsupported)?,
        (None, "requests", _) => 0.0,
        (None, _, "cpu") => std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64),
        (None, _, "memory") => super::register::memory_kib() as f64 * 1024.0,
        _ => return Err(unsupported()),
    };
    let divisor = from.divisor.as_ref().and_then(|divisor| quantity(&divisor.0)).filter(|divisor| *divisor > 0.0);
    Ok(format!("{}", (value / divisor.unwrap_or(1.0)).ceil()))
}

/// A quantity such as `250m`, `64Mi` or `1e3`, as a number.
pub(super) fn quantity(text: &str) -> Option<f64> {
    let units = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("m", 0.001),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
    ];
    let unit = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    number.parse::<f64>().ok().map(|number| number * factor)
}

fn value(
    node: &Node,
    pod: &Pod,
    own: &str,
    namespace: &str,
    variable: &EnvVar,
    ip: Ipv4Addr,
    before: &BTreeMap<String, String>,
) -> Result<Option<String>, SourceError> {
    let Some(from) = &variable.value_from else {
        return Ok(Some(expand(variable.value.as_deref().unwrap_or_default(), before)));
    };
    if let Some(field) = &from.field_ref {
        return field_of(pod, &field.field_path, ip, node).map(Some);
    }
    if let Some(resource) = &from.resource_field_ref {
        return resource_of(pod, own, resource).map(Some);
    }
    if let Some(from) = &from.secret_key_ref {
        return one_key("Secret", secret(node, namespace, &from.name), &from.name, &from.key, from.optional);
    }
    if let Some(from) = &from.config_map_key_ref {
        return one_key("ConfigMap", config_map(node, namespace, &from.name), &from.name, &from.key, from.optional);
    }
    Err(SourceError::Unsupported { what: "the source", name: variable.name.clone() })
}

/// A field as the downward API names it.
pub(super) fn field_of(pod: &Pod, path: &str, ip: Ipv4Addr, node: &Node) -> Result<String, SourceError> {
    let spec = pod.spec.as_ref();
    Ok(match path {
        "metadata.name" => pod.name_any(),
        "metadata.namespace" => pod.namespace().unwrap_or_default(),
        "metadata.uid" => pod.uid().unwrap_or_default(),
        "metadata.labels" => listed(pod.labels()),
        "metadata.annotations" => listed(pod.annotations()),
        "spec.nodeName" => node.options.name.clone(),
        "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default(),
        "status.podIP" | "status.podIPs" => ip.to_string(),
        "status.hostIP" | "status.hostIPs" => node.options.address.to_string(),
        other => keyed(other, "metadata.labels", pod.labels())
            .or_else(|| keyed(other, "metadata.annotations", pod.annotations()))
            .ok_or_else(|| SourceError::Field(other.to_owned()))?,
    })
}

/// `metadata.labels['app']`; a label that is not there is empty.
fn keyed(path: &str, field: &str, map: &BTreeMap<String, String>) -> Option<String> {
    let key = path.strip_prefix(field)?.strip_prefix("['")?.strip_suffix("']")?;
    Some(map.get(key).cloned().unwrap_or_default())
}

/// One `key="value"` per line, as the kubelet writes it.
fn listed(map: &BTreeMap<String, String>) -> String {
    map.iter().map(|(key, value)| format!("{key}={value:?}")).collect::<Vec<_>>().join("\n")
}

pub(super) type Data = BTreeMap<String, Vec<u8>>;

pub(super) fn secret(node: &Node, namespace: &str, name: &str) -> Result<Data, SourceError> {
    let missing = || SourceError::Missing { kind: "Secret", name: name.to_owned() };
    let secret = node.watched.secrets.get(namespace, name).ok_or_else(missing)?;
    Ok(secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect())
}

pub(super) fn config_map(node: &Node, namespace: &str, name: &str) -> Result<Data, SourceError> {
    let missing = || SourceError::Missing { kind: "ConfigMap", name: name.to_owned() };
    let map = node.watched.config_maps.get(namespace, name).ok_or_else(missing)?;
    let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
    Ok(text.chain(binary).collect())
}

/// What is optional may be missing.
pub(super) fn keys(data: Result<Data, SourceError>, optional: Option<bool>) -> Result<Data, SourceError> {
    match data {
        Err(SourceError::Missing { .. }) if optional == Some(true) => Ok(Data::new()),
        other => other,
    }
}

fn one_key(
    kind: &'static str,
    data: Result<Data, SourceError>,
    name: &str,
    key: &str,
    optional: Option<bool>,
) -> Result<Option<String>, SourceError> {
    match keys(data, optional)?.get(key) {
        Some(value) => Ok(Some(text(value))),
        None if optional == Some(true) => Ok(None),
        None => Err(SourceError::NoKey { kind, name: name.to_owned(), key: key.to_owned() }),
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_labels_and_whole_maps() {
        let map = BTreeMap::from([("app".to_owned(), "etcd".to_owned()), ("q".to_owned(), "a\"b".to_owned())]);
        assert_eq!(keyed("metadata.labels['app']", "metadata.labels", &map), Some("etcd".into()));
        assert_eq!(keyed("metadata.labels['no']", "metadata.labels", &map), Some(String::new()));
        assert_eq!(keyed("metadata.labels", "metadata.labels", &map), None);
        assert_eq!(listed(&map), "app=\"etcd\"\nq=\"a\\\"b\"");
    }

    #[test]
    fn resources_are_given_in_the_unit_that_was_asked_for() {
        let pod: Pod = serde_json::from_value(serde_json::json!({"spec": {"containers": [
            {"name": "c", "resources": {"limits": {"cpu": "1250m", "memory": "64Mi"}, "requests": {"cpu": "250m"}}},
        ]}}))
        .unwrap();
        let rows = [
            ("limits.cpu", "0", "2"),
            ("limits.cpu", "1m", "1250"),
            ("limits.memory", "1Mi", "64"),
            ("limits.memory", "0", "67108864"),
            ("requests.cpu", "1m", "250"),
            ("requests.memory", "0", "0"),
        ];
        for (resource, divisor, expected) in rows {
            let from: ResourceFieldSelector =
                serde_json::from_value(serde_json::json!({"resource": resource, "divisor": divisor})).unwrap();
            assert_eq!(resource_of(&pod, "c", &from).unwrap(), expected, "{resource} in {divisor}");
        }
    }

    #[test]
    fn a_service_is_known_by_its_variables() {
        let service: Service = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "my-api"}, "spec": {"clusterIP": "127.1.128.7", "ports": [{"name": "https", "port": 443}]},
        }))
        .unwrap();
        let found: BTreeMap<String, String> = links(&service).into_iter().collect();
        for (name, value) in [
            ("MY_API_SERVICE_HOST", "127.1.128.7"),
            ("MY_API_SERVICE_PORT", "443"),
            ("MY_API_SERVICE_PORT_HTTPS", "443"),
            ("MY_API_PORT", "tcp://127.1.128.7:443"),
            ("MY_API_PORT_443_TCP_ADDR", "127.1.128.7"),
        ] {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn only_what_is_optional_may_be_missing() {
        let missing = || Err(SourceError::Missing { kind: "Secret", name: "s".into() });
        assert!(keys(missing(), None).is_err());
        assert_eq!(keys(missing(), Some(true)), Ok(Data::new()));
        assert_eq!(one_key("Secret", missing(), "s", "k", Some(true)), Ok(None));
        let error = one_key("Secret", Ok(Data::new()), "s", "k", None).unwrap_err();
        assert_eq!(error.to_string(), "Secret s has no key k");
    }
}
