//! Rust structs of schemas.
//!
//! Flows: all kinds are read first ([`Types::read`]), and structures of the same fields become one shape, wherever they stand; then every shape
//! gets its name ([`Types::named`]), and each kind's file gets the structs that are its own ([`Named::write`]).
//!
//! Holds: kinds of one provider that embed each other (a template, a config, a control plane) share their structs; those of different providers do
//! not, for they are alike by chance only. Structs are named by two rules.
//!
//! 1. A shape that is the whole `spec` or `status` of a kind is named after that kind: `OpenStackMachineSpec`, also where a Cluster's bastion or
//!    a template holds it. Of several kinds with the same shape the shortest name wins; the others get an alias.
//! 2. Any other shape is named after the struct that has it, and its field: `OpenStackMachineSpecPort`. Of several such names the shortest
//!    wins; of those of one length, the first in the alphabet.
//!
//! So names depend on the schemas alone, not on the order in which they are read, and two shapes never have the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::library;
use super::names::{camel, pascal, rust_name, singular, snake};

type ShapeId = usize;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Type {
    Plain(String),
    List(Box<Type>),
    Map(Box<Type>),
    Shape(ShapeId),
}

/// What makes a shape: its fields without their documentation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Field {
    property: String,
    required: bool,
    kind: Type,
}

/// Who has a field of some shape.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Kind(String),
    Shape(ShapeId),
}

/// A place where a shape stands: a field of somebody, as the end of a name.
type Place = (Owner, String);

/// What has been read so far.
#[derive(Default)]
pub struct Types {
    /// By provider and fields.
    ids: BTreeMap<(String, Vec<Field>), ShapeId>,
    /// Of the kind that is being read.
    provider: String,
    places: Vec<BTreeSet<Place>>,
    kinds: BTreeMap<String, Vec<Field>>,
}

/// A struct that stands in a field, with the end of the name that it would have there.
type Inside = Vec<(ShapeId, String)>;

impl Types {
    /// Reads the schema of a provider's kind.
    pub fn read(&mut self, provider: &str, kind: &str, schema: &Value) {
        provider.clone_into(&mut self.provider);
        let (mut fields, mut inside) = (vec![], vec![]);
        for (property, schema) in properties(schema) {
            let field = match property.as_str() {
                "apiVersion" | "kind" | "metadata" => continue,
                // There always is one, if only an empty one.
                "spec" => {
                    let spec = self.structure(&format!("{kind}Spec"), schema);
                    inside.push((spec, "Spec".to_owned()));
                    Field { property: property.clone(), required: true, kind: Type::Shape(spec) }
                }
                _ => self.field(kind, property, schema, false, &mut inside),
            };
            fields.push(field);
        }
        self.place(&Owner::Kind(kind.to_owned()), inside);
        self.kinds.insert(kind.to_owned(), fields);
    }

    fn place(&mut self, owner: &Owner, inside: Inside) {
        for (shape, suffix) in inside {
            self.places[shape].insert((owner.clone(), suffix));
        }
    }

    fn structure(&mut self, path: &str, schema: &Value) -> ShapeId {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let (mut fields, mut inside) = (vec![], vec![]);
        for (property, schema) in properties(schema) {
            fields.push(self.field(path, property, schema, required.contains(&property.as_str()), &mut inside));
        }
        let next = self.places.len();
        let id = *self.ids.entry((self.provider.clone(), fields)).or_insert(next);
        if id == next {
            self.places.push(BTreeSet::new());
        }
        self.place(&Owner::Shape(id), inside);
        id
    }

    fn field(&mut self, path: &str, property: &str, schema: &Value, required: bool, inside: &mut Inside) -> Field {
        let kind = self.type_of(path, "", property, schema, inside);
        Field { property: property.to_owned(), required, kind }
    }

    /// `suffix` is the end of the name between the owner (at `path`) and the property.
    fn type_of(&mut self, path: &str, suffix: &str, property: &str, schema: &Value, inside: &mut Inside) -> Type {
        if let Some(library) = library::type_of(&format!("{path}{suffix}"), property, schema) {
            return Type::Plain(library.to_owned());
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return Type::Plain("k8s_openapi::apimachinery::pkg::util::intstr::IntOrString".to_owned());
        }
        let own = || format!("{suffix}{}", pascal(property));
        let plain = match schema["type"].as_str() {
            Some("string") => "String",
            Some("boolean") => "bool",
            Some("integer") if schema["format"] == "int32" => "i32",
            Some("integer") => "i64",
            Some("number") => "f64",
            Some("array") => {
                let items = self.type_of(path, suffix, &singular(property), &schema["items"], inside);
                return Type::List(Box::new(items));
            }
            Some("object") if schema["properties"].is_object() => {
                let id = self.structure(&format!("{path}{}", own()), schema);
                inside.push((id, own()));
                return Type::Shape(id);
            }
            Some("object") if schema["additionalProperties"].is_object() => {
                let values = self.type_of(path, &own(), "value", &schema["additionalProperties"], inside);
                return Type::Map(Box::new(values));
            }
            _ => "serde_json::Value",
        };
        Type::Plain(plain.to_owned())
    }

