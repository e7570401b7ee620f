//! From a request to streams: the connection of an HTTP request becomes one of SPDY.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::spdy;

/// The client closes the connection when it has read everything.
const LINGER: Duration = Duration::from_secs(5);

pub const EXEC: &str = "v4.channel.k8s.io";
pub const PORT_FORWARD: &str = "portforward.k8s.io";

pub type Body = BoxBody<Bytes, std::io::Error>;

/// The connection becomes streams of one protocol, which `serve` gets.
pub fn upgraded<Served>(
    mut request: Request<Incoming>,
    protocol: &'static str,
    serve: impl FnOnce(mpsc::Receiver<spdy::Stream>) -> Served + Send + 'static,
) -> Response<Body>
where
    Served: Future<Output = ()> + Send + 'static,
{
    let header = |name: &str| request.headers().get_all(name).iter().filter_map(|value| value.to_str().ok());
    let spoken = |name: &str, word: &str| {
        header(name).flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
    };
    if !spoken("upgrade", "SPDY/3.1") || !spoken("x-stream-protocol-version", protocol) {
        let message = format!("only SPDY/3.1 with protocol {protocol} is supported");
        return text_response(StatusCode::BAD_REQUEST, &message);
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(connection) = upgrade.await else { return };
        let mut tasks = JoinSet::new();
        serve(spdy::serve(TokioIo::new(connection), &mut tasks)).await;
        // What was written last must arrive before the connection is closed.
        let _ = tokio::time::timeout(LINGER, tasks.join_all()).await;
    });
    let mut response = text_response(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert("connection", HeaderValue::from_static("Upgrade"));
    headers.insert("upgrade", HeaderValue::from_static("SPDY/3.1"));
    headers.insert("x-stream-protocol-version", HeaderValue::from_static(protocol));
    response
}

pub fn text_response(status: StatusCode, message: &str) -> Response<Body> {
    response(status, Bytes::from(message.to_owned()))
}

pub fn response(status: StatusCode, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}
