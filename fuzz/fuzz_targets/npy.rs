//! A matrix file of NumPy of any bytes: what `bodies::npy` promises holds.
#![no_main]
#![allow(dead_code)] // the other bodies

#[path = "../../crates/cli/tests/parsers/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::npy(bytes));
