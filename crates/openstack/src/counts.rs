//! How often what was asked: the number behind every claim about load.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use http::Method;
use serde::Serialize;

use crate::Service;
use crate::metrics::Metrics;

/// Calls since the cloud was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CallCounts {
    /// By `service METHOD resource`, such as `neutron GET ports`.
    pub calls: BTreeMap<String, u64>,
    /// The same keys, only calls that failed.
    pub failures: BTreeMap<String, u64>,
    pub tokens: u64,
}

impl CallCounts {
    pub fn total(&self) -> u64 {
        self.calls.values().sum()
    }
}

#[derive(Default)]
pub(crate) struct Counter(Mutex<CallCounts>, pub Metrics);

impl Counter {
    pub(crate) fn count(&self, service: Service, method: &Method, path: &str, ok: bool, took: Duration) {
        let key = format!("{service} {method} {}", resource(path));
        self.1.observe(method, path, ok, took);
        self.change(|counts| {
            if !ok {
                *counts.failures.entry(key.clone()).or_default() += 1;
            }
            *counts.calls.entry(key).or_default() += 1;
        });
    }

    pub(crate) fn token(&self) {
        self.change(|counts| counts.tokens += 1);
    }

    pub(crate) fn snapshot(&self) -> CallCounts {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut CallCounts)) {
        change(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}

/// The kind of thing a path is about; ids would make a key per object.
fn resource(path: &str) -> &str {
    path.trim_start_matches("/lbaas").trim_start_matches('/').split('/').next().unwrap_or_default()
}
