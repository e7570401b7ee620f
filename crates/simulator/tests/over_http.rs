//! The same cloud over a socket: serving, `/admin`, and what survives a restart.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hangar_openstack::*;
use hangar_simulator::{Access, FaultAction, FaultRule, Guest, GuestDriver, Inventory, Options, Simulator, starter};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

struct Served {
    simulator: Simulator,
    base: String,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

async fn serve(options: Options) -> Served {
    let simulator = Simulator::new(options).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let shutdown = CancellationToken::new();
    let (serving, stop) = (simulator.clone(), shutdown.clone());
    let task = tokio::spawn(async move { serving.serve(listener, stop).await });
    Served { simulator, base, shutdown, task }
}

fn cloud(served: &Served) -> Cloud {
    let yaml = served.simulator.clouds_yaml(&served.base);
    let config = CloudConfig::parse(yaml.as_bytes(), "openstack", None, Some(starter::REGION)).unwrap();
    Cloud::new(config, http_transport(None).unwrap())
}

async fn admin(served: &Served, method: &str, path: &str, body: Value) -> (u16, Value) {
    let request = http::Request::builder().method(method).uri(format!("{}{path}", served.base));
    let request = request.body(bytes::Bytes::from(body.to_string())).unwrap();
    let reply = http_transport(None).unwrap().oneshot(request).await.unwrap();
    (reply.status().as_u16(), serde_json::from_slice(reply.body()).unwrap_or(Value::Null))
}

fn new_server(name: &str) -> CreateServer {
    CreateServer {
        name: name.into(),
        flavor_id: starter::FLAVORS[0].1.into(),
        image_id: starter::IMAGES[1].1.into(),
        networks: vec![ServerNetwork { port: None, uuid: Some(starter::NETWORK_ID.into()) }],
        user_data: Some("aGVsbG8=".into()),
        ..CreateServer::default()
    }
}

#[derive(Default)]
struct Recorder(Mutex<Vec<String>>, tokio::sync::Notify);

impl GuestDriver for Recorder {
    fn boot(&self, guest: Guest) {
        guest.console.line("hello from the guest");
        assert_eq!(guest.image_properties["kube_version"], "v1.34.4");
        assert_eq!(guest.user_data, b"hello");
        self.0.lock().unwrap().push(format!("boot {}", guest.name));
        self.1.notify_one();
    }

    fn shut_down(&self, _: &str) {
        self.0.lock().unwrap().push("shut down".to_owned());
        self.1.notify_one();
    }
}

#[tokio::test]
async fn admin_calls_change_the_cloud_and_stay_out_of_the_journal() {
    let served = serve(Options::default()).await;
    let cloud = cloud(&served);
    assert_eq!(admin(&served, "PUT", "/admin/quotas/demo", json!({"instances": 0})).await.0, 204);
    assert_eq!(cloud.create_server(&new_server("w")).await.unwrap_err().kind, ErrorKind::Quota);
    let rules = json!([{"service": "*", "method": "GET", "path_regex": "^/flavors", "times": 1,
        "action": {"fail": {"status": 500, "body": {"computeFault": {"message": "boom"}}}}}]);
    assert_eq!(admin(&served, "PUT", "/admin/faults", rules).await.0, 204);
    let error = cloud.flavors().await.unwrap_err();
    assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Server, "boom"));
    assert!(error.request_id.unwrap().starts_with("req-"));
    let bad = json!([{"service": "*", "method": "*", "path_regex": "(", "action": "loseReply"}]);
    assert_eq!(admin(&served, "PUT", "/admin/faults", bad).await.0, 400);
    let (_, journal) = admin(&served, "GET", "/admin/journal", Value::Null).await;
    assert_eq!(journal.as_array().unwrap().len(), 3, "{journal}");
    admin(&served, "DELETE", "/admin/journal", Value::Null).await;
    assert!(served.simulator.journal().is_empty());
    let password = json!({"user": "demo", "password": "new"});
    assert_eq!(admin(&served, "PUT", "/admin/password", password).await.0, 204);
    assert_eq!(cloud.flavors().await.unwrap_err().kind, ErrorKind::Unauthorized);
    assert!(served.simulator.clouds_yaml("http://x").contains("password: new"));
}

