//! Answers, and refusals in the shape each service gives them.

use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Option<Value>,
    /// Instead of a body: what a service says that answers with a page.
    pub html: Option<String>,
}

pub(crate) type Outcome = Result<Reply, Refusal>;

#[derive(Debug, Clone)]
pub(crate) struct Refusal(pub Box<Reply>);

impl Reply {
    pub(crate) fn new(status: u16, body: Value) -> Self {
        Self { status, headers: vec![], body: Some(body), html: None }
    }

    pub(crate) fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { status, headers: vec![], body: None, html: None }
    }
}

impl Refusal {
    fn new(status: u16, body: Value) -> Self {
        Self(Box::new(Reply::new(status, body)))
    }

    pub(crate) fn nova(status: u16, message: impl Into<String>) -> Self {
        let kind = match status {
            400 => "badRequest",
            403 => "forbidden",
            404 => "itemNotFound",
            405 => "badMethod",
            409 => "conflictingRequest",
            413 => "overLimit",
            _ => "computeFault",
        };
        Self::new(status, json!({kind: {"code": status, "message": message.into()}}))
    }

    /// What a path that does not exist answers in Nova and Cinder: a page, not JSON.
    pub(crate) fn no_such_path() -> Self {
        Self::page(404, "Not Found", "The resource could not be found.")
    }

    pub(crate) fn neutron(status: u16, kind: &str, message: impl Into<String>) -> Self {
        Self::new(status, json!({"NeutronError": {"type": kind, "message": message.into(), "detail": ""}}))
    }

    pub(crate) fn octavia(status: u16, message: impl Into<String>) -> Self {
        let side = if status < 500 { "Client" } else { "Server" };
        Self::new(status, json!({"faultcode": side, "faultstring": message.into(), "debuginfo": null}))
    }

    /// Glance answers with a page.
    pub(crate) fn glance(status: u16, message: &str) -> Self {
        let title = match status {
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            409 => "Conflict",
            413 => "Request Entity Too Large",
            415 => "Unsupported Media Type",
            _ => "Internal Server Error",
        };
        Self::page(status, title, message)
    }

    fn page(status: u16, title: &str, message: &str) -> Self {
        let html = format!(
            "<html>\n <head>\n  <title>{status} {title}</title>\n </head>\n <body>\n  <h1>{status} {title}</h1>\n  {message}<br /><br />\n\n\n\n </body>\n</html>"
        );
        Self(Box::new(Reply { html: Some(html), ..Reply::empty(status) }))
    }

    pub(crate) fn keystone(status: u16, title: &str, message: impl Into<String>) -> Self {
        Self::new(status, json!({"error": {"code": status, "message": message.into(), "title": title}}))
    }

    /// What Keystone and the token check in front of every other service say.
    pub(crate) fn unauthorized() -> Self {
        Self::keystone(401, "Unauthorized", "The request you have made requires authentication.")
    }

    /// A refusal without any reason of its own, in the words and the shape of the service that is asked.
    pub(crate) fn of(service: &str, status: u16, message: &str) -> Self {
        match service {
            "network" => Self::neutron(status, "Injected", message),
            "image" => Self::glance(status, message),
            "load-balancer" => Self::octavia(status, message),
            "identity" => Self::keystone(status, message, message),
            _ => Self::nova(status, message),
        }
    }
}
