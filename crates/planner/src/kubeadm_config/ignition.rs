//! The user-data of a worker that starts with Ignition (Flatcar): JSON with files, units and users, in version 2.3 of its specification.
//!
//! Flows: spec -> users, disks, files, a script that joins and the unit that runs it once -> what the user adds ([`super::container_linux`]). Holds: what
//! Ignition cannot express is refused by name; paths are those that documents for Cluster API change in their commands.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::content::{self, SENTINEL};
use super::contents::Contents;
use super::join::{self, Facts};
use super::{cloud_config, container_linux};

const JOIN_FILE: &str = "/etc/kubeadm.yml";
const SCRIPT: &str = "/etc/kubeadm.sh";
const UNIT: &str = "[Unit]
Description=kubeadm
ConditionPathExists=/etc/kubeadm.yml
After=network-online.target
Wants=network-online.target
[Service]
Type=oneshot
ExecStart=/etc/kubeadm.sh
[Install]
WantedBy=multi-user.target
";

/// The whole text, or what cannot be expressed.
pub fn render(spec: &Value, facts: &Facts, contents: &Contents) -> Result<String, String> {
    if spec["bootCommands"].as_array().is_some_and(|commands| !commands.is_empty()) {
        return Err("spec.bootCommands is for cloud-config only; use a unit in spec.ignition".to_owned());
    }
    let join = cloud_config::yaml(&join::configuration(&spec["joinConfiguration"], facts)?)?;
    let mut files = content::files(spec, facts, contents)?.iter().map(file).collect::<Result<Vec<_>, _>>()?;
    files.push(inline(SCRIPT, 0o700, &script(spec)));
    files.push(inline(JOIN_FILE, 0o600, &join));
    let mut units = vec![json!({ "name": "kubeadm.service", "enabled": true, "contents": UNIT })];
    let mut users = vec![];
    for user in spec["users"].as_array().into_iter().flatten() {
        users.push(self::user(user, contents, &mut files)?);
    }
    time(&spec["ntp"], &mut files, &mut units);
    for mount in spec["mounts"].as_array().into_iter().flatten() {
        units.push(self::mount(mount)?);
    }
    let mut config = json!({
        "ignition": { "version": "2.3.0" },
        "passwd": { "users": users },
        "storage": { "files": files, "disks": disks(&spec["diskSetup"])?, "filesystems": filesystems(&spec["diskSetup"])? },
        "systemd": { "units": units },
    });
    if let Some(text) = spec["ignition"]["containerLinuxConfig"]["additionalConfig"].as_str() {
        container_linux::add(&mut config, text)?;
    }
    Ok(format!("{config}\n"))
}

fn script(spec: &Value) -> String {
    let mut lines = vec!["#!/bin/bash".to_owned(), "set -e".to_owned(), String::new()];
    lines.extend(content::commands(spec, "preKubeadmCommands").map(str::to_owned));
    lines.push(content::join_command(spec, JOIN_FILE));
    lines.push(format!("mkdir -p /run/cluster-api && echo success > {SENTINEL}"));
    // The unit does not run again, and the token is not on the disk any more.
    lines.push(format!("mv {JOIN_FILE} /tmp/"));
    lines.extend(content::commands(spec, "postKubeadmCommands").map(str::to_owned));
    lines.join("\n") + "\n"
}

/// A file with this text.
pub fn inline(path: &str, mode: u32, text: &str) -> Value {
    let source = format!("data:;base64,{}", STANDARD.encode(text));
    json!({ "filesystem": "root", "path": path, "mode": mode, "contents": { "source": source } })
}

fn file(file: &Value) -> Result<Value, String> {
    let path = file["path"].as_str().unwrap_or_default();
    let content = file["content"].as_str().unwrap_or_default();
    let (data, compression) = match file["encoding"].as_str().unwrap_or_default() {
        "" => (STANDARD.encode(content), None),
        "base64" => (content.to_owned(), None),
        "gzip+base64" => (content.to_owned(), Some("gzip")),
        other => return Err(format!("spec.files[{path}].encoding: {other} cannot be written with ignition")),
    };
    let data: String = data.split_whitespace().collect();
    let mut out =
        json!({ "filesystem": "root", "path": path, "contents": { "source": format!("data:;base64,{data}") } });
    if let Some(compression) = compression {
        out["contents"]["compression"] = compression.into();
    }
    let permissions = file["permissions"].as_str().unwrap_or("0644");
    let mode = u32::from_str_radix(permissions, 8);
    out["mode"] = mode.map_err(|_| format!("spec.files[{path}].permissions: {permissions} is not octal"))?.into();
    if let Some(owner) = file["owner"].as_str().filter(|owner| !owner.is_empty()) {
        let (user, group) = owner.split_once(':').map_or((owner, None), |(user, group)| (user, Some(group)));
        out["user"] = json!({ "name": user });
        if let Some(group) = group {
            out["group"] = json!({ "name": group });
        }
    }
    if file["append"] == true {
        out["append"] = true.into();
    }
    Ok(out)
}

