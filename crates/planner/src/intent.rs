//! Whether an object already says what we want it to say.
//!
//! Holds: an apply is planned only if the intent changed since the last one (an annotation keeps its fingerprint) or if somebody
//! changed a field of ours; so nothing is written at rest, and no dry run is needed to know it.

use hangar_api::{Object, ObjectKey, Owner};
use serde_json::{Value, json};

use crate::plan::{Phase, Reason};
use crate::step::Step;

/// The fingerprint of the last applied intent.
pub const APPLIED_ANNOTATION: &str = "hangar.dev/applied";

/// The step that makes a child of `owner` what `wanted` says, or nothing. What somebody else made under its name is neither overwritten nor
/// adopted.
pub fn ensure(owner: &Object, current: Option<&Object>, wanted: Object) -> Result<Option<Step>, Reason> {
    let mut wanted = owned(wanted, &owner.as_owner(true));
    let fingerprint = fingerprint(&wanted.0);
    wanted.0["metadata"]["annotations"][APPLIED_ANNOTATION] = fingerprint.into();
    match current {
        None => Ok(Some(Step::Create(wanted))),
        Some(current) if !current.is_owned_by(owner.uid()) => Err(not_ours(&current.key())),
        Some(current) if says(&current.0, &wanted.0) => Ok(None),
        Some(_) => Ok(Some(Step::Apply(wanted))),
    }
}

/// The same for a child that is there and keeps what stands at some places: the rest is changed in place.
pub fn update(owner: &Object, current: &Object, wanted: Object, kept: &[&str]) -> Option<Step> {
    let mut wanted = owned(wanted, &owner.as_owner(true));
    let fingerprint = fingerprint(&wanted.0);
    for pointer in kept {
        let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
        if let Some(fields) = wanted.0.pointer_mut(parent).and_then(Value::as_object_mut) {
            fields.remove(field);
            let stands = Some(current.get(pointer)).filter(|value| !value.is_null());
            fields.extend(stands.map(|value| (field.to_owned(), value.clone())));
        }
    }
    wanted.0["metadata"]["annotations"][APPLIED_ANNOTATION] = fingerprint.into();
    if says(&current.0, &wanted.0) {
        return None;
    }
    // One that is gone meanwhile is not made again by this.
    wanted.0["metadata"]["uid"] = current.uid().into();
    Some(Step::Apply(wanted))
}

/// The same for several.
pub fn ensure_all(owner: &Object, pairs: Vec<(Option<&Object>, Object)>) -> Result<Vec<Step>, Reason> {
    let steps: Result<Vec<Option<Step>>, Reason> =
        pairs.into_iter().map(|(current, wanted)| ensure(owner, current, wanted)).collect();
    Ok(steps?.into_iter().flatten().collect())
}

/// Somebody else has an object where ours should be.
pub fn not_ours(key: &ObjectKey) -> Reason {
    Reason::retry("NotOurs", format!("{key} exists and was not made by Hangar: rename or delete it"))
}

/// Only some fields of an object that somebody else made.
pub fn touch(current: &Object, fields: Value) -> Option<Step> {
    if says(&current.0, &fields) {
        return None;
    }
    Some(Step::Patch { key: current.key(), uid: current.uid().to_owned(), resource_version: None, fields })
}

/// What an owner needs on an object: our finalizer, a reference to the owner, labels. Lists are whole, so the version read guards them.
pub fn adopt(
    current: &Object,
    finalizer: Option<&str>,
    owner: Option<&Owner>,
    labels: &[(&str, &str)],
) -> Option<Step> {
    let mut fields = json!({});
    if let Some(finalizer) = finalizer.filter(|finalizer| !current.finalizers().contains(finalizer)) {
        let all: Vec<&str> = current.finalizers().into_iter().chain([finalizer]).collect();
        fields["metadata"]["finalizers"] = json!(all);
    }
    if let Some(owner) = owner.filter(|owner| !current.owners().contains(owner)) {
        let others = current.owners().into_iter().filter(|other| other.uid != owner.uid);
        fields["metadata"]["ownerReferences"] = json!(others.chain([owner.clone()]).collect::<Vec<_>>());
    }
    for (name, value) in labels.iter().filter(|(name, value)| current.label(name) != Some(value)) {
        fields["metadata"]["labels"][*name] = (*value).into();
    }
    if fields == json!({}) {
        return None;
    }
    Some(Step::Patch {
        key: current.key(),
        uid: current.uid().to_owned(),
        resource_version: Some(current.resource_version().to_owned()),
        fields,
    })
}

/// Our finalizer goes; the object may vanish.
pub fn release(current: &Object, finalizer: &str) -> Option<Step> {
    if !current.finalizers().contains(&finalizer) {
        return None;
    }
    let rest: Vec<&str> = current.finalizers().into_iter().filter(|other| *other != finalizer).collect();
    Some(Step::Patch {
        key: current.key(),
        uid: current.uid().to_owned(),
        resource_version: Some(current.resource_version().to_owned()),
        fields: json!({ "metadata": { "finalizers": rest } }),
    })
}

/// The step that deletes an object, unless it is going already.
pub fn delete(current: &Object) -> Option<Step> {
    if current.is_deleting() {
        return None;
    }
    Some(Step::Delete { key: current.key(), uid: current.uid().to_owned(), resource_version: None })
}

/// The same for one that was chosen by its state: if that has changed since, another one may have to go.
pub fn delete_as_seen(current: &Object) -> Option<Step> {
    if current.is_deleting() {
        return None;
    }
    let resource_version = Some(current.resource_version().to_owned());
    Some(Step::Delete { key: current.key(), uid: current.uid().to_owned(), resource_version })
}

