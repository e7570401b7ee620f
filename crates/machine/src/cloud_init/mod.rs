//! User-data as cloud-init reads it: unpacked, taken apart, rendered, then files and commands.
//!
//! Flows: bytes -> gzip -> [`multipart`] -> each part by its first line (`## template: jinja` rendered with instance data,
//! `#cloud-config` merged, scripts kept) -> write_files, bootcmd, runcmd, scripts. Holds: nothing is run; an error is what
//! cloud-init would write to the console; what the real one does with the documents in `tests/cloud_init` is recorded
//! there.

use std::collections::BTreeMap;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

mod multipart;

use serde::{Deserialize, Serialize};

/// What a cloud tells a server about itself.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Instance {
    pub id: String,
    pub name: String,
    pub project_id: String,
    pub metadata: BTreeMap<String, String>,
    pub availability_zone: String,
    /// As given at creation, no longer base64.
    pub user_data: Vec<u8>,
}

/// User-data holds a bootstrap token.
impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a machine would have done to itself.
#[derive(Debug, Default, PartialEq)]
pub struct Prepared {
    /// Text of every file written, by path.
    pub files: BTreeMap<String, String>,
    /// The same files as they are written, one after the other.
    pub written: Vec<WrittenFile>,
    /// In order; a list of words becomes one line.
    pub commands: Vec<String>,
    /// Lines of scripts; they run after all commands.
    pub scripts: Vec<String>,
    /// Run at every start.
    pub boot_commands: Vec<String>,
    /// Run once, as lines of one script.
    pub run_commands: Vec<String>,
    /// Whole scripts, run once.
    pub whole_scripts: Vec<String>,
}

/// One entry of `write_files`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WrittenFile {
    pub path: String,
    pub content: Vec<u8>,
    pub mode: u32,
    pub append: bool,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum UserDataError {
    #[error("cloud-init: there is no user-data")]
    Empty,
    #[error("cloud-init: user-data is not text")]
    NotText,
    #[error("cloud-init: gzip in {0} cannot be unpacked")]
    Gzip(String),
    #[error("cloud-init: base64 in {0} cannot be decoded")]
    Base64(String),
    #[error(
        "cloud-init: user-data begins with `{0}`, which is neither #cloud-config nor anything else that is understood"
    )]
    NotCloudConfig(String),
    #[error("cloud-init: `{0}` names addresses to fetch user-data from, and nothing can be fetched here")]
    Include(String),
    #[error("cloud-init: the jinja template cannot be rendered: {0}")]
    Template(String),
    #[error("cloud-init: user-data is not valid YAML: {0}")]
    Yaml(String),
    #[error("cloud-init: write_files entry {path} has encoding {encoding}, which is not known")]
    Encoding { path: String, encoding: String },
}

const JINJA: &str = "## template: jinja";
/// A machine with less would not boot; more is a bomb.
const LARGEST: u64 = 16 << 20;

/// Reads user-data; nothing is done yet.
pub fn prepare(instance: &Instance) -> Result<Prepared, UserDataError> {
    if instance.user_data.iter().all(u8::is_ascii_whitespace) {
        return Err(UserDataError::Empty);
    }
    let mut found = Found::default();
    for (kind, part) in multipart::parts(&unpacked(&instance.user_data, "user-data")?)? {
        found.take(&kind, &part, instance)?;
    }
    found.done()
}

/// What the parts add up to.
#[derive(Default)]
struct Found {
    config: Map<String, Value>,
    scripts: Vec<String>,
    whole_scripts: Vec<String>,
}

impl Found {
    /// By its type, and without one by its first line, as cloud-init tells parts apart.
    fn take(&mut self, kind: &str, bytes: &[u8], instance: &Instance) -> Result<(), UserDataError> {
        let text = std::str::from_utf8(bytes).map_err(|_| UserDataError::NotText)?;
        let text = render(text.trim_start_matches('\u{feff}'), instance)?;
        let first = text.lines().next().unwrap_or_default().trim();
        let is =
            |name: &str, mark: &str| kind == name || (matches!(kind, "" | "text/jinja2") && first.starts_with(mark));
        if is("text/cloud-config-archive", "#cloud-config-archive") {
            let list = yaml(&text)?;
            for entry in list.as_array().into_iter().flatten() {
                let content = entry.as_str().or(entry["content"].as_str()).unwrap_or_default();
                self.take("", content.as_bytes(), instance)?;
            }
        } else if is("text/cloud-config", "#cloud-config") {
            self.merge(yaml(&text)?);
        } else if is("text/x-shellscript", "#!") || is("text/cloud-boothook", "#cloud-boothook") {
            self.scripts.extend(text.lines().map(str::to_owned));
            self.whole_scripts.push(text);
        } else if first.starts_with("#include") {
            return Err(UserDataError::Include(first.to_owned()));
        } else if kind.is_empty() {
            return Err(UserDataError::NotCloudConfig(first.chars().take(40).collect()));
        }
        Ok(())
    }

