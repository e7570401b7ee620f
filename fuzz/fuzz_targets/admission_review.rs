//! Any bytes, as a AdmissionReview.
#![no_main]

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    drop(hangar_api::review::admission(body));
});
