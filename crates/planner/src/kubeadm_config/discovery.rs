//! How a node finds its cluster: by a token that Hangar makes, by one of the user's, or by a kubeconfig.
//!
//! Holds: a token of the user's own is neither kept alive nor deleted, and good for any name; what the kubeconfig does not say is the cluster's endpoint and authority.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::join::Facts;

/// Whether Hangar makes a token for this configuration.
pub fn needs_token(spec: &Value) -> bool {
    let discovery = &spec["joinConfiguration"]["discovery"];
    let is_set = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    !(discovery["file"].is_object() || is_set(&discovery["bootstrapToken"]["token"]))
}

/// The part of a JoinConfiguration.
pub fn discovery(written: &Value, facts: &Facts) -> Result<Value, String> {
    let mut discovery = json!({});
    if written["file"].is_object() {
        if written["bootstrapToken"].is_object() {
            return Err("spec.joinConfiguration.discovery has both a file and a bootstrapToken: remove one".to_owned());
        }
        discovery["file"] = json!({ "kubeConfigPath": path(&written["file"])? });
    } else {
        discovery["bootstrapToken"] = by_token(&written["bootstrapToken"], facts)?;
    }
    if !written["tlsBootstrapToken"].is_null() {
        discovery["tlsBootstrapToken"] = written["tlsBootstrapToken"].clone();
    }
    Ok(discovery)
}

fn by_token(written: &Value, facts: &Facts) -> Result<Value, String> {
    let own = written["token"].as_str().filter(|token| !token.is_empty());
    let Some(token) = own.or(facts.token.as_deref()) else { return Err("there is no bootstrap token".to_owned()) };
    let endpoint = written["apiServerEndpoint"].as_str().filter(|text| !text.is_empty()).unwrap_or(&facts.endpoint);
    let mut discovery = json!({ "apiServerEndpoint": endpoint, "token": token });
    let skips = written["unsafeSkipCAVerification"] == true;
    if skips {
        discovery["unsafeSkipCAVerification"] = true.into();
    }
    match written["caCertHashes"].as_array() {
        Some(hashes) if !hashes.is_empty() => discovery["caCertHashes"] = json!(hashes),
        _ if skips => {}
        _ => discovery["caCertHashes"] = json!(facts.ca_hashes),
    }
    Ok(discovery)
}

fn path(file: &Value) -> Result<&str, String> {
    let path = file["kubeConfigPath"].as_str().filter(|path| path.starts_with('/'));
    path.ok_or_else(|| "spec.joinConfiguration.discovery.file.kubeConfigPath must be an absolute path".to_owned())
}

/// The kubeconfig as a file, if its content is in the spec.
pub fn file(spec: &Value, facts: &Facts) -> Result<Option<Value>, String> {
    let file = &spec["joinConfiguration"]["discovery"]["file"];
    let config = &file["kubeConfig"];
    if !config.is_object() {
        return Ok(None);
    }
    let cluster = named(
        &config["cluster"],
        &[
            ("server", "server"),
            ("certificateAuthorityData", "certificate-authority-data"),
            ("insecureSkipTLSVerify", "insecure-skip-tls-verify"),
            ("proxyURL", "proxy-url"),
            ("tlsServerName", "tls-server-name"),
        ],
    );
    let mut cluster = Value::from(cluster);
    if cluster["server"].is_null() {
        cluster["server"] = format!("https://{}", facts.endpoint).into();
    }
    if cluster["certificate-authority-data"].is_null() && cluster["insecure-skip-tls-verify"] != true {
        cluster["certificate-authority-data"] = STANDARD.encode(&facts.ca_pem).into();
    }
    let mut user = json!({});
    if config["user"]["authProvider"].is_object() {
        user["auth-provider"] = config["user"]["authProvider"].clone();
    }
    if config["user"]["exec"].is_object() {
        let mut exec = config["user"]["exec"].clone();
        if exec["apiVersion"].is_null() {
            exec["apiVersion"] = "client.authentication.k8s.io/v1".into();
        }
        // Nobody sits at a server.
        exec["interactiveMode"] = "Never".into();
        user["exec"] = exec;
    }
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "default",
        "clusters": [{ "name": "default", "cluster": cluster }],
        "contexts": [{ "name": "default", "context": { "cluster": "default", "user": "default" } }],
        "users": [{ "name": "default", "user": user }],
    });
    let content = serde_saphyr::to_string(&kubeconfig).map_err(|error| error.to_string())?;
    Ok(Some(json!({ "path": path(file)?, "owner": "root:root", "permissions": "0640", "content": content })))
}

fn named(value: &Value, names: &[(&str, &str)]) -> Map<String, Value> {
    let pairs = names.iter().filter(|(from, _)| !value[*from].is_null());
    pairs.map(|(from, to)| ((*to).to_owned(), value[*from].clone())).collect()
}
