use hangar_api::KubeVersion;
use serde_json::{Value, json};

use super::*;

fn facts() -> Facts {
    Facts {
        endpoint: "10.0.0.1:6443".into(),
        token: Some("abcdef.0123456789abcdef".into()),
        ca_hashes: vec!["sha256:00".into()],
        ca_pem: String::new(),
        control_plane_version: None,
        version: KubeVersion::parse("v1.34.4"),
    }
}

fn rendered(spec: &Value) -> Result<Value, String> {
    let text = render(spec, &facts(), &Contents::default())?;
    let config: Value = serde_json::from_str(&text).unwrap();
    valid(&config, "");
    Ok(config)
}

/// Fields of version 2.3 of the specification that are written, with the type of their values; `[]` is any item.
const SPECIFIED: &[(&str, &str)] = &[
    ("ignition.version", "string"),
    ("passwd.users[].name", "string"),
    ("passwd.users[].gecos", "string"),
    ("passwd.users[].homeDir", "string"),
    ("passwd.users[].shell", "string"),
    ("passwd.users[].primaryGroup", "string"),
    ("passwd.users[].passwordHash", "string"),
    ("passwd.users[].groups[]", "string"),
    ("passwd.users[].sshAuthorizedKeys[]", "string"),
    ("storage.files[].filesystem", "string"),
    ("storage.files[].path", "string"),
    ("storage.files[].mode", "integer"),
    ("storage.files[].append", "boolean"),
    ("storage.files[].user.name", "string"),
    ("storage.files[].group.name", "string"),
    ("storage.files[].contents.source", "string"),
    ("storage.files[].contents.compression", "string"),
    ("storage.directories[].filesystem", "string"),
    ("storage.directories[].path", "string"),
    ("storage.directories[].mode", "integer"),
    ("storage.links[].filesystem", "string"),
    ("storage.links[].path", "string"),
    ("storage.links[].target", "string"),
    ("storage.disks[].device", "string"),
    ("storage.disks[].wipeTable", "boolean"),
    ("storage.disks[].partitions[].number", "integer"),
    ("storage.filesystems[].name", "string"),
    ("storage.filesystems[].mount.device", "string"),
    ("storage.filesystems[].mount.format", "string"),
    ("storage.filesystems[].mount.label", "string"),
    ("storage.filesystems[].mount.wipeFilesystem", "boolean"),
    ("storage.filesystems[].mount.options[]", "string"),
    ("systemd.units[].name", "string"),
    ("systemd.units[].enabled", "boolean"),
    ("systemd.units[].contents", "string"),
    ("systemd.units[].dropins[].name", "string"),
    ("systemd.units[].dropins[].contents", "string"),
];

fn valid(value: &Value, path: &str) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    let kind = match value {
        Value::Object(fields) => return fields.iter().for_each(|(name, value)| valid(value, &below(name))),
        Value::Array(items) => return items.iter().for_each(|item| valid(item, &format!("{path}[]"))),
        Value::String(_) => "string",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Bool(_) => "boolean",
        _ => "nothing",
    };
    let specified = SPECIFIED.iter().find(|(field, _)| *field == path);
    assert_eq!(specified.map(|(_, kind)| *kind), Some(kind), "{path}");
}

