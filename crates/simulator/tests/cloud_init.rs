//! Our reading of user-data beside that of the real cloud-init, recorded by `cargo xtask cloud-init --record`.

#![allow(clippy::unwrap_used, reason = "the helpers of a test file are tests too")]

use std::collections::BTreeMap;
use std::path::Path;

use hangar_simulator::Guest;
use hangar_simulator::guests::dry_run;
use serde_json::{Value, json};

#[test]
fn every_document_is_read_as_the_real_cloud_init_reads_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cloud_init");
    let expected: BTreeMap<String, Value> =
        serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    assert!(expected.len() >= 24);
    let mut differences = vec![];
    for (name, expected) in expected {
        let guest = Guest {
            server_id: "1f".to_owned(),
            name: "worker-1".to_owned(),
            project_id: "p".to_owned(),
            availability_zone: "nova".to_owned(),
            user_data: std::fs::read(folder.join(&name)).unwrap(),
            ..Guest::default()
        };
        // What we refuse with words, cloud-init passes over with a warning: nothing is written or run in either case.
        let (files, commands) = dry_run(&guest).unwrap_or_default();
        let found = json!({"files": files, "commands": commands});
        if found != expected {
            differences.push(format!("{name}: {found} instead of {expected}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
