//! What users add to an Ignition config: a Container Linux Config, which is nearly Ignition in YAML with other names.
//!
//! Flows: YAML -> units, files, directories, links, users and groups -> the lists of the config; a unit that is there already gets drop-ins. Holds: what is
//! not translated is refused by its path, strict or not.

use serde_json::{Map, Value, json};

use super::ignition::inline;

const UNIT: &[(&str, &str)] = &[
    ("name", "name"),
    ("enable", "enabled"),
    ("enabled", "enabled"),
    ("mask", "mask"),
    ("contents", "contents"),
    ("dropins", "dropins"),
];
const NODE: &[(&str, &str)] = &[
    ("path", "path"),
    ("filesystem", "filesystem"),
    ("mode", "mode"),
    ("user", "user"),
    ("group", "group"),
    ("overwrite", "overwrite"),
];
const LINK: &[(&str, &str)] = &[("target", "target"), ("hard", "hard")];
const USER: &[(&str, &str)] = &[
    ("name", "name"),
    ("password_hash", "passwordHash"),
    ("ssh_authorized_keys", "sshAuthorizedKeys"),
    ("uid", "uid"),
    ("gecos", "gecos"),
    ("home_dir", "homeDir"),
    ("no_create_home", "noCreateHome"),
    ("primary_group", "primaryGroup"),
    ("groups", "groups"),
    ("no_user_group", "noUserGroup"),
    ("no_log_init", "noLogInit"),
    ("shell", "shell"),
    ("system", "system"),
];
const GROUP: &[(&str, &str)] =
    &[("name", "name"), ("gid", "gid"), ("password_hash", "passwordHash"), ("system", "system")];

/// Adds what the text says.
pub fn add(config: &mut Value, text: &str) -> Result<(), String> {
    let field = "spec.ignition.containerLinuxConfig.additionalConfig";
    let wanted = hangar_api::yaml::document(text).map_err(|error| format!("{field}: {error}"))?;
    for (section, list, items) in sections(&wanted).map_err(|path| format!("{field}: {path} is not built yet"))? {
        for item in items {
            let path = format!("{field}: {section}.{list}");
            let item = match list {
                "units" => named(item, UNIT, &path)?,
                "files" => file(item, &path)?,
                "directories" => node(named(item, NODE, &path)?),
                "links" => node(named(item, &[NODE, LINK].concat(), &path)?),
                "users" => named(item, USER, &path)?,
                _ => named(item, GROUP, &path)?,
            };
            let all = &mut config[section][list];
            if all.is_null() {
                *all = json!([]);
            }
            let Some(all) = all.as_array_mut() else { continue };
            let there = all.iter_mut().find(|one| list == "units" && one["name"] == item["name"]);
            match there {
                Some(there) => extend(there, item),
                None => all.push(item),
            }
        }
    }
    Ok(())
}

type Section<'a> = (&'a str, &'a str, &'a [Value]);

/// The lists that are understood; the error is the path of another one.
fn sections(wanted: &Value) -> Result<Vec<Section<'_>>, String> {
    const KNOWN: [(&str, &[&str]); 3] =
        [("systemd", &["units"]), ("storage", &["files", "directories", "links"]), ("passwd", &["users", "groups"])];
    let mut found = vec![];
    let Some(fields) = wanted.as_object() else {
        return if wanted.is_null() { Ok(found) } else { Err("what is no mapping".to_owned()) };
    };
    for (section, lists) in fields {
        let Some((section, known)) = KNOWN.iter().find(|(name, _)| name == section) else {
            return Err(section.clone());
        };
        for (list, items) in lists.as_object().into_iter().flatten() {
            let known = known.iter().find(|name| *name == list);
            let (Some(known), Some(items)) = (known, items.as_array()) else { return Err(format!("{section}.{list}")) };
            found.push((*section, *known, items.as_slice()));
        }
    }
    Ok(found)
}

fn named(item: &Value, names: &[(&str, &str)], path: &str) -> Result<Value, String> {
    let mut out = Map::new();
    for (name, value) in item.as_object().into_iter().flatten() {
        let Some((_, to)) = names.iter().find(|(from, _)| from == name) else {
            return Err(format!("{path}[].{name} is not built yet"));
        };
        out.insert((*to).to_owned(), value.clone());
    }
    Ok(out.into())
}

fn node(mut node: Value) -> Value {
    // 0644 is a number in YAML 1.1, and text for us.
    let mode = node["mode"].as_str().and_then(|text| u32::from_str_radix(text.trim_start_matches("0o"), 8).ok());
    if let Some(mode) = mode {
        node["mode"] = mode.into();
    }
    if node["filesystem"].is_null() {
        node["filesystem"] = "root".into();
    }
    node
}

fn file(item: &Value, path: &str) -> Result<Value, String> {
    let mut rest = item.clone();
    let contents = rest.as_object_mut().and_then(|fields| fields.remove("contents")).unwrap_or_default();
    let append = rest.as_object_mut().and_then(|fields| fields.remove("append"));
    let mut out = node(named(&rest, NODE, path)?);
    let other = contents.as_object().into_iter().flatten().find(|(name, _)| *name != "inline");
    if let Some((name, _)) = other {
        return Err(format!("{path}[].contents.{name} is not built yet"));
    }
    let text = inline("", 0, contents["inline"].as_str().unwrap_or_default());
    out["contents"] = text["contents"].clone();
    if append == Some(Value::Bool(true)) {
        out["append"] = true.into();
    }
    if out["mode"].is_null() {
        out["mode"] = 0o644.into();
    }
    Ok(out)
}

/// Another word about a unit that is there: its drop-ins are added, the rest replaces what stands.
fn extend(there: &mut Value, item: Value) {
    let Value::Object(fields) = item else { return };
    for (name, value) in fields {
        match (there[&name].as_array_mut(), value) {
            (Some(list), Value::Array(more)) => list.extend(more),
            (_, value) => there[&name] = value,
        }
    }
}