#[tokio::test]
async fn admin_is_for_who_has_the_token_and_for_no_web_page() {
    let access = Access { password: Some("of this home".into()), admin_token: Some("abc".into()) };
    let served = serve(Options { access: access.clone(), ..Options::default() }).await;
    assert!(served.simulator.clouds_yaml("http://x").contains("password: of this home"));
    assert!(!format!("{access:?}").contains("abc") && !format!("{:?}", served.simulator).contains("of this home"));
    cloud(&served).flavors().await.unwrap();
    let table: [(&[(&str, &str)], u16); 6] = [
        (&[], 401),
        (&[("x-admin-token", "abd")], 401),
        (&[("x-admin-token", "")], 401),
        (&[("x-admin-token", "abc")], 200),
        (&[("x-admin-token", "abc"), ("origin", "http://evil.example")], 403),
        (&[("x-admin-token", "abc"), ("origin", "null")], 403),
    ];
    for (headers, expected) in table {
        let mut request = http::Request::builder().uri(format!("{}/admin/inventory", served.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let reply = http_transport(None).unwrap().oneshot(request.body(bytes::Bytes::new()).unwrap()).await.unwrap();
        assert_eq!(reply.status().as_u16(), expected, "{headers:?}");
        assert!(!reply.headers().keys().any(|name| name.as_str().starts_with("access-control")));
    }
}

#[tokio::test]
async fn state_and_guests_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        state_file: Some(dir.path().join("cloud.json")),
        build_time: Duration::from_millis(10),
        delete_time: Duration::from_millis(10),
        starter: true,
        ..Options::default()
    };
    let served = serve(options.clone()).await;
    let guests = Arc::new(Recorder::default());
    served.simulator.set_guests(guests.clone());
    let id = cloud(&served).create_server(&new_server("w")).await.unwrap();
    guests.1.notified().await;
    assert_eq!(served.simulator.console(&id), "hello from the guest\n");
    assert_eq!(cloud(&served).console_output(&id).await.unwrap(), "hello from the guest");
    let before = served.simulator.inventory();
    served.shutdown.cancel();
    served.task.await.unwrap().unwrap();

    let served = serve(options).await;
    assert_eq!(served.simulator.inventory(), before);
    let guests = Arc::new(Recorder::default());
    served.simulator.set_guests(guests.clone());
    guests.1.notified().await;
    let cloud = cloud(&served);
    assert_eq!(cloud.server(&id).await.unwrap().status, "ACTIVE");
    cloud.delete_server(&id).await.unwrap();
    guests.1.notified().await;
    assert_eq!(*guests.0.lock().unwrap(), ["boot w", "shut down"]);
    let (_, left) = admin(&served, "GET", "/admin/inventory", Value::Null).await;
    assert!(serde_json::from_value::<Inventory>(left).unwrap().is_empty());
}

#[tokio::test]
async fn a_lost_reply_is_a_broken_connection() {
    let served = serve(Options::default()).await;
    served.simulator.set_faults(vec![FaultRule {
        service: "network".into(),
        method: "POST".into(),
        path_regex: "^/ports$".into(),
        times: Some(1),
        action: FaultAction::LoseReply,
        ..FaultRule::default()
    }]);
    let cloud = cloud(&served);
    let body = CreatePort { network_id: starter::NETWORK_ID.into(), name: "p".into(), ..CreatePort::default() };
    assert_eq!(cloud.create_port(&body).await.unwrap_err().kind, ErrorKind::Unreachable);
    let found = cloud.ports(&PortQuery { name: Some("p".into()), ..PortQuery::default() }).await.unwrap();
    assert_eq!(found.len(), 1);
}

#[tokio::test]
async fn what_was_under_way_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Options {
        state_file: Some(dir.path().join("cloud.json")),
        build_time: Duration::from_secs(3600),
        delete_time: Duration::from_secs(3600),
        starter: true,
        ..Options::default()
    };
    let served = serve(slow.clone()).await;
    let client = cloud(&served);
    let builds = client.create_server(&new_server("builds")).await.unwrap();
    let leaves = client.create_server(&new_server("leaves")).await.unwrap();
    client.delete_server(&leaves).await.unwrap();
    drop(client);
    served.shutdown.cancel();
    served.task.await.unwrap().unwrap();

    let soon = Duration::from_millis(10);
    let simulator = Simulator::new(Options { build_time: soon, delete_time: soon, ..slow }).unwrap();
    let mut changes = simulator.changes();
    let config = CloudConfig::parse(simulator.clouds_yaml("http://x").as_bytes(), "openstack", None, None).unwrap();
    let client = Cloud::new(config, simulator.transport());
    client.project_id().await.unwrap();
    changes.wait_for(|count| *count >= 2).await.unwrap();
    assert_eq!(client.server(&builds).await.unwrap().status, "ACTIVE");
    assert!(client.server(&leaves).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn a_state_file_of_somebody_else_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cloud.json");
    std::fs::write(&path, "not ours").unwrap();
    let options = Options { state_file: Some(path.clone()), ..Options::default() };
    assert!(Simulator::new(options).unwrap_err().to_string().contains("is not the simulator's"));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "not ours");
}
