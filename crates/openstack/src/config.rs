//! One entry of a clouds.yaml, parsed once.
//!
//! Holds: what is missing is found here and named, so that a session never starts with half a credential; secrets do not
//! show in `Debug`; the fingerprint covers entry, region and CA, so two references that differ in any of them never share
//! a session.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::endpoint::versioned;
use crate::{Service, TokenReply};

/// Hundreds of clouds fit into this.
const LARGEST: usize = 256 << 10;

/// What is wrong with a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("clouds.yaml cannot be read: {0}")]
    Unreadable(String),
    #[error("clouds.yaml has no cloud named {wanted}, only {}: set cloudName to one of them", .known.join(", "))]
    NoSuchCloud { wanted: String, known: Vec<String> },
    #[error("cloud {cloud} in clouds.yaml lacks {field}")]
    Missing { cloud: String, field: &'static str },
    #[error(
        "cloud {cloud} in clouds.yaml has auth_type {auth_type}, which is not supported: use v3password, v3applicationcredential or v3token"
    )]
    AuthType { cloud: String, auth_type: String },
    #[error("cloud {cloud} in clouds.yaml has auth_url {auth_url}, which is not an http or https URL")]
    AuthUrl { cloud: String, auth_url: String },
    #[error("the CA certificate of the cloud cannot be read: {0}")]
    BadCa(String),
    #[error(
        "cloud {cloud} in clouds.yaml names a file in {field}, and files are not read for a Secret: put a CA certificate into the Secret's key cacert"
    )]
    NamesFile { cloud: String, field: &'static str },
    #[error("the environment has no {0}: set it, or OS_CLOUD with OS_CLIENT_CONFIG_FILE")]
    Environment(&'static str),
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// Where a cloud is and who we are there.
#[derive(Clone)]
pub struct CloudConfig {
    pub(crate) name: String,
    /// Ends in `/v3`, no slash.
    pub(crate) auth_url: String,
    /// The whole body of `POST auth/tokens`, secrets included.
    pub(crate) auth_request: Value,
    pub(crate) region: Option<String>,
    pub(crate) interface: String,
    verify: bool,
    ca_pem: Option<Vec<u8>>,
    fingerprint: String,
}

impl std::fmt::Debug for CloudConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloudConfig")
            .field("name", &self.name)
            .field("auth_url", &self.auth_url)
            .field("region", &self.region)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

impl CloudConfig {
    /// From a Secret: no file that it names is read. `region` is that of the reference and wins over the file's; a `cacert` without a certificate in it counts as none
    /// (tools write an empty line when there is no CA).
    pub fn parse(
        clouds_yaml: &[u8],
        cloud: &str,
        cacert: Option<&[u8]>,
        region: Option<&str>,
    ) -> Result<Self, ConfigError> {
        if clouds_yaml.len() > LARGEST {
            let why = format!("it has {} bytes, at most {LARGEST} are accepted", clouds_yaml.len());
            return Err(ConfigError::Unreadable(why));
        }
        let text = std::str::from_utf8(clouds_yaml).map_err(|error| ConfigError::Unreadable(error.to_string()))?;
        let file = hangar_api::yaml::document(text).map_err(|error| ConfigError::Unreadable(error.to_string()))?;
        let has_ca = cacert.is_some_and(holds_certificate);
        let names = |field: &str| file["clouds"][cloud][field].as_str().is_some_and(|name| !name.is_empty());
        // A path beside the certificate itself is what the same file says on its owner's machine.
        let files = [("cacert", !has_ca), ("cert", true), ("key", true)];
        match files.into_iter().find(|(field, counts)| *counts && names(field)) {
            Some((field, _)) => Err(ConfigError::NamesFile { cloud: cloud.to_owned(), field }),
            None => Self::of_file(&file, cloud, cacert, region),
        }
    }

    /// A clouds.yaml on disk, whose `cacert` is a path, relative to the file itself.
    pub fn from_file(path: &Path, cloud: &str, region: Option<&str>) -> Result<Self, ConfigError> {
        let unreadable = |why: String| ConfigError::Unreadable(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        let file = hangar_api::yaml::document(&text).map_err(|error| unreadable(error.to_string()))?;
        let cacert = file.get("clouds").and_then(|clouds| clouds.get(cloud)?.get("cacert")?.as_str());
        let cacert = cacert.map(|name| read_ca(&path.parent().unwrap_or(Path::new("")).join(name))).transpose()?;
        Self::of_file(&file, cloud, cacert.as_deref(), region)
    }

    /// The `OS_*` variables. `OS_CLOUD` with `OS_CLIENT_CONFIG_FILE` names an entry of a file; otherwise they are the entry.
    pub fn from_env(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self, ConfigError> {
        let all: BTreeMap<String, String> = variables.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        let get = |name: &str| all.get(name).map(String::as_str);
        if let (Some(cloud), Some(file)) = (get("OS_CLOUD"), get("OS_CLIENT_CONFIG_FILE")) {
            return Self::from_file(Path::new(file), cloud, get("OS_REGION_NAME"));
        }
        get("OS_AUTH_URL").ok_or(ConfigError::Environment("OS_AUTH_URL"))?;
        let mut entry = Map::new();
        let mut auth = Map::new();
        for (name, value) in &all {
            let Some(key) = name.strip_prefix("OS_").map(str::to_lowercase) else { continue };
            match key.as_str() {
                "region_name" | "interface" | "endpoint_type" | "auth_type" => entry.insert(key, value.clone().into()),
                "insecure" => {
                    entry.insert("verify".to_owned(), (!matches!(value.as_str(), "1" | "true" | "True")).into())
                }
                "cacert" | "cloud" | "client_config_file" | "identity_api_version" => None,
                _ => auth.insert(key, value.clone().into()),
            };
        }
        entry.insert("auth".to_owned(), auth.into());
        let cacert = get("OS_CACERT").map(|path| read_ca(Path::new(path))).transpose()?;
        Self::of_file(&json!({"clouds": {"environment": entry}}), "environment", cacert.as_deref(), None)
    }

    fn of_file(file: &Value, cloud: &str, cacert: Option<&[u8]>, region: Option<&str>) -> Result<Self, ConfigError> {
        let clouds = file
            .get("clouds")
            .and_then(Value::as_object)
            .ok_or_else(|| ConfigError::Unreadable("it has no top-level key `clouds`".to_owned()))?;
        let entry = clouds.get(cloud).and_then(Value::as_object).ok_or_else(|| ConfigError::NoSuchCloud {
            wanted: cloud.to_owned(),
            known: clouds.keys().cloned().collect(),
        })?;
        let entry = Entry { cloud, entry };
        let region = region.filter(|name| !name.is_empty()).map(str::to_owned).or_else(|| entry.text("region_name"));
        let ca_pem = cacert.filter(|pem| holds_certificate(pem)).map(<[u8]>::to_vec);
        Ok(Self {
            name: cloud.to_owned(),
            auth_url: entry.auth_url()?,
            auth_request: json!({"auth": entry.auth_request()?}),
            interface: entry.interface(),
            verify: entry.verify(),
            fingerprint: fingerprint(entry.entry, region.as_deref(), ca_pem.as_deref()),
            region,
            ca_pem,
        })
    }

    /// The key of a cache of sessions.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }

    /// Of Keystone, with its version.
    pub fn auth_url(&self) -> &str {
        &self.auth_url
    }

    pub fn ca_pem(&self) -> Option<&[u8]> {
        self.ca_pem.as_deref()
    }

    /// Whether the cloud's certificate is checked at all.
    pub fn verify(&self) -> bool {
        self.verify
    }

    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    pub(crate) fn check_scope(reply: &TokenReply) -> Result<String, String> {
        match &reply.token.project {
            Some(project) if !project.id.is_empty() => Ok(project.id.clone()),
            _ => Err("the token is not scoped to a project: set project_name or project_id in clouds.yaml".to_owned()),
        }
    }
}

struct Entry<'a> {
    cloud: &'a str,
    entry: &'a Map<String, Value>,
}

impl Entry<'_> {
    fn text(&self, key: &str) -> Option<String> {
        text(self.entry.get(key)?)
    }

    fn auth(&self, key: &str) -> Option<String> {
        text(self.entry.get("auth")?.get(key)?)
    }

    fn need(&self, field: &'static str) -> Result<String, ConfigError> {
        self.auth(field.trim_start_matches("auth.")).ok_or_else(|| self.missing(field))
    }

    fn missing(&self, field: &'static str) -> ConfigError {
        ConfigError::Missing { cloud: self.cloud.to_owned(), field }
    }

    fn auth_url(&self) -> Result<String, ConfigError> {
        let auth_url = self.need("auth.auth_url")?;
        let good = auth_url.parse::<http::Uri>().is_ok_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
        });
        if !good {
            return Err(ConfigError::AuthUrl { cloud: self.cloud.to_owned(), auth_url });
        }
        Ok(versioned(Service::Keystone, &auth_url))
    }

    /// `endpoint_type` is what other tools of this field read, `interface` what the OpenStack SDK writes.
    fn interface(&self) -> String {
        let wanted = self.text("endpoint_type").or_else(|| self.text("interface")).unwrap_or_default();
        match wanted.trim_end_matches("URL") {
            "" => "public".to_owned(),
            other => other.to_owned(),
        }
    }

    fn verify(&self) -> bool {
        let insecure = self.entry.get("insecure").is_some_and(|value| *value == true || *value == "true");
        !insecure && !self.entry.get("verify").is_some_and(|value| *value == false || *value == "false")
    }

    fn auth_request(&self) -> Result<Value, ConfigError> {
        let by_hand = || {
            let credential = self.auth("application_credential_secret").is_some();
            let token = self.auth("token").is_some() && self.auth("password").is_none();
            if credential {
                "v3applicationcredential"
            } else if token {
                "v3token"
            } else {
                "v3password"
            }
            .to_owned()
        };
        match self.text("auth_type").unwrap_or_else(by_hand).as_str() {
            "v3applicationcredential" => self.application_credential(),
            "v3token" | "token" => self.token(),
            "v3password" | "password" => self.password(),
            other => Err(ConfigError::AuthType { cloud: self.cloud.to_owned(), auth_type: other.to_owned() }),
        }
    }

    /// Never with a scope: the credential has one.
    fn application_credential(&self) -> Result<Value, ConfigError> {
        let mut credential = Map::new();
        credential.insert("secret".to_owned(), self.need("auth.application_credential_secret")?.into());
        match (self.auth("application_credential_id"), self.auth("application_credential_name")) {
            (Some(id), _) => credential.insert("id".to_owned(), id.into()),
            (None, Some(name)) => {
                credential.insert("user".to_owned(), self.user(None)?);
                credential.insert("name".to_owned(), name.into())
            }
            (None, None) => return Err(self.missing("auth.application_credential_id")),
        };
        Ok(json!({"identity": {"methods": ["application_credential"], "application_credential": credential}}))
    }

    fn token(&self) -> Result<Value, ConfigError> {
        let token = self.need("auth.token")?;
        let identity = json!({"methods": ["token"], "token": {"id": token}});
        Ok(json!({"identity": identity, "scope": self.scope()?}))
    }

    fn password(&self) -> Result<Value, ConfigError> {
        let user = self.user(Some(self.need("auth.password")?))?;
        let identity = json!({"methods": ["password"], "password": {"user": user}});
        Ok(json!({"identity": identity, "scope": self.scope()?}))
    }

    fn user(&self, password: Option<String>) -> Result<Value, ConfigError> {
        let mut user = Map::new();
        if let Some(id) = self.auth("user_id") {
            user.insert("id".to_owned(), id.into());
        } else {
            user.insert("name".to_owned(), self.need("auth.username")?.into());
            let domain = self.domain("user_domain_id", "user_domain_name");
            user.insert("domain".to_owned(), domain.ok_or_else(|| self.missing("auth.user_domain_name"))?);
        }
        user.extend(password.map(|password| ("password".to_owned(), password.into())));
        Ok(user.into())
    }

    fn scope(&self) -> Result<Value, ConfigError> {
        if let Some(trust) = self.auth("trust_id") {
            return Ok(json!({"OS-TRUST:trust": {"id": trust}}));
        }
        let id = self.auth("project_id").or_else(|| self.auth("tenant_id"));
        if let Some(id) = id {
            return Ok(json!({"project": {"id": id}}));
        }
        let name = self.auth("project_name").or_else(|| self.auth("tenant_name"));
        let name = name.ok_or_else(|| self.missing("auth.project_name"))?;
        let domain = self
            .domain("project_domain_id", "project_domain_name")
            .or_else(|| self.domain("user_domain_id", "user_domain_name"));
        let domain = domain.ok_or_else(|| self.missing("auth.project_domain_name"))?;
        Ok(json!({"project": {"name": name, "domain": domain}}))
    }

    fn domain(&self, id_key: &str, name_key: &str) -> Option<Value> {
        let id = |key| self.auth(key).map(|id| json!({"id": id}));
        let name = |key| self.auth(key).map(|name| json!({"name": name}));
        id(id_key)
            .or_else(|| name(name_key))
            .or_else(|| id("domain_id"))
            .or_else(|| name("domain_name"))
            .or_else(|| id("default_domain"))
    }
}

