//! Any message: the borrowed view neither panics nor loops.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paceline_tfrecord::fuzzing::example_view(bytes));
