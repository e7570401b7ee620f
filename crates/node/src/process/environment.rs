//! The variables of a container, and the fields of a pod that variables and files may name.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use kube::ResourceExt as _;

use super::Node;
use super::expand::expand;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SourceError {
    #[error("{kind} {name} not found")]
    Missing { kind: &'static str, name: String },
    #[error("{kind} {name} has no key {key}")]
    NoKey { kind: &'static str, name: String, key: String },
    #[error("the field {0} cannot be used by pods that run as processes")]
    Field(String),
    #[error("{what} of {name} cannot be used by pods that run as processes")]
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
    let mut variables = BTreeMap::from([
        ("KUBERNETES_SERVICE_HOST".to_owned(), api.ip().to_string()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), api.port().to_string()),
    ]);
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
        if let Some(value) = value(node, pod, &namespace, variable, ip, &variables)? {
            variables.insert(variable.name.clone(), value);
        }
    }
    Ok(variables)
}

fn value(
    node: &Node,
    pod: &Pod,
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
    fn only_what_is_optional_may_be_missing() {
        let missing = || Err(SourceError::Missing { kind: "Secret", name: "s".into() });
        assert!(keys(missing(), None).is_err());
        assert_eq!(keys(missing(), Some(true)), Ok(Data::new()));
        assert_eq!(one_key("Secret", missing(), "s", "k", Some(true)), Ok(None));
        let error = one_key("Secret", Ok(Data::new()), "s", "k", None).unwrap_err();
        assert_eq!(error.to_string(), "Secret s has no key k");
    }
}
