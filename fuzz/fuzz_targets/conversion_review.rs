//! Any bytes, as a ConversionReview.
#![no_main]

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    drop(hangar_api::review::conversion(body));
});
