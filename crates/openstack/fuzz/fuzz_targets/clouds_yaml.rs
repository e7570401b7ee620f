//! `cargo +nightly fuzz run clouds_yaml`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hangar_openstack::fuzz_clouds_yaml(data));
