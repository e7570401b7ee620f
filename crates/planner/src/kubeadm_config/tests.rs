use serde_json::{Value, json};

use super::*;
use crate::plan;
use crate::testing::{CORE, Fake, at, changed, cluster, condition, merge, object, owner, planned, said, shared};

const BOOT: &str = "bootstrap.cluster.x-k8s.io/v1beta2";

fn of_cluster(fields: Value) -> Value {
    let mut of = cluster(json!({ "spec": { "controlPlaneEndpoint": { "host": "203.0.113.5", "port": 6443 } },
        "status": { "initialization": { "infrastructureProvisioned": true, "controlPlaneInitialized": true } } }));
    merge(&mut of, &fields);
    of
}

fn of_machine(fields: Value) -> Value {
    let mut machine = object(CORE, "Machine", "ma", json!({ "spec": { "clusterName": "c", "version": "v1.34.4" } }));
    merge(&mut machine, &fields);
    machine
}

fn own(spec: Value) -> Value {
    object(
        BOOT,
        "KubeadmConfig",
        "k",
        json!({ "metadata": { "labels": { CLUSTER_NAME_LABEL: "c" }, "ownerReferences": owner(CORE, "Machine", "ma") }, "spec": spec }),
    )
}

fn world(spec: Value, others: Vec<Value>) -> World {
    let mut world: World = crate::testing::world(own(spec), others);
    world.facts.ca_hashes = vec!["sha256:00".into()];
    world
}

fn complete() -> World {
    world(json!({}), vec![of_cluster(json!({})), of_machine(json!({}))])
}

fn user_data(world: &World) -> String {
    let secret = data_secret(world).unwrap();
    secret.secret_text("value").unwrap()
}

/// B1, B2.
#[test]
fn b1_b2_each_phase_says_what_it_does_or_waits_for() {
    let m = || of_machine(json!({}));
    let mut no_authority = complete();
    no_authority.facts.ca_hashes = vec![];
    let mut away = complete();
    away.facts_error = Some(crate::Reason::retry("TenantUnreachable", "connection refused"));
    let not = |fields| vec![of_cluster(fields), m()];
    let secret = |owners: Value| object("v1", "Secret", "k", json!({ "metadata": { "ownerReferences": owners } }));
    for (what, world, expected) in [
        ("no Machine", world(json!({}), vec![]), "wait WaitingForMachine: no Machine or MachinePool owns it yet"),
        ("no Cluster", world(json!({}), vec![m()]), "wait WaitingForCluster: its Cluster is not there yet"),
        (
            "somebody else's Secret",
            world(json!({}), vec![of_cluster(json!({})), m(), secret(owner(BOOT, "KubeadmConfig", "other"))]),
            "blocked NotOurs: Secret n/k exists and was not made by Hangar: rename or delete it",
        ),
        ("no facts", away, "blocked TenantUnreachable: connection refused"),
        (
            "B1: no infrastructure",
            world(json!({}), not(json!({ "status": { "initialization": { "infrastructureProvisioned": false } } }))),
            "wait WaitingForClusterInfrastructure: the cluster's infrastructure is not ready yet",
        ),
        (
            "B2: no control plane",
            world(json!({}), not(json!({ "status": { "initialization": { "controlPlaneInitialized": false } } }))),
            "wait WaitingForControlPlane: the control plane is not initialized yet",
        ),
        (
            "no endpoint",
            world(json!({}), not(json!({ "spec": { "controlPlaneEndpoint": null } }))),
            "wait WaitingForEndpoint: the cluster has no endpoint yet",
        ),
        (
            "no authority",
            no_authority,
            "wait WaitingForCertificateAuthority: there is no Secret c-ca with a certificate in tls.crt yet",
        ),
        ("B3: a token", complete(), "c: CreateToken { seconds: 900, node: None }"),
    ] {
        assert_eq!(said(&planned(&world)), expected, "{what}");
    }
}

