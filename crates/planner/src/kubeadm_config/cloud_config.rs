//! The user-data of a worker: a jinja header, then cloud-config.

use serde_json::{Map, Value, json};

use super::contents::Contents;
use super::disks;
use super::join::{self, Facts};

const JOIN_FILE: &str = "/run/kubeadm/kubeadm-join-config.yaml";
const SENTINEL: &str = "/run/cluster-api/bootstrap-success.complete";
/// Nova takes 65535 bytes of base64.
const LARGEST: usize = 65_535 / 4 * 3;

/// The whole text, or what cannot be expressed.
pub fn render(spec: &Value, facts: &Facts, contents: &Contents) -> Result<String, String> {
    refuse_what_is_not_built(spec)?;
    let mut files = vec![];
    for file in spec["files"].as_array().into_iter().flatten() {
        files.push(write_file(file, contents)?);
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
        config["users"] = users.iter().map(|wanted| user(wanted, contents)).collect::<Result<_, _>>()?;
    }
    for (module, setup) in disks::modules(&spec["diskSetup"]) {
        config[module] = setup;
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

/// What would be left out without a word.
fn refuse_what_is_not_built(spec: &Value) -> Result<(), String> {
    let discovery = &spec["joinConfiguration"]["discovery"];
    let template = |file: &&Value| file["contentFormat"].as_str().is_some_and(|format| !format.is_empty());
    let templated = spec["files"].as_array().into_iter().flatten().find(template);
    let not_built = [
        (spec["format"] == "ignition", "spec.format: ignition is not built yet; use cloud-config".to_owned()),
        (spec["ignition"].is_object(), "spec.ignition is not built yet; use cloud-config".to_owned()),
        (
            discovery["file"].is_object(),
            "spec.joinConfiguration.discovery.file is not built yet; Hangar makes a token for each machine".to_owned(),
        ),
        (
            discovery["bootstrapToken"]["token"].is_string(),
            "spec.joinConfiguration.discovery.bootstrapToken.token: Hangar makes a token for each machine; remove it"
                .to_owned(),
        ),
        (
            templated.is_some(),
            format!(
                "spec.files[{}].contentFormat is not built yet; write the content itself",
                templated.map_or("", |file| file["path"].as_str().unwrap_or_default())
            ),
        ),
    ];
    not_built.into_iter().find(|(is_asked, _)| *is_asked).map_or(Ok(()), |(_, why)| Err(why))
}

fn write_file(file: &Value, contents: &Contents) -> Result<Value, String> {
    let path = file["path"].as_str().unwrap_or_default();
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
    if file["contentFrom"].is_object() {
        let field = format!("spec.files[{path}].contentFrom");
        let (content, encoding) = contents.file(&file["contentFrom"], &file["encoding"], &field)?;
        out.insert("content".into(), content);
        if !encoding.is_null() {
            out.insert("encoding".into(), encoding);
        }
    }
    Ok(out.into())
}

fn user(user: &Value, contents: &Contents) -> Result<Value, String> {
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
    let mut out: Map<String, Value> = pairs.map(|(from, to)| ((*to).to_owned(), user[*from].clone())).collect();
    if user["passwdFrom"].is_object() {
        let field = format!("spec.users[{}].passwdFrom", user["name"].as_str().unwrap_or_default());
        out.insert("passwd".into(), contents.text(&user["passwdFrom"], &field)?.into());
    }
    Ok(out.into())
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

    #[test]
    fn too_much_for_nova_is_said_before_nova_says_it() {
        let facts = Facts { endpoint: String::new(), token: String::new(), ca_hashes: vec![], version: None };
        let spec = json!({"files": [{"path": "/a", "content": "x".repeat(60_000)}]});
        assert!(render(&spec, &facts, &Contents::default()).unwrap_err().contains("Nova takes"));
    }
}