    /// Gives every shape its name; everything must have been read.
    pub fn named(self) -> Result<Named> {
        let mut names = BTreeMap::new();
        for id in 0..self.places.len() {
            self.name(id, &mut names)?;
        }
        let distinct: BTreeSet<&String> = names.values().map(|(name, _)| name).collect();
        if distinct.len() != names.len() {
            bail!("two structures have the same name");
        }
        let fields = self.ids.into_iter().map(|((_, fields), id)| (id, fields)).collect();
        Ok(Named { fields, kinds: self.kinds, names })
    }

    fn name(&self, id: ShapeId, names: &mut BTreeMap<ShapeId, (String, Place)>) -> Result<String> {
        if let Some((name, _)) = names.get(&id) {
            return Ok(name.clone());
        }
        let mut candidates = vec![];
        for place in &self.places[id] {
            let (is_nested, owner) = match &place.0 {
                Owner::Kind(kind) => (false, kind.clone()),
                Owner::Shape(parent) => (true, self.name(*parent, names)?),
            };
            let name = format!("{owner}{}", place.1);
            candidates.push((is_nested, name.len(), name, place.clone()));
        }
        let (_, _, name, place) = candidates.into_iter().min().context("a structure that stands nowhere")?;
        names.insert(id, (name.clone(), place));
        Ok(name)
    }
}

/// All shapes with their names.
pub struct Named {
    fields: BTreeMap<ShapeId, Vec<Field>>,
    kinds: BTreeMap<String, Vec<Field>>,
    /// With the place that each is named after.
    names: BTreeMap<ShapeId, (String, Place)>,
}

impl Named {
    /// The fields of a kind, and the structs that are named after it.
    pub fn write(&self, kind: &str, schema: &Value) -> Result<(String, String)> {
        let (mut fields, mut structs) = (String::new(), String::new());
        let owner = Owner::Kind(kind.to_owned());
        for field in self.kinds.get(kind).into_iter().flatten() {
            let schema = &schema["properties"][&field.property];
            fields.push_str(&self.field(field, schema));
            self.inside(&owner, "", &field.property, &field.kind, schema, &mut structs)?;
            self.alias(kind, field, &mut structs)?;
        }
        Ok((fields, structs))
    }

    fn name(&self, id: ShapeId) -> &str {
        self.names.get(&id).map_or("", |(name, _)| name)
    }

    fn alias(&self, kind: &str, field: &Field, out: &mut String) -> Result<()> {
        let Type::Shape(id) = field.kind else { return Ok(()) };
        let (alias, name) = (format!("{kind}{}", pascal(&field.property)), self.name(id));
        if alias != name {
            writeln!(out, "\npub type {alias} = super::{name};")?;
        }
        Ok(())
    }

    /// One field with its documentation and attributes.
    fn field(&self, field: &Field, schema: &Value) -> String {
        let (property, kind) = (&field.property, self.rust_type(&field.kind));
        let name = rust_name(property);
        let rename = if camel(&snake(property)) == *property && !name.starts_with("r#") {
            String::new()
        } else {
            format!("rename = \"{property}\", ")
        };
        let about = documentation(schema);
        if field.required {
            format!("{about}#[serde({rename}default)]\npub {name}: {kind},\n")
        } else {
            format!(
                "{about}#[serde({rename}default, skip_serializing_if = \"Option::is_none\")]\npub {name}: Option<{kind}>,\n"
            )
        }
    }

    fn rust_type(&self, kind: &Type) -> String {
        match kind {
            Type::Plain(name) => name.clone(),
            Type::List(items) => format!("Vec<{}>", self.rust_type(items)),
            Type::Map(values) => format!("std::collections::BTreeMap<String, {}>", self.rust_type(values)),
            Type::Shape(id) => format!("super::{}", self.name(*id)),
        }
    }

    /// Writes the struct that a field holds, and what is inside of it, if this field is what it is named after.
    fn inside(
        &self,
        owner: &Owner,
        suffix: &str,
        property: &str,
        kind: &Type,
        schema: &Value,
        out: &mut String,
    ) -> Result<()> {
        let own = format!("{suffix}{}", pascal(property));
        match kind {
            Type::Plain(_) => Ok(()),
            Type::List(items) => self.inside(owner, suffix, &singular(property), items, &schema["items"], out),
            Type::Map(values) => self.inside(owner, &own, "value", values, &schema["additionalProperties"], out),
            Type::Shape(id) => {
                let is_named_after_this =
                    self.names.get(id).is_some_and(|(_, (known, suffix))| known == owner && *suffix == own);
                if is_named_after_this { self.structure(*id, schema, out) } else { Ok(()) }
            }
        }
    }

    fn structure(&self, id: ShapeId, schema: &Value, out: &mut String) -> Result<()> {
        let fields = self.fields.get(&id).map(Vec::as_slice).unwrap_or_default();
        let of = |field: &Field| schema["properties"][&field.property].clone();
        let text: String = fields.iter().map(|field| self.field(field, &of(field))).collect();
        write!(
            out,
            "\n{}#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]\n\
             #[serde(rename_all = \"camelCase\")]\npub struct {} {{\n{text}}}\n",
            documentation(schema),
            self.name(id),
        )?;
        let owner = Owner::Shape(id);
        fields.iter().try_for_each(|field| self.inside(&owner, "", &field.property, &field.kind, &of(field), out))
    }
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

/// The description as a comment.
fn documentation(schema: &Value) -> String {
    let lines = schema["description"].as_str().unwrap_or_default().lines();
    lines.map(|line| format!("/// {line}\n")).collect()
}

#[cfg(test)]
#[path = "types_tests.rs"]
mod tests;
