//! Weights of PyTorch and Keras of any bytes: what `bodies::foreign_weights` promises holds.
#![no_main]
#![allow(dead_code)] // the other bodies

#[path = "../../crates/cli/tests/parsers/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::foreign_weights(bytes));
