//! What must hold for any bytes at all: no panic, no endless loop. The targets of `fuzz/` and an ordinary test call these.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde_json::Value;
use tokio::time::Instant;

use crate::budget::{Allowance, Limits};
use crate::error::{LONGEST_PATIENCE, Target};
use crate::session::Session;
use crate::wire::{Image, LoadBalancer, Port, Server, TokenReply, Volume};
use crate::{CloudConfig, Service};

/// A clouds.yaml is a credential or an error in words, and never shows a password.
pub fn fuzz_clouds_yaml(bytes: &[u8]) {
    match CloudConfig::parse(bytes, "openstack", Some(bytes), None) {
        Ok(config) => {
            // Unless somebody wrote the password into a field that is shown.
            let shown = format!("{} {}", config.auth_url(), config.region().unwrap_or_default());
            assert!(shown.contains("hunter2") || !format!("{config:?}").contains("hunter2"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// An answer is a value or an error in words, whatever its status; the first byte chooses that.
pub fn fuzz_answer(bytes: &[u8]) {
    let (first, body) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
    let status = StatusCode::from_u16(400 + u16::from(first)).unwrap_or(StatusCode::BAD_REQUEST);
    for service in [Service::Nova, Service::Neutron, Service::Glance, Service::Octavia] {
        let target = Target { service, method: Method::GET, path: "/x".to_owned() };
        let error = target.refused(status, &HeaderMap::new(), body);
        assert!(!error.message.is_empty() && error.message.chars().count() <= 1000);
    }
    drop(serde_json::from_slice::<Server>(body));
    drop(serde_json::from_slice::<Port>(body));
    drop(serde_json::from_slice::<TokenReply>(body));
    drop(serde_json::from_slice::<Image>(body));
    drop(serde_json::from_slice::<Volume>(body));
    drop(serde_json::from_slice::<LoadBalancer>(body));
}

/// A whole answer, written as `{"status", "retry-after", "x-openstack-request-id", "body"}`: what a session, a list and an error make of it.
pub fn fuzz_exchange(bytes: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(bytes) else { return fuzz_answer(bytes) };
    let body = answer["body"].to_string();
    let status = answer["status"].as_u64().and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
    let mut headers = HeaderMap::new();
    for name in ["retry-after", "x-openstack-request-id"] {
        let text = answer[name].as_str().map_or_else(|| answer[name].to_string(), str::to_owned);
        headers.extend(HeaderValue::from_str(&text).ok().map(|value| (HeaderName::from_static(name), value)));
    }
    let target = Target { service: Service::Neutron, method: Method::GET, path: "/ports".to_owned() };
    let error = target.refused(status.unwrap_or(StatusCode::BAD_GATEWAY), &headers, body.as_bytes());
    assert!(!error.to_string().is_empty() && error.message.chars().count() <= 1000);
    let budget = Allowance::new(Limits::default());
    if let Some(time) = error.retry_after() {
        budget.pause(Service::Neutron, time);
        assert!(budget.paused_for(Service::Neutron).is_none_or(|left| left <= LONGEST_PATIENCE));
    }
    if let Ok(reply) = serde_json::from_str::<TokenReply>(&body)
        && let Ok(session) = Session::read("t".to_owned(), reply, Instant::now())
    {
        assert!(!session.token.is_empty());
    }
    if let Some(query) = crate::query::next_query(&answer["body"], "ports") {
        assert!(!query.contains('?') || query.len() < body.len());
    }
    fuzz_answer(body.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ from a good example in a few places; the same seed makes the same bytes.
    fn mutated(example: &[u8], seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut roll = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            usize::try_from(state >> 33).unwrap_or(0)
        };
        let mut bytes = example.to_vec();
        for _ in 0..=roll() % 6 {
            let at = roll() % bytes.len().max(1);
            match roll() % 4 {
                0 => bytes.truncate(at),
                1 if !bytes.is_empty() => bytes[at] = u8::try_from(roll() % 256).unwrap_or(0),
                2 => drop(bytes.splice(at..at, b"\t:[{&*".iter().copied())),
                _ => bytes.extend_from_within(..at.min(bytes.len())),
            }
        }
        bytes
    }

    #[test]
    fn no_file_and_no_answer_makes_it_panic() {
        let yaml = b"clouds:\n  openstack:\n    region_name: R\n    verify: false\n    auth: {auth_url: 'http://k/v3', username: u, password: hunter2, project_name: p, user_domain_name: d}\n";
        let answer = br#"{"server": {"id": "1", "image": "", "addresses": {"n": [{"addr": "1", "version": 4}]}, "fault": {"code": 500}}, "token": {"catalog": [{"endpoints": []}]}, "NeutronError": {"type": "OverQuota", "message": "m"}}"#;
        for seed in 0..20_000 {
            fuzz_clouds_yaml(&mutated(yaml, seed));
            fuzz_answer(&mutated(answer, seed));
        }
    }
}
