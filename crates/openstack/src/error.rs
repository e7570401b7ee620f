//! What a cloud answered when it did not do what was asked, sorted by what a caller can do about it.
//!
//! Holds: the message is the cloud's own, the request id is kept (operators search their logs by it), no token or password
//! ever gets in here.

use std::fmt;
use std::time::Duration;

use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;

/// Who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    Keystone,
    Nova,
    Neutron,
    Glance,
    Cinder,
    Octavia,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keystone => "keystone",
            Self::Nova => "nova",
            Self::Neutron => "neutron",
            Self::Glance => "glance",
            Self::Cinder => "cinder",
            Self::Octavia => "octavia",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    Unauthorized,
    Forbidden,
    /// A limit of the project: only people can help.
    Quota,
    NotFound,
    Conflict,
    BadRequest,
    /// The cloud asks for patience.
    TooManyRequests {
        retry_after: Option<Duration>,
    },
    Server,
    /// No answer: the call may or may not have been carried out.
    Unreachable,
    /// An answer that makes no sense.
    Malformed,
}

/// One failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    /// The cloud's own words.
    pub message: String,
    pub request_id: Option<String>,
    pub service: Service,
    pub method: Method,
    /// Below the service's endpoint, without the query.
    pub path: String,
    pub status: Option<u16>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, method, path, message, .. } = self;
        match (self.status, self.kind) {
            (Some(status), ErrorKind::Malformed) => {
                write!(f, "{service} sent an invalid response to {method} {path} ({status}): {message}")?;
            }
            (Some(status), _) => write!(f, "{service} refused {method} {path} ({status}): {message}")?,
            (None, ErrorKind::Unreachable) => write!(f, "{service} did not respond to {method} {path}: {message}")?,
            (None, _) => write!(f, "could not send {method} {path} to {service}: {message}")?,
        }
        match &self.request_id {
            Some(id) => write!(f, " [{id}]"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }

    /// After how long the cloud wants to be asked again, if it said so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.kind {
            ErrorKind::TooManyRequests { retry_after } => retry_after,
            _ => None,
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::TooManyRequests { .. } | ErrorKind::Server | ErrorKind::Unreachable)
    }
}

/// Where a call went, so that errors can name it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub service: Service,
    pub method: Method,
    pub path: String,
}

impl Target {
    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            request_id: None,
            service: self.service,
            method: self.method.clone(),
            path: self.path.clone(),
            status: None,
        }
    }

    pub(crate) fn refused(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
        let message = match body.trim_ascii() {
            [] => status.canonical_reason().unwrap_or("no reason given").to_owned(),
            body => self.words(headers, body).unwrap_or_else(|| NOT_OPENSTACK.to_owned()),
        };
        Error {
            status: Some(status.as_u16()),
            request_id: request_id(headers),
            ..self.error(kind(self.service, status, headers, body, &message), message)
        }
    }

    /// What a service of OpenStack says. Whoever writes a clouds.yaml chooses the host: what others answer is not for conditions.
    fn words(&self, headers: &HeaderMap, body: &[u8]) -> Option<String> {
        const LONGEST: usize = 1000;
        let text = match serde_json::from_slice::<Value>(body) {
            Ok(value) => message_in(&value)?.to_owned(),
            // Glance answers in HTML.
            Err(_) if self.service == Service::Glance && request_id(headers).is_some() => {
                without_tags(&String::from_utf8_lossy(body))
            }
            Err(_) => return None,
        };
        let text = text.trim();
        (!text.is_empty()).then(|| text.chars().take(LONGEST).collect())
    }

    pub(crate) fn malformed(&self, status: StatusCode, headers: &HeaderMap, why: impl fmt::Display) -> Error {
        Error {
            status: Some(status.as_u16()),
            request_id: request_id(headers),
            ..self.error(ErrorKind::Malformed, why.to_string().chars().take(LONGEST_REASON).collect::<String>())
        }
    }
}

const NOT_OPENSTACK: &str = "the answer is not from an OpenStack service";
/// Of a parser's complaint, which may quote the answer.
const LONGEST_REASON: usize = 200;

