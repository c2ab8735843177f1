//! Files and flags that asked for more than there is, or were not what they seemed, through the real binary: each ends in an
//! error that names the cause, never in an abort, and never in training on something else.

#![allow(clippy::unwrap_used)]

mod support;

use std::{fs, io::Write, path::Path, process::Output};

fn paceline(folder: &Path, command: &str) -> Output {
    let mut paceline = support::paceline();
    paceline.current_dir(folder).args(command.split(' ')).output().unwrap()
}

fn works(folder: &Path, command: &str) -> String {
    let output = paceline(folder, command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command}: {said}");
    said
}

/// What is said by a command that fails in order: with a code of ours, not by a signal.
fn fails(folder: &Path, command: &str) -> String {
    let output = paceline(folder, command);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{command}: {}: {said}", output.status);
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn a_shard_copied_over_another_ends_the_run_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    works(here, "data synth photos photos --per-class 4 --least-side 16 --most-side 24");
    works(here, "prepare photos shards --size 8 --encode raw --shards 2");
    let train = "train --model softmax --data shards --batch-size 4 --lr 0.001 --no-tensorboard";
    works(here, &format!("{train} --steps 2 --verify"));
    let shards = here.join("shards");
    let (first, second) = ("train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord");
    fs::copy(shards.join(first), shards.join(second)).unwrap();
    let said = fails(here, &format!("{train} --steps 2 --verify"));
    assert!(said.contains(second) && said.contains("data verify"), "{said}");
    // Beside training it is found as soon as it was read, long before so many steps.
    let said = fails(here, &format!("{train} --steps 1000000000"));
    assert!(said.contains(second), "{said}");
    let said = fails(here, "train --model softmax --data generated:digits --steps 1 --verify");
    assert!(said.contains("checksums"), "{said}");
}

#[test]
fn photos_larger_than_the_limit_of_pixels_are_rejected_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    works(here, "data synth photos photos --per-class 2 --least-side 20 --most-side 24");
    works(here, "data verify photos");
    let found = paceline(here, "data verify photos --max-pixels 399");
    assert_eq!(found.status.code(), Some(1));
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains("limit of 399 pixels"), "{found}");
    let said = fails(here, "prepare photos shards --size 8 --shards 1 --max-pixels 399");
    assert!(said.contains("all 10 photos were rejected"), "{said}");
    let rejects = fs::read_to_string(here.join("shards/rejects.jsonl")).unwrap();
    assert!(rejects.contains("limit of 399 pixels"), "{rejects}");
    works(here, "prepare photos shards --size 8 --shards 1 --max-pixels 1M --fresh");
    // The limit decides which photos are in the records, so it may not change underway.
    let said = fails(here, "prepare photos shards --size 8 --shards 1 --max-pixels 2M");
    assert!(said.contains("limit of pixels"), "{said}");
}

/// Two gigabytes of labels are promised, in some kilobytes.
#[test]
fn a_gzip_bomb_of_idx_files_is_refused_with_what_it_promises() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    works(here, "data synth digits digits --train 20 --test 10 --gzip");
    let count = 2_000_000_000_u32;
    let file = fs::File::create(here.join("digits/train-labels-idx1-ubyte.gz")).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    encoder.write_all(&[0, 0, 8, 1]).unwrap();
    encoder.write_all(&count.to_be_bytes()).unwrap();
    encoder.write_all(&vec![0; 64 << 20]).unwrap();
    encoder.finish().unwrap();
    let said = fails(here, "data info digits");
    assert!(said.contains("train-labels-idx1-ubyte.gz"), "{said}");
}

#[test]
fn flags_that_ask_for_more_memory_than_there_is_say_what_would_fit() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (command, wanted) in [
        ("list models --profile alexnet --size 100000", "memory"),
        (
            "train --model softmax --data generated:digits --steps 1 --batch-size 4000000000",
            "batch",
        ),
        (
            "advise parallel --model alexnet --batch-size 256 --workers 1000000000 --network 10Gbit --latency 50us",
            "workers",
        ),
    ] {
        let said = fails(here, command);
        assert!(said.contains(wanted), "{command}: {said}");
    }
}
