//! User-data as cloud-init reads it: unwrapped, rendered, then files and commands.
//!
//! Flows: bytes -> (base64, gzip) -> `## template: jinja` rendered with instance data -> `#cloud-config` -> write_files and
//! runcmd. Holds: nothing is run; an error is what cloud-init would write to the console.

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Guest;

/// What a machine would have done to itself.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Prepared {
    /// Text of every file written, by path.
    pub files: BTreeMap<String, String>,
    /// In order; a list of words becomes one line.
    pub commands: Vec<String>,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum UserDataError {
    #[error("cloud-init: there is no user-data")]
    Empty,
    #[error("cloud-init: user-data is not text")]
    NotText,
    #[error("cloud-init: gzip in {0} cannot be unpacked")]
    Gzip(String),
    #[error("cloud-init: base64 in {0} cannot be decoded")]
    Base64(String),
    #[error("cloud-init: user-data begins with `{0}`, only #cloud-config is understood")]
    NotCloudConfig(String),
    #[error("cloud-init: the jinja template cannot be rendered: {0}")]
    Template(String),
    #[error("cloud-init: user-data is not valid YAML: {0}")]
    Yaml(String),
    #[error("cloud-init: write_files entry {path} has encoding {encoding}, which is not known")]
    Encoding { path: String, encoding: String },
}

const JINJA: &str = "## template: jinja";
const CLOUD_CONFIG: &str = "#cloud-config";
/// A machine with less would not boot; more is a bomb.
const LARGEST: u64 = 16 << 20;

pub(super) fn prepare(guest: &Guest) -> Result<Prepared, UserDataError> {
    let text = String::from_utf8(unwrap(&guest.user_data)?).map_err(|_| UserDataError::NotText)?;
    let text = render(text, guest)?;
    let first = text.lines().next().unwrap_or_default().trim();
    if !first.starts_with(CLOUD_CONFIG) {
        return Err(UserDataError::NotCloudConfig(first.chars().take(40).collect()));
    }
    let config = hangar_api::yaml::document(&text).map_err(|error| UserDataError::Yaml(error.to_string()))?;
    let mut prepared = Prepared::default();
    for entry in config["write_files"].as_array().into_iter().flatten() {
        let path = entry["path"].as_str().unwrap_or_default().to_owned();
        let content = content(entry, &path)?;
        let file = prepared.files.entry(path).or_default();
        if entry["append"] == true { file.push_str(&content) } else { *file = content }
    }
    let commands = config["runcmd"].as_array().into_iter().flatten();
    prepared.commands = commands.filter_map(command).collect();
    Ok(prepared)
}

/// Tools wrap user-data in base64, gzip, or both.
fn unwrap(bytes: &[u8]) -> Result<Vec<u8>, UserDataError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(UserDataError::Empty);
    }
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return unwrap(&gunzip(bytes, "user-data")?);
    }
    if !bytes.starts_with(b"#")
        && let Ok(inner) = STANDARD.decode(without_whitespace(bytes))
    {
        return unwrap(&inner);
    }
    Ok(bytes.to_vec())
}

fn without_whitespace(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect()
}

fn gunzip(bytes: &[u8], what: &str) -> Result<Vec<u8>, UserDataError> {
    let mut unpacked = Vec::new();
    let mut reader = flate2::read::MultiGzDecoder::new(bytes).take(LARGEST);
    reader.read_to_end(&mut unpacked).map_err(|_| UserDataError::Gzip(what.to_owned()))?;
    Ok(unpacked)
}

fn render(text: String, guest: &Guest) -> Result<String, UserDataError> {
    let Some((header, body)) = text.split_once('\n') else { return Ok(text) };
    if !header.trim().eq_ignore_ascii_case(JINJA) {
        return Ok(text);
    }
    let mut environment = minijinja::Environment::new();
    // cloud-init refuses a template that names what is not there.
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    let failed = |error: &dyn std::fmt::Display| UserDataError::Template(error.to_string());
    let data: minijinja::Value = serde_json::from_value(instance_data(guest)).map_err(|error| failed(&error))?;
    environment.render_str(body, data).map_err(|error| failed(&error))
}

/// The names that cloud-init's OpenStack data source has, with and without the version in front.
fn instance_data(guest: &Guest) -> Value {
    let v1 = json!({
        "local_hostname": guest.name, "local-hostname": guest.name,
        "instance_id": guest.server_id, "instance-id": guest.server_id,
        "cloud_name": "openstack", "cloud-name": "openstack", "platform": "openstack",
        "availability_zone": guest.availability_zone, "availability-zone": guest.availability_zone,
        "region": null,
    });
    let meta_data = json!({
        "local_hostname": guest.name, "local-hostname": guest.name, "hostname": guest.name, "name": guest.name,
        "instance_id": guest.server_id, "instance-id": guest.server_id, "uuid": guest.server_id,
        "project_id": guest.project_id, "meta": guest.metadata,
        "availability_zone": guest.availability_zone, "availability-zone": guest.availability_zone,
    });
    let mut data = v1.clone();
    data["ds"] = json!({"meta_data": meta_data});
    data["v1"] = v1;
    data
}

