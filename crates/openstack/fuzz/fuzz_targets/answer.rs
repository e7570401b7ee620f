//! `cargo +nightly fuzz run answer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hangar_openstack::fuzz_answer(data));
