//! Files and flags that asked for more than there is, or were not what they seemed, through the real binary: each ends in an
//! error that names the cause, never in an abort, and never in training on something else.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output},
};

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

/// A command that may use so many MiB of address space.
fn within(mebibytes: u64, folder: &Path, command: &str) -> Output {
    let paceline = support::paceline();
    let limits = format!("ulimit -v {}; exec \"$0\" \"$@\"", mebibytes << 10);
    let mut shell = Command::new("sh");
    shell.current_dir(folder).arg("-c").arg(limits).arg(paceline.get_program());
    for (name, value) in paceline.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.args(command.split(' ')).output().unwrap()
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
    let test = "speedtest --images photos --batch-size 2 --batches 2 --repeats 1 --size 8";
    works(here, &format!("{test} --max-rejects 0 --out usual"));
    let said = fails(here, &format!("{test} --max-rejects 0 --max-pixels 399 --out small"));
    assert!(said.contains("reject"), "{said}");
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
        (
            "advise parallel --model alexnet --batch-size 256 --per-host 1000000000 --network 10Gbit --latency 50us",
            "workers",
        ),
        (
            "advise batch --model lenet --data generated:digits --sizes 8,400000000000",
            "examples fit",
        ),
        ("data synth photos photos --per-class 1 --most-side 1000000", "from 1 to 8000"),
    ] {
        let said = fails(here, command);
        assert!(said.contains(wanted), "{command}: {said}");
    }
}

/// A set without an example was drawn, or said to have been drawn where there was no folder.
#[test]
fn data_sets_without_an_example_are_not_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (command, wanted) in [
        ("data synth photos made --per-class 0", "no photo"),
        ("data synth digits made --train 0 --test 0", "no digit"),
        ("data synth clicks made --rows 0", "expected at least 1"),
    ] {
        let said = fails(here, command);
        assert!(said.contains(wanted), "{command}: {said}");
        assert!(!here.join("made").exists(), "{command}");
    }
    works(here, "data synth photos made --per-class 0 --bad 2");
}

/// Files whose headers tell the truth: each image is there, and no memory holds them all.
#[test]
fn idx_files_larger_than_memory_are_refused_before_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    works(here, "data synth digits digits --train 20 --test 10");
    let path = here.join("digits/train-images-idx3-ubyte");
    let (count, side) = (1_000_000_000_u32, 28_u32);
    let mut header = vec![0, 0, 8, 3];
    [count, side, side].iter().for_each(|size| header.extend(size.to_be_bytes()));
    fs::write(&path, header).unwrap();
    // A file of zeros that were never written takes no room on the disk.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(16 + u64::from(count) * u64::from(side * side)).unwrap();
    let said = fails(here, "data info digits");
    assert!(said.contains("784000 MB") && said.contains("this process may use"), "{said}");
}

/// Sixteen gibibytes of weights were asked of the system without a question, and the process aborted.
#[test]
fn more_weights_than_memory_holds_are_refused_with_the_bits_that_fit() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    works(here, "data synth clicks clicks.tsv --rows 200");
    works(here, "data synth clicks more.tsv --rows 200 --seed 2");
    let train = "train --model sparse-logistic --no-tensorboard --data";
    for (command, fits) in [
        (format!("{train} clicks.tsv --bits 31"), "--bits 28"),
        (
            format!("{train} clicks.tsv,more.tsv --bits 28 --strategy ps-async --workers 2 --ps 2"),
            "--bits 27",
        ),
    ] {
        let output = within(4000, here, &command);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("GB of memory") && said.contains(fits), "{command}: {said}");
        assert!(!here.join("runs").exists(), "a run folder was made");
    }
    let output = within(4000, here, &format!("{train} clicks.tsv --bits 12"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A run went on from an older checkpoint, because the latest one, of a later version, was taken for damaged.
#[test]
fn a_checkpoint_of_a_newer_version_ends_the_resume_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let train = "train --model softmax --data generated:digits --batch-size 8 --no-tensorboard";
    works(here, &format!("{train} --steps 4 --checkpoint-every 2 --out runs"));
    let run = fs::read_dir(here.join("runs")).unwrap().next().unwrap().unwrap().path();
    let manifest = run.join("checkpoints/0000000004/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let newer = text.replacen("\"format\": 1", "\"format\": 2", 1);
    assert_ne!(newer, text);
    fs::write(&manifest, newer).unwrap();
    let said = fails(here, &format!("train --steps 6 --resume {}", run.display()));
    assert!(said.contains("is of format 2") && said.contains("knows format 1"), "{said}");
    assert!(said.contains("or a newer one"), "{said}");
}
