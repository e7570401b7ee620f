//! A request, taken apart: which service, which version, which path, who asks.

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use serde_json::Value;

use crate::image::Upload;
use crate::reply::Refusal;

/// One request, taken apart.
pub(crate) struct Ask {
    pub service: &'static str,
    pub method: Method,
    /// Below the service's prefix and version.
    pub path: String,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// `http://host:port`, as the client sees us.
    pub base: String,
    /// The service's own URL up to and with its version.
    pub root: String,
    /// Whether the path had a version in it.
    pub versioned: bool,
    /// Whom the token belongs to.
    pub project_id: String,
    pub user_id: String,
    /// Whether the token has the role `admin`.
    pub admin: bool,
    /// The fault a server made by this request will end in.
    pub doom: Option<String>,
    /// What came in place of a body that is too large to keep.
    pub upload: Option<Upload>,
}

impl Ask {
    pub(crate) fn segments(&self) -> Vec<&str> {
        self.path.split('/').filter(|segment| !segment.is_empty()).collect()
    }

    pub(crate) fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("Malformed request body: {error}"))
    }

    /// Administrators see everything, others what is theirs.
    pub(crate) fn sees(&self, project: &str) -> bool {
        self.admin || self.project_id == project
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The number behind `OpenStack-API-Version: compute 2.53`; `latest` is `highest`, nothing is (2, 1).
    pub(crate) fn microversion(&self, service: &str, highest: (u16, u16)) -> Result<(u16, u16), Refusal> {
        let named = self.header("openstack-api-version").and_then(|text| text.strip_prefix(service));
        let old = self.header("x-openstack-nova-api-version").filter(|_| service == "compute");
        let lowest = if service == "compute" { (2, 1) } else { (3, 0) };
        let Some(text) = named.map(str::trim).or(old) else { return Ok(lowest) };
        if text == "latest" {
            return Ok(highest);
        }
        let parts = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let bad = || {
            Refusal::nova(
                400,
                format!("API Version String {text} is of invalid format. Must be of format MajorNum.MinorNum."),
            )
        };
        let wanted = parts.ok_or_else(bad)?;
        if wanted < lowest || wanted > highest {
            let words = format!(
                "Version {text} is not supported by the API. Minimum is {}.{} and maximum is {}.{}.",
                lowest.0, lowest.1, highest.0, highest.1
            );
            return Err(Refusal::nova(406, words));
        }
        Ok(wanted)
    }

    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.root, self.path)
    }
}

/// Decoded parameters in the order they came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(name), decode(value))
        };
        Self(text.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Some of the parameters.
    pub(crate) fn only(&self, names: &[&str]) -> Self {
        Self(self.0.iter().filter(|(name, _)| names.contains(&name.as_str())).cloned().collect())
    }

    /// The same query with some parameters replaced, encoded.
    pub(crate) fn with(&self, replaced: &[(&str, &str)]) -> String {
        let kept = self.0.iter().filter(|(name, _)| replaced.iter().all(|(other, _)| other != name));
        let kept = kept.map(|(name, value)| (name.as_str(), value.as_str()));
        let part = |(name, value): (&str, &str)| format!("{}={}", encode(name), encode(value));
        kept.chain(replaced.iter().copied()).map(part).collect::<Vec<_>>().join("&")
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn encode(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:,".contains(&byte);
    text.bytes().map(|byte| if keep(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// The services and the versions their paths have; the first is the one that links name.
const SERVICES: [(&str, &[&str]); 7] = [
    ("identity", &["v3"]),
    ("compute", &["v2.1", "v2"]),
    ("network", &["v2.0"]),
    ("image", &["v2"]),
    ("volume", &["v3"]),
    ("load-balancer", &["v2.0", "v2"]),
    ("admin", &[]),
];

pub(crate) fn take_apart(request: Request<Bytes>) -> Ask {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let scheme = header("x-forwarded-proto").or(head.uri.scheme_str()).unwrap_or("http").to_owned();
    let host = head.uri.authority().map(|authority| authority.as_str()).or(header("host")).unwrap_or("localhost");
    let base = format!("{scheme}://{host}");
    let path = head.uri.path();
    let found = SERVICES.iter().find_map(|(service, versions)| {
        let rest = path.strip_prefix('/')?.strip_prefix(service)?;
        (rest.is_empty() || rest.starts_with('/')).then_some((*service, *versions, rest))
    });
    let (service, versions, rest) = found.unwrap_or(("", &[], path));
    let below = versions.iter().find_map(|version| {
        let below = rest.strip_prefix('/')?.strip_prefix(version)?;
        (below.is_empty() || below.starts_with('/')).then_some(below)
    });
    let version = versions.first().copied().unwrap_or_default();
    Ask {
        service,
        versioned: below.is_some(),
        path: below.unwrap_or(rest).trim_end_matches('/').to_owned(),
        root: if version.is_empty() { format!("{base}/{service}") } else { format!("{base}/{service}/{version}") },
        query: Query::parse(head.uri.query().unwrap_or_default()),
        method: head.method,
        headers: head.headers,
        body,
        base,
        project_id: String::new(),
        user_id: String::new(),
        admin: false,
        doom: None,
        upload: None,
    }
}
