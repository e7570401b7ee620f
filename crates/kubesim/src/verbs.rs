//! The verbs: get, list, create, update, patch, apply, delete.
//!
//! Flows: a request on one kind -> its object in the version that is kept -> the rules -> the store -> the version that was asked for.

use std::sync::Arc;

use hangar_api::{Object, ObjectKey, conversion};
use serde_json::{Value, json};

use super::fields::Shape;
use super::merge::merge;
use super::ownership::{Manager, Owners};
use super::refusal::{Refusal, deleted};
use super::resource::Resource;
use super::rules;
use super::selector::Selector;
use super::store::{Store, Stored, text};
use super::target::{Query, Target};

/// One request under the lock.
pub(super) struct Request<'a> {
    pub store: &'a mut Store,
    pub resource: Resource,
    pub target: &'a Target,
    pub query: &'a Query,
    /// As timestamps are written.
    pub now: &'a str,
}

/// HTTP status and body.
pub(super) type Answer = Result<(u16, Value), Refusal>;

/// What kind of document a PATCH carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchKind {
    Merge,
    Strategic,
    Apply,
}

impl Request<'_> {
    pub fn get(&self) -> Answer {
        let stored = self.stored()?;
        Ok((200, self.outward(&stored.object)))
    }

    pub fn list(&self) -> Answer {
        let selector = self.selector()?;
        let matching =
            self.store.all(&self.resource.group, &self.resource.kind).filter(|object| selector.matches(object));
        let items: Vec<Value> = matching.map(|object| self.as_item(self.outward(object))).collect();
        let body = json!({
            "kind": format!("{}List", self.resource.kind),
            "apiVersion": self.target.api_version(),
            "metadata": { "resourceVersion": self.store.version.to_string() },
            "items": items,
        });
        Ok((200, body))
    }

    pub fn selector(&self) -> Result<Selector, Refusal> {
        let (labels, fields) = (self.query.text("labelSelector"), self.query.text("fieldSelector"));
        Selector::parse(&self.target.namespace, labels, fields).map_err(|why| Refusal::plain(400, &why))
    }

    pub fn create(&mut self, body: Value) -> Answer {
        let mut new = self.inward(body)?;
        if text(&new, "name").is_empty() && !text(&new, "generateName").is_empty() {
            let suffix: String = self.store.new_uid().chars().take(5).collect();
            new["metadata"]["name"] = format!("{}{suffix}", text(&new, "generateName")).into();
        }
        let name = text(&new, "name").to_owned();
        if name.is_empty() {
            return Err(Refusal::invalid(
                &self.resource,
                "",
                "metadata.name: Required value: name or generateName is required",
            ));
        }
        if self.store.get(&self.key(&name)).is_some() {
            return Err(Refusal::already_exists(&self.resource, &name));
        }
        self.insert(&name, new, None)
    }

    fn insert(&mut self, name: &str, new: Value, owners: Option<Owners>) -> Answer {
        let mut new = rules::created(self.store, &self.resource, new, self.now)?;
        new["metadata"]["name"] = name.into();
        if !self.target.namespace.is_empty() {
            new["metadata"]["namespace"] = self.target.namespace.clone().into();
        }
        let owners = owners.unwrap_or_else(|| {
            let mut owners = Owners::default();
            owners.update(None, &new, self.manager(false), self.shape());
            owners
        });
        let key = self.key(name);
        let object = self.store.commit(&key, &self.resource, new, owners, self.now);
        Ok((201, self.outward(&object)))
    }

    pub fn update(&mut self, body: Value) -> Answer {
        let new = self.inward(body)?;
        let old = self.stored()?.clone();
        if self.resource.facts.is_some() && text(&new, "resourceVersion").is_empty() {
            let why = "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update";
            return Err(Refusal::invalid(&self.resource, text(&old.object, "name"), why));
        }
        if !text(&new, "uid").is_empty() && text(&new, "uid") != text(&old.object, "uid") {
            return Err(self.other_uid(text(&new, "uid"), text(&old.object, "uid")));
        }
        self.replace(&old, new)
    }

    pub fn patch(&mut self, body: Value, kind: PatchKind) -> Answer {
        if kind == PatchKind::Apply {
            return self.apply(body);
        }
        let old = self.stored()?.clone();
        let mut patched = self.outward(&old.object);
        merge(&mut patched, &body, kind == PatchKind::Strategic);
        let new = self.inward(patched)?;
        self.replace(&old, new)
    }

    /// An update whose new object has been put together.
    fn replace(&mut self, old: &Stored, new: Value) -> Answer {
        self.precondition(&old.object, &new)?;
        let new = rules::updated(self.store, &self.resource, &old.object, new, self.is_status())?;
        let mut owners = old.owners.clone();
        owners.update(Some(&old.object), &new, self.manager(false), self.shape());
        let key = self.key(text(&old.object, "name"));
        let object = self.store.commit(&key, &self.resource, new, owners, self.now);
        Ok((200, self.outward(&object)))
    }

    fn apply(&mut self, body: Value) -> Answer {
        let manager = self.manager(true);
        if self.query.text("fieldManager").is_empty() {
            return Err(Refusal::plain(400, "fieldManager: Required value: is required for apply patch"));
        }
        let config = self.inward(body)?;
        rules::declared(&self.resource, &config)?;
        let name = self.target.name.clone().unwrap_or_default();
        let uid = text(&config, "uid").to_owned();
        let Some(old) = self.store.get(&self.key(&name)).cloned() else {
            if self.is_status() {
                return Err(Refusal::not_found(&self.resource, &name));
            }
            if !uid.is_empty() {
                let why =
                    format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
                return Err(Refusal::conflict(&self.resource, &name, &why));
            }
            let mut owners = Owners::default();
            let config = self.writable(config);
            let new = owners.apply(&json!({}), &config, &manager, self.shape(), true);
            let new = new.map_err(|conflicts| Refusal::plain(409, &conflicts.join("; ")))?;
            return self.insert(&name, new, Some(owners));
        };
        self.precondition(&old.object, &config)?;
        let config = self.writable(config);
        let mut owners = old.owners.clone();
        let applied = owners.apply(&old.object, &config, &manager, self.shape(), self.query.flag("force"));
        let applied = applied.map_err(|conflicts| {
            let (count, list) = (conflicts.len(), conflicts.join("\n- "));
            Refusal::plain(409, &format!("Apply failed with {count} conflicts: {list}"))
        })?;
        let new = rules::updated(self.store, &self.resource, &old.object, applied, self.is_status())?;
        let object = self.store.commit(&self.key(&name), &self.resource, new, owners, self.now);
        Ok((200, self.outward(&object)))
    }

    /// The part of a configuration that this door lets through.
    fn writable(&self, mut config: Value) -> Value {
        if self.resource.group.is_empty() && self.resource.kind == "Secret" {
            rules::secret(&mut config);
        }
        if let Some(fields) = config.as_object_mut() {
            let status = self.is_status();
            let identity = ["apiVersion", "kind"];
            fields.retain(|name, _| {
                identity.contains(&name.as_str())
                    || if status { name == "status" } else { name != "status" || !self.resource.status }
            });
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|name, _| {
                    !["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"]
                        .contains(&name.as_str())
                });
            }
        }
        config
    }

    pub fn delete(&mut self, options: &Value) -> Answer {
        let stored = self.stored()?;
        let (name, uid) = (text(&stored.object, "name").to_owned(), text(&stored.object, "uid").to_owned());
        let conditions = &options["preconditions"];
        if let Some(wanted) = conditions["uid"].as_str().filter(|wanted| *wanted != uid) {
            return Err(self.other_uid(wanted, &uid));
        }
        let version = text(&stored.object, "resourceVersion");
        if let Some(wanted) = conditions["resourceVersion"].as_str().filter(|wanted| *wanted != version) {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            );
            return Err(Refusal::conflict(&self.resource, &name, &why));
        }
        let key = self.key(&name);
        let last = self.store.delete(&key, self.now);
        let body = match last.filter(|_| self.store.get(&key).is_some()) {
            Some(dying) => self.outward(&dying),
            None => deleted(&self.resource, &name, &uid.into()),
        };
        Ok((200, body))
    }

    pub fn delete_all(&mut self) -> Answer {
        let (selector, list) = (self.selector()?, self.list()?);
        let all: Vec<Arc<Value>> = self.store.all(&self.resource.group, &self.resource.kind).cloned().collect();
        for object in all.iter().filter(|object| selector.matches(object)) {
            let key = ObjectKey::new(
                &self.resource.group,
                &self.resource.kind,
                text(object, "namespace"),
                text(object, "name"),
            );
            self.store.delete(&key, self.now);
        }
        Ok(list)
    }

    fn stored(&self) -> Result<&Stored, Refusal> {
        let name = self.target.name.as_deref().unwrap_or_default();
        self.store.get(&self.key(name)).ok_or_else(|| Refusal::not_found(&self.resource, name))
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.resource.group, &self.resource.kind, &self.target.namespace, name)
    }

    fn is_status(&self) -> bool {
        // A request is decided on in its status, too, through a door of its own.
        matches!(self.target.subresource.as_deref(), Some("status" | "approval"))
    }

    fn manager(&self, applies: bool) -> Manager {
        let name = match self.query.text("fieldManager") {
            "" => "unknown",
            name => name,
        };
        let subresource = self.target.subresource.clone().unwrap_or_default();
        Manager { name: name.to_owned(), applies, subresource }
    }

    fn shape(&self) -> Shape<'static> {
        Shape::Root(self.resource.facts.map(|facts| facts.hub().schema()))
    }

    fn precondition(&self, old: &Value, new: &Value) -> Result<(), Refusal> {
        let (uid, version) = (text(new, "uid"), text(new, "resourceVersion"));
        let name = text(old, "name");
        if !version.is_empty() && version != text(old, "resourceVersion") {
            return Err(Refusal::modified(&self.resource, name));
        }
        // The status of a custom resource takes everything else from what stands there, the uid included: a wrong one does not show.
        let heeded = !(self.is_status() && self.resource.facts.is_some());
        if heeded && !uid.is_empty() && uid != text(old, "uid") {
            let why = format!("metadata.uid: Invalid value: \"{uid}\": field is immutable");
            return Err(Refusal::invalid(&self.resource, name, &why));
        }
        Ok(())
    }

    fn other_uid(&self, wanted: &str, is: &str) -> Refusal {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {is}");
        Refusal::conflict(&self.resource, self.target.name.as_deref().unwrap_or_default(), &why)
    }

    /// The object in the version that is kept, if it is the one that the URL is about.
    fn inward(&self, mut body: Value) -> Result<Value, Refusal> {
        let expected = self.target.api_version();
        let stated = body["apiVersion"].as_str().unwrap_or(&expected);
        if stated != expected || body["kind"].as_str().is_some_and(|kind| kind != self.resource.kind) {
            let why = format!(
                "the API version in the data ({stated}, {}) does not match the expected API version ({expected}, {})",
                body["kind"], self.resource.kind
            );
            return Err(Refusal::plain(400, &why));
        }
        if !body.is_object() || !(body["metadata"].is_object() || body["metadata"].is_null()) {
            return Err(Refusal::plain(400, "the body must be an object with metadata"));
        }
        let wrong = |field: &str, url: &str| !text(&body, field).is_empty() && text(&body, field) != url;
        if self.target.name.as_deref().is_some_and(|name| wrong("name", name)) {
            return Err(Refusal::plain(400, "the name of the object does not match the name on the URL"));
        }
        if wrong("namespace", &self.target.namespace) {
            return Err(Refusal::plain(
                400,
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        body["apiVersion"] = expected.into();
        body["kind"] = self.resource.kind.clone().into();
        if body["metadata"].is_null() {
            body["metadata"] = json!({});
        }
        match self.resource.hub() {
            Some(hub) => conversion::convert(&Object(body), hub)
                .map(|object| object.0)
                .map_err(|error| Refusal::plain(404, &error.to_string())),
            None => Ok(body),
        }
    }

    /// The object in the version that the URL asks for.
    pub fn outward(&self, object: &Value) -> Value {
        outward(&self.resource, &self.target.version, object)
    }

    /// Items of built-in lists do not say what they are.
    fn as_item(&self, mut object: Value) -> Value {
        if self.resource.facts.is_none()
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        object
    }
}

/// An object in a version of its kind.
pub(super) fn outward(resource: &Resource, version: &str, object: &Value) -> Value {
    if resource.hub().is_none_or(|hub| hub == version) {
        return object.clone();
    }
    // The version was served by the request already, so it is known.
    conversion::convert(&Object(object.clone()), version).map_or_else(|_| object.clone(), |object| object.0)
}
