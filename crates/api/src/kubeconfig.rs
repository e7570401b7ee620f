//! A kubeconfig that somebody else wrote, such as one from a Secret.
//!
//! Holds: whoever may write a Secret must not thereby run programs, read files or choose a proxy as us. So a kubeconfig is accepted only with what
//! it contains itself: a CA, and a client certificate with its key, or a token, for an https server. Clients are made from what is rebuilt here
//! ([`InlineKubeconfig::to_json`]), never from the original text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::yaml;

/// Certificates, keys and tokens need a few KiB.
pub const LARGEST: usize = 256 << 10;

/// Why a kubeconfig is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigError {
    #[error("it has {0} bytes, at most {LARGEST} are accepted")]
    TooLarge(usize),
    #[error("{0}")]
    Unreadable(String),
    #[error("it has no {0}")]
    Missing(String),
    #[error(
        "{0} is not accepted from a Secret: use certificate-authority-data, and client-certificate-data with client-key-data, or token"
    )]
    Refused(String),
    #[error("{field} is {problem}")]
    Invalid { field: String, problem: &'static str },
}

/// All that is needed to reach one cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct InlineKubeconfig {
    /// `https://host:port`
    pub server: String,
    /// As the original has them: people know their contexts by name.
    names: Names,
    tls_server_name: Option<String>,
    ca: String,
    credential: Credential,
}

#[derive(Clone, PartialEq, Eq)]
struct Names {
    context: String,
    cluster: String,
    user: String,
}

#[derive(Clone, PartialEq, Eq)]
enum Credential {
    Certificate { certificate: String, key: String },
    Token(String),
}

/// Keys and tokens do not show.
impl std::fmt::Debug for InlineKubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InlineKubeconfig").field("server", &self.server).finish_non_exhaustive()
    }
}

impl InlineKubeconfig {
    pub fn parse(text: &str) -> Result<Self, KubeconfigError> {
        if text.len() > LARGEST {
            return Err(KubeconfigError::TooLarge(text.len()));
        }
        let file = yaml::document(text).map_err(|error| KubeconfigError::Unreadable(error.to_string()))?;
        let current = file["current-context"].as_str().filter(|name| !name.is_empty());
        let current = current.ok_or_else(|| KubeconfigError::Missing("current-context".to_owned()))?;
        let context = Entry::find(&file, "contexts", "context", current)?;
        let names = Names {
            context: current.to_owned(),
            cluster: context.need("cluster")?.to_owned(),
            user: context.need("user")?.to_owned(),
        };
        let cluster = Entry::find(&file, "clusters", "cluster", &names.cluster)?;
        let user = Entry::find(&file, "users", "user", &names.user)?;
        cluster.only(&[
            "server",
            "certificate-authority-data",
            "tls-server-name",
            "disable-compression",
            "extensions",
        ])?;
        user.only(&["client-certificate-data", "client-key-data", "token", "extensions"])?;
        Ok(Self {
            server: cluster.server()?,
            names,
            tls_server_name: cluster.text("tls-server-name")?.map(str::to_owned),
            ca: cluster.data("certificate-authority-data")?,
            credential: match user.text("token")? {
                Some(token) if token.bytes().all(|byte| byte.is_ascii_graphic()) => Credential::Token(token.to_owned()),
                Some(_) => return Err(user.invalid("token", "not a token: it contains spaces or control characters")),
                None => Credential::Certificate {
                    certificate: user.data("client-certificate-data")?,
                    key: user.data("client-key-data")?,
                },
            },
        })
    }

    /// The same as a kubeconfig that contains nothing else.
    pub fn to_json(&self) -> String {
        let mut cluster = json!({"server": self.server, "certificate-authority-data": self.ca});
        if let Some(name) = &self.tls_server_name {
            cluster["tls-server-name"] = name.as_str().into();
        }
        let user = match &self.credential {
            Credential::Certificate { certificate, key } => {
                json!({"client-certificate-data": certificate, "client-key-data": key})
            }
            Credential::Token(token) => json!({"token": token}),
        };
        let names = &self.names;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": names.cluster, "cluster": cluster}],
            "users": [{"name": names.user, "user": user}],
            "contexts": [{"name": names.context, "context": {"cluster": names.cluster, "user": names.user}}],
            "current-context": names.context,
        });
        format!("{config:#}\n")
    }
}

/// The fields of a cluster, a user or a context, and where they are.
struct Entry<'a> {
    place: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Entry<'a> {
    /// Of two with one name the first counts, as it does for kubectl.
    fn find(file: &'a Value, list: &str, field: &str, name: &str) -> Result<Self, KubeconfigError> {
        let shown: String = name.chars().filter(|letter| !letter.is_control()).take(253).collect();
        let missing = || KubeconfigError::Missing(format!("{list} named {shown}"));
        let mut entries = file[list].as_array().into_iter().flatten();
        let entry = entries.find(|entry| entry["name"] == name).ok_or_else(missing)?;
        let fields = entry[field].as_object().ok_or_else(missing)?;
        Ok(Self { place: format!("{list}[{shown}].{field}"), fields })
    }

    fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.place)
    }

    fn invalid(&self, name: &str, problem: &'static str) -> KubeconfigError {
        KubeconfigError::Invalid { field: self.field(name), problem }
    }

    /// Everything that is set must be known: what a later client makes of other fields is not known here.
    fn only(&self, known: &[&str]) -> Result<(), KubeconfigError> {
        let is_set = |value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            _ => true,
        };
        let other = self.fields.iter().find(|(name, value)| !known.contains(&name.as_str()) && is_set(value));
        match other {
            Some((name, _)) => Err(KubeconfigError::Refused(self.field(&name.chars().take(100).collect::<String>()))),
            None => Ok(()),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, KubeconfigError> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(self.invalid(name, "not a string")),
        }
    }

    fn need(&self, name: &str) -> Result<&'a str, KubeconfigError> {
        self.text(name)?.ok_or_else(|| KubeconfigError::Missing(self.field(name)))
    }

    /// PEM in base64, as it stands.
    fn data(&self, name: &str) -> Result<String, KubeconfigError> {
        let text: String = self.need(name)?.split_ascii_whitespace().collect();
        let decoded = STANDARD.decode(&text).map_err(|_| self.invalid(name, "not valid base64"))?;
        if !decoded.starts_with(b"-----BEGIN ") && !decoded.windows(12).any(|window| window == b"\n-----BEGIN ") {
            return Err(self.invalid(name, "not PEM"));
        }
        Ok(text)
    }

    fn server(&self) -> Result<String, KubeconfigError> {
        let server = self.need("server")?;
        let bad = |problem| Err(self.invalid("server", problem));
        let Some(rest) = server.strip_prefix("https://") else { return bad("not an https URL") };
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/[]%".contains(&byte);
        if rest.is_empty() || rest.starts_with([':', '/']) || !rest.bytes().all(allowed) {
            return bad("not of the form https://host:port");
        }
        Ok(server.to_owned())
    }
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
