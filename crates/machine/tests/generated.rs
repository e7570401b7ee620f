//! The types of the runtime's API are what its published description says.
//!
//! `HANGAR_UPDATE=1 cargo test -p hangar-machine --test generated` writes them.

#![allow(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::path::Path;

#[test]
fn types_are_generated_from_the_description() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().unwrap();
    let descriptors = protox::compile([root.join("proto/cri.proto")], [root.join("proto")]).unwrap();
    tonic_prost_build::configure()
        .build_client(false)
        .generate_default_stubs(true)
        .out_dir(out.path())
        .compile_fds(descriptors)
        .unwrap();
    let generated = std::fs::read_to_string(out.path().join("runtime.v1.rs")).unwrap();
    let kept = root.join("src/cri/generated.rs");
    if std::env::var_os("HANGAR_UPDATE").is_some() {
        std::fs::write(&kept, &generated).unwrap();
    }
    assert!(std::fs::read_to_string(&kept).unwrap() == generated, "{} is out of date", kept.display());
}
