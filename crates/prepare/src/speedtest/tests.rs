//! The speed test end to end on small photos: every measurement kept, resumed exactly, refused when it does not fit.

use std::{collections::BTreeSet, fs};

use super::*;
use crate::{photos, synth};
use paceline_store::{LocalStore, handout::Done};

/// Ten small photos and their records.
fn data() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let photos = synth::PhotosOptions {
        per_class: 2,
        least_side: 24,
        most_side: 40,
        threads: 1,
        ..synth::PhotosOptions::default()
    };
    synth::write_photos(&folder.path().join("photos"), &photos, &|_| {}).unwrap();
    let options = photos::PhotoOptions {
        width: 16,
        height: 16,
        shards: 2,
        ..photos::PhotoOptions::default()
    };
    let (src, dst) = (
        LocalStore::new(folder.path().join("photos")),
        LocalStore::new(folder.path().join("records")),
    );
    photos::prepare(&src, &dst, &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    folder
}

fn settings(data: &Path) -> SpeedTestSettings {
    SpeedTestSettings {
        targets: vec![
            ReadTarget { kind: ReadKind::ImageFiles, path: data.join("photos") },
            ReadTarget { kind: ReadKind::Records, path: data.join("records") },
        ],
        batch_sizes: vec![1, 2],
        batches: vec![1, 3],
        repeats: 3,
        cold: false,
        cache: false,
        seed: 7,
        threads: 2,
        size: None,
        max_pixels: None,
        max_rejects: None,
    }
}

/// The limit of pixels reached training and preparing, but not this test.
#[test]
fn photos_beyond_the_limit_of_pixels_are_rejected() {
    let data = data();
    let folder = tempfile::tempdir().unwrap();
    let mut small = settings(data.path());
    small.targets.truncate(1);
    small.max_rejects = Some(RejectLimit::Count(0));
    run_in(&small, &folder.path().join("usual")).unwrap();
    small.max_pixels = Some(4);
    let error = run_in(&small, &folder.path().join("small")).unwrap_err();
    let told =
        std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    let told: Vec<String> = told.map(ToString::to_string).collect();
    assert!(told.join(": ").contains("reject"), "{told:?}");
}

fn run_in(settings: &SpeedTestSettings, folder: &Path) -> Result<SpeedTestOutcome, SpeedTestError> {
    run(settings, folder, &PageCache::default(), &AtomicBool::new(false), &mut |_| {})
}

/// Stops after some measurements, as Ctrl-C would.
fn run_some(settings: &SpeedTestSettings, folder: &Path, most: u64) -> SpeedTestOutcome {
    let stop = AtomicBool::new(false);
    run(settings, folder, &PageCache::default(), &stop, &mut |progress| {
        stop.store(progress.done >= most, Ordering::Relaxed);
    })
    .unwrap()
}

#[test]
fn every_setting_is_measured_once_per_repetition_in_a_mixed_order() {
    let data = data();
    let out = tempfile::tempdir().unwrap();
    let outcome = run_in(&settings(data.path()), out.path()).unwrap();
    assert!(outcome.complete);
    assert_eq!(outcome.samples.len(), 2 * 2 * 2 * 3);
    let distinct: BTreeSet<_> =
        outcome.samples.iter().map(|s| (s.source, s.batch_size, s.batches, s.repetition)).collect();
    assert_eq!(distinct.len(), outcome.samples.len());
    let sources: Vec<ReadKind> = outcome.samples.iter().map(|sample| sample.source).collect();
    assert!(!sources.is_sorted(), "sources take turns");
    for sample in &outcome.samples {
        assert_eq!(sample.images, sample.batch_size * sample.batches);
        assert_eq!(sample.bytes, sample.images * (16 * 16 * 3 + 4));
        assert!(sample.images_per_second.is_finite() && sample.images_per_second > 0.0);
    }
    let sizes: Vec<(usize, usize)> = outcome.sources.iter().map(|opened| opened.size).collect();
    assert_eq!(sizes, [(16, 16), (16, 16)], "image files are resized to the size of the records");
}

#[test]
fn an_interrupted_test_goes_on_where_it_was() {
    let data = data();
    let out = tempfile::tempdir().unwrap();
    let settings = settings(data.path());
    let first = run_some(&settings, out.path(), 5);
    assert!(!first.complete);
    assert_eq!(first.samples.len(), 5);
    let journal = out.path().join(JOURNAL);
    // A crash in the middle of a line.
    let mut text = fs::read_to_string(&journal).unwrap();
    text.push_str("{\"order\":5,\"source\":\"rec");
    fs::write(&journal, &text).unwrap();
    let second = run_in(&settings, out.path()).unwrap();
    assert!(second.complete);
    assert_eq!(second.resumed, 5);
    assert_eq!(second.samples[..5], first.samples[..]);
    let places: Vec<u64> = second.samples.iter().map(|sample| sample.order).collect();
    assert_eq!(places, (0..24).collect::<Vec<_>>());
    // Nothing is left to measure, and nothing is measured again.
    let before = fs::read_to_string(&journal).unwrap();
    assert_eq!(run_in(&settings, out.path()).unwrap().resumed, 24);
    assert_eq!(fs::read_to_string(&journal).unwrap(), before);
}