/// Names and passwords that look like numbers come out of YAML as numbers.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn read_ca(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let read = std::fs::read(path).map_err(|error| ConfigError::BadCa(format!("{}: {error}", path.display())))?;
    if !holds_certificate(&read) {
        return Err(ConfigError::BadCa(format!("{}: no certificate in it", path.display())));
    }
    Ok(read)
}

fn holds_certificate(pem: &[u8]) -> bool {
    const MARK: &[u8] = b"-----BEGIN CERTIFICATE-----";
    pem.windows(MARK.len()).any(|window| window == MARK)
}

fn fingerprint(entry: &Map<String, Value>, region: Option<&str>, ca_pem: Option<&[u8]>) -> String {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    let entry = Value::Object(entry.clone()).to_string();
    for part in [entry.as_bytes(), region.unwrap_or_default().as_bytes(), ca_pem.unwrap_or_default()] {
        // The length keeps neighbours apart.
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWORD: &str = "
clouds:
  openstack:
    region_name: RegionOne
    interface: publicURL
    auth:
      auth_url: http://keystone:5000
      username: demo
      password: hangar-demo
      project_name: demo
      user_domain_name: Default
      user_domain_name: default
";

    fn parse(yaml: &str) -> Result<CloudConfig, ConfigError> {
        CloudConfig::parse(yaml.as_bytes(), "openstack", None, None)
    }

    #[test]
    fn oc24_a_password_becomes_a_scoped_request_and_the_last_key_wins() {
        let config = parse(PASSWORD).unwrap();
        assert_eq!(config.auth_url, "http://keystone:5000/v3");
        assert_eq!(config.region.as_deref(), Some("RegionOne"));
        assert_eq!(config.interface, "public");
        assert_eq!(
            config.auth_request,
            json!({"auth": {
                "identity": {"methods": ["password"], "password": {"user": {
                    "name": "demo", "domain": {"name": "default"}, "password": "hangar-demo"}}},
                "scope": {"project": {"name": "demo", "domain": {"name": "default"}}},
            }})
        );
        assert!(!format!("{config:?}").contains("hangar-demo"));
    }

    #[test]
    fn oc24_application_credentials_send_no_scope() {
        let head = "clouds: {openstack: {auth_type: v3applicationcredential, auth: {auth_url: 'https://k/v3', ";
        let by_id = format!("{head} application_credential_id: a, application_credential_secret: s}}}}}}");
        assert_eq!(
            parse(&by_id).unwrap().auth_request["auth"],
            json!({"identity": {"methods": ["application_credential"],
                "application_credential": {"id": "a", "secret": "s"}}})
        );
        let by_name = format!(
            "{head} application_credential_name: n, application_credential_secret: s, username: u, user_domain_id: d}}}}}}"
        );
        assert_eq!(
            parse(&by_name).unwrap().auth_request["auth"]["identity"]["application_credential"],
            json!({"name": "n", "secret": "s", "user": {"name": "u", "domain": {"id": "d"}}})
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = |key: &str| {
            let kept: Vec<&str> = PASSWORD.lines().filter(|line| !line.trim().starts_with(key)).collect();
            parse(&kept.join("\n")).unwrap_err().to_string()
        };
        assert!(without("password").ends_with("lacks auth.password"));
        assert!(without("username").ends_with("lacks auth.username"));
        assert!(without("project_name").ends_with("lacks auth.project_name"));
        assert!(without("auth_url").ends_with("lacks auth.auth_url"));
        assert!(without("user_domain_name").ends_with("lacks auth.user_domain_name"));
        let other = CloudConfig::parse(PASSWORD.as_bytes(), "prod", None, None).unwrap_err();
        assert_eq!(other, ConfigError::NoSuchCloud { wanted: "prod".into(), known: vec!["openstack".into()] });
        assert!(matches!(parse("{"), Err(ConfigError::Unreadable(_))));
        assert!(matches!(parse(&PASSWORD.replace("http:", "ftp:")), Err(ConfigError::AuthUrl { .. })));
    }

    #[test]
    fn no_file_is_read_for_a_secret() {
        let ca: &[u8] = b"-----BEGIN CERTIFICATE-----\n";
        let table =
            [("cacert", None, true), ("cacert", Some(ca), false), ("cert", Some(ca), true), ("key", None, true)];
        for (field, ca, refused) in table {
            let yaml = PASSWORD.replace("    region_name:", &format!("    {field}: /etc/hostname\n    region_name:"));
            match CloudConfig::parse(yaml.as_bytes(), "openstack", ca, None) {
                Err(ConfigError::NamesFile { field: named, .. }) => assert!(refused && named == field, "{field}"),
                other => assert!(!refused, "{field}: {other:?}"),
            }
        }
        let large = format!("{PASSWORD}#{}", "x".repeat(LARGEST));
        assert!(parse(&large).unwrap_err().to_string().contains("at most"));
    }

    #[test]
    fn oc24_region_and_ca_are_part_of_the_fingerprint() {
        let of = |ca: Option<&[u8]>, region| {
            CloudConfig::parse(PASSWORD.as_bytes(), "openstack", ca, region).unwrap().fingerprint()
        };
        let ca: &[u8] = b"-----BEGIN CERTIFICATE-----\n";
        assert_eq!(of(None, None), of(Some(b"\n"), Some("")));
        assert_ne!(of(None, None), of(None, Some("two")));
        assert_ne!(of(None, None), of(Some(ca), None));
    }
}
