//! Requests to the live page of any bytes: what `bodies::http` promises holds.
#![no_main]
#![allow(dead_code)] // the other bodies

#[path = "../../crates/cli/tests/parsers/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::http(bytes));