fn kind(service: Service, status: StatusCode, headers: &HeaderMap, body: &[u8], message: &str) -> ErrorKind {
    let retry_after = retry_after(headers);
    let quota = || {
        let says = message.to_ascii_lowercase();
        says.contains("quota exceeded")
            || says.contains("quota has been")
            || says.contains("exceeded for quota")
            || says.contains("exceeds allowed")
            || neutron_type(body) == Some("OverQuota".into())
    };
    match status.as_u16() {
        401 => ErrorKind::Unauthorized,
        // Nova and Cinder say 413 both for limits and for haste; only the latter names a time.
        403 | 409 | 413 if quota() => ErrorKind::Quota,
        403 => ErrorKind::Forbidden,
        // A 404 that no service wrote is a proxy's: whoever deletes must not take it for `already gone`.
        404 | 410
            if service == Service::Glance
                || serde_json::from_slice::<Value>(body).is_ok_and(|body| message_in(&body).is_some()) =>
        {
            ErrorKind::NotFound
        }
        404 | 410 => ErrorKind::Malformed,
        409 | 412 => ErrorKind::Conflict,
        413 if retry_after.is_some() => ErrorKind::TooManyRequests { retry_after },
        413 => ErrorKind::Quota,
        429 => ErrorKind::TooManyRequests { retry_after },
        503 if retry_after.is_some() => ErrorKind::TooManyRequests { retry_after },
        400..=499 => ErrorKind::BadRequest,
        500..=599 => ErrorKind::Server,
        _ => ErrorKind::Malformed,
    }
}

fn neutron_type(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    Some(value.get("NeutronError")?.get("type")?.as_str()?.to_owned())
}

/// The message out of any of OpenStack's error bodies: `{"forbidden": {"message"}}`, `{"NeutronError": {"message"}}`, `{"error": {"message"}}`,
/// `{"faultcode", "faultstring"}`, and `{"code": "404 Not Found", "message"}` of what stands before a service. A Kubernetes Status is none of them.
fn message_in(value: &Value) -> Option<&str> {
    let fields = value.as_object()?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    if let (Some(_), Some(words)) = (text("faultcode"), text("faultstring")) {
        return Some(words);
    }
    // Octavia 19, about members of a pool that is not there.
    if let (Some(words), Some(_), true) =
        (text("description"), text("title"), fields.get("code").is_some_and(Value::is_u64))
    {
        return Some(words);
    }
    let is_status = |code: &str| code.len() >= 3 && code.bytes().take(3).all(|byte| byte.is_ascii_digit());
    if let (Some(words), Some(_)) = (text("message"), text("code").filter(|code| is_status(code))) {
        return Some(words);
    }
    match fields.iter().next() {
        Some((_, fault)) if fields.len() == 1 => fault.as_object()?.get("message")?.as_str(),
        _ => None,
    }
}

