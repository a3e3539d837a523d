//! Hands libFuzzer's inputs to the target of this name.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| lads_fuzz::run("remote_client", bytes));
