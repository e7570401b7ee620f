//! Rust structs of schemas.
//!
//! Holds: a struct is named after the way to it (`MachineSpecBootstrap`), and two of the same shape are one type: the later name is
//! an alias. So kinds that embed each other (a template, a config, a control plane) cost the compiler nothing more.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;

use super::library;
use super::names::{camel, pascal, rust_name, singular, snake};

/// What has been written so far.
#[derive(Default)]
pub struct Types {
    /// The current file.
    text: String,
    /// The fields of every struct without their documentation, and its name.
    shapes: BTreeMap<String, String>,
}

impl Types {
    /// The text since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Writes a struct, or an alias if there is one of this shape, and returns the name of the struct.
    pub fn structure(&mut self, name: &str, schema: &Value) -> Result<String> {
        let empty = serde_json::Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&empty);
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut fields = String::new();
        for (property, schema) in properties {
            fields.push_str(&self.field(name, property, schema, required.contains(&property.as_str()))?);
        }
        let shape: String = fields.lines().filter(|line| !line.starts_with("///")).collect();
        if let Some(same) = self.shapes.get(&shape) {
            if same != name {
                writeln!(self.text, "\npub type {name} = super::{same};")?;
            }
            return Ok(same.clone());
        }
        self.shapes.insert(shape, name.to_owned());
        write!(
            self.text,
            "\n{}#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]\n\
             #[serde(rename_all = \"camelCase\")]\npub struct {name} {{\n{fields}}}\n",
            documentation(schema),
        )?;
        Ok(name.to_owned())
    }

    /// One field with its documentation and attributes.
    pub fn field(&mut self, parent: &str, property: &str, schema: &Value, required: bool) -> Result<String> {
        let kind = self.type_of(parent, property, schema)?;
        let name = rust_name(property);
        let rename = if camel(&snake(property)) == *property && !name.starts_with("r#") {
            String::new()
        } else {
            format!("rename = \"{property}\", ")
        };
        let about = documentation(schema);
        Ok(if required {
            format!("{about}#[serde({rename}default)]\npub {name}: {kind},\n")
        } else {
            format!(
                "{about}#[serde({rename}default, skip_serializing_if = \"Option::is_none\")]\npub {name}: Option<{kind}>,\n"
            )
        })
    }

    fn type_of(&mut self, parent: &str, property: &str, schema: &Value) -> Result<String> {
        if let Some(library) = library::type_of(parent, property, schema) {
            return Ok(library.to_owned());
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return Ok("k8s_openapi::apimachinery::pkg::util::intstr::IntOrString".to_owned());
        }
        Ok(match schema["type"].as_str() {
            Some("string") => "String".to_owned(),
            Some("boolean") => "bool".to_owned(),
            Some("integer") if schema["format"] == "int32" => "i32".to_owned(),
            Some("integer") => "i64".to_owned(),
            Some("number") => "f64".to_owned(),
            Some("array") => format!("Vec<{}>", self.type_of(parent, &singular(property), &schema["items"])?),
            Some("object") => self.object(&format!("{parent}{}", pascal(property)), schema)?,
            _ => "serde_json::Value".to_owned(),
        })
    }

    fn object(&mut self, name: &str, schema: &Value) -> Result<String> {
        if schema["properties"].is_object() {
            return Ok(format!("super::{}", self.structure(name, schema)?));
        }
        let values = &schema["additionalProperties"];
        Ok(if values.is_object() {
            format!("std::collections::BTreeMap<String, {}>", self.type_of(name, "value", values)?)
        } else {
            "serde_json::Value".to_owned()
        })
    }
}

/// The description as a comment.
fn documentation(schema: &Value) -> String {
    let lines = schema["description"].as_str().unwrap_or_default().lines();
    lines.map(|line| format!("/// {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_structs_of_one_shape_are_one_type() {
        let reference = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "description": "of it"}, "size": {"type": "integer", "format": "int32"},
        }});
        let mut types = Types::default();
        types.structure("A", &json!({"type": "object", "properties": {"one": reference, "two": reference}})).unwrap();
        let text = types.take();
        assert_eq!(text.matches("pub struct").count(), 2, "{text}");
        assert!(text.contains("pub type ATwo = super::AOne;"), "{text}");
        assert!(text.contains("pub two: Option<super::AOne>"), "{text}");
        assert!(text.contains("/// of it\n#[serde(default)]\npub name: String"), "{text}");
    }
}
