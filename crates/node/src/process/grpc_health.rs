//! The gRPC health protocol, as much of it as a probe needs: one call, one number back.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// Asks whether a service (or, with an empty name, the whole server) is serving.
pub(super) async fn ask(host: &str, port: u16, service: &str) -> Result<(), String> {
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http::<Full<Bytes>>();
    let request = http::Request::post(format!("http://{host}:{port}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(question(service).into()))
        .map_err(|error| error.to_string())?;
    let answer = client.request(request).await.map_err(|error| super::probe::chain(&error))?;
    let refused = answer.headers().get("grpc-status").cloned();
    let body = answer.into_body().collect().await.map_err(|error| error.to_string())?;
    let trailers = body.trailers().and_then(|trailers| trailers.get("grpc-status").cloned());
    match refused.or(trailers) {
        Some(code) if code != "0" => Err(format!("the health service answered with gRPC status {code:?}")),
        _ => serving(&body.to_bytes()),
    }
}

/// A message with one text, in a frame that is not compressed.
fn question(service: &str) -> Vec<u8> {
    let mut message = vec![];
    if !service.is_empty() {
        let name = &service.as_bytes()[..service.len().min(127)];
        message.extend([0x0a, u8::try_from(name.len()).unwrap_or(0)]);
        message.extend(name);
    }
    let size = u32::try_from(message.len()).unwrap_or(0).to_be_bytes();
    [&[0][..], &size, &message].concat()
}

fn serving(frame: &[u8]) -> Result<(), String> {
    match frame.get(5..).unwrap_or_default() {
        [0x08, 1, ..] => Ok(()),
        [0x08, 2, ..] => Err("service unhealthy (responded with \"NOT_SERVING\")".into()),
        [0x08, 3, ..] => Err("the service is unknown to the health service".into()),
        _ => Err("service unhealthy (responded with \"UNKNOWN\")".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_and_the_answers() {
        assert_eq!(question(""), [0, 0, 0, 0, 0]);
        assert_eq!(question("a"), [0, 0, 0, 0, 3, 0x0a, 1, b'a']);
        let rows = [
            (&[0, 0, 0, 0, 2, 8, 1][..], true),
            (&[0, 0, 0, 0, 2, 8, 2], false),
            (&[0, 0, 0, 0, 0], false),
            (&[], false),
        ];
        for (frame, healthy) in rows {
            assert_eq!(serving(frame).is_ok(), healthy, "{frame:?}");
        }
    }
}
