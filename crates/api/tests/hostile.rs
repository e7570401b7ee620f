//! Reviews that nobody should send: whatever the bytes, there is an answer in the right form. The same functions are fuzz targets in `fuzz`;
//! here they get a fixed number of mutated reviews from a seed.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

mod random;

use hangar_api::registry::kinds;
use hangar_api::review;
use random::{Random, object};
use serde_json::{Value, json};

const REVIEWS: u64 = 6000;

fn conversion_answers(body: &[u8]) {
    let answer = review::conversion(body);
    let response = &answer["response"];
    assert_eq!(answer["kind"], "ConversionReview");
    match response["result"]["status"].as_str() {
        Some("Success") => assert!(response["convertedObjects"].is_array()),
        Some("Failure") => assert!(response["result"]["message"].as_str().is_some_and(|message| message.len() > 10)),
        other => panic!("{other:?}"),
    }
}

fn admission_answers(body: &[u8]) {
    let answer = review::admission(body);
    let response = &answer["response"];
    assert_eq!(answer["kind"], "AdmissionReview");
    if response["allowed"] != true {
        assert!(response["status"]["message"].as_str().is_some_and(|message| message.len() > 10), "{answer}");
    }
}

/// A good review of a random object of any version.
fn good(random: &mut Random) -> Value {
    let facts = &kinds()[random.below(kinds().len())];
    let version = |random: &mut Random| &facts.versions[random.below(facts.versions.len())];
    let (from, to) = (version(random), version(random));
    let (new, old) = (object(facts, from, random), object(facts, from, random));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {
            "uid": "u", "desiredAPIVersion": format!("{}/{}", facts.group, to.name), "objects": [new.0],
            "object": new.0, "oldObject": old.0,
        },
    })
}

/// Puts something else anywhere.
fn mutate(place: &mut Value, random: &mut Random) {
    let strange =
        [json!(null), json!(-1), json!(1e300), json!("\u{0}x"), json!([[[]]]), json!({"": {"": []}}), json!(true)];
    let descend = !random.one_in(6);
    match place {
        Value::Object(fields) if descend && !fields.is_empty() => {
            let chosen = random.below(fields.len());
            mutate(fields.values_mut().nth(chosen).unwrap(), random);
        }
        Value::Array(items) if descend && !items.is_empty() => {
            let chosen = random.below(items.len());
            mutate(&mut items[chosen], random);
        }
        _ => *place = strange[random.below(strange.len())].clone(),
    }
}

#[test]
fn every_review_is_answered() {
    for seed in 0..REVIEWS {
        let mut random = Random::new(seed);
        let mut review = good(&mut random);
        (0..random.below(4)).for_each(|_| mutate(&mut review, &mut random));
        let mut bytes = review.to_string().into_bytes();
        if random.one_in(4) {
            for _ in 0..=random.below(8) {
                let place = random.below(bytes.len());
                bytes[place] = u8::try_from(random.below(256)).unwrap();
            }
        }
        if random.one_in(16) {
            bytes.truncate(random.below(bytes.len()));
        }
        conversion_answers(&bytes);
        if let Some(fields) = review.as_object_mut() {
            fields.insert("kind".into(), json!("AdmissionReview"));
        }
        admission_answers(review.to_string().as_bytes());
        admission_answers(&bytes);
    }
}

#[test]
fn a_remainder_that_somebody_wrote_is_harmless() {
    let places = [
        "garbage",
        "[]",
        "[{}]",
        r#"[{"path":[]}]"#,
        r#"[{"path":["spec"],"is":"text"}]"#,
        r#"[{"path":["spec","a","b"],"is":1}]"#,
        r#"[{"path":["metadata"],"is":{}},{"path":["apiVersion"],"is":"v9"}]"#,
    ];
    for text in places {
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
            "metadata": {"name": "c", "annotations": {"conversion.hangar.dev/v1beta2": text}}, "spec": {"paused": true},
        });
        let review = json!({"kind": "ConversionReview", "request": {"uid": "u", "desiredAPIVersion": "cluster.x-k8s.io/v1beta2", "objects": [cluster]}});
        let answer = review::conversion(review.to_string().as_bytes());
        let converted = &answer["response"]["convertedObjects"][0];
        assert_eq!(converted["apiVersion"], "cluster.x-k8s.io/v1beta2", "{text}: {answer}");
        assert_eq!(converted["metadata"]["name"], "c", "{text}: {answer}");
    }
}
