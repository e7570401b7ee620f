//! Why a request is not carried out, as the Status object that clients read.

use serde_json::{Value, json};

use super::resource::Resource;

/// An answer other than success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    details: Option<Box<(String, String, String)>>,
    /// Reason and message of what lies behind it.
    cause: Option<(&'static str, String)>,
}

impl Refusal {
    pub fn plain(code: u16, message: &str) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            409 => "Conflict",
            410 => "Expired",
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self { code, reason, message: message.to_owned(), details: None, cause: None }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = Some(Box::new((resource.group.clone(), resource.plural.clone(), name.to_owned())));
        self
    }

    /// An eviction that a disruption budget does not allow.
    pub fn disruption(resource: &Resource, name: &str, why: String) -> Self {
        let refusal = Self::plain(429, "Cannot evict pod as it would violate the pod's disruption budget.");
        Self { cause: Some(("DisruptionBudget", why)), ..refusal.about(resource, name) }
    }

    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::plain(404, &format!("{} \"{name}\" not found", resource.qualified())).about(resource, name)
    }

    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        let refusal = Self::plain(409, &format!("{} \"{name}\" already exists", resource.qualified()));
        Self { reason: "AlreadyExists", ..refusal }.about(resource, name)
    }

    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::plain(409, &message).about(resource, name)
    }

    pub fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub fn invalid(resource: &Resource, name: &str, why: &str) -> Self {
        let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
        let message = format!("{}{group} \"{name}\" is invalid: {why}", resource.kind);
        Self::plain(422, &message).about(resource, name)
    }

    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some((group, plural, name)) = self.details.as_deref() {
            body["details"] = json!({ "group": group, "kind": plural, "name": name });
        }
        if let Some((reason, message)) = &self.cause {
            body["details"]["causes"] = json!([{ "reason": reason, "message": message }]);
        }
        body
    }
}

/// The answer to a deletion that is complete.
pub(super) fn deleted(resource: &Resource, name: &str, uid: &Value) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": { "group": resource.group, "kind": resource.plural, "name": name, "uid": uid },
    })
}