fn content(entry: &Value, path: &str) -> Result<String, UserDataError> {
    let raw = entry["content"].as_str().unwrap_or_default();
    let base64 = || {
        let decoded = STANDARD.decode(without_whitespace(raw.as_bytes()));
        decoded.map_err(|_| UserDataError::Base64(path.to_owned()))
    };
    let bytes = match entry["encoding"].as_str().unwrap_or_default() {
        "" | "text/plain" => raw.as_bytes().to_vec(),
        "b64" | "base64" => base64()?,
        "gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64" => gunzip(&base64()?, path)?,
        "gz" | "gzip" => gunzip(raw.as_bytes(), path)?,
        other => return Err(UserDataError::Encoding { path: path.to_owned(), encoding: other.to_owned() }),
    };
    // A binary file is written too, but nothing we look for is in it.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn command(entry: &Value) -> Option<String> {
    match entry {
        Value::String(line) => Some(line.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Write;

    pub(crate) fn guest(user_data: impl Into<Vec<u8>>) -> Guest {
        Guest {
            server_id: "1f".to_owned(),
            name: "worker-1".to_owned(),
            project_id: "p".to_owned(),
            image_properties: BTreeMap::from([("kube_version".to_owned(), "v1.34.4".to_owned())]),
            metadata: BTreeMap::new(),
            availability_zone: "nova".to_owned(),
            addresses: vec!["10.6.0.2".to_owned()],
            user_data: user_data.into(),
            console: crate::Console::default(),
        }
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    }

    const PLAIN: &str = "#cloud-config\nwrite_files: [{path: /a, content: hello}]\nruncmd: [date, [echo, hi]]\n";

    #[test]
    fn wrappings_do_not_matter() {
        let wrapped = [
            PLAIN.as_bytes().to_vec(),
            STANDARD.encode(PLAIN).into_bytes(),
            gzip(PLAIN),
            STANDARD.encode(gzip(PLAIN)).into_bytes(),
        ];
        for user_data in wrapped {
            let prepared = prepare(&guest(user_data)).unwrap();
            assert_eq!(prepared.files["/a"], "hello");
            assert_eq!(prepared.commands, ["date", "echo hi"]);
        }
    }

    #[test]
    fn files_come_in_every_encoding() {
        let packed = STANDARD.encode(gzip("hello"));
        for (encoding, content) in [
            ("text/plain", "hello"),
            ("b64", "aGVsbG8="),
            ("base64", "aGVsbG8="),
            ("gzip+base64", &packed),
            ("gz+b64", &packed),
        ] {
            let text =
                format!("#cloud-config\nwrite_files:\n- path: /a\n  encoding: {encoding}\n  content: {content}\n");
            assert_eq!(prepare(&guest(text)).unwrap().files["/a"], "hello", "{encoding}");
        }
    }

    #[test]
    fn templates_know_the_instance() {
        let text = "## template: jinja\n#cloud-config\nruncmd:\n- echo {{ ds.meta_data.local_hostname }} {{ v1.instance_id }} {{ local_hostname }} {{ ds.meta_data.uuid }}\n";
        assert_eq!(prepare(&guest(text)).unwrap().commands, ["echo worker-1 1f worker-1 1f"]);
        // Without the header the braces are just text.
        let text = "#cloud-config\nruncmd: ['echo {{ local_hostname }}']\n";
        assert_eq!(prepare(&guest(text)).unwrap().commands, ["echo {{ local_hostname }}"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let table: [(&str, &str); 7] = [
            ("", "there is no user-data"),
            ("#!/bin/sh\n", "begins with `#!/bin/sh`"),
            ("#cloud-config\na: [\n", "not valid YAML"),
            ("## template: jinja\n#cloud-config\nruncmd: ['{{ nothing.here }}']\n", "cannot be rendered"),
            ("#cloud-config\nwrite_files: [{path: /a, encoding: rot13}]\n", "encoding rot13"),
            ("#cloud-config\nwrite_files: [{path: /a, encoding: b64, content: '*'}]\n", "base64 in /a"),
            ("#cloud-config\nwrite_files: [{path: /a, encoding: gz+b64, content: aGVsbG8=}]\n", "gzip in /a"),
        ];
        for (text, words) in table {
            let error = prepare(&guest(text)).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
