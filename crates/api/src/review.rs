//! Answers to the reviews that an API server sends: conversion and admission.
//!
//! Flows: the bytes of a request -> the bytes' review -> conversion or admission -> a response in the same form. Holds: whatever the bytes
//! are, there is a response that says what is wrong with them; nothing is answered for an object that was not understood.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::object::Object;
use crate::{admission, conversion};

/// Answers a ConversionReview.
pub fn conversion(body: &[u8]) -> Value {
    let (uid, answer) = match request(body, "ConversionReview") {
        Ok(request) => (request["uid"].clone(), converted(&request)),
        Err(message) => (Value::Null, Err(message)),
    };
    let response = match answer {
        Ok(objects) => json!({ "uid": uid, "convertedObjects": objects, "result": { "status": "Success" } }),
        Err(message) => json!({ "uid": uid, "result": { "status": "Failure", "message": message } }),
    };
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response })
}

/// The request of a review, or why there is none.
fn request(body: &[u8], kind: &str) -> Result<Value, String> {
    let mut review: Value = serde_json::from_slice(body)
        .map_err(|error| format!("the request is not a {kind}, it is not JSON: {error}"))?;
    if review["kind"] != kind {
        return Err(format!("the request is not a {kind}, its kind is {}", review["kind"]));
    }
    match review.get_mut("request").map(Value::take) {
        Some(request) if request.is_object() => Ok(request),
        _ => Err(format!("the {kind} has no request")),
    }
}

fn converted(request: &Value) -> Result<Vec<Object>, String> {
    let wanted = request["desiredAPIVersion"].as_str().ok_or("the request names no desiredAPIVersion")?;
    let (group, version) = wanted.split_once('/').ok_or_else(|| format!("{wanted:?} is not a group and a version"))?;
    let objects = request["objects"].as_array().ok_or("the request has no list of objects")?;
    let one = |(index, object): (usize, &Value)| {
        let object = Object(object.clone());
        if !object.0.is_object() {
            return Err(format!("objects[{index}] is not an object"));
        }
        if object.group() != group {
            return Err(format!("objects[{index}] is of {:?}, not of the group {group}", object.api_version()));
        }
        conversion::convert(&object, version).map_err(|error| format!("objects[{index}]: {error}"))
    };
    objects.iter().enumerate().map(one).collect()
}

/// Answers an AdmissionReview: a patch of what changed, or the reasons against.
pub fn admission(body: &[u8]) -> Value {
    let (uid, answer) = match request(body, "AdmissionReview") {
        Ok(request) => (request["uid"].clone(), admitted(&request)),
        Err(message) => (Value::Null, Err((400, "BadRequest", message))),
    };
    let response = match answer {
        Ok(patch) if patch.is_empty() => json!({ "uid": uid, "allowed": true }),
        Ok(patch) => {
            let patch = STANDARD.encode(Value::Array(patch).to_string());
            json!({ "uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch })
        }
        Err((code, reason, message)) => {
            json!({ "uid": uid, "allowed": false, "status": { "code": code, "reason": reason, "message": message } })
        }
    };
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
}

type Denial = (u16, &'static str, String);

fn admitted(request: &Value) -> Result<Vec<Value>, Denial> {
    let object = Object(request["object"].clone());
    if !object.0.is_object() {
        return Err((400, "BadRequest", "the request has no object".to_owned()));
    }
    let old = Some(Object(request["oldObject"].clone())).filter(|old| old.0.is_object());
    match admission::admit(&object, old.as_ref()) {
        Ok(admitted) => Ok(patch(&object, &admitted)),
        Err(refusals) => {
            let message = refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            Err((422, "Invalid", message))
        }
    }
}

/// Admission fills in specs and labels; each is replaced as a whole.
fn patch(object: &Object, admitted: &Object) -> Vec<Value> {
    let changed = ["/spec", "/metadata/labels"].into_iter().filter(|place| object.get(place) != admitted.get(place));
    changed.map(|place| json!({ "op": "add", "path": place, "value": admitted.get(place) })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(body: &[u8]) -> String {
        let answer = conversion(body);
        assert_eq!(answer["response"]["result"]["status"], "Failure", "{answer}");
        assert!(answer["response"].get("convertedObjects").is_none());
        let denied = admission(body);
        assert_eq!(denied["response"]["allowed"], false, "{denied}");
        answer["response"]["result"]["message"].as_str().unwrap().to_owned()
    }

    #[test]
    fn bad_reviews_are_answered_with_what_is_wrong() {
        assert!(failure(b"").contains("not JSON"));
        assert!(failure(&[0xff; 100]).contains("not JSON"));
        assert!(failure(&vec![b'['; 10 << 20]).contains("recursion"));
        assert!(failure(&[vec![b'"'], vec![b'a'; 10 << 20]].concat()).contains("EOF"));
        assert!(failure(b"[]").contains("kind is null"));
        let deep = format!("{}{}", "{\"request\":".repeat(5000), "1");
        assert!(failure(deep.as_bytes()).contains("recursion"));
        assert!(failure(br#"{"kind": "Pod"}"#).contains("kind is \"Pod\""));
    }

    #[test]
    fn bad_conversions_name_the_object_and_the_rule() {
        let ask = |request: Value| {
            let review = json!({"kind": "ConversionReview", "request": request}).to_string();
            conversion(review.as_bytes())["response"]["result"]["message"].as_str().unwrap_or_default().to_owned()
        };
        assert!(ask(json!("x")).contains("no request"));
        assert!(ask(json!({"uid": "u"})).contains("desiredAPIVersion"));
        assert!(ask(json!({"desiredAPIVersion": "v1", "objects": []})).contains("group and a version"));
        let wanted = "cluster.x-k8s.io/v1beta2";
        assert!(ask(json!({"desiredAPIVersion": wanted})).contains("list of objects"));
        assert!(ask(json!({"desiredAPIVersion": wanted, "objects": [1]})).contains("objects[0] is not an object"));
        let pod = json!({"apiVersion": "v1", "kind": "Pod"});
        assert!(
            ask(json!({"desiredAPIVersion": wanted, "objects": [pod]})).contains("not of the group cluster.x-k8s.io")
        );
        let unknown = json!({"apiVersion": "cluster.x-k8s.io/v1", "kind": "Cluster"});
        assert!(
            ask(json!({"desiredAPIVersion": wanted, "objects": [unknown]})).contains("no version v1 here; served are")
        );
        let none = json!({"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Nothing"});
        assert!(ask(json!({"desiredAPIVersion": wanted, "objects": [none]})).contains("no kind Nothing"));
    }

    #[test]
    fn the_answer_carries_the_requests_uid_and_a_patch() {
        let review = json!({"kind": "AdmissionReview", "request": {"uid": "u", "object": {
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"clusterName": "c", "version": "1.33.6"},
        }}});
        let response = admission(review.to_string().as_bytes())["response"].clone();
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("u"), &json!(true)));
        let patch: Value =
            serde_json::from_slice(&STANDARD.decode(response["patch"].as_str().unwrap()).unwrap()).unwrap();
        assert_eq!(patch[0]["value"]["version"], "v1.33.6");
        assert_eq!(
            patch[1],
            json!({"op": "add", "path": "/metadata/labels", "value": {"cluster.x-k8s.io/cluster-name": "c"}})
        );
    }
}
