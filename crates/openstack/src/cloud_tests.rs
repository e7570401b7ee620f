use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use tower::service_fn;
use tower::util::BoxCloneSyncService;

use super::*;

const CLOUDS: &str = "clouds: {openstack: {auth: {auth_url: 'http://k/v3', token: t, project_id: p}}}";

fn token() -> Response<Bytes> {
    let endpoint = json!({"interface": "public", "region": "R", "region_id": "R", "url": "http://n"});
    let token = json!({"token": {
        "issued_at": "2026-01-01T00:00:00Z", "expires_at": "9999-12-01T00:00:00Z",
        "project": {"id": "p", "name": "p", "domain": {"id": "default", "name": "Default"}},
        "user": {"id": "u", "name": "u", "domain": {"id": "default", "name": "Default"}},
        "catalog": [{"id": "n", "type": "network", "name": "n", "endpoints": [endpoint]}],
    }});
    Response::builder().header("x-subject-token", "t").body(token.to_string().into()).unwrap()
}

/// A cloud that answers every call but that for a token in this way; the number counts up.
fn answering(answer: impl Fn(usize) -> Response<Bytes> + Clone + Send + Sync + 'static) -> Cloud {
    let count = Arc::new(AtomicUsize::new(0));
    let transport = BoxCloneSyncService::new(service_fn(move |request: Request<Bytes>| {
        let reply = if request.uri().path().ends_with("/auth/tokens") {
            token()
        } else {
            answer(count.fetch_add(1, Ordering::SeqCst))
        };
        std::future::ready(Ok(reply))
    }));
    let config = CloudConfig::parse(CLOUDS.as_bytes(), "openstack", None, None).unwrap();
    let limits = Limits { per_second: 1e9, burst: 1e9, ..Limits::default() };
    Cloud::with_limits(config, transport, limits)
}

fn page(number: usize, items: Value) -> Response<Bytes> {
    let next = json!([{"rel": "next", "href": format!("http://n/v2.0/ports?marker={number}")}]);
    Response::new(json!({"ports": items, "ports_links": next}).to_string().into())
}

#[tokio::test]
async fn a_list_that_never_ends_is_given_up() {
    let port = json!({"id": "1", "network_id": "n"});
    let empty = answering(|number| page(number, json!([])));
    let full = answering(move |number| page(number, vec![port.clone(); 2_000].into()));
    let large =
        answering(|number| page(number, json!([{"id": "1", "network_id": "n", "description": "x".repeat(9 << 20)}])));
    for (cloud, most) in [(empty, MOST_PAGES + 1), (full, MOST_ITEMS / 2_000 + 2), (large, 15)] {
        let error = cloud.ports(&crate::PortQuery::default()).await.unwrap_err();
        assert!(error.kind == ErrorKind::Malformed && error.message.contains("does not end"), "{error}");
        assert!(cloud.calls().total() <= most as u64, "{}", cloud.calls().total());
    }
}

#[tokio::test(start_paused = true)]
async fn no_retry_after_ends_the_process_or_the_cluster() {
    for seconds in ["18446744073709551615", "9223372036854775807", "31536000"] {
        let cloud = answering(move |number| match number {
            0 => Response::builder().status(429).header("retry-after", seconds).body(Bytes::new()).unwrap(),
            _ => Response::new(json!({"ports": []}).to_string().into()),
        });
        let asked = cloud.ports(&crate::PortQuery::default()).await.unwrap_err();
        assert_eq!(asked.retry_after(), Some(Duration::from_secs(300)), "{seconds}");
        tokio::time::advance(Duration::from_secs(300)).await;
        cloud.ports(&crate::PortQuery::default()).await.unwrap();
    }
}
