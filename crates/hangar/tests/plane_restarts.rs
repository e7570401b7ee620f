//! A plane is new once, comes back as it was, and lives beside others.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what went wrong by panicking")]

mod plane;

use plane::Plane;
use serde_json::Value;

fn definitions(plane: &Plane) -> Vec<Value> {
    let listed = plane.get("customresourcedefinitions");
    listed["items"].as_array().expect("definitions are listed").clone()
}

fn versions(definitions: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    definitions.iter().map(|one| (text(&one["metadata"]["name"]), text(&one["metadata"]["resourceVersion"]))).collect()
}

/// One of them does it, and the others find it done.
fn three_at_once(plane: &Plane, arguments: &[&str]) {
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| plane.ok(arguments));
        }
    });
}

/// Of the controllers, the node and the cloud, and the binding of the API server's client of kubelets.
const ROLES_AND_BINDINGS: usize = 3 + 4;

/// The API server must find nothing to write about definitions that it was given, and ours must stay ours.
#[test]
fn a_new_plane_has_its_definitions_from_the_start_and_keeps_them() {
    let plane = Plane::new();
    three_at_once(&plane, &["up"]);
    let first = definitions(&plane);
    assert_eq!(first.len(), hangar_api::crds::definitions(None).len());
    // The first revision is 2; with the definitions come the account of the pods, and the roles and bindings of the plane's parts.
    let given = 1 + first.len() + 1 + ROLES_AND_BINDINGS;
    for definition in &first {
        let (name, metadata) = (&definition["metadata"]["name"], &definition["metadata"]);
        assert_eq!(metadata["generation"], 1, "{name} was written again");
        let revision: usize = metadata["resourceVersion"].as_str().unwrap().parse().unwrap();
        assert!(revision <= given, "{name} was written again, at {revision}");
    }
    let account = plane.get("serviceaccount/default");
    assert!(account["metadata"]["resourceVersion"].as_str().unwrap().parse::<usize>().unwrap() <= given, "{account:#}");

    three_at_once(&plane, &["down"]);
    let refused = plane.run(&["describe", "cluster", "any"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("start it with `hangar up`"), "{said}");
    plane.ok(&["up"]);
    assert_eq!(versions(&definitions(&plane)), versions(&first), "a start without a change wrote definitions");

    let name = "customresourcedefinitions/machinesets.cluster.x-k8s.io";
    plane.kubectl(&["patch", name, "--type=merge", "-p", r#"{"spec":{"names":{"shortNames":["theirs"]}}}"#]);
    plane.ok(&["down"]);
    plane.ok(&["up"]);
    // The plane is ready before it has looked for foreign changes; that it does is what counts.
    let mended = plane.until(name, |definition| definition["spec"]["names"]["shortNames"] == serde_json::json!(["ms"]));
    assert_eq!(mended["metadata"]["generation"], 3);
    plane::until("short names to be served", || {
        plane.run(&["kubectl", "--", "get", "ms,kcp,osm,m3m"]).status.success()
    });
}

/// Something that keeps data and answers on an address.
const STORE: &str = r#"
apiVersion: v1
kind: PersistentVolumeClaim
metadata: { name: kept }
spec: { accessModes: [ReadWriteOnce], resources: { requests: { storage: 1Gi } } }
---
apiVersion: v1
kind: Pod
metadata: { name: store, labels: { app: store } }
spec:
  containers:
  - name: etcd
    image: registry.k8s.io/etcd:3.6.16-0
    args: [--data-dir=/data/etcd, "--listen-client-urls=http://$(ADDRESS):2379", "--advertise-client-urls=http://$(ADDRESS):2379"]
    env: [{ name: ADDRESS, valueFrom: { fieldRef: { fieldPath: status.podIP } } }]
    readinessProbe: { tcpSocket: { port: 2379 }, periodSeconds: 1 }
    resources: { limits: { memory: 512Mi } }
    volumeMounts: [{ name: data, mountPath: /data }, { name: memory, mountPath: /memory }]
  volumes: [{ name: data, persistentVolumeClaim: { claimName: kept } }, { name: memory, emptyDir: { medium: Memory } }]
---
apiVersion: v1
kind: Service
metadata: { name: store }
spec: { type: LoadBalancer, selector: { app: store }, ports: [{ port: 2379 }] }
"#;

fn addresses(plane: &Plane) -> [Value; 4] {
    let service = plane.until("service/store", |service| service["status"]["loadBalancer"]["ingress"].is_array());
    let pod = plane.until("pod/store", |pod| plane::condition(pod, "Ready").0 == "True");
    let kubeconfig: Value = serde_json::from_slice(&std::fs::read(plane.home().join("kubeconfig")).unwrap()).unwrap();
    [
        service["status"]["loadBalancer"].clone(),
        service["spec"]["clusterIP"].clone(),
        pod["status"]["podIP"].clone(),
        kubeconfig["clusters"].clone(),
    ]
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    // It may have ended with the one before.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
}

fn power_cut(plane: &Plane) {
    // The one who would start the others again goes first.
    let mut all = plane.processes();
    assert!(all.len() > 5, "{all:?}");
    all.sort_by_key(|(_, name)| name != "hangar");
    all.iter().for_each(|(pid, _)| kill(*pid));
    plane::until("everything to be dead", || plane.processes().is_empty());
    // Memory is empty when there is power again.
    let in_memory = plane.in_memory();
    assert_eq!(in_memory.len(), 1, "{in_memory:?}");
    in_memory.iter().for_each(|path| std::fs::remove_dir_all(path).unwrap());
}

/// Nothing but the disk is left of one plane, pid files and all; its neighbour does not notice.
#[test]
fn a_plane_comes_back_from_a_power_cut_and_its_neighbour_notices_nothing() {
    let (plane, neighbour) = (Plane::new(), Plane::new());
    std::thread::scope(|scope| {
        scope.spawn(|| neighbour.ok(&["up"]));
        plane.ok(&["up"]);
    });
    let file = plane.home().join("store.yaml");
    std::fs::write(&file, STORE).unwrap();
    plane.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    let before = addresses(&plane);
    let put = |key: &str| plane.kubectl(&["create", "configmap", key]);
    put("before");
    neighbour.kubectl(&["rollout", "status", "statefulset/etcd", "-n", "kamaji-system", "--timeout=150s"]);
    let beside = neighbour.processes();

    power_cut(&plane);
    let status = plane.ok(&["status"]);
    assert!(status.contains("was killed: `hangar up` restarts it"), "{status}");
    plane.ok(&["up"]);
    assert_eq!(addresses(&plane), before);
    plane.kubectl(&["get", "configmap", "before"]);

    for name in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let of_plane = |(_, known): &&(u32, String)| name.starts_with(known.as_str());
        let victim = plane.processes().iter().find(of_plane).unwrap_or_else(|| panic!("no {name} runs")).0;
        kill(victim);
        plane.ok(&["up"]);
        plane::until(name, || plane.processes().iter().any(|one| of_plane(&one) && one.0 != victim));
        put(name);
    }
    assert_eq!(addresses(&plane), before);
    assert_eq!(neighbour.processes(), beside, "the neighbour was disturbed");
    neighbour.kubectl(&["get", "nodes"]);
    let in_memory = plane.in_memory();
    plane.ok(&["down", "--purge"]);
    assert!(!in_memory.is_empty() && !in_memory.iter().any(|path| path.exists()), "left behind: {in_memory:?}");
    assert_eq!(neighbour.processes(), beside, "the neighbour was disturbed");
}

/// For systemd and containers: it stays, and ends with everything that it started when it is told to.
#[test]
fn in_the_foreground_it_ends_when_it_is_told_to() {
    let plane = Plane::new();
    let mut running = plane.start(&["up", "--foreground", "--gateway-api"]);
    plane::until("the plane to be ready", || {
        assert!(running.try_wait().unwrap().is_none(), "it did not stay");
        plane.state()["ready"] == true
    });
    plane.kubectl(&["get", "gateways,tlsroutes"]);
    plane.kubectl(&["rollout", "status", "statefulset/etcd", "-n", "kamaji-system", "--timeout=150s"]);
    plane.signal("TERM");
    assert!(running.wait().unwrap().success());
    assert_eq!(plane.processes(), []);
    assert!(!plane.home().join("daemon.json").exists(), "nothing says that it still runs");
}
