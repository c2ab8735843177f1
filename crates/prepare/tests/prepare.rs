//! `prepare` as a whole: every photo once, the same bytes always, clear errors.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod support;

use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use paceline_data::{
    OpenOptions, Split,
    manifest::{Manifest, REJECTS},
    open_split,
};
use paceline_prepare::photos::{
    Encoding, Event, Fit, PhotoOptions, PrepareError, RejectLimit, prepare,
};
use paceline_store::LocalStore;
use paceline_tfrecord::{Example, Reader};
use support::{FailingStore, Fault, assert_same, options, photos, run, snapshot};

/// Paths of all records and of all rejects.
fn accounted(dst: &Path) -> (Vec<String>, Vec<String>) {
    let manifest = Manifest::read(&LocalStore::new(dst)).unwrap().expect("a finished folder");
    let mut records = Vec::new();
    for shard in manifest.splits.iter().flat_map(|split| &split.shards) {
        let mut count = 0;
        let mut reader = Reader::open(dst.join(&shard.name)).unwrap();
        while let Some(record) = reader.next_record().unwrap() {
            let example = Example::from_bytes(record).unwrap();
            let name = example.get("image/filename").unwrap().as_bytes()[0].clone();
            records.push(String::from_utf8(name).unwrap());
            count += 1;
        }
        assert_eq!(count, shard.records, "{}", shard.name);
    }
    let rejects = std::fs::read_to_string(dst.join(REJECTS)).unwrap();
    let rejects = rejects.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(!line["reason"].as_str().unwrap().is_empty());
        line["path"].as_str().unwrap().to_owned()
    });
    (records, rejects.collect())
}

/// Each input must be in exactly one record or reject.
fn assert_complete(src: &Path, dst: &Path) {
    let (records, rejects) = accounted(dst);
    let mut out: Vec<_> = records.iter().chain(&rejects).cloned().collect();
    out.sort_unstable();
    let wanted: Vec<String> = snapshot(src).into_keys().collect();
    assert_eq!(out, wanted);
}

#[test]
fn every_photo_is_in_one_shard_or_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 90, 7);
    let summary = run(&src, &dst, &options()).unwrap();
    assert_eq!((summary.photos, summary.rejects, summary.records), (90, 12, 78));
    assert_complete(&src, &dst);
    let names: BTreeSet<String> = snapshot(&dst).into_keys().collect();
    assert!(names.contains("train-00000-of-00005.tfrecord"));
    assert!(names.contains("train-00004-of-00005.tfrecord.index"));
    assert!(names.iter().any(|name| name.starts_with("validation-00000-of-")));
    assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
}

#[test]
fn records_hold_the_standard_fields() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 9, 0);
    let small = PhotoOptions {
        width: 24,
        height: 16,
        shards: 1,
        fit: Fit::Pad,
        encoding: Encoding::Raw,
        ..PhotoOptions::default()
    };
    run(&src, &dst, &small).unwrap();
    let mut reader = Reader::open(dst.join("train-00000-of-00001.tfrecord")).unwrap();
    let example = Example::from_bytes(reader.next_record().unwrap().unwrap()).unwrap();
    let text =
        |name: &str| String::from_utf8(example.get(name).unwrap().as_bytes()[0].clone()).unwrap();
    let number = |name: &str| example.get(name).unwrap().as_ints()[0];
    assert_eq!(example.get("image/encoded").unwrap().as_bytes()[0].len(), 24 * 16 * 3);
    assert_eq!((number("image/width"), number("image/height")), (24, 16));
    assert_eq!((number("image/channels"), text("image/colorspace")), (3, "RGB".into()));
    assert_eq!(text("image/format"), "raw");
    let class = text("image/class/text");
    let label = ["daisy", "rose", "tulip"].iter().position(|name| *name == class).unwrap();
    assert_eq!(number("image/class/label"), label as i64);
    assert!(text("image/filename").starts_with(&class));
}

