//! The user-data of a worker: a jinja header, then cloud-config.

use serde_json::{Map, Value, json};

use super::content::{self, SENTINEL};
use super::contents::Contents;
use super::disks;
use super::join::{self, Facts};

const JOIN_FILE: &str = "/run/kubeadm/kubeadm-join-config.yaml";

/// The whole text, or what cannot be expressed.
pub fn render(spec: &Value, facts: &Facts, contents: &Contents) -> Result<String, String> {
    if spec["ignition"].is_object() {
        return Err("spec.ignition is only for spec.format: ignition; remove it".to_owned());
    }
    let mut files = content::files(spec, facts, contents)?;
    files.push(json!({
        "path": JOIN_FILE, "owner": "root:root", "permissions": "0640",
        "content": yaml(&join::configuration(&spec["joinConfiguration"], facts)?)?,
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
        config["users"] = users.iter().map(|wanted| user(wanted, contents)).collect::<Result<_, _>>()?;
    }
    for (module, setup) in disks::modules(&spec["diskSetup"]) {
        config[module] = setup;
    }
    for field in ["enabled", "servers"] {
        if !spec["ntp"][field].is_null() {
            config["ntp"][field] = spec["ntp"][field].clone();
        }
    }
    Ok(format!("## template: jinja\n#cloud-config\n\n{}", yaml(&config)?))
}

fn commands(spec: &Value) -> Vec<Value> {
    let listed = |field: &str| spec[field].as_array().cloned().unwrap_or_default();
    let join = format!("{} && echo success > {SENTINEL}", content::join_command(spec, JOIN_FILE));
    [listed("preKubeadmCommands"), vec![join.into()], listed("postKubeadmCommands")].concat()
}

fn user(user: &Value, contents: &Contents) -> Result<Value, String> {
    const NAMES: [(&str, &str); 9] = [
        ("name", "name"),
        ("gecos", "gecos"),
        ("groups", "groups"),
        ("homeDir", "homedir"),
        ("lockPassword", "lock_passwd"),
        ("shell", "shell"),
        ("primaryGroup", "primary_group"),
        ("sudo", "sudo"),
        ("sshAuthorizedKeys", "ssh_authorized_keys"),
    ];
    let pairs = NAMES.iter().filter(|(from, _)| !user[*from].is_null());
    let mut out: Map<String, Value> = pairs.map(|(from, to)| ((*to).to_owned(), user[*from].clone())).collect();
    // cloud-init gives this to useradd, which takes days.
    if user["inactive"] == true {
        out.insert("inactive".into(), "0".into());
    }
    if let Some(password) = content::password(user, contents)? {
        out.insert("passwd".into(), password.into());
    }
    Ok(out.into())
}

pub fn yaml(value: &Value) -> Result<String, String> {
    serde_saphyr::to_string(value).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hangar_api::{KubeVersion, yaml};

    fn rendered(spec: &Value) -> String {
        let facts = Facts {
            endpoint: "10.0.0.1:6443".into(),
            token: Some("abcdef.0123456789abcdef".into()),
            ca_hashes: vec!["sha256:00".into()],
            ca_pem: String::new(),
            control_plane_version: None,
            version: KubeVersion::parse("v1.28.10"),
        };
        render(spec, &facts, &Contents::default()).unwrap()
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
}