    /// A later part replaces what an earlier one says, unless it asks for its lists to be appended.
    fn merge(&mut self, config: Value) {
        let Value::Object(config) = config else { return };
        let how = config.get("merge_how").or(config.get("merge_type")).cloned().unwrap_or_default();
        let append = how.as_str().is_some_and(|how| how.contains("list(append)") && how.contains("recurse"));
        for (key, value) in config {
            match (self.config.get_mut(&key), value) {
                (Some(Value::Array(old)), Value::Array(new)) if append => old.extend(new),
                (_, value) => {
                    self.config.insert(key, value);
                }
            }
        }
    }

    fn done(self) -> Result<Prepared, UserDataError> {
        let list = |key: &str| self.config.get(key).and_then(Value::as_array).into_iter().flatten();
        let mut prepared = Prepared { scripts: self.scripts.clone(), ..Prepared::default() };
        for entry in list("write_files") {
            let path = entry["path"].as_str().unwrap_or_default().to_owned();
            let content = content(entry, &path)?;
            // A binary file is written too, but nothing we look for is in it.
            let text = String::from_utf8_lossy(&content).into_owned();
            let (append, mode) = (entry["append"] == true, mode(&entry["permissions"]));
            let file = prepared.files.entry(path.clone()).or_default();
            if append {
                file.push_str(&text)
            } else {
                *file = text
            }
            prepared.written.push(WrittenFile { path, content, mode, append });
        }
        prepared.commands = list("bootcmd").chain(list("runcmd")).filter_map(command).collect();
        prepared.boot_commands = list("bootcmd").filter_map(shell).collect();
        prepared.run_commands = list("runcmd").filter_map(shell).collect();
        prepared.whole_scripts.clone_from(&self.whole_scripts);
        Ok(prepared)
    }
}

fn yaml(text: &str) -> Result<Value, UserDataError> {
    hangar_api::yaml::document(text).map_err(|error| UserDataError::Yaml(error.to_string()))
}

/// Whatever is packed is unpacked; anything else is as it is.
fn unpacked(bytes: &[u8], what: &str) -> Result<Vec<u8>, UserDataError> {
    if bytes.starts_with(&[0x1f, 0x8b]) { gunzip(bytes, what) } else { Ok(bytes.to_vec()) }
}

fn decoded(text: &str, what: &str) -> Result<Vec<u8>, UserDataError> {
    STANDARD.decode(without_whitespace(text.as_bytes())).map_err(|_| UserDataError::Base64(what.to_owned()))
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

fn render(text: &str, instance: &Instance) -> Result<String, UserDataError> {
    let Some((header, body)) = text.split_once('\n') else { return Ok(text.to_owned()) };
    if !header.trim().eq_ignore_ascii_case(JINJA) {
        return Ok(text.to_owned());
    }
    let mut environment = minijinja::Environment::new();
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    let failed = |error: &dyn std::fmt::Display| UserDataError::Template(error.to_string());
    let mut data = instance_data(instance);
    let template = environment.template_from_str(body).map_err(|error| failed(&error))?;
    for name in template.undeclared_variables(true) {
        mark_missing(&mut data, &name);
    }
    let data: minijinja::Value = serde_json::from_value(data).map_err(|error| failed(&error))?;
    template.render(data).map_err(|error| failed(&error))
}

/// cloud-init goes on with a mark where a variable is not there; below something that is not there it gives up.
fn mark_missing(data: &mut Value, name: &str) {
    let mut place = data;
    let mut steps = name.split('.').peekable();
    while let Some(step) = steps.next() {
        let Some(fields) = place.as_object_mut() else { return };
        if steps.peek().is_none() {
            fields.entry(step).or_insert_with(|| format!("CI_MISSING_JINJA_VAR/{step}").into());
            return;
        }
        match fields.get_mut(step) {
            Some(next) => place = next,
            None => return,
        }
    }
}

/// The names that cloud-init's OpenStack data source has, with and without the version in front.
fn instance_data(instance: &Instance) -> Value {
    let v1 = json!({
        "local_hostname": instance.name, "local-hostname": instance.name,
        "instance_id": instance.id, "instance-id": instance.id,
        "cloud_name": "openstack", "cloud-name": "openstack", "platform": "openstack",
        "availability_zone": instance.availability_zone, "availability-zone": instance.availability_zone,
        "region": null,
    });
    let meta_data = json!({
        "local_hostname": instance.name, "local-hostname": instance.name, "hostname": instance.name, "name": instance.name,
        "instance_id": instance.id, "instance-id": instance.id, "uuid": instance.id,
        "project_id": instance.project_id, "meta": instance.metadata,
        "availability_zone": instance.availability_zone, "availability-zone": instance.availability_zone,
    });
    let mut data = v1.clone();
    data["ds"] = json!({"meta_data": meta_data});
    data["v1"] = v1;
    data
}

fn content(entry: &Value, path: &str) -> Result<Vec<u8>, UserDataError> {
    let raw = entry["content"].as_str().unwrap_or_default();
    let base64 = || decoded(raw, path);
    Ok(match entry["encoding"].as_str().unwrap_or_default() {
        "" | "text/plain" => raw.as_bytes().to_vec(),
        "b64" | "base64" => base64()?,
        "gz+b64" | "gz+base64" | "gzip+b64" | "gzip+base64" => gunzip(&base64()?, path)?,
        "gz" | "gzip" => gunzip(raw.as_bytes(), path)?,
        other => return Err(UserDataError::Encoding { path: path.to_owned(), encoding: other.to_owned() }),
    })
}

/// As text in octal, or a number that YAML has read as octal already.
fn mode(value: &Value) -> u32 {
    let text = value.as_str().and_then(|text| u32::from_str_radix(text.trim_start_matches("0o"), 8).ok());
    text.or(value.as_u64().and_then(|number| u32::try_from(number).ok())).unwrap_or(0o644) & 0o7777
}

/// A line of shell; the words of a list are taken as they are.
fn shell(entry: &Value) -> Option<String> {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
    match entry {
        Value::String(line) => Some(line.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).map(quoted).collect::<Vec<_>>().join(" ")),
        _ => None,
    }
}