#[test]
fn other_settings_are_refused_by_name() {
    let data = data();
    let out = tempfile::tempdir().unwrap();
    run_some(&settings(data.path()), out.path(), 1);
    let changed = SpeedTestSettings { repeats: 9, ..settings(data.path()) };
    let error = run_in(&changed, out.path()).unwrap_err().to_string();
    assert!(error.ends_with("holds a speed test with another repeats: 3 there, 9 now"), "{error}");
}

#[test]
fn a_damaged_journal_names_its_line() {
    let data = data();
    let out = tempfile::tempdir().unwrap();
    let settings = settings(data.path());
    run_some(&settings, out.path(), 3);
    let journal = out.path().join(JOURNAL);
    let text = fs::read_to_string(&journal).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (damage, line) in [
        (text.replacen("\"order\":1", "\"order\":8", 1), 3),
        (format!("{}\nnonsense\n{}\n", lines[0], lines[1]), 2),
        ("\n".to_owned(), 1),
        ("{\"speedtest\":99,\"settings\":{}}\n".to_owned(), 1),
    ] {
        fs::write(&journal, damage).unwrap();
        let error = run_in(&settings, out.path()).unwrap_err();
        assert!(
            matches!(error, SpeedTestError::Damaged { line: found, .. } if found == line),
            "{error}"
        );
    }
}

#[test]
fn two_tests_cannot_share_a_folder_at_once() {
    let data = data();
    let out = tempfile::tempdir().unwrap();
    let settings = settings(data.path());
    let _held = Journal::open(out.path(), &settings).unwrap();
    assert!(matches!(run_in(&settings, out.path()), Err(SpeedTestError::InUse { .. })));
}

#[test]
fn the_cache_serves_every_repetition_but_the_first() {
    let data = data();
    let out = tempfile::tempdir().unwrap();
    let cached = SpeedTestSettings { cache: true, ..settings(data.path()) };
    for sample in run_in(&cached, out.path()).unwrap().samples {
        let wanted = if sample.repetition == 1 { 0 } else { sample.images };
        assert_eq!(sample.cached, wanted, "{sample:?}");
    }
}

