//! What a KubeadmConfig takes from Secrets: contents of files and passwords of users.
//!
//! Flows: spec -> which keys of which Secrets ([`wanted`]) -> the controller reads them -> the rendering. Holds: never shown in logs; what is missing is named with its field.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Name of a Secret in the config's namespace, and a key of its data.
pub type SecretKey = (String, String);

/// What was found, or why not.
#[derive(Clone, Default, PartialEq)]
pub struct Contents(pub BTreeMap<SecretKey, Result<Vec<u8>, String>>);

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Every key that the spec refers to.
pub fn wanted(spec: &Value) -> Vec<SecretKey> {
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    let files = list("files").filter_map(|file| key(&file["contentFrom"]));
    let users = list("users").filter_map(|user| key(&user["passwdFrom"]));
    files.chain(users).collect()
}

fn key(from: &Value) -> Option<SecretKey> {
    let secret = &from["secret"];
    Some((secret["name"].as_str()?.to_owned(), secret["key"].as_str()?.to_owned()))
}

impl Contents {
    /// What a reference at this field leads to.
    fn of(&self, from: &Value, field: &str) -> Result<&[u8], String> {
        let key = key(from).ok_or_else(|| format!("{field} names no Secret and key"))?;
        match self.0.get(&key) {
            Some(Ok(content)) => Ok(content),
            Some(Err(why)) => Err(format!("{field}: {why}")),
            None => Err(format!("{field}: Secret {} was not read yet", key.0)),
        }
    }

    /// Whether any of it has these words.
    pub fn mention(&self, words: &str) -> bool {
        let mut found = self.0.values().filter_map(|content| content.as_ref().ok());
        found.any(|content| String::from_utf8_lossy(content).contains(words))
    }

    pub fn text(&self, from: &Value, field: &str) -> Result<String, String> {
        let content = self.of(from, field)?;
        String::from_utf8(content.to_vec()).map_err(|_| format!("{field} is not text"))
    }

    /// A file's content and its encoding: what is not text goes as base64.
    pub fn file(&self, from: &Value, encoding: &Value, field: &str) -> Result<(Value, Value), String> {
        let content = self.of(from, field)?;
        Ok(match std::str::from_utf8(content) {
            Ok(text) => (text.into(), encoding.clone()),
            Err(_) if encoding.is_null() => (STANDARD.encode(content).into(), "base64".into()),
            Err(_) => return Err(format!("{field} is not text, and encoding says that it is")),
        })
    }
}
