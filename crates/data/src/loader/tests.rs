//! The loader: order, budgets, errors in place, clean ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use paceline_batch::{FeatureKind, ImageShape, LabelKind, Schema};
use proptest::prelude::*;

use super::*;

/// Examples whose three bytes and label say which one they are, some of them broken or slow.
#[derive(Debug)]
struct Numbers {
    schema: Schema,
    count: u64,
    resident: bool,
    broken: fn(u64) -> bool,
    slow: bool,
    panics: bool,
    reads: AtomicU64,
    gate: AtomicBool,
}

fn numbers(count: u64) -> Numbers {
    Numbers {
        schema: Schema {
            features: FeatureKind::Image(ImageShape { height: 1, width: 3, channels: 1 }),
            labels: LabelKind::Classes { names: vec!["a".into(), "b".into()] },
        },
        count,
        resident: false,
        broken: |_| false,
        slow: false,
        panics: false,
        reads: AtomicU64::new(0),
        gate: AtomicBool::new(true),
    }
}

impl Source for Numbers {
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn len(&self) -> u64 {
        self.count
    }
    fn resident(&self) -> bool {
        self.resident
    }
    fn read(&self, index: u64, _: &mut Scratch, pixels: &mut [u8]) -> Result<u32, DataError> {
        while !self.gate.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        if self.slow && index % 7 == 3 {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        if (self.broken)(index) {
            assert!(!self.panics, "a test source that panics");
            let path = format!("shard-{index}").into();
            return Err(DataError::NotIdx { path, found: 7 });
        }
        pixels.copy_from_slice(&(index as u32).to_le_bytes()[..3]);
        Ok(index as u32)
    }
}

fn labels(loader: &mut Loader, most: usize) -> Vec<Vec<u32>> {
    let mut all = Vec::new();
    while let Some(batch) = loader.next_batch().unwrap() {
        let Features::Pixels { values, width: 3 } = &batch.features else { panic!() };
        let from_pixels: Vec<u32> =
            values.chunks_exact(3).map(|p| u32::from_le_bytes([p[0], p[1], p[2], 0])).collect();
        assert_eq!(from_pixels, batch.labels, "pixels and labels must stay together");
        all.push(batch.labels.clone());
        if all.len() == most {
            break;
        }
    }
    all
}

fn options(batch_size: u64) -> LoaderOptions {
    LoaderOptions { batch_size, epochs: Some(2), threads: 3, ..LoaderOptions::default() }
}

#[test]
fn threads_do_not_change_what_is_delivered() {
    let inline = Numbers { resident: true, ..numbers(103) };
    let expected = labels(&mut Loader::new(Arc::new(inline), options(10)).unwrap(), usize::MAX);
    assert_eq!(expected.len(), 22);
    for (threads, prefetch_bytes) in [(1, 1), (1, 10_000), (4, 1), (4, 150), (4, 1 << 20)] {
        let source = Numbers { slow: true, ..numbers(103) };
        let options = LoaderOptions { threads, prefetch_bytes, ..options(10) };
        let mut loader = Loader::new(Arc::new(source), options).unwrap();
        assert_eq!(labels(&mut loader, usize::MAX), expected, "{threads} {prefetch_bytes}");
        assert!(loader.next_batch().unwrap().is_none(), "the end stays the end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn resuming_with_any_worker_count_continues_exactly(
        count in 1_u64..80, size in 1_u64..20, stop in 0_usize..12, workers in 1_u64..5,
        resident: bool,
    ) {
        let source: Arc<dyn Source> = Arc::new(Numbers { resident, ..numbers(count) });
        let run = |worker, workers, start| {
            let options = LoaderOptions { worker, workers, start, ..options(size) };
            Loader::new(Arc::clone(&source), options).unwrap()
        };
        let whole = labels(&mut run(0, 1, Position::default()), usize::MAX);
        let mut first = run(0, 1, Position::default());
        let mut seen = if stop == 0 { Vec::new() } else { labels(&mut first, stop) };
        let start = first.position();
        let mut shares: Vec<Vec<Vec<u32>>> =
            (0..workers).map(|worker| labels(&mut run(worker, workers, start), usize::MAX)).collect();
        for batch in 0..shares[0].len() {
            seen.push(shares.iter_mut().flat_map(|share| share[batch].drain(..)).collect());
        }
        prop_assert_eq!(seen, whole);
    }

    #[test]
    fn growing_batches_lose_and_double_nothing(
        count in 1_u64..100, sizes in proptest::collection::vec(1_u64..30, 1..12), resident: bool,
    ) {
        let source: Arc<dyn Source> = Arc::new(Numbers { resident, ..numbers(count) });
        let mut loader = Loader::new(source, LoaderOptions { epochs: Some(1), ..options(1) }).unwrap();
        let mut seen = Vec::new();
        for size in sizes {
            loader.set_batch_size(size).unwrap();
            seen.extend(labels(&mut loader, 1).into_iter().flatten());
        }
        seen.extend(labels(&mut loader, usize::MAX).into_iter().flatten());
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..count as u32).collect::<Vec<_>>());
    }
}