fn user(user: &Value, contents: &Contents, files: &mut Vec<Value>) -> Result<Value, String> {
    let name = user["name"].as_str().unwrap_or_default();
    if user["inactive"] == true {
        return Err(format!("spec.users[{name}].inactive cannot be written with ignition"));
    }
    let mut out = json!({ "name": name });
    for (from, to) in [
        ("gecos", "gecos"),
        ("homeDir", "homeDir"),
        ("shell", "shell"),
        ("primaryGroup", "primaryGroup"),
        ("sshAuthorizedKeys", "sshAuthorizedKeys"),
    ] {
        if !user[from].is_null() {
            out[to] = user[from].clone();
        }
    }
    if let Some(groups) = user["groups"].as_str() {
        out["groups"] = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).collect();
    }
    let password = content::password(user, contents)?;
    match (password, user["lockPassword"].as_bool()) {
        // Ignition locks whoever has none.
        (_, Some(true)) | (None, None) => {}
        (Some(password), _) => out["passwordHash"] = password.into(),
        (None, Some(false)) => {
            return Err(format!("spec.users[{name}].lockPassword: false needs a passwd with ignition"));
        }
    }
    if let Some(rule) = user["sudo"].as_str() {
        files.push(inline(&format!("/etc/sudoers.d/{name}"), 0o600, &format!("{name} {rule}\n")));
    }
    Ok(out)
}

fn time(ntp: &Value, files: &mut Vec<Value>, units: &mut Vec<Value>) {
    let servers: Vec<&str> = ntp["servers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !servers.is_empty() {
        let text = format!("[Time]\nNTP={}\n", servers.join(" "));
        files.push(inline("/etc/systemd/timesyncd.conf.d/10-ntp.conf", 0o644, &text));
    }
    if ntp.is_object() {
        units.push(json!({ "name": "systemd-timesyncd.service", "enabled": ntp["enabled"].as_bool().unwrap_or(true) }));
    }
}

fn disks(setup: &Value) -> Result<Vec<Value>, String> {
    let all = setup["partitions"].as_array().into_iter().flatten();
    let disk = |partition: &Value| {
        let device = partition["device"].as_str().unwrap_or_default();
        let field = |name: &str| format!("spec.diskSetup.partitions[{device}].{name} cannot be written with ignition");
        if partition["diskLayout"].is_array() {
            return Err(field("diskLayout"));
        }
        if partition["tableType"] == "mbr" {
            return Err(field("tableType: mbr"));
        }
        let mut disk = json!({ "device": device, "wipeTable": partition["overwrite"] == true });
        if partition["layout"] == true {
            disk["partitions"] = json!([{ "number": 1 }]);
        }
        Ok(disk)
    };
    all.map(disk).collect()
}

fn filesystems(setup: &Value) -> Result<Vec<Value>, String> {
    let all = setup["filesystems"].as_array().into_iter().flatten();
    let filesystem = |wanted: &Value| {
        let text = |field: &str| wanted[field].as_str().unwrap_or_default();
        let device = text("device");
        if !wanted["replaceFS"].is_null() {
            return Err(format!("spec.diskSetup.filesystems[{device}].replaceFS cannot be written with ignition"));
        }
        if !["", "auto", "any", "none"].contains(&text("partition")) {
            return Err(format!(
                "spec.diskSetup.filesystems[{device}].partition: name the partition as the device with ignition"
            ));
        }
        let mut mount =
            json!({ "device": device, "format": text("filesystem"), "wipeFilesystem": wanted["overwrite"] == true });
        if !text("label").is_empty() {
            mount["label"] = text("label").into();
        }
        if wanted["extraOpts"].is_array() {
            mount["options"] = wanted["extraOpts"].clone();
        }
        Ok(json!({ "name": text("label"), "mount": mount }))
    };
    all.map(filesystem).collect()
}

/// A line as in fstab, as a unit.
fn mount(line: &Value) -> Result<Value, String> {
    let field = |number: usize| line[number].as_str().filter(|text| !text.is_empty());
    let (Some(what), Some(place)) = (field(0), field(1).filter(|place| place.starts_with('/'))) else {
        return Err("spec.mounts: with ignition a mount has a device and an absolute path".to_owned());
    };
    let what = match what.split_once('=') {
        Some(("LABEL", label)) => format!("/dev/disk/by-label/{label}"),
        Some(("UUID", id)) => format!("/dev/disk/by-uuid/{id}"),
        _ => what.to_owned(),
    };
    let mut text = format!("[Unit]\nDescription=Mount {place}\n[Mount]\nWhat={what}\nWhere={place}\n");
    for (name, value) in [("Type", field(2).filter(|kind| *kind != "auto")), ("Options", field(3))] {
        text += &value.map_or(String::new(), |value| format!("{name}={value}\n"));
    }
    text += "[Install]\nWantedBy=multi-user.target\n";
    Ok(json!({ "name": format!("{}.mount", escaped(place)), "enabled": true, "contents": text }))
}

/// As `systemd-escape --path` writes it.
fn escaped(path: &str) -> String {
    let mut out = String::new();
    for byte in path.trim_matches('/').bytes() {
        match byte {
            b'/' => out.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' => out.push(char::from(byte)),
            b'.' if !out.is_empty() => out.push('.'),
            other => out += &format!("\\x{other:02x}"),
        }
    }
    if out.is_empty() { "-".to_owned() } else { out }
}

#[cfg(test)]
mod tests;