#[test]
fn threads_and_repetition_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("src");
    photos(&src, 80, 9);
    let snapshots: Vec<_> = [1, 2, 5]
        .into_iter()
        .map(|threads| {
            let dst = dir.path().join(format!("dst{threads}"));
            run(&src, &dst, &PhotoOptions { threads: Some(threads), ..options() }).unwrap();
            snapshot(&dst)
        })
        .collect();
    assert_same(&snapshots[0], &snapshots[1], "1 and 2 threads");
    assert_same(&snapshots[0], &snapshots[2], "1 and 5 threads");
    // A second call finds everything done.
    let again = run(&src, &dir.path().join("dst1"), &options()).unwrap();
    assert_eq!((again.converted, again.records), (0, 72));
    assert_same(&snapshots[0], &snapshot(&dir.path().join("dst1")), "after a second call");
}

/// Whatever the moment, a full or broken disk leaves nothing that is taken for finished, and the next
/// run completes the work to the same bytes.
#[test]
fn failing_writes_are_named_and_survived() {
    let dir = tempfile::tempdir().unwrap();
    let (src, clean) = (dir.path().join("src"), dir.path().join("clean"));
    photos(&src, 40, 9);
    // Two shards: every kind of write comes, and the disk is not asked to sync thousands of times.
    let options = || PhotoOptions { shards: 2, splits: Vec::new(), ..options() };
    run(&src, &clean, &options()).unwrap();
    let wanted = snapshot(&clean);
    let source = LocalStore::new(&src);
    let mut failures = 0;
    for at in 0.. {
        let fault = if at % 2 == 0 { Fault::Full } else { Fault::Broken };
        let dst = dir.path().join(format!("dst{at}"));
        let failing = FailingStore::new(&dst, fault, at);
        let cancel = AtomicBool::new(false);
        let Err(error) = prepare(&source, &failing, &options(), &cancel, &mut |_| {}) else {
            break;
        };
        let PrepareError::Store(store) = &error else { panic!("{error}") };
        assert!(error.to_string().contains(dst.to_str().unwrap()), "{error}");
        assert_eq!(store.is_full(), matches!(fault, Fault::Full));
        let left = snapshot(&dst);
        assert!(!left.contains_key("manifest.json"), "at {at}");
        assert!(left.keys().all(|name| !name.contains("-tmp-")), "at {at}: {:?}", left.keys());
        run(&src, &dst, &options()).unwrap();
        assert_same(&wanted, &snapshot(&dst), &format!("after failing at {at}"));
        failures += 1;
    }
    // Each of plan, shards, indices, reports, rejects and manifest has a create, a write and a commit.
    assert!(failures >= 9 * 3, "{failures}");
}

#[test]
fn cancelled_run_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (src, clean, dst) =
        (dir.path().join("src"), dir.path().join("clean"), dir.path().join("dst"));
    photos(&src, 120, 11);
    run(&src, &clean, &options()).unwrap();
    let cancel = AtomicBool::new(false);
    let one = PhotoOptions { threads: Some(1), shards: 30, ..options() };
    let stores = (LocalStore::new(&src), LocalStore::new(&dst));
    let wanted = dir.path().join("wanted");
    run(&src, &wanted, &one).unwrap();
    // Raised from another thread, as a signal would, until it comes at a time when work is under way.
    for wait in 0..200 {
        cancel.store(false, Ordering::SeqCst);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(wait));
                cancel.store(true, Ordering::SeqCst);
            });
            prepare(&stores.0, &stores.1, &one, &cancel, &mut |_| {})
        });
        match result {
            Err(PrepareError::Cancelled { .. }) => {}
            Err(other) => panic!("{other}"),
            Ok(summary) => {
                assert!(summary.resumed_shards > 0, "never interrupted");
                break;
            }
        }
    }
    assert_same(&snapshot(&wanted), &snapshot(&dst), "after cancellations");
}

#[test]
fn changed_settings_or_source_are_refused_with_names() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 30, 0);
    run(&src, &dst, &options()).unwrap();
    let before = snapshot(&dst);
    let quality = PhotoOptions { encoding: Encoding::Jpeg { quality: 50 }, seed: 12, ..options() };
    let error = run(&src, &dst, &quality).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("quality 90, now jpeg at quality 50"), "{message}");
    assert!(message.contains("seed was 11, now 12"), "{message}");
    assert!(error.hint().unwrap().contains("--fresh"));
    let shards = run(&src, &dst, &PhotoOptions { shards: 3, ..options() }).unwrap_err().to_string();
    assert!(shards.contains("5 shards") && shards.contains("3 shards"), "{shards}");
    std::fs::write(src.join("rose/new.jpg"), support::photo(99, 20, 20)).unwrap();
    let source = run(&src, &dst, &options()).unwrap_err().to_string();
    assert!(source.contains("source was 30 photos"), "{source}");
    assert_same(&before, &snapshot(&dst), "after refusals");
    // Starting over leaves no shard of the old count behind.
    run(&src, &dst, &PhotoOptions { shards: 3, fresh: true, ..options() }).unwrap();
    assert_complete(&src, &dst);
    assert!(!snapshot(&dst).contains_key("train-00004-of-00005.tfrecord"));
}