fn content(config: &Value, path: &str) -> String {
    let files = config["storage"]["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["path"] == path).unwrap_or_else(|| panic!("no {path}"));
    let data = file["contents"]["source"].as_str().unwrap().strip_prefix("data:;base64,").unwrap();
    String::from_utf8(STANDARD.decode(data).unwrap()).unwrap()
}

fn unit<'a>(config: &'a Value, name: &str) -> &'a Value {
    let units = config["systemd"]["units"].as_array().unwrap();
    units.iter().find(|unit| unit["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn b7_a_script_joins_once_with_a_file_that_is_gone_afterwards() {
    let spec = json!({ "preKubeadmCommands": ["envsubst < /etc/kubeadm.yml > /etc/k"], "postKubeadmCommands": ["echo done"], "verbosity": 2 });
    let config = rendered(&spec).unwrap();
    let expected = "#!/bin/bash\nset -e\n\nenvsubst < /etc/kubeadm.yml > /etc/k\nkubeadm join --config /etc/kubeadm.yml --v 2\nmkdir -p /run/cluster-api && echo success > /run/cluster-api/bootstrap-success.complete\nmv /etc/kubeadm.yml /tmp/\necho done\n";
    assert_eq!(content(&config, SCRIPT), expected);
    let join = hangar_api::yaml::document(&content(&config, JOIN_FILE)).unwrap();
    assert_eq!(
        (&join["kind"], &join["discovery"]["bootstrapToken"]["token"]),
        (&json!("JoinConfiguration"), &json!("abcdef.0123456789abcdef"))
    );
    let unit = unit(&config, "kubeadm.service");
    assert!(unit["enabled"] == true && unit["contents"].as_str().unwrap().contains("ExecStart=/etc/kubeadm.sh"));
    let modes: Vec<&Value> = config["storage"]["files"].as_array().unwrap().iter().map(|file| &file["mode"]).collect();
    assert_eq!(modes, [&json!(0o700), &json!(0o600)]);
}

#[test]
fn b7_files_users_disks_mounts_and_time_are_in_the_words_of_ignition() {
    let config = rendered(&json!({
        "files": [
            { "path": "/a", "content": "hello", "owner": "root:wheel", "permissions": "0640" },
            { "path": "/b", "content": "aGVsbG8=", "encoding": "base64", "append": true, "owner": "core" },
            { "path": "/c", "content": "H4sI\nAAAA", "encoding": "gzip+base64" },
        ],
        "users": [{
            "name": "core", "sudo": "ALL=(ALL) NOPASSWD:ALL", "groups": "docker, wheel", "passwd": "$6$x", "sshAuthorizedKeys": ["ssh-ed25519 A"],
            "gecos": "C", "homeDir": "/home/c", "shell": "/bin/bash", "primaryGroup": "core", "lockPassword": false,
        }],
        "ntp": { "enabled": true, "servers": ["a.example", "b.example"] },
        "diskSetup": {
            "partitions": [{ "device": "/dev/vdb", "layout": true, "overwrite": false, "tableType": "gpt" }],
            "filesystems": [{ "device": "/dev/vdb1", "filesystem": "ext4", "label": "data", "extraOpts": ["-E", "x"], "overwrite": true }],
        },
        "mounts": [["LABEL=data", "/var/lib/my-data"], ["/dev/vdc", "/mnt", "xfs", "noatime"]],
    }))
    .unwrap();
    let files = config["storage"]["files"].as_array().unwrap();
    assert_eq!(
        (&files[0]["mode"], &files[0]["user"]["name"], &files[0]["group"]["name"]),
        (&json!(0o640), &json!("root"), &json!("wheel"))
    );
    assert_eq!(
        (content(&config, "/b").as_str(), &files[1]["append"], &files[1]["group"]),
        ("hello", &json!(true), &Value::Null)
    );
    assert_eq!(
        (&files[2]["contents"]["source"], &files[2]["contents"]["compression"]),
        (&json!("data:;base64,H4sIAAAA"), &json!("gzip"))
    );
    assert_eq!(content(&config, "/etc/sudoers.d/core"), "core ALL=(ALL) NOPASSWD:ALL\n");
    assert_eq!(content(&config, "/etc/systemd/timesyncd.conf.d/10-ntp.conf"), "[Time]\nNTP=a.example b.example\n");
    assert_eq!(config["passwd"]["users"][0]["groups"], json!(["docker", "wheel"]));
    assert_eq!(
        unit(&config, "var-lib-my\\x2ddata.mount")["contents"],
        "[Unit]\nDescription=Mount /var/lib/my-data\n[Mount]\nWhat=/dev/disk/by-label/data\nWhere=/var/lib/my-data\n[Install]\nWantedBy=multi-user.target\n"
    );
    assert!(unit(&config, "mnt.mount")["contents"].as_str().unwrap().contains("Type=xfs\nOptions=noatime\n"));
    assert_eq!(unit(&config, "systemd-timesyncd.service")["enabled"], true);
    assert_eq!(
        config["storage"]["disks"],
        json!([{ "device": "/dev/vdb", "wipeTable": false, "partitions": [{ "number": 1 }] }])
    );
}

#[test]
fn b7_what_ignition_cannot_express_is_refused_by_name() {
    for (spec, why) in [
        (json!({ "bootCommands": ["x"] }), "spec.bootCommands is for cloud-config only"),
        (json!({ "files": [{ "path": "/a", "encoding": "gzip" }] }), "spec.files[/a].encoding: gzip"),
        (json!({ "files": [{ "path": "/a", "permissions": "rw" }] }), "spec.files[/a].permissions: rw is not octal"),
        (json!({ "users": [{ "name": "u", "inactive": true }] }), "spec.users[u].inactive"),
        (
            json!({ "users": [{ "name": "u", "lockPassword": false }] }),
            "spec.users[u].lockPassword: false needs a passwd",
        ),
        (
            json!({ "diskSetup": { "partitions": [{ "device": "/d", "diskLayout": [] }] } }),
            "spec.diskSetup.partitions[/d].diskLayout",
        ),
        (
            json!({ "diskSetup": { "partitions": [{ "device": "/d", "tableType": "mbr" }] } }),
            "spec.diskSetup.partitions[/d].tableType: mbr",
        ),
        (
            json!({ "diskSetup": { "filesystems": [{ "device": "/d", "replaceFS": "x" }] } }),
            "spec.diskSetup.filesystems[/d].replaceFS",
        ),
        (
            json!({ "diskSetup": { "filesystems": [{ "device": "/d", "partition": "2" }] } }),
            "spec.diskSetup.filesystems[/d].partition",
        ),
        (json!({ "mounts": [["/dev/x"]] }), "spec.mounts"),
    ] {
        let refused = rendered(&spec).unwrap_err();
        assert!(refused.starts_with(why), "{refused}");
    }
}

fn with(text: &str) -> Result<Value, String> {
    rendered(&json!({ "ignition": { "containerLinuxConfig": { "additionalConfig": text } } }))
}

#[test]
fn b7_what_the_user_adds_is_translated_and_a_unit_that_is_there_gets_dropins() {
    let config = with(
        "
systemd:
  units:
  - name: kubeadm.service
    enabled: true
    dropins:
    - name: 10-flatcar.conf
      contents: |
        [Unit]
        After=oem-cloudinit.service
  - name: mine.service
    enable: true
    contents: x
storage:
  files:
  - path: /etc/mine
    mode: 0600
    contents: {inline: hello}
  directories:
  - path: /opt/mine
  links:
  - {path: /a, target: /b}
passwd:
  users:
  - name: other
    ssh_authorized_keys: [k]
",
    )
    .unwrap();
    let kubeadm = unit(&config, "kubeadm.service");
    assert_eq!(kubeadm["dropins"][0]["name"], "10-flatcar.conf");
    assert_eq!(kubeadm["contents"], UNIT);
    assert_eq!(unit(&config, "mine.service")["enabled"], true);
    assert_eq!(content(&config, "/etc/mine"), "hello");
    assert_eq!(config["storage"]["directories"][0], json!({ "path": "/opt/mine", "filesystem": "root" }));
    for (text, why) in [
        ("networkd: {units: []}", ": networkd is not built yet"),
        ("storage: {raid: []}", ": storage.raid is not built yet"),
        ("systemd: {units: [{name: x, color: red}]}", ": systemd.units[].color is not built yet"),
        (
            "storage: {files: [{path: /x, contents: {remote: {url: x}}}]}",
            ": storage.files[].contents.remote is not built yet",
        ),
        ("just words", ": what is no mapping is not built yet"),
        ("a: [", ": not valid YAML"),
    ] {
        let refused = with(text).unwrap_err();
        assert!(refused.starts_with(&format!("spec.ignition.containerLinuxConfig.additionalConfig{why}")), "{refused}");
    }
}