#[test]
fn without_root_files_are_dropped_one_by_one() {
    let data = data();
    let out = tempfile::tempdir().unwrap();
    let cold = SpeedTestSettings { cold: true, repeats: 1, ..settings(data.path()) };
    let page_cache = PageCache::with_control(data.path().join("no-such-switch"));
    let outcome =
        run(&cold, out.path(), &page_cache, &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(outcome.cold, Some(ColdMethod::PerFile));
    assert!(!data.path().join("no-such-switch").exists());
}

#[test]
fn a_page_cache_that_cannot_be_dropped_says_what_it_takes() {
    let data = data();
    let page_cache = PageCache::with_control(data.path().join("no-such-switch"));
    let missing = data.path().join("gone.jpg");
    let error = page_cache.drop_all(&[&missing]).unwrap_err().to_string();
    assert!(error.contains("needs root") && error.contains("gone.jpg"), "{error}");
}

#[test]
fn more_examples_than_there_are_is_said_and_measured() {
    let data = data();
    let out = tempfile::tempdir().unwrap();
    let large = SpeedTestSettings {
        batch_sizes: vec![8],
        batches: vec![4],
        repeats: 1,
        ..settings(data.path())
    };
    let outcome = run_in(&large, out.path()).unwrap();
    assert!(outcome.samples.iter().all(|sample| sample.images == 32));
    assert!(outcome.sources.iter().all(|opened| {
        opened.remarks.iter().any(|remark| remark.contains("read more than once"))
    }));
}

#[test]
fn wrong_settings_and_sources_are_told_before_anything_is_written() {
    let data = data();
    let out = data.path().join("out");
    let base = settings(data.path());
    let swapped = vec![ReadTarget { kind: ReadKind::Records, path: data.path().join("photos") }];
    let missing =
        vec![ReadTarget { kind: ReadKind::ImageFiles, path: data.path().join("nowhere") }];
    for (wrong, words) in [
        (
            SpeedTestSettings { batch_sizes: vec![0], ..base.clone() },
            "batch sizes must be at least 1",
        ),
        (SpeedTestSettings { repeats: 0, ..base.clone() }, "repeats must be at least 1"),
        (SpeedTestSettings { threads: 0, ..base.clone() }, "threads must be at least 1"),
        (SpeedTestSettings { targets: vec![], ..base.clone() }, "neither image files nor records"),
        (
            SpeedTestSettings { batches: vec![u64::MAX], ..base.clone() },
            "more than any data set holds",
        ),
        (
            SpeedTestSettings { targets: swapped, ..base.clone() },
            "holds no records, it looks like photos",
        ),
        (SpeedTestSettings { targets: missing, ..base.clone() }, "there is no such file or folder"),
    ] {
        let error = run_in(&wrong, &out).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(!out.exists(), "{words}");
    }
}

#[test]
fn the_order_follows_from_the_seed() {
    let base = settings(Path::new("/data"));
    assert_eq!(plan(&base), plan(&base));
    assert_ne!(plan(&base), plan(&SpeedTestSettings { seed: 8, ..base.clone() }));
    let first_pass: BTreeSet<_> =
        plan(&base)[..8].iter().map(|run| (run.source, run.batch_size, run.batches)).collect();
    assert_eq!(first_pass.len(), 8, "a repetition covers all settings before the next begins");
}

fn measure(lines: &[&String]) -> Result<Done, SpeedTestError> {
    let text: Vec<&str> = lines.iter().map(|line| line.as_str()).collect();
    let text = text.join("\n");
    measure_cells(&mut text.as_bytes(), &PageCache::default(), &AtomicBool::new(false))
}

#[test]
fn cells_measured_elsewhere_become_the_same_journal_and_none_is_measured_twice() {
    let data = data();
    let settings = settings(data.path());
    let out = data.path().join("out");
    // Some were measured here before an engine was called.
    assert_eq!(run_some(&settings, &out, 3).samples.len(), 3);
    let test = Distributed::open(&settings, &out).unwrap();
    let lines = test.hand_out().unwrap();
    assert_eq!(lines.len(), 1 + 8, "two sources, two batch sizes, two numbers of batches");
    assert_eq!(measure(&[&lines[0], &lines[3]]).unwrap(), Done { made: 1, found: 0 });
    assert_eq!(test.progress().unwrap(), (1, 8));
    let missing = Distributed::collect(test).unwrap_err();
    assert!(matches!(missing, SpeedTestError::Unmeasured { .. }), "{missing}");

    // The next call hands out the rest only, and a second attempt finds what is there.
    let test = Distributed::open(&settings, &out).unwrap();
    let rest = test.hand_out().unwrap();
    assert_eq!(rest.len(), 1 + 7);
    let old: Vec<&String> = lines.iter().collect();
    assert!(matches!(measure(&old), Err(SpeedTestError::Over { .. })), "of an earlier call");
    let all: Vec<&String> = [&rest[0]].into_iter().chain(&lines[1..]).collect();
    assert_eq!(measure(&all).unwrap(), Done { made: 7, found: 1 });
    assert_eq!(measure(&all).unwrap(), Done { made: 0, found: 8 });
    test.collect().unwrap();
    assert!(!out.join("cells").exists());
    let outcome = run_in(&settings, &out).unwrap();
    assert!(outcome.complete);
    assert_eq!(outcome.resumed, 24);
    assert!(outcome.samples[..3].iter().all(|sample| sample.host.is_none()));
    assert!(outcome.samples[3..].iter().all(|sample| sample.host.is_some()));
}

#[test]
fn cells_of_another_test_are_not_taken_for_ours() {
    let data = data();
    let settings = settings(data.path());
    let out = data.path().join("out");
    let test = Distributed::open(&settings, &out).unwrap();
    let lines = test.hand_out().unwrap();
    measure(&[&lines[0], &lines[1]]).unwrap();
    drop(test);
    fs::remove_file(out.join(JOURNAL)).unwrap();
    let changed = SpeedTestSettings { seed: 8, ..settings };
    let test = Distributed::open(&changed, &out).unwrap();
    assert_eq!(test.hand_out().unwrap().len(), 1 + 8, "the old cell is to be measured again");
    assert!(matches!(measure(&[]), Err(SpeedTestError::BadWork { line: 1 })));
    let junk = "{".to_owned();
    assert!(matches!(measure(&[&lines[0], &junk]), Err(SpeedTestError::BadWork { line: 2 })));
    let elsewhere = lines[0].replace("/out", "/nowhere");
    assert!(matches!(measure(&[&elsewhere, &lines[1]]), Err(SpeedTestError::FolderUnseen { .. })));
}