#[test]
fn unfinished_work_of_other_settings_is_not_mixed() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 40, 0);
    let failing = FailingStore::new(&dst, Fault::Full, 20);
    let cancel = AtomicBool::new(false);
    let source = LocalStore::new(&src);
    prepare(&source, &failing, &options(), &cancel, &mut |_| {}).unwrap_err();
    let other = PhotoOptions { width: 40, ..options() };
    let message = run(&src, &dst, &other).unwrap_err().to_string();
    assert!(message.contains("size was 32x32, now 40x32"), "{message}");
    let summary = run(&src, &dst, &PhotoOptions { fresh: true, ..other }).unwrap();
    assert_eq!((summary.resumed_shards, summary.records), (0, 40));
}

#[test]
fn wrong_places_are_refused_before_any_work() {
    let dir = tempfile::tempdir().unwrap();
    let src = dir.path().join("src");
    photos(&src, 6, 0);
    let before = snapshot(dir.path());
    for dst in [src.clone(), src.join("."), src.join("rose/out"), dir.path().join("x/../src")] {
        let error = run(&src, &dst, &options()).unwrap_err();
        assert!(matches!(error, PrepareError::Overlap { .. }), "{}: {error}", dst.display());
    }
    // A file where a folder should be.
    let file = dir.path().join("src/rose/0001.jpg");
    let message = run(&file, &dir.path().join("dst"), &options()).unwrap_err().to_string();
    assert!(message.contains("0001.jpg"), "{message}");
    assert_same(&before, &snapshot(dir.path()), "after refusals");
    let blocked = dir.path().join("blocked");
    std::fs::write(&blocked, b"a file").unwrap();
    let message = run(&src, &blocked.join("dst"), &options()).unwrap_err().to_string();
    assert!(message.contains("blocked"), "{message}");
}

#[test]
fn foreign_shards_are_never_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 6, 0);
    std::fs::create_dir(&dst).unwrap();
    std::fs::write(dst.join("train-00000-of-00002.tfrecord"), b"precious").unwrap();
    for fresh in [false, true] {
        let error = run(&src, &dst, &PhotoOptions { fresh, ..options() }).unwrap_err();
        assert!(matches!(error, PrepareError::Occupied { .. }), "{error}");
    }
    assert_eq!(std::fs::read(dst.join("train-00000-of-00002.tfrecord")).unwrap(), b"precious");
    assert_eq!(snapshot(&dst).len(), 1);
}

#[test]
fn folders_named_train_and_test_stay_splits() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src.join("train"), 20, 0);
    photos(&src.join("test"), 10, 0);
    let summary = run(&src, &dst, &PhotoOptions { splits: Vec::new(), ..options() }).unwrap();
    let small = OpenOptions { size: Some((8, 8)), ..OpenOptions::default() };
    for split in [Split::Train, Split::Test] {
        let (photos, records) =
            (open_split(&src, split, &small).unwrap(), open_split(&dst, split, &small).unwrap());
        assert_eq!(photos.len(), records.len(), "{split}");
        assert_eq!(photos.schema(), records.schema(), "{split}");
        let made = summary.splits.iter().find(|made| made.name == split.name()).unwrap();
        assert_eq!(made.records, photos.len());
    }
    assert!(!summary.classes.iter().any(|class| class == "train"), "{:?}", summary.classes);
    assert_complete(&src, &dst);
}

#[test]
fn two_at_once_do_not_meet() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 60, 0);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| run(&src, &dst, &options()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(outcomes.iter().any(Result::is_ok));
    for outcome in &outcomes {
        if let Err(error) = outcome {
            assert!(matches!(error, PrepareError::Busy { .. }), "{error}");
        }
    }
    assert_complete(&src, &dst);
}