fn command(entry: &Value) -> Option<String> {
    match entry {
        Value::String(line) => Some(line.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn guest(user_data: impl Into<Vec<u8>>) -> Instance {
        Instance {
            id: "1f".to_owned(),
            name: "worker-1".to_owned(),
            project_id: "p".to_owned(),
            metadata: BTreeMap::new(),
            availability_zone: "nova".to_owned(),
            user_data: user_data.into(),
        }
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(text.as_bytes()).unwrap();
        packer.finish().unwrap()
    }

    const PLAIN: &str = "#cloud-config\nwrite_files: [{path: /a, content: hello}]\nruncmd: [date, [echo, hi]]\n";

    #[test]
    fn packed_and_multipart_say_the_same() {
        let part = |headers: &str, body: &str| format!("--x\n{headers}\n\n{body}\n");
        let plain = part("Content-Type: text/cloud-config", PLAIN);
        let encoded = part("Content-Type: text/plain\nContent-Transfer-Encoding: base64", &STANDARD.encode(PLAIN));
        let mime = |part: &str| {
            format!("Content-Type: multipart/mixed; boundary=\"x\"\nMIME-Version: 1.0\n\n{part}--x--\n").into_bytes()
        };
        let all = [
            PLAIN.as_bytes().to_vec(),
            gzip(PLAIN),
            mime(&plain),
            mime(&encoded),
            gzip(&String::from_utf8(mime(&plain)).unwrap()),
        ];
        for user_data in all {
            let prepared = prepare(&guest(user_data.clone()))
                .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&user_data)));
            assert_eq!(prepared.files["/a"], "hello");
            assert_eq!(prepared.commands, ["date", "echo hi"]);
        }
    }

    #[test]
    fn later_parts_replace_earlier_ones_unless_they_ask_to_append() {
        let mime = |how: &str| {
            format!(
                "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/cloud-config\n\n#cloud-config\nruncmd: [a]\nbootcmd: [z]\n--x\nContent-Type: text/cloud-config\n\n#cloud-config\n{how}runcmd: [b]\n--x\nContent-Type: text/x-shellscript\n\n#!/bin/sh\nc\n--x--\n"
            )
        };
        let replaced = prepare(&guest(mime(""))).unwrap();
        assert_eq!(
            (replaced.commands, replaced.scripts),
            (vec!["z".to_owned(), "b".to_owned()], vec!["#!/bin/sh".to_owned(), "c".to_owned()])
        );
        let appended = prepare(&guest(mime("merge_how: 'dict(recurse_array)+list(append)+str()'\n"))).unwrap();
        assert_eq!(appended.commands, ["z", "a", "b"]);
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
    fn lists_are_words_and_modes_are_octal() {
        let text = "#cloud-config\nbootcmd: [date]\nruncmd: [[sh, -c, \"it's\"]]\nwrite_files:\n- {path: /a, permissions: '0640', content: x}\n- {path: /b, content: y, append: true}\n";
        let prepared = prepare(&guest(text)).unwrap();
        assert_eq!(prepared.boot_commands, ["date"]);
        assert_eq!(prepared.run_commands, [r"'sh' '-c' 'it'\''s'"]);
        let modes: Vec<_> = prepared.written.iter().map(|file| (file.mode, file.append)).collect();
        assert_eq!(modes, [(0o640, false), (0o644, true)]);
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
            ("I2Nsb3VkLWNvbmZpZwo=\n", "begins with `I2Nsb3VkLWNvbmZpZwo=`"),
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