/// B3.
#[test]
fn b3_the_token_lives_until_the_node_has_joined_and_no_longer() {
    let (mut world, mut fake) = (complete(), Fake::default());
    let plan = fake.pass(&mut world);
    assert_eq!(fake.done, ["c: CreateToken { seconds: 900, node: None }", "create Secret n/k"]);
    assert_eq!(said(&plan), "wait WaitingForNode: waiting for the node to join");
    assert_eq!(plan.progress.reason().unwrap().wake, crate::Wake::After(Duration::from_secs(451)));
    let status = plan.status.clone().unwrap();
    assert_eq!(
        (&status["dataSecretName"], &status["initialization"]["dataSecretCreated"]),
        (&json!("k"), &json!(true))
    );
    assert_eq!(condition(&plan, "DataSecretAvailable").unwrap().0, "True");
    // The next pass has no token of its own, only what the tenant says.
    world.facts.token = None;
    for (what, expires, now, expected) in [
        ("young", Some(900), 449, "wait WaitingForNode: waiting for the node to join"),
        ("half its life", Some(900), 450, r#"c: ExtendToken { id: "abcdef", seconds: 900 }"#),
        ("it ended while nobody looked", None, 5000, "delete Secret n/k"),
    ] {
        world.facts.token_expires = expires.map(at);
        assert_eq!(said(&plan_at(&world, now)), expected, "{what}");
    }
    let mut going = complete();
    fake.pass(&mut going);
    going.objects.insert(shared(of_machine(json!({ "metadata": { "deletionTimestamp": "x" } }))));
    assert_eq!(said(&plan_at(&going, 5000)), "done", "what goes needs no token");
}

#[test]
fn b3_the_token_of_a_pool_is_replaced_in_its_second_half_and_goes_with_the_pool() {
    let pool = |fields: Value| {
        let mut pool = object(
            CORE,
            "MachinePool",
            "mp",
            json!({ "spec": { "clusterName": "c", "template": { "spec": { "version": "v1.34.4" } } } }),
        );
        merge(&mut pool, &fields);
        pool
    };
    let world = world(json!({}), vec![of_cluster(json!({})), pool(json!({}))]);
    let mut world = changed(world, |own| own["metadata"]["ownerReferences"] = owner(CORE, "MachinePool", "mp"));
    let mut fake = Fake::default();
    let plan = fake.pass(&mut world);
    assert_eq!(fake.done, ["c: CreateToken { seconds: 14400, node: None }", "create Secret n/k"]);
    assert_eq!(plan.progress.reason().unwrap().wake, crate::Wake::After(Duration::from_secs(7201)));
    assert!(user_data(&world).contains("abcdef.0123456789abcdef"));
    // Another token is in the data by now, and half of its time is over.
    let mut old = data_secret(&world).unwrap().clone();
    old.0["metadata"]["annotations"][TOKEN_ID_ANNOTATION] = "zzzzzz".into();
    old.0["data"]["value"] = STANDARD.encode("old").into();
    world.objects.insert(std::sync::Arc::new(old));
    (world.facts.token, world.facts.token_expires) = (None, Some(at(14_400)));
    fake.done.clear();
    fake.now = 7_199;
    fake.pass(&mut world);
    assert!(fake.done.is_empty(), "{:?}", fake.done);
    fake.now = 7_200;
    let plan = fake.pass(&mut world);
    assert!(
        fake.done[0].starts_with("c: CreateToken") && fake.done[1].starts_with("patch Secret n/k"),
        "{:?}",
        fake.done
    );
    assert!(user_data(&world).contains("abcdef.0123456789abcdef"));
    assert_eq!(plan.progress.reason().unwrap().wake, crate::Wake::After(Duration::from_secs(7201)));
    // Nobody comes any more.
    world.objects.insert(shared(pool(json!({ "metadata": { "deletionTimestamp": "x" } }))));
    fake.done.clear();
    fake.pass(&mut world);
    assert_eq!(fake.done[0], r#"c: DeleteToken { id: "abcdef" }"#);
}

#[test]
fn a_token_is_deleted_once_when_its_node_has_joined() {
    let (mut world, mut fake) = (complete(), Fake::default());
    fake.pass(&mut world);
    world.facts = Facts { ca_hashes: world.facts.ca_hashes.clone(), ..Facts::default() };
    world.objects.insert(shared(of_machine(json!({ "status": { "nodeRef": { "name": "node" } } }))));
    fake.done.clear();
    let plan = fake.pass(&mut world);
    assert_eq!(
        fake.done,
        [
            r#"c: DeleteToken { id: "abcdef" }"#,
            r#"patch Secret n/k {"metadata":{"annotations":{"hangar.dev/bootstrap-token-id":null}}}"#
        ]
    );
    assert_eq!((said(&plan).as_str(), condition(&plan, "Ready").unwrap().0.as_str()), ("done", "True"));
    // The next pass knows only what the Secret says.
    world.facts.token_deleted = false;
    assert_eq!(said(&plan_at(&world, 5000)), "done");
}

#[test]
fn in_a_cluster_that_goes_no_token_is_deleted() {
    let (mut world, mut fake) = (complete(), Fake::default());
    fake.pass(&mut world);
    world.objects.insert(shared(of_machine(json!({ "status": { "nodeRef": { "name": "node" } } }))));
    world.objects.insert(shared(of_cluster(json!({ "metadata": { "deletionTimestamp": "x" } }))));
    assert_eq!(said(&plan_at(&world, 5000)), "done", "its API may be gone");
}

fn plan_at(world: &World, now: i64) -> crate::Plan {
    plan(world, at(now))
}

#[test]
fn a_token_that_ended_means_new_data() {
    let (mut world, mut fake) = (complete(), Fake::default());
    fake.pass(&mut world);
    (world.facts.token, world.facts.token_expires) = (None, None);
    fake.pass(&mut world);
    assert_eq!(
        fake.done[2..],
        ["delete Secret n/k", "c: CreateToken { seconds: 900, node: None }", "create Secret n/k"]
    );
}

/// B5: everything that can be said at once. `cargo xtask cloud-init` asks the real cloud-init whether it is valid.
#[test]
fn b5_what_a_worker_is_told_by_a_full_config() {
    let spec = json!({
        "files": [
            { "path": "/etc/motd", "content": "hello {{ name }}", "owner": "ubuntu:ubuntu", "permissions": "0600", "append": true },
            { "path": "/etc/blob", "content": "aGVsbG8=", "encoding": "base64" },
            { "path": "/etc/packed", "content": "H4sIAAAAAAAA/8tIzcnJBwCGphA2BQAAAA==", "encoding": "gzip+base64" },
        ],
        "users": [{
            "name": "admin", "gecos": "An admin", "groups": "sudo, users", "homeDir": "/home/admin", "inactive": false, "shell": "/bin/bash",
            "passwd": "$6$hash", "primaryGroup": "admin", "lockPassword": false, "sudo": "ALL=(ALL) NOPASSWD:ALL", "sshAuthorizedKeys": ["ssh-ed25519 AAAA"],
        }],
        "ntp": { "servers": ["ntp.example.org"], "enabled": true },
        "diskSetup": {
            "partitions": [{ "device": "/dev/vdb", "layout": true, "overwrite": false, "tableType": "gpt" }],
            "filesystems": [{ "device": "/dev/vdb", "filesystem": "ext4", "label": "data", "partition": "auto", "overwrite": false, "extraOpts": ["-F"] }],
        },
        "mounts": [["LABEL=data", "/var/lib/data"]],
        "bootCommands": ["echo boot"], "preKubeadmCommands": ["echo before"], "postKubeadmCommands": ["echo after"], "verbosity": 5,
        "joinConfiguration": { "nodeRegistration": {
            "name": "{{ local_hostname }}", "criSocket": "unix:///run/containerd/containerd.sock", "ignorePreflightErrors": ["NumCPU"], "imagePullPolicy": "IfNotPresent",
        } },
    });
    let mut world = world(spec, vec![of_cluster(json!({})), of_machine(json!({}))]);
    Fake::default().pass(&mut world);
    insta::assert_snapshot!(user_data(&world));
}

/// B5.
#[test]
fn b5_what_cannot_be_written_is_said() {
    let from = json!({ "files": [{ "path": "/a", "contentFrom": { "secret": { "name": "s", "key": "k" } } }] });
    let mut world = world(from, vec![of_cluster(json!({})), of_machine(json!({}))]);
    let plan = Fake::default().pass(&mut world);
    assert_eq!(said(&plan), "blocked InvalidConfiguration: spec.files[/a].contentFrom: Secret s was not read yet");
    assert_eq!(condition(&plan, "Ready").unwrap().0, "False");
}

/// What becomes of a spec: the user-data, or why there is none.
fn outcome(spec: Value, version: &str) -> Result<String, String> {
    let machine = of_machine(json!({ "spec": { "version": version } }));
    let mut world = world(spec, vec![of_cluster(json!({})), machine]);
    world.facts.ca_pem = "PEM".into();
    let from_secret = ("marker".to_owned(), "marker".to_owned());
    world.facts.contents.0.insert(from_secret, Ok(b"marker".to_vec()));
    let plan = Fake::default().pass(&mut world);
    data_secret(&world).map(|secret| secret.secret_text("value").unwrap()).ok_or_else(|| said(&plan))
}

/// B5.
#[test]
fn b5_what_is_not_built_is_refused_by_name() {
    for (version, spec, expected) in [
        (
            "v1.34.4",
            json!({ "ignition": { "containerLinuxConfig": { "strict": true } } }),
            "spec.ignition is only for spec.format: ignition",
        ),
        (
            "v1.34.4",
            json!({ "clusterConfiguration": { "imageRepository": "x" } }),
            "spec.clusterConfiguration is for control planes on machines",
        ),
        (
            "v1.34.4",
            json!({ "initConfiguration": { "skipPhases": ["x"] } }),
            "spec.initConfiguration is for control planes on machines",
        ),
        (
            "v1.34.4",
            json!({ "joinConfiguration": { "controlPlane": { "localAPIEndpoint": { "bindPort": 1 } } } }),
            "spec.joinConfiguration.controlPlane is for",
        ),
        ("v1.34.4", json!({ "later": { "than": ["we"] } }), "spec.later.than[] is not built yet"),
        (
            "v1.30.1",
            json!({ "joinConfiguration": { "timeouts": { "discoverySeconds": 5 } } }),
            "spec.joinConfiguration.timeouts.discoverySeconds is known to kubeadm from v1.31 on",
        ),
        (
            "v1.21.1",
            json!({ "joinConfiguration": { "skipPhases": ["x"] } }),
            "spec.joinConfiguration.skipPhases is known to kubeadm from v1.22 on",
        ),
        (
            "v1.34.4",
            json!({ "files": [{ "path": "/t", "content": "{{ range }}", "contentFormat": "Template" }] }),
            "spec.files[/t]: the template cannot be filled in: range is not built yet",
        ),
    ] {
        let refused = outcome(spec, version).unwrap_err();
        assert!(refused.starts_with(&format!("blocked InvalidConfiguration: {expected}")), "{refused}");
    }
}

/// A value for each leaf of a schema, alone: its path, and a spec that says nothing else but what must be there with it.
fn leaves(schema: &Value, path: &str, wrap: &dyn Fn(Value) -> Value, found: &mut Vec<(String, Value)>) {
    if let Some(fields) = schema["properties"].as_object() {
        for (name, below) in fields {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let mut beside = json!({});
            for other in required.filter(|other| other != name) {
                beside[other] = sample(&fields[other]);
            }
            let wrap = |value: Value| {
                let mut object = beside.clone();
                object[name] = value;
                wrap(object)
            };
            leaves(below, &format!("{path}.{name}"), &wrap, found);
        }
        return;
    }
    if schema["items"].is_object() {
        return leaves(&schema["items"], &format!("{path}[]"), &|value| wrap(json!([value])), found);
    }
    found.push((path.to_owned(), wrap(sample(schema))));
}

fn sample(schema: &Value) -> Value {
    let last = schema["enum"].as_array().and_then(|all| all.last()).cloned();
    match (last, schema["type"].as_str()) {
        (Some(value), _) => value,
        (_, Some("integer")) => 77.into(),
        (_, Some("boolean")) => true.into(),
        (_, Some("object")) if schema["properties"].is_object() => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            required
                .map(|name| (name.to_owned(), sample(&schema["properties"][name])))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        (_, Some("object")) => json!({ "marker": sample(&schema["additionalProperties"]) }),
        (_, Some("array")) => json!([sample(&schema["items"])]),
        _ => "marker".into(),
    }
}

/// B5: whatever a user may write is in the user-data, or is named when it is refused.
#[test]
fn b5_no_field_of_the_schema_is_left_out_without_a_word() {
    let facts = hangar_api::registry::kind("bootstrap.cluster.x-k8s.io", "KubeadmConfig").unwrap();
    let schema = &facts.hub().schema()["properties"]["spec"];
    let mut found = vec![];
    leaves(schema, "", &|value| value, &mut found);
    assert!(found.len() > 150, "{}", found.len());
    for format in ["cloud-config", "ignition"] {
        // What is the same without any field: what a field adds is seen in what differs from it.
        let mut refused = 0;
        for (path, spec) in &found {
            if ["diskSetup", "files", "users"].iter().any(|list| path.starts_with(&format!(".{list}")))
                && path.ends_with("secret.name")
            {
                continue;
            }
            let with = |spec: &Value| {
                let mut spec = spec.clone();
                spec["format"] = format.into();
                // A file's path must be one, and a kubeconfig's too.
                let text = spec.to_string().replace(r#""path":"marker""#, r#""path":"/marker""#);
                let text = text.replace(r#""kubeConfigPath":"marker""#, r#""kubeConfigPath":"/marker""#);
                let text = text.replace(r#""permissions":"marker""#, r#""permissions":"0677""#);
                let text = text.replace(
                    r#""additionalConfig":"marker""#,
                    r#""additionalConfig":"systemd: {units: [{name: marker}]}""#,
                );
                outcome(
                    serde_json::from_str(
                        &text.replace(r#""mounts":[["marker"]]"#, r#""mounts":[["marker","/marker"]]"#),
                    )
                    .unwrap(),
                    "v1.34.4",
                )
            };
            let written = with(spec);
            let without = with(&without(spec, path));
            let leaf = path.rsplit(['.', '[']).find(|part| part.len() > 1).unwrap();
            match (&written, &without) {
                (Err(why), _) => {
                    refused += 1;
                    let top = path[1..].split(['.', '[']).next().unwrap();
                    assert!(why.contains(&format!("spec.{top}")), "{format} {path}: {why}");
                }
                (Ok(written), Ok(without)) => assert!(
                    written != without || SAME_AS_DEFAULT.contains(&leaf),
                    "{format}: {path} makes no difference\n{written}"
                ),
                (Ok(_), Err(_)) => {}
            }
        }
        assert!(refused < found.len() / 3 * 2, "{format}: {refused} of {}", found.len());
    }
}

/// What says nothing new: the default of both or of Ignition (a table is gpt, time is kept, who has no password is locked), or (strict) what is so in any case.
/// A template without content has a test of its own.
const SAME_AS_DEFAULT: &[&str] = &["format", "strict", "tableType", "enabled", "lockPassword", "contentFormat"];

/// The spec without the leaf at a path.
fn without(spec: &Value, path: &str) -> Value {
    let mut spec = spec.clone();
    let mut at = &mut spec;
    let names: Vec<&str> = path[1..].split('.').collect();
    let (last, before) = names.split_last().unwrap();
    for name in before {
        at = &mut at[name.trim_end_matches("[]")];
        if name.ends_with("[]") {
            at = &mut at[0];
        }
    }
    at.as_object_mut().unwrap().remove(last.trim_end_matches("[]"));
    spec
}

/// B5: 1.14 of Cluster API fills in the version of the control plane.
#[test]
fn b5_templates_in_files_are_filled_in() {
    let plane = json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KamajiControlPlane", "name": "p" });
    let template = "{{ if .controlPlane }}{{ .controlPlane.version }}{{ else }}none{{ end }} {{ ds.meta_data }}";
    let spec = |format: Value| json!({ "files": [{ "path": "/t", "content": template.replace(" {{ ds.meta_data }}", ""), "contentFormat": format }] });
    let cluster = of_cluster(json!({ "spec": { "controlPlaneRef": plane } }));
    let plane = object(
        "controlplane.cluster.x-k8s.io/v1alpha2",
        "KamajiControlPlane",
        "p",
        json!({ "spec": { "version": "v1.34.4" } }),
    );
    for (format, others, expected) in [
        (json!("Template"), vec![plane], "v1.34.4"),
        (json!("Template"), vec![], "none"),
        (json!("Raw"), vec![], "{{ if .controlPlane }}{{ .controlPlane.version }}{{ else }}none{{ end }}"),
    ] {
        let others = [vec![cluster.clone(), of_machine(json!({}))], others].concat();
        let mut world = world(spec(format), others);
        Fake::default().pass(&mut world);
        let config = hangar_api::yaml::document(&user_data(&world)).unwrap();
        assert_eq!(config["write_files"][0]["content"], expected);
    }
}

/// B3: what is the user's is neither made, nor kept alive, nor deleted.
#[test]
fn b3_with_a_token_of_the_users_own_or_a_kubeconfig_hangar_makes_none() {
    let own = json!({ "bootstrapToken": { "token": "own111.0123456789abcdef", "caCertHashes": ["sha256:11"] } });
    let file = json!({
        "file": { "kubeConfigPath": "/etc/join.conf", "kubeConfig": { "user": { "exec": { "command": "login", "args": ["a"] } } } },
        "tlsBootstrapToken": "own111.0123456789abcdef",
    });
    for discovery in [own, file] {
        let spec = json!({ "joinConfiguration": { "discovery": discovery } });
        let mut world = world(spec, vec![of_cluster(json!({})), of_machine(json!({}))]);
        world.facts.ca_pem = "PEM".into();
        let mut fake = Fake::default();
        assert_eq!(said(&fake.pass(&mut world)), "done", "nothing is waited for");
        assert_eq!(fake.done, ["create Secret n/k"]);
        assert_eq!(data_secret(&world).unwrap().annotation(TOKEN_ID_ANNOTATION), None);
        world.objects.insert(shared(of_machine(json!({ "status": { "nodeRef": { "name": "node" } } }))));
        assert_eq!(said(&plan_at(&world, 5000)), "done");
        let config = hangar_api::yaml::document(&user_data(&world)).unwrap();
        let files = config["write_files"].as_array().unwrap();
        let text =
            |path: &str| files.iter().find(|file| file["path"] == path).map(|file| file["content"].as_str().unwrap());
        let join = hangar_api::yaml::document(text("/run/kubeadm/kubeadm-join-config.yaml").unwrap()).unwrap();
        let Some(kubeconfig) = text("/etc/join.conf") else {
            assert_eq!(join["discovery"]["bootstrapToken"]["token"], "own111.0123456789abcdef");
            continue;
        };
        assert_eq!(
            join["discovery"],
            json!({ "file": { "kubeConfigPath": "/etc/join.conf" }, "tlsBootstrapToken": "own111.0123456789abcdef" })
        );
        let kubeconfig = hangar_api::yaml::document(kubeconfig).unwrap();
        let cluster = &kubeconfig["clusters"][0]["cluster"];
        assert_eq!(
            (&cluster["server"], &cluster["certificate-authority-data"]),
            (&json!("https://203.0.113.5:6443"), &json!("UEVN"))
        );
        assert_eq!(kubeconfig["users"][0]["user"]["exec"]["interactiveMode"], "Never");
    }
}

/// B7.
#[test]
fn b7_the_secret_says_which_format_it_has() {
    for (format, expected) in
        [(Value::Null, "cloud-config"), (json!("cloud-config"), "cloud-config"), (json!("ignition"), "ignition")]
    {
        let mut world = world(json!({ "format": format }), vec![of_cluster(json!({})), of_machine(json!({}))]);
        Fake::default().pass(&mut world);
        assert_eq!(data_secret(&world).unwrap().secret_text("format").as_deref(), Some(expected));
        assert_eq!(user_data(&world).starts_with('{'), expected == "ignition");
    }
}

#[test]
fn too_much_for_nova_is_said_before_nova_says_it() {
    let refused =
        outcome(json!({ "files": [{ "path": "/a", "content": "x".repeat(60_000) }] }), "v1.34.4").unwrap_err();
    assert!(refused.contains("Nova takes"), "{refused}");
}

/// B5.
#[test]
fn b5_files_and_passwords_come_from_secrets() {
    let from = |name: &str| json!({ "secret": { "name": name, "key": "k" } });
    let spec = json!({
        "files": [
            { "path": "/text", "contentFrom": from("text") },
            { "path": "/binary", "contentFrom": from("binary") },
            { "path": "/gzip", "encoding": "gzip+base64", "contentFrom": from("text") },
        ],
        "users": [{ "name": "ubuntu", "passwdFrom": from("text") }],
    });
    let mut world = world(spec.clone(), vec![of_cluster(json!({})), of_machine(json!({}))]);
    assert_eq!(contents::wanted(&spec).len(), 4);
    for (name, content) in [("text", b"hello".to_vec()), ("binary", vec![0xff, 0])] {
        world.facts.contents.0.insert((name.into(), "k".into()), Ok(content));
    }
    assert!(!format!("{:?}", world.facts).contains("hello"));
    Fake::default().pass(&mut world);
    let config = hangar_api::yaml::document(&user_data(&world)).unwrap();
    let file = |number: usize| {
        (config["write_files"][number]["content"].clone(), config["write_files"][number]["encoding"].clone())
    };
    assert_eq!(file(0), (json!("hello"), Value::Null));
    assert_eq!(file(1), (json!("/wA="), json!("base64")));
    assert_eq!(file(2), (json!("hello"), json!("gzip+base64")));
    assert_eq!(config["users"][0]["passwd"], "hello");
}

/// B5: what a Secret lacks is said with the field that names it.
#[test]
fn b5_a_secret_that_is_missing_is_named() {
    let from = json!({ "files": [{ "path": "/a", "contentFrom": { "secret": { "name": "s", "key": "k" } } }] });
    let mut world = world(from, vec![of_cluster(json!({})), of_machine(json!({}))]);
    world.facts.contents.0.insert(("s".into(), "k".into()), Err("there is no Secret n/s".into()));
    let plan = said(&Fake::default().pass(&mut world));
    assert_eq!(plan, "blocked InvalidConfiguration: spec.files[/a].contentFrom: there is no Secret n/s");
}

/// IPv6 endpoints are bracketed in join configurations.
#[test]
fn an_ipv6_endpoint_is_bracketed_in_the_join_configuration() {
    for (host, expected) in [
        ("fd00::5", "[fd00::5]:6443"),
        ("203.0.113.5", "203.0.113.5:6443"),
        ("api.example.org", "api.example.org:6443"),
    ] {
        let of = of_cluster(json!({ "spec": { "controlPlaneEndpoint": { "host": host, "port": 6443 } } }));
        let mut world = world(json!({}), vec![of, of_machine(json!({}))]);
        Fake::default().pass(&mut world);
        let config = hangar_api::yaml::document(&user_data(&world)).unwrap();
        let join = hangar_api::yaml::document(config["write_files"][0]["content"].as_str().unwrap()).unwrap();
        assert_eq!(join["discovery"]["bootstrapToken"]["apiServerEndpoint"], expected, "{host}");
    }
}

#[test]
fn the_secret_is_typed_labelled_and_owned_and_says_no_token_but_its_id() {
    let (mut world, mut fake) = (complete(), Fake::default());
    fake.pass(&mut world);
    let secret = data_secret(&world).unwrap();
    assert_eq!(
        (secret.text("/type"), secret.label(CLUSTER_NAME_LABEL), secret.annotation(TOKEN_ID_ANNOTATION)),
        (SECRET_TYPE, Some("c"), Some("abcdef"))
    );
    assert!(secret.is_owned_by("k-uid"));
    assert!(!format!("{:?}", world.facts).contains("0123456789abcdef"));
}

fn spec() -> Value {
    json!({
        "joinConfiguration": { "nodeRegistration": { "name": "{{ local_hostname }}", "kubeletExtraArgs": [{ "name": "cloud-provider", "value": "external" }] } },
        "files": [{ "path": "/etc/motd", "content": "hello\n", "owner": "root:root", "permissions": "0644" }],
        "preKubeadmCommands": ["echo before"], "postKubeadmCommands": ["echo after"], "bootCommands": ["echo boot"],
        "users": [{ "name": "ubuntu", "sshAuthorizedKeys": ["ssh-ed25519 AAAA"] }], "ntp": { "enabled": true, "servers": ["ntp.example.org"] }, "verbosity": 4,
    })
}

#[test]
fn b4_what_a_worker_is_told_from_1_31_on() {
    let mut world = world(spec(), vec![of_cluster(json!({})), of_machine(json!({}))]);
    Fake::default().pass(&mut world);
    insta::assert_snapshot!(user_data(&world));
}

#[test]
fn b6_what_a_worker_is_told_before_1_31() {
    let mut world =
        world(spec(), vec![of_cluster(json!({})), of_machine(json!({ "spec": { "version": "v1.28.10" } }))]);
    Fake::default().pass(&mut world);
    insta::assert_snapshot!(user_data(&world));
}

#[test]
fn on_the_way_out_nothing_of_ours_holds_it() {
    let world = changed(complete(), |own| own["metadata"]["deletionTimestamp"] = at(0).to_string().into());
    assert_eq!(planned(&world).steps, []);
}

/// With a control plane and a server of ours.
fn with_known_name() -> World {
    let plane = json!({ "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KamajiControlPlane", "name": "p" });
    let infra = json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OpenStackMachine", "name": "s" });
    world(
        json!({}),
        vec![
            of_cluster(json!({ "spec": { "controlPlaneRef": plane } })),
            of_machine(json!({ "spec": { "infrastructureRef": infra } })),
        ],
    )
}

#[test]
fn a_token_is_bound_to_the_name_of_its_server_and_what_it_asks_for_is_decided_at_once() {
    use approval::tests::{of_node, request};
    let (mut world, mut fake) = (with_known_name(), Fake::default());
    fake.pass(&mut world);
    assert_eq!(fake.done, [r#"c: CreateToken { seconds: 900, node: Some("s") }"#, "create Secret n/k"]);
    assert_eq!(bound_token(&world), Some(("abcdef", "s")));
    for (name, refusal) in
        [("s", "None"), ("t", r#"Some("this bootstrap token is for Node s only: \"system:node:t\" is asked for")"#)]
    {
        fake.done.clear();
        world.facts.requests = vec![request(json!({}), of_node(name))];
        let plan = fake.pass(&mut world);
        let expected = format!(r#"c: DecideRequest {{ name: "csr", resource_version: "1", refusal: {refusal} }}"#);
        assert_eq!(fake.done, [expected]);
        assert_eq!(said(&plan), "wait WaitingForNode: waiting for the node to join");
    }
    // Whoever has joined needs nothing more by token.
    world.facts.requests = vec![request(json!({}), of_node("s"))];
    world.objects.insert(shared(of_machine(json!({ "status": { "nodeRef": { "name": "s" } } }))));
    assert_eq!(said(&planned(&world)), r#"c: DeleteToken { id: "abcdef" }"#);
}

#[test]
fn a_token_from_before_is_approved_by_the_tenant_itself() {
    use approval::tests::{of_node, request};
    let (mut world, mut fake) = (complete(), Fake::default());
    fake.pass(&mut world);
    world.facts.requests = vec![request(json!({}), of_node("s"))];
    assert_eq!(said(&planned(&world)), "wait WaitingForNode: waiting for the node to join");
}
