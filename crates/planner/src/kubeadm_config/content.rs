//! What both formats of user-data are made of: files with their final content, and the command that joins.
//!
//! Flows: spec, Secrets, templates -> files in their order, the kubeconfig for discovery last -> one format or the other.

use serde_json::{Map, Value, json};

use super::contents::Contents;
use super::join::Facts;
use super::{discovery, go_template};

pub const SENTINEL: &str = "/run/cluster-api/bootstrap-success.complete";

/// In the words of cloud-init: path, owner, permissions, encoding, content, append.
pub fn files(spec: &Value, facts: &Facts, contents: &Contents) -> Result<Vec<Value>, String> {
    let mut files = vec![];
    for file in spec["files"].as_array().into_iter().flatten() {
        files.push(self::file(file, facts, contents)?);
    }
    files.extend(discovery::file(spec, facts)?);
    Ok(files)
}

fn file(file: &Value, facts: &Facts, contents: &Contents) -> Result<Value, String> {
    let path = file["path"].as_str().unwrap_or_default();
    let mut out = Map::new();
    for field in ["path", "owner", "permissions", "encoding", "content", "append"] {
        if !file[field].is_null() {
            out.insert(field.into(), file[field].clone());
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
    match file["contentFormat"].as_str().unwrap_or_default() {
        "" | "Raw" => {}
        "Template" => {
            let text = out.get("content").and_then(Value::as_str).unwrap_or_default();
            let text = go_template::render(text, &data(facts));
            let text = text.map_err(|why| format!("spec.files[{path}]: the template cannot be filled in: {why}"))?;
            out.insert("content".into(), text.into());
        }
        other => return Err(format!("spec.files[{path}].contentFormat: {other} is neither Raw nor Template")),
    }
    Ok(out.into())
}

/// What templates may ask for.
fn data(facts: &Facts) -> Value {
    match &facts.control_plane_version {
        Some(version) => json!({ "controlPlane": { "version": version } }),
        None => json!({}),
    }
}

pub fn join_command(spec: &Value, file: &str) -> String {
    let verbosity = spec["verbosity"].as_i64().map_or(String::new(), |level| format!(" --v {level}"));
    format!("kubeadm join --config {file}{verbosity}")
}

pub fn commands<'a>(spec: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    spec[field].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The password of a user, from wherever it comes.
pub fn password(user: &Value, contents: &Contents) -> Result<Option<String>, String> {
    if user["passwdFrom"].is_object() {
        let field = format!("spec.users[{}].passwdFrom", user["name"].as_str().unwrap_or_default());
        return contents.text(&user["passwdFrom"], &field).map(Some);
    }
    Ok(user["passwd"].as_str().map(str::to_owned))
}