#[test]
fn an_error_takes_the_place_of_its_batch_and_only_of_that() {
    for resident in [false, true] {
        let source = Numbers { resident, broken: |index| index == 5, ..numbers(12) };
        let options = LoaderOptions { shuffle: Shuffle::None, epochs: Some(1), ..options(4) };
        let mut loader = Loader::new(Arc::new(source), options).unwrap();
        assert_eq!(loader.next_batch().unwrap().unwrap().labels, [0, 1, 2, 3]);
        let error = loader.next_batch().unwrap_err().to_string();
        assert!(error.contains("shard-5"), "{error}");
        assert_eq!(loader.next_batch().unwrap().unwrap().labels, [8, 9, 10, 11]);
        assert!(loader.next_batch().unwrap().is_none());
    }
}

#[test]
fn skipping_keeps_the_others_and_its_budget() {
    for resident in [false, true] {
        let source: Arc<dyn Source> =
            Arc::new(Numbers { resident, broken: |index| index % 4 < 2, ..numbers(12) });
        let start = |most, size| {
            let on_error = OnError::Skip { most };
            let options = LoaderOptions {
                on_error,
                shuffle: Shuffle::None,
                epochs: Some(1),
                ..options(size)
            };
            Loader::new(Arc::clone(&source), options).unwrap()
        };
        let mut patient = start(6, 6);
        assert_eq!(labels(&mut patient, usize::MAX), [vec![2, 3], vec![6, 7, 10, 11]]);
        let names: Vec<u64> = patient.skipped().iter().map(|skipped| skipped.index).collect();
        assert_eq!(names, [0, 1, 4, 5, 8, 9]);
        assert_eq!(labels(&mut start(9, 2), 1), [Vec::<u32>::new()], "an empty batch is a batch");
        let mut strict = start(5, 6);
        assert!(strict.next_batch().is_ok());
        let error = strict.next_batch().unwrap_err();
        assert!(error.to_string().contains("more than 5"), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("shard-9"), "{cause}");
    }
}

#[test]
fn a_panicking_source_is_an_error_not_a_hang() {
    let source = Numbers { broken: |index| index == 1, panics: true, ..numbers(4) };
    let options = LoaderOptions { shuffle: Shuffle::None, ..options(2) };
    let mut loader = Loader::new(Arc::new(source), options).unwrap();
    assert!(loader.next_batch().unwrap_err().to_string().contains("example 1 panicked"));
    assert_eq!(loader.next_batch().unwrap().unwrap().labels, [2, 3]);
}

#[test]
fn prefetch_stays_within_its_bytes() {
    let source = Arc::new(numbers(1000));
    // Each batch of 10 takes 70 bytes, so 150 bytes hold two of them.
    let options = LoaderOptions { prefetch_bytes: 150, ..options(10) };
    let mut loader = Loader::new(Arc::clone(&source) as Arc<dyn Source>, options).unwrap();
    loader.next_batch().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(source.reads.load(Ordering::Relaxed) <= 20);
}

#[test]
fn dropping_a_busy_or_blocked_loader_ends_its_threads() {
    for prefetch_bytes in [1, 1 << 20] {
        let source = Arc::new(Numbers { slow: true, ..numbers(100_000) });
        let options = LoaderOptions { prefetch_bytes, ..options(1000) };
        let mut loader = Loader::new(Arc::clone(&source) as Arc<dyn Source>, options).unwrap();
        loader.next_batch().unwrap();
        drop(loader);
        assert_eq!(Arc::strong_count(&source), 1, "threads still hold the source");
    }
}

#[test]
fn waiting_is_measured_where_it_happens() {
    let begun = Instant::now();
    loop {
        let source = Arc::new(numbers(100));
        source.gate.store(false, Ordering::Relaxed);
        let opener = Arc::clone(&source);
        let mut loader = Loader::new(source as Arc<dyn Source>, options(10)).unwrap();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            opener.gate.store(true, Ordering::Relaxed);
        });
        let asked = Instant::now();
        loader.next_batch().unwrap();
        let (waited, all) = (loader.waited(), asked.elapsed());
        thread.join().unwrap();
        assert!(waited <= all, "{waited:?} of {all:?}");
        // This thread may have come to its wait after the gate was opened.
        if waited >= Duration::from_millis(25) {
            break;
        }
        assert!(begun.elapsed() < paceline_testing::HANG, "{waited:?} of {all:?}");
    }
}

#[test]
fn a_cache_serves_what_fits_and_says_what_does_not() {
    let source = Arc::new(numbers(100));
    let cached = Arc::new(Cached::new(Arc::clone(&source) as Arc<dyn Source>, 3 * 60));
    let options = LoaderOptions { threads: 2, ..options(10) };
    let mut loader = Loader::new(Arc::clone(&cached) as Arc<dyn Source>, options.clone()).unwrap();
    let through = labels(&mut loader, usize::MAX);
    let report = cached.report();
    assert!(!report.fits());
    assert_eq!((report.examples, report.bytes), (60, 180));
    assert_eq!(source.reads.load(Ordering::Relaxed), 100 + 40);
    assert!(cached.remarks()[0].contains("needs 300 bytes, the cache holds 180"));
    let mut plain = Loader::new(Arc::new(numbers(100)), options).unwrap();
    assert_eq!(labels(&mut plain, usize::MAX), through);
}

#[test]
fn impossible_settings_are_refused_before_anything_starts() {
    let new = |count, options| Loader::new(Arc::new(numbers(count)), options).unwrap_err();
    assert!(matches!(new(0, options(4)), DataError::NothingToBatch));
    assert!(matches!(new(9, options(0)), DataError::NoWholeBatch { .. }));
    let lost = LoaderOptions { worker: 3, workers: 3, ..options(4) };
    assert!(matches!(new(9, lost), DataError::NoSuchWorker { .. }));
}
