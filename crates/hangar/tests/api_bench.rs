//! What the API costs: installing all definitions on a fresh API server, its memory, and the webhook under many callers. Run by
//! `cargo xtask bench`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark says what went wrong by panicking")]

mod api;

use std::time::{Duration, Instant};

use api::Api;
use hangar_api::Object;
use hangar_api::crds::definitions;
use hangar_engine::management::api_of;
use kube::api::{Api as KubeApi, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use serde_json::{Map, Value, json};

const CALLERS: usize = 32;
const LONG_ENOUGH: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Report(Map<String, Value>);

impl Report {
    fn row(&mut self, name: &str, value: &str) {
        println!("| {name:<70} | {value:>20} |");
        self.0.insert(name.to_owned(), value.into());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a test: `cargo xtask bench` runs it"]
async fn what_the_api_costs() {
    let mut report = Report::default();
    let api = Api::bare().await;
    let all: Vec<Object> = definitions(Some(&api.webhook)).map(Object).collect();
    report.row("definitions", &all.len().to_string());
    let before = resident(&api);
    let began = Instant::now();
    futures::future::join_all(all.iter().map(|definition| install(&api, definition))).await;
    report.row("all definitions installed at once, fresh API server", &seconds(began));
    let began = Instant::now();
    futures::future::join_all(all.iter().map(|definition| install(&api, definition))).await;
    report.row("the same again, nothing changed", &seconds(began));
    // The server makes its OpenAPI documents when it is asked for them.
    api.kubectl(&["get", "--raw", "/openapi/v2"]);
    report.row("API server's memory before", &mib(before));
    report.row("API server's memory with all definitions", &mib(resident(&api)));
    webhook(&api, &mut report).await;
    api.stop().await;

    let api = Api::bare().await;
    let all: Vec<Object> = definitions(Some(&api.webhook)).map(Object).collect();
    let began = Instant::now();
    for definition in &all {
        install(&api, definition).await;
    }
    report.row("all definitions installed one after the other, fresh API server", &seconds(began));
    api.stop().await;
    println!("{}", Value::Object(report.0));
}

async fn install(api: &Api, definition: &Object) {
    let params = PatchParams::apply("hangar").force();
    api_of(&api.client, definition).patch(definition.name(), &params, &Patch::Apply(&definition.0)).await.unwrap();
    await_condition(KubeApi::all(api.client.clone()), definition.name(), conditions::is_crd_established())
        .await
        .unwrap();
}

/// Straight to the webhook, over TLS: conversion of a MachineDeployment, and its admission.
async fn webhook(api: &Api, report: &mut Report) {
    let object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "MachineDeployment", "metadata": {"name": "md", "namespace": "default"},
        "spec": {"clusterName": "c", "replicas": 1, "template": {"spec": {
            "clusterName": "c", "version": "v1.33.6", "nodeDrainTimeout": "10m",
            "bootstrap": {"configRef": {"apiVersion": "b/v1", "kind": "K", "name": "n"}},
            "infrastructureRef": {"apiVersion": "i/v1", "kind": "K", "name": "n"},
        }}},
    });
    let hub = hangar_api::conversion::convert(&Object(object.clone()), "v1beta2").unwrap();
    let conversion = json!({"kind": "ConversionReview", "request": {"uid": "u", "desiredAPIVersion": "cluster.x-k8s.io/v1beta2", "objects": [object]}});
    let admission = json!({"kind": "AdmissionReview", "request": {"uid": "u", "object": hub.0}});
    for (path, review) in [("/convert", conversion), ("/admit", admission)] {
        let body = review.to_string().into_bytes();
        let began = Instant::now();
        let callers = (0..CALLERS).map(|_| tokio::spawn(call(api.webhook_client(), path, body.clone(), began)));
        let mut times: Vec<Duration> = vec![];
        for caller in callers.collect::<Vec<_>>() {
            times.extend(caller.await.unwrap());
        }
        times.sort_unstable();
        let rate = times.len() as f64 / began.elapsed().as_secs_f64();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
        report.row(&format!("webhook {path}, {CALLERS} callers, answers/s"), &format!("{rate:.0}"));
        report.row(
            &format!("webhook {path}, {CALLERS} callers, p50 / p99"),
            &format!("{:.1} / {:.1} ms", at(0.5), at(0.99)),
        );
    }
}

async fn call(client: kube::Client, path: &str, body: Vec<u8>, began: Instant) -> Vec<Duration> {
    let mut times = vec![];
    while began.elapsed() < LONG_ENOUGH {
        let asked = Instant::now();
        let request = http::Request::post(path).header("content-type", "application/json").body(body.clone()).unwrap();
        let answer: Value = client.request(request).await.unwrap();
        assert!(
            answer["response"]["result"]["status"] == "Success" || answer["response"]["allowed"] == true,
            "{answer}"
        );
        times.push(asked.elapsed());
    }
    times
}

fn seconds(since: Instant) -> String {
    format!("{:.2} s", since.elapsed().as_secs_f64())
}

fn mib(kib: u64) -> String {
    format!("{} MiB", kib / 1024)
}

/// KiB of the API server.
fn resident(api: &Api) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", api.api_server_pid().unwrap())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
