//! The user-data of a worker: a jinja header, then cloud-config.

use serde_json::{Map, Value, json};

use super::join::{self, Facts};

const JOIN_FILE: &str = "/run/kubeadm/kubeadm-join-config.yaml";
const SENTINEL: &str = "/run/cluster-api/bootstrap-success.complete";
/// Nova takes 65535 bytes of base64.
const LARGEST: usize = 65_535 / 4 * 3;

/// The whole text, or what cannot be expressed.
pub fn render(spec: &Value, facts: &Facts) -> Result<String, String> {
    let mut files = vec![];
    for file in spec["files"].as_array().into_iter().flatten() {
        files.push(write_file(file)?);
    }
    files.push(json!({
        "path": JOIN_FILE, "owner": "root:root", "permissions": "0640",
        "content": yaml(&join::configuration(&spec["joinConfiguration"], facts))?,
    }));
    files.push(json!({
        "path": "/run/cluster-api/placeholder", "owner": "root:root", "permissions": "0640",
        "content": "This placeholder file is used to create the /run/cluster-api sub directory in a way that is compatible with both Linux and Windows (mkdir -p /run/cluster-api does not work with Windows)",
    }));
    let mut config = json!({ "write_files": files, "runcmd": commands(spec) });
    for (field, key) in [("bootCommands", "bootcmd"), ("mounts", "mounts")] {
        if !spec[field].is_null() {
            config[key] = spec[field].clone();
        }
    }
    if let Some(users) = spec["users"].as_array() {
        config["users"] = users.iter().map(user).collect();
    }
    if spec["ntp"].is_object() {
        config["ntp"] = json!({ "enabled": spec["ntp"]["enabled"], "servers": spec["ntp"]["servers"] });
    }
    let text = format!("## template: jinja\n#cloud-config\n\n{}", yaml(&config)?);
    if text.len() > LARGEST {
        return Err(format!(
            "user-data has {} bytes, Nova takes {LARGEST} at most; make spec.files smaller",
            text.len()
        ));
    }
    Ok(text)
}

fn commands(spec: &Value) -> Vec<Value> {
    let listed = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
    let verbosity = spec["verbosity"].as_i64().map_or(String::new(), |level| format!(" --v {level}"));
    let join = format!("kubeadm join --config {JOIN_FILE}{verbosity} && echo success > {SENTINEL}");
    [listed("preKubeadmCommands"), vec![join.into()], listed("postKubeadmCommands")].concat()
}

fn write_file(file: &Value) -> Result<Value, String> {
    let path = file["path"].as_str().unwrap_or_default();
    if file["contentFrom"].is_object() {
        return Err(format!("spec.files[{path}].contentFrom is not built yet; write the content itself"));
    }
    let mut out = Map::new();
    for (from, to) in [
        ("path", "path"),
        ("owner", "owner"),
        ("permissions", "permissions"),
        ("encoding", "encoding"),
        ("content", "content"),
        ("append", "append"),
    ] {
        if !file[from].is_null() {
            out.insert(to.into(), file[from].clone());
        }
    }
    Ok(out.into())
}

fn user(user: &Value) -> Value {
    const NAMES: [(&str, &str); 11] = [
        ("name", "name"),
        ("passwd", "passwd"),
        ("gecos", "gecos"),
        ("groups", "groups"),
        ("homeDir", "homedir"),
        ("inactive", "inactive"),
        ("lockPassword", "lock_passwd"),
        ("shell", "shell"),
        ("primaryGroup", "primary_group"),
        ("sudo", "sudo"),
        ("sshAuthorizedKeys", "ssh_authorized_keys"),
    ];
    let pairs = NAMES.iter().filter(|(from, _)| !user[*from].is_null());
    pairs.map(|(from, to)| ((*to).to_owned(), user[*from].clone())).collect::<Map<_, _>>().into()
}

fn yaml(value: &Value) -> Result<String, String> {
    serde_saphyr::to_string(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hangar_api::{KubeVersion, yaml};

    fn rendered(spec: &Value) -> String {
        let facts = Facts {
            endpoint: "10.0.0.1:6443".into(),
            token: "abcdef.0123456789abcdef".into(),
            ca_hashes: vec!["sha256:00".into()],
            version: KubeVersion::parse("v1.28.10"),
        };
        render(spec, &facts).unwrap()
    }

    #[test]
    fn jinja_and_scripts_arrive_untouched() {
        let spec = json!({
            "joinConfiguration": {"nodeRegistration": {"name": "{{ local_hostname }}"}},
            "files": [{"path": "/a", "content": "#!/bin/sh\necho {{ ds.meta_data.uuid }}\n", "permissions": "0755"}],
            "preKubeadmCommands": ["echo \"a: b\" > /x", "yes"],
            "users": [{"name": "ubuntu", "sshAuthorizedKeys": ["ssh-ed25519 AAAA"], "lockPassword": true}],
        });
        let text = rendered(&spec);
        assert!(text.starts_with("## template: jinja\n#cloud-config\n"), "{text}");
        let config = yaml::document(&text).unwrap();
        assert_eq!(config["write_files"][0]["content"], spec["files"][0]["content"]);
        assert_eq!(config["write_files"][0]["permissions"], "0755");
        assert_eq!(config["runcmd"][0], spec["preKubeadmCommands"][0]);
        assert_eq!(config["runcmd"][1], "yes");
        assert!(config["runcmd"][2].as_str().unwrap().starts_with("kubeadm join --config"));
        let join = yaml::document(config["write_files"][1]["content"].as_str().unwrap()).unwrap();
        assert_eq!(join["nodeRegistration"]["name"], "{{ local_hostname }}");
        assert_eq!(config["users"][0]["ssh_authorized_keys"][0], "ssh-ed25519 AAAA");
    }

    #[test]
    fn too_much_for_nova_is_said_before_nova_says_it() {
        let facts = Facts { endpoint: String::new(), token: String::new(), ca_hashes: vec![], version: None };
        let spec = json!({"files": [{"path": "/a", "content": "x".repeat(60_000)}]});
        assert!(render(&spec, &facts).unwrap_err().contains("Nova takes"));
    }
}
