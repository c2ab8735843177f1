//! A manifest of any bytes: what `bodies::manifest` promises holds.
#![no_main]
#![allow(dead_code)] // the other bodies

#[path = "../../crates/cli/tests/parsers/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::manifest(bytes));
