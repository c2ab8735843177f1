//! Any file: reading it ends in records or an error, and never in a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paceline_tfrecord::fuzzing::reader(bytes));
