//! Any message that prost decodes: the view finds the same values.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| paceline_tfrecord::fuzzing::example_prost_agreement(bytes));
