//! `paceline.Loader` and `paceline.TFRecordReader`: batches and records in a real interpreter, without copies, from the real binary.

#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};
use support::{program, run_in, said};

const PREFIX: &str = "
import gc, os, sys, paceline
import numpy as np
DATA = 'generated:digits?examples=103&seed=4'
def all_of(loader):
    return [(images.copy(), labels.copy()) for images, labels in loader]
def same(a, b):
    return len(a) == len(b) and all(np.array_equal(x[0], y[0]) and np.array_equal(x[1], y[1]) for x, y in zip(a, b))
";

/// Runs a script with NumPy; nothing where there is none.
fn python(folder: &Path, text: &str) -> Option<Output> {
    let python = paceline_testing::python("numpy")?;
    let mut command = Command::new(python);
    command.current_dir(folder).args(["-c", &format!("{PREFIX}{text}")]).stdin(Stdio::null());
    command.env("PYTHONPATH", paceline_testing::workspace().join("crates/cli/python"));
    command.env("PACELINE", program());
    Some(command.output().unwrap())
}

#[track_caller]
fn works(folder: &Path, text: &str) {
    if let Some(output) = python(folder, text) {
        assert!(output.status.success(), "{}", said(&output));
    }
}

#[test]
fn batches_are_arrays_in_an_order_that_the_number_of_workers_does_not_change() {
    let folder = tempfile::tempdir().unwrap();
    works(
        folder.path(),
        "
with paceline.Loader(DATA, batch_size=20, seed=7) as loader:
    assert (loader.examples, len(loader), loader.shape) == (103, 6, (28, 28, 1)), vars(loader)
    assert len(loader.classes) == 10
    first, second = all_of(loader), all_of(loader)
    assert loader.epoch == 2
assert [len(labels) for _, labels in first] == [20] * 5 + [3]
images, labels = first[0]
assert images.dtype == np.uint8 and images.shape == (20, 28, 28, 1) and labels.dtype == np.int64
assert images.max() > 100 and len(set(labels.tolist())) > 1
assert not same(first, second), 'every epoch has an order of its own'
with paceline.Loader(DATA, batch_size=20, seed=7, threads=1, prefetch=1) as again:
    assert same(first, all_of(again))
parts = [paceline.Loader(DATA, batch_size=20, seed=7, worker=number, workers=3) for number in range(3)]
shares = [all_of(part) for part in parts]
together = [tuple(np.concatenate([share[i][kind] for share in shares]) for kind in (0, 1)) for i in range(6)]
assert same(first, together)
",
    );
}

#[test]
fn a_loader_resumes_exactly_where_another_was() {
    let folder = tempfile::tempdir().unwrap();
    works(
        folder.path(),
        "
import json
whole = paceline.Loader(DATA, batch_size=20, seed=7)
expected = [all_of(whole), all_of(whole)]
before = paceline.Loader(DATA, batch_size=20, seed=7)
seen = []
for number, (images, labels) in enumerate(before):
    seen.append((images.copy(), labels.copy()))
    if number == 3:
        state = json.loads(json.dumps(before.state_dict()))
        break
after = paceline.Loader(DATA, batch_size=20, seed=7)
after.load_state_dict(state)
assert same(seen + all_of(after), expected[0])
assert same(all_of(after), expected[1])
try:
    paceline.Loader(DATA, batch_size=20, seed=8).load_state_dict(state)
except ValueError as error:
    assert 'seed' in str(error)
else:
    raise AssertionError('another seed has another order')
",
    );
}

/// The arrays are views of what the program wrote: none is changed while it is kept, and memory is used again when it is not.
#[test]
fn arrays_are_not_copied_and_their_memory_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    works(
        folder.path(),
        "
loader = paceline.Loader(DATA, batch_size=10, seed=1, prefetch=2)
kept = list(loader)
copies = [(images.copy(), labels.copy()) for images, labels in kept]
assert not kept[0].images.flags.owndata and kept[0].images.flags['W']
assert np.shares_memory(np.from_dlpack(kept[0].images), kept[0].images)
slots = len(loader._feed._slots)
assert slots >= len(kept) == 11
view = kept[3].images[2:4]          # a view of a view holds the slot too
expected = view.copy()
addresses = {batch.images.ctypes.data for batch in kept}
del kept
for epoch in range(20):
    for images, labels in loader:
        assert epoch == 0 or images.ctypes.data != view.ctypes.data - 2 * 784
assert np.array_equal(view, expected)
assert len(loader._feed._slots) == slots, 'no more memory than was held at once'
assert {images.ctypes.data for images, labels in loader} <= addresses | {m.images.ctypes.data for m in loader}
process = loader._feed._process
loader.close()
assert process.returncode is not None and np.array_equal(view, expected)
",
    );
}

/// The program ends with the process that reads from it, whatever becomes of that.
#[test]
fn no_process_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let text = "
loader = paceline.Loader(DATA, batch_size=10)
next(iter(loader))
print(loader._feed._process.pid, flush=True)
os.kill(os.getpid(), 9)
";
    let Some(output) = python(folder.path(), text) else { return };
    let process = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(!process.is_empty(), "{}", said(&output));
    let state = format!("/proc/{process}/stat");
    // Its input has ended; a process that is not waited for yet is a zombie.
    while fs::read_to_string(&state).is_ok_and(|text| !text.contains(") Z ")) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn what_is_wrong_with_the_data_is_an_exception_with_the_programs_words() {
    let folder = tempfile::tempdir().unwrap();
    works(
        folder.path(),
        "
try:
    paceline.Loader('nowhere')
except RuntimeError as error:
    assert 'nowhere' in str(error), error
else:
    raise AssertionError
",
    );
}

#[test]
fn records_are_views_of_their_files_with_checksums_compared() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let made = run_in(here, &["data", "synth", "photos", "photos", "--per-class", "3"]);
    assert!(made.status.success(), "{}", said(&made));
    let made = run_in(here, &["prepare", "photos", "shards", "--size", "32", "--shards", "2"]);
    assert!(made.status.success(), "{}", said(&made));
    works(
        here,
        "
import glob, gzip, struct
paths = sorted(glob.glob('shards/*.tfrecord*'))
paths = [path for path in paths if not path.endswith(('.index', '.json'))]
def plainly(path):
    data, at = open(path, 'rb').read(), 0
    while at < len(data):
        (length,) = struct.unpack_from('<Q', data, at)
        yield data[at + 12 : at + 12 + length]
        at += length + 16
expected = [record for path in paths for record in plainly(path)]
reader = paceline.TFRecordReader(*paths)
assert len(reader) == len(expected) == 15, len(reader)
assert [bytes(record) for record in reader] == expected
assert bytes(reader[-1]) == expected[-1] and bytes(reader[8]) == expected[8]
assert isinstance(reader[0], memoryview) and np.frombuffer(reader[0], np.uint8).base is not None
with gzip.open('packed.tfrecord.gz', 'wb') as out:
    out.write(open(paths[0], 'rb').read())
packed = paceline.TFRecordReader('packed.tfrecord.gz', paths[1])
assert [bytes(record) for record in packed] == expected
broken = bytearray(open(paths[0], 'rb').read())
broken[40] ^= 1
open('broken.tfrecord', 'wb').write(broken)
try:
    paceline.TFRecordReader('broken.tfrecord')
except RuntimeError as error:
    assert 'checksum' in str(error) and 'broken.tfrecord' in str(error), error
else:
    raise AssertionError
batch = next(iter(paceline.Loader('shards', batch_size=5)))
assert batch.images.shape == (5, 32, 32, 3)
",
    );
}
