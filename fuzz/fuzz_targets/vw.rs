//! Rows of Vowpal Wabbit of any bytes: what `bodies::vw` promises holds.
#![no_main]
#![allow(dead_code)] // the other bodies

#[path = "../../crates/cli/tests/parsers/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::vw(bytes));
