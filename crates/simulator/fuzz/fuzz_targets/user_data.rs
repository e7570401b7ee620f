//! `cargo +nightly fuzz run user_data`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hangar_simulator::guests::fuzz_user_data(data));
