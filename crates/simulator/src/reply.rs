//! Answers, and refusals in the shape each service gives them.

use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Option<Value>,
}

pub(crate) type Outcome = Result<Reply, Refusal>;

#[derive(Debug, Clone)]
pub(crate) struct Refusal(pub Reply);

impl Reply {
    pub(crate) fn new(status: u16, body: Value) -> Self {
        Self { status, headers: vec![], body: Some(body) }
    }

    pub(crate) fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { status, headers: vec![], body: None }
    }
}

impl Refusal {
    fn new(status: u16, body: Value) -> Self {
        Self(Reply::new(status, body))
    }

    pub(crate) fn nova(status: u16, message: impl Into<String>) -> Self {
        let kind = match status {
            400 => "badRequest",
            403 => "forbidden",
            404 => "itemNotFound",
            405 => "badMethod",
            409 => "conflictingRequest",
            _ => "computeFault",
        };
        Self::new(status, json!({kind: {"code": status, "message": message.into()}}))
    }

    pub(crate) fn neutron(status: u16, kind: &str, message: impl Into<String>) -> Self {
        Self::new(status, json!({"NeutronError": {"type": kind, "message": message.into(), "detail": ""}}))
    }

    pub(crate) fn glance(status: u16, message: &str) -> Self {
        Self::new(status, json!({"message": message, "code": status}))
    }

    pub(crate) fn keystone(status: u16, title: &str, message: impl Into<String>) -> Self {
        Self::new(status, json!({"error": {"code": status, "message": message.into(), "title": title}}))
    }

    /// What Keystone and the token check in front of every other service say.
    pub(crate) fn unauthorized() -> Self {
        Self::keystone(401, "Unauthorized", "The request you have made requires authentication.")
    }
}