/// The phase in which an object goes.
pub fn gone(object: Option<&Object>, code: &'static str) -> Phase {
    match object {
        None => Phase::Done,
        Some(object) => match delete(object) {
            Some(step) => Phase::Steps(vec![step]),
            None => Phase::wait(code, format!("waiting for {} to be deleted", object.key())),
        },
    }
}

/// A child object with its owner.
pub fn owned(mut object: Object, owner: &Owner) -> Object {
    object.0["metadata"]["ownerReferences"] = json!([owner]);
    object
}

/// Whether `current` has every field of `wanted` with that value. Lists of named things are compared by name, as the API server merges them.
pub fn says(current: &Value, wanted: &Value) -> bool {
    match (current, wanted) {
        (Value::Object(current), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| current.get(key).map_or(value.is_null(), |there| says(there, value)))
        }
        (Value::Array(current), Value::Array(wanted)) => says_list(current, wanted),
        // Ports and the like may come back as another number type.
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => current == wanted,
    }
}

fn says_list(current: &[Value], wanted: &[Value]) -> bool {
    let identity = |item: &Value| {
        ["uid", "name", "type", "key", "mountPath"].iter().find_map(|key| item.get(*key).cloned().map(|id| (*key, id)))
    };
    if wanted.iter().any(|item| identity(item).is_some()) {
        return wanted.iter().all(|item| match identity(item) {
            Some((key, id)) => current.iter().any(|there| there.get(key) == Some(&id) && says(there, item)),
            None => current.contains(item),
        });
    }
    if wanted.iter().all(Value::is_string) && current.iter().all(Value::is_string) && current.len() != wanted.len() {
        // Finalizers: a set to which others add.
        return wanted.iter().all(|item| current.contains(item));
    }
    current.len() == wanted.len() && current.iter().zip(wanted).all(|(there, item)| says(there, item))
}

/// A short fingerprint of a value; the same on every machine and in every release.
pub fn fingerprint(value: &Value) -> String {
    let mut hash = Fnv1a::default();
    // Written into the hash as it is produced: fingerprints are taken in each pass of whole objects.
    let written = serde_json::to_writer(&mut hash, value);
    debug_assert!(written.is_ok(), "a hash takes everything");
    format!("{:016x}", hash.0)
}

/// Letters for names, from any text: five of those that Kubernetes uses for its own random names.
pub fn name_suffix(text: &str) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash = Fnv1a::default().with(text.as_bytes()).0;
    let mut suffix = String::new();
    for _ in 0..5 {
        suffix.push(char::from(ALPHABET[(hash % ALPHABET.len() as u64) as usize]));
        hash /= ALPHABET.len() as u64;
    }
    suffix
}

/// The hash of that name.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
    }
}

impl std::io::Write for Fnv1a {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        *self = Self(self.0).with(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Object {
        let mut object = Object::named("v1", "Service", "default", "s");
        object.0["spec"] = json!({"type": "LoadBalancer", "ports": [{"name": "api", "port": 6443}]});
        object
    }

    fn owner() -> Object {
        let mut owner = Object::named("x/v1", "Owner", "default", "o");
        owner.0["metadata"]["uid"] = "o-uid".into();
        owner
    }

    fn apply(current: Option<&Object>, wanted: Object) -> Option<Step> {
        ensure(&owner(), current, wanted).unwrap()
    }

    fn as_applied(object: Object) -> Object {
        match apply(None, object) {
            Some(Step::Create(object)) => object,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_somebody_else_made_is_left_alone_and_named() {
        let reason = ensure(&owner(), Some(&service()), service()).unwrap_err();
        assert_eq!(reason.message, "Service default/s exists and was not made by Hangar: rename or delete it");
    }

    #[test]
    fn what_is_there_already_is_not_applied_again() {
        let mut current = as_applied(service());
        current.0["spec"]["clusterIP"] = json!("10.0.0.1");
        current.0["spec"]["ports"][0]["nodePort"] = json!(30000);
        assert_eq!(apply(Some(&current), service()), None);
    }

    #[test]
    fn a_field_that_we_no_longer_want_is_noticed() {
        let current = as_applied(service());
        let mut wanted = service();
        wanted.0["spec"].as_object_mut().unwrap().remove("type");
        assert!(apply(Some(&current), wanted).is_some());
    }

    #[test]
    fn a_field_that_somebody_changed_is_put_right() {
        let mut current = as_applied(service());
        current.0["spec"]["ports"][0]["port"] = json!(80);
        assert!(apply(Some(&current), service()).is_some());
    }

    #[test]
    fn finalizers_of_others_stay() {
        let mut current = service();
        current.0["metadata"]["finalizers"] = json!(["theirs"]);
        let Some(Step::Patch { fields, .. }) = adopt(&current, Some("ours"), None, &[]) else { panic!("no patch") };
        assert_eq!(fields, json!({"metadata": {"finalizers": ["theirs", "ours"]}}));
        current.0["metadata"]["finalizers"] = json!(["theirs", "ours"]);
        assert_eq!(adopt(&current, Some("ours"), None, &[]), None);
        let Some(Step::Patch { fields, .. }) = release(&current, "ours") else { panic!("no patch") };
        assert_eq!(fields, json!({"metadata": {"finalizers": ["theirs"]}}));
    }

    #[test]
    fn names_are_derived_and_differ() {
        assert_eq!(name_suffix("a/1"), name_suffix("a/1"));
        let all: std::collections::BTreeSet<String> = (0..1000).map(|n| name_suffix(&format!("uid/{n}"))).collect();
        assert_eq!(all.len(), 1000);
    }
}