#[test]
fn too_many_rejects_stop_with_reasons_and_can_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 60, 4);
    let strict = PhotoOptions { max_rejects: Some(RejectLimit::Percent(10.0)), ..options() };
    let error = run(&src, &dst, &strict).unwrap_err();
    let PrepareError::TooManyRejects { rejects: 7, limit: 6, first } = &error else {
        panic!("{error}")
    };
    assert!(first[0].contains(".jpg: "), "{first:?}");
    let exact = PhotoOptions { max_rejects: Some(RejectLimit::Count(15)), ..options() };
    assert_eq!(run(&src, &dst, &exact).unwrap().rejects, 15);
    assert_complete(&src, &dst);
}

#[test]
fn repaired_photos_are_taken_in_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 40, 10);
    let summary = run(&src, &dst, &options()).unwrap();
    assert_eq!(summary.rejects, 4);
    photos(&src, 40, 20); // mends two of the four
    let again = PhotoOptions { retry_rejects: true, ..options() };
    let summary = run(&src, &dst, &again).unwrap();
    assert_eq!((summary.rejects, summary.records), (2, 38));
    assert!(summary.converted < 40, "only shards with rejects are done again");
    assert_complete(&src, &dst);
    let fresh = dir.path().join("fresh");
    run(&src, &fresh, &options()).unwrap();
    assert_same(&snapshot(&fresh), &snapshot(&dst), "retried and fresh");
}

#[test]
fn no_usable_photo_at_all_is_an_error_with_reasons() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 5, 1);
    let error = run(&src, &dst, &options()).unwrap_err();
    assert!(matches!(error, PrepareError::NothingLeft { photos: 5, .. }), "{error}");
    assert_eq!(std::fs::read_to_string(dst.join(REJECTS)).unwrap().lines().count(), 5);
}

#[test]
fn progress_counts_to_the_end_and_doubts_are_voiced() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src/summer"), dir.path().join("dst"));
    photos(&src, 30, 10);
    let (mut last, mut warnings) = (None, Vec::new());
    let stores = (LocalStore::new(dir.path().join("src")), LocalStore::new(&dst));
    prepare(&stores.0, &stores.1, &options(), &AtomicBool::new(false), &mut |event| match event {
        Event::Progress(progress) => last = Some(progress),
        Event::Warning(warning) => warnings.push(warning.to_string()),
        _ => {}
    })
    .unwrap();
    let last = last.unwrap();
    assert_eq!((last.photos, last.total, last.rejects), (30, 30, 3));
    assert_eq!((last.shards, last.total_shards), (8, 8));
    assert!(last.bytes_in > 0 && last.bytes_out > 0);
    assert!(warnings[0].contains("outer folders: summer"), "{warnings:?}");
}

/// Broken, truncated and odd JPEGs: a record or a reject each, the same on every run.
#[test]
fn hostile_photos_are_records_or_rejects() {
    let Some(hostile) = paceline_testing::real_data("jpeg-hostile") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    for (name, bytes) in snapshot(&hostile) {
        let name = format!("odd/{}", name.replace('/', "-"));
        if name.ends_with("jpg") || name.ends_with("jpeg") {
            std::fs::create_dir_all(src.join("odd")).unwrap();
            std::fs::write(src.join(&name), bytes).unwrap();
        }
    }
    std::os::unix::fs::symlink("nowhere", src.join("odd/dangling.jpg")).unwrap();
    let few = PhotoOptions { shards: 3, ..PhotoOptions::default() };
    let summary = run(&src, &dst, &few).unwrap();
    println!("{} hostile photos: {} rejected", summary.photos, summary.rejects);
    assert!(summary.rejects > 5 && summary.records > 0);
    std::fs::remove_file(src.join("odd/dangling.jpg")).unwrap();
    std::fs::write(src.join("odd/dangling.jpg"), b"").unwrap();
    assert_complete(&src, &dst);
    let rejects = std::fs::read_to_string(dst.join(REJECTS)).unwrap();
    assert!(rejects.contains("cannot read: No such file"), "{rejects}");
    assert!(!rejects.contains("please report"), "a decoder panicked: {rejects}");
}