fn without_tags(html: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for letter in html.chars() {
        match letter {
            '<' => inside = true,
            '>' => {
                inside = false;
                text.push(' ');
            }
            _ if !inside => text.push(letter),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn request_id(headers: &HeaderMap) -> Option<String> {
    ["x-openstack-request-id", "x-compute-request-id"]
        .iter()
        .find_map(|name| headers.get(*name)?.to_str().ok().map(str::to_owned))
}

/// Who asks for more patience than this is asked again all the same: a wrong header must not stop a cluster for years.
pub(crate) const LONGEST_PATIENCE: Duration = Duration::from_secs(300);

/// Seconds only: no OpenStack service sends a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().map_or(LONGEST_PATIENCE, Duration::from_secs).min(LONGEST_PATIENCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, retry_after: Option<&'static str>, body: &str) -> Error {
        let target = Target { service: Service::Nova, method: Method::POST, path: "/servers".to_owned() };
        let mut headers = HeaderMap::new();
        headers.insert("x-openstack-request-id", http::HeaderValue::from_static("req-1"));
        if let Some(seconds) = retry_after {
            headers.insert("retry-after", http::HeaderValue::from_static(seconds));
        }
        target.refused(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes())
    }

    #[test]
    fn every_class_of_answer_has_its_kind() {
        let over = r#"{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['port'].", "detail": ""}}"#;
        let instances = r#"{"forbidden": {"code": 403, "message": "Quota exceeded for instances: Requested 1"}}"#;
        let wait = Some(Duration::from_secs(7));
        let table = [
            (401, None, "{}", ErrorKind::Unauthorized),
            (403, None, instances, ErrorKind::Quota),
            (403, None, r#"{"forbidden": {"message": "Policy doesn't allow it"}}"#, ErrorKind::Forbidden),
            (404, None, r#"{"itemNotFound": {"message": "Instance x could not be found."}}"#, ErrorKind::NotFound),
            (
                404,
                None,
                r#"{"code": 404, "title": "Bad Request", "description": "Pool x not found."}"#,
                ErrorKind::NotFound,
            ),
            (404, None, "404 page not found", ErrorKind::Malformed),
            (404, None, "", ErrorKind::Malformed),
            (409, None, over, ErrorKind::Quota),
            (409, None, r#"{"NeutronError": {"type": "PortInUse", "message": "in use"}}"#, ErrorKind::Conflict),
            (400, None, "", ErrorKind::BadRequest),
            (413, Some("7"), "", ErrorKind::TooManyRequests { retry_after: wait }),
            (413, None, "", ErrorKind::Quota),
            (429, Some("7"), "", ErrorKind::TooManyRequests { retry_after: wait }),
            (429, None, "", ErrorKind::TooManyRequests { retry_after: None }),
            (503, Some("7"), "", ErrorKind::TooManyRequests { retry_after: wait }),
            (503, None, "", ErrorKind::Server),
            (500, None, "", ErrorKind::Server),
        ];
        for (status, seconds, body, kind) in table {
            assert_eq!(refused(status, seconds, body).kind, kind, "{status} {body}");
        }
    }

    #[test]
    fn the_text_names_service_call_status_words_and_request() {
        let body = r#"{"forbidden": {"code": 403, "message": "Quota exceeded for instances: Requested 1"}}"#;
        assert_eq!(
            refused(403, None, body).to_string(),
            "nova refused POST /servers (403): Quota exceeded for instances: Requested 1 [req-1]"
        );
    }

    #[test]
    fn words_are_found_in_every_kind_of_body() {
        let table = [
            (r#"{"error": {"code": 401, "message": "Sign in", "title": "Unauthorized"}}"#, "Sign in"),
            (r#"{"faultcode": "Client", "faultstring": "Bad listener", "debuginfo": null}"#, "Bad listener"),
            (r#"{"message": "No such image", "code": "404 Not Found"}"#, "No such image"),
            ("", "Bad Request"),
        ];
        for (body, expected) in table {
            assert_eq!(refused(400, None, body).message, expected, "{body}");
        }
    }

    #[test]
    fn what_is_not_openstack_is_not_repeated() {
        let table = [
            "<html><body>secret of an intranet page</body></html>",
            "ami-id: secret",
            r#"{"kind": "Status", "message": "secret", "code": 403}"#,
            r#"{"message": "secret"}"#,
            r#"{"data": {"token": "secret"}}"#,
            r#"["secret"]"#,
            r#""secret""#,
        ];
        for body in table {
            for status in [400, 403, 404, 500, 503] {
                let error = refused(status, None, body);
                assert_eq!(error.message, NOT_OPENSTACK, "{body}");
                assert!(!error.is_not_found() && !error.to_string().contains("secret"), "{error}");
            }
        }
    }

    #[test]
    fn html_counts_from_glance_only_and_with_its_request_id() {
        let body = b"<html><head><title>404</title></head><body>Not <b>here</b></body></html>";
        let target = Target { service: Service::Glance, method: Method::GET, path: "/images/1".to_owned() };
        let mut headers = HeaderMap::new();
        assert_eq!(target.refused(StatusCode::NOT_FOUND, &headers, body).message, NOT_OPENSTACK);
        headers.insert("x-openstack-request-id", http::HeaderValue::from_static("req-1"));
        assert_eq!(target.refused(StatusCode::NOT_FOUND, &headers, body).message, "404 Not here");
    }

    #[test]
    fn patience_has_an_end() {
        let of = |text| refused(429, Some(text), "").retry_after();
        assert_eq!(of("7"), Some(Duration::from_secs(7)));
        for large in ["301", "18446744073709551615", "99999999999999999999999999"] {
            assert_eq!(of(large), Some(LONGEST_PATIENCE), "{large}");
        }
        for other in ["-1", "", "Wed, 21 Oct 2026 07:28:00 GMT", "1e9"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
