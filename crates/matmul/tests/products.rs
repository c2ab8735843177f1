//! Traces and products of odd sizes, from seeds and files, stopped and continued.

#![allow(clippy::unwrap_used)]

use paceline_kernels::Isa;
use paceline_matmul::{Input, MatmulError, MatmulSettings, Placement, Work, run};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

fn generated(size: u64, matrix: u64) -> Input {
    Input::Generated { size, seed: 5, matrix }
}

fn settings(left: Input, right: Input, work: Work, block: usize, workers: usize) -> MatmulSettings {
    MatmulSettings {
        left,
        right,
        work,
        block: Some(block),
        memory: 1 << 30,
        workers,
        threads: 2,
        isa: Isa::current().unwrap(),
        verify: true,
        output: None,
        launch: None,
        state: None,
        save_every: Duration::ZERO,
        placement: Placement::default(),
    }
}

fn done(settings: &MatmulSettings) -> paceline_matmul::ProductOutcome {
    let outcome = run(settings, &AtomicBool::new(false), &mut |_| ()).unwrap();
    assert!(outcome.complete);
    outcome
}

/// A file as NumPy would write it.
fn npy(path: &Path, descr: &str, fortran: &str, shape: &str, data: &[u8]) {
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).unwrap();
}

fn singles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect()
}

fn read_back(path: &Path, size: usize) -> Vec<f64> {
    let bytes = fs::read(path).unwrap();
    let data = &bytes[bytes.len() - 4 * size * size..];
    data.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
}

/// Small whole numbers: products are exact.
fn whole_numbers(size: usize, seed: usize) -> Vec<f64> {
    (0..size * size).map(|at| ((at * 31 + seed * 17) % 11) as f64 - 5.0).collect()
}

fn naive(a: &[f64], b: &[f64], size: usize) -> Vec<f64> {
    let mut c = vec![0.0; size * size];
    for i in 0..size {
        for k in 0..size {
            for j in 0..size {
                c[i * size + j] += a[i * size + k] * b[k * size + j];
            }
        }
    }
    c
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The three ways to a trace agree, whatever the blocks and however many work.
    #[test]
    fn every_way_gives_the_same_trace(
        size in 1u64..220,
        block in 1usize..100,
        workers in 1usize..5,
        same in any::<bool>(),
    ) {
        let (left, right) = (generated(size, 0), generated(size, u64::from(!same)));
        let make = |work, block, workers| {
            done(&settings(left.clone(), right.clone(), work, block, workers)).trace
        };
        let identity = make(Work::Identity, block, workers);
        let near = |found: f64| (found - identity).abs() < 1e-4 * (size as f64);
        prop_assert!(near(make(Work::Trace, block, workers)));
        prop_assert!(near(make(Work::Product, block, 1)));
        // The values themselves do not depend on the blocks.
        prop_assert!((make(Work::Identity, 1000, 1) - identity).abs() < 1e-9 * (size as f64));
    }

    /// Files in every form NumPy writes, against a plain loop, to the last bit.
    #[test]
    fn products_of_files_are_exact(
        size in 1usize..70,
        block in 1usize..40,
        doubles in any::<bool>(),
        fortran in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (whole_numbers(size, 1), whole_numbers(size, 2));
        let (a_path, b_path) = (folder.path().join("a.npy"), folder.path().join("b.npy"));
        let shape = format!("({size}, {size})");
        let stored: Vec<f64> = if fortran {
            (0..size * size).map(|at| a[at % size * size + at / size]).collect()
        } else {
            a.clone()
        };
        let bytes: Vec<u8> = if doubles {
            stored.iter().flat_map(|value| value.to_le_bytes()).collect()
        } else {
            singles(&stored)
        };
        let order = if fortran { "True" } else { "False" };
        npy(&a_path, if doubles { "<f8" } else { "<f4" }, order, &shape, &bytes);
        npy(&b_path, "<f4", "False", &shape, &singles(&b));
        let (left, right) = (Input::File(a_path), Input::File(b_path));
        let output = folder.path().join("c.npy");
        let mut settings = settings(left, right, Work::Product, block, 2);
        settings.output = Some(output.clone());
        let outcome = done(&settings);
        let wanted = naive(&a, &b, size);
        prop_assert_eq!(&read_back(&output, size), &wanted);
        let trace: f64 = (0..size).map(|at| wanted[at * size + at]).sum();
        prop_assert_eq!(outcome.trace, trace);
        prop_assert!((outcome.sum - wanted.iter().sum::<f64>()).abs() < 1e-6);
        settings.output = None;
        for work in [Work::Trace, Work::Identity] {
            settings.work = work;
            prop_assert_eq!(done(&settings).trace, trace);
        }
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing is left behind");
    }
}

#[test]
fn numpy_reads_what_we_write() {
    let Some(python) = paceline_testing::python("numpy") else { return };
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("c.npy");
    let mut settings = settings(generated(100, 0), generated(100, 1), Work::Product, 33, 2);
    settings.output = Some(output.clone());
    let trace = done(&settings).trace;
    let script = "import numpy, sys; print(numpy.trace(numpy.load(sys.argv[1]).astype('f8')))";
    let said =
        std::process::Command::new(python).args(["-c", script]).arg(&output).output().unwrap();
    let found: f64 = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
    assert!((found - trace).abs() < 1e-9, "{found} {trace}");
}

#[test]
fn wrong_files_are_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    npy(&file("good.npy"), "<f4", "False", "(3, 3)", &[0; 36]);
    npy(&file("other.npy"), "<f4", "False", "(2, 2)", &[0; 16]);
    npy(&file("short.npy"), "<f4", "False", "(3, 3)", &[0; 35]);
    npy(&file("huge.npy"), "<f4", "False", "(1000000000, 1000000000)", &[0; 36]);
    npy(&file("long.npy"), "<f4", "False", "(18446744073709551615, 18446744073709551615)", &[]);
    npy(&file("oblong.npy"), "<f4", "False", "(9, 1)", &[0; 36]);
    npy(&file("flat.npy"), "<f4", "False", "(9,)", &[0; 36]);
    npy(&file("whole.npy"), "<i4", "False", "(3, 3)", &[0; 36]);
    npy(&file("big.npy"), ">f4", "False", "(3, 3)", &[0; 36]);
    npy(
        &file("nan.npy"),
        "<f4",
        "False",
        "(3, 3)",
        &singles(&[0., 0., 0., 0., 0., f64::NAN, 0., 0., 0.]),
    );
    npy(&file("wide.npy"), "<f8", "False", "(1, 1)", &1e300f64.to_le_bytes());
    fs::write(file("text.npy"), "no matrix at all").unwrap();
    fs::write(file("cut.npy"), b"\x93NUMPY\x01").unwrap();
    let before = fs::read_dir(folder.path()).unwrap().count();
    let attempt = |left: &str, right: &str| {
        let (left, right) = (Input::File(file(left)), Input::File(file(right)));
        // One block, so that nothing is done, and hence kept, before the error.
        let mut settings = settings(left, right, Work::Product, 9, 1);
        settings.output = Some(file("out.npy"));
        settings.state = Some(file("state.json"));
        run(&settings, &AtomicBool::new(false), &mut |_| ()).unwrap_err()
    };
    for (name, needle) in [
        ("short.npy", "has 163 bytes, its header promises 164"),
        ("huge.npy", "header promises"),
        ("long.npy", "a matrix of"),
        ("oblong.npy", "9 x 1"),
        ("flat.npy", "1 dimensions"),
        ("whole.npy", "`<i4`"),
        ("big.npy", "`>f4`"),
        ("text.npy", "not an `.npy` file"),
        ("cut.npy", "not an `.npy` file"),
        ("absent.npy", "cannot read"),
    ] {
        let error = attempt(name, "good.npy");
        assert!(error.to_string().contains(needle) && error.to_string().contains(name), "{error}");
        let error = attempt("good.npy", name);
        assert!(error.to_string().contains(needle), "{error}");
    }
    let error = attempt("good.npy", "other.npy");
    assert!(matches!(error, MatmulError::Sizes { left: 3, right: 2, .. }), "{error}");
    let error = attempt("nan.npy", "good.npy");
    assert!(matches!(error, MatmulError::NotFinite { row: 1, column: 2, .. }), "{error}");
    let error = attempt("wide.npy", "wide.npy");
    assert!(matches!(error, MatmulError::NotFinite { row: 0, column: 0, .. }), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "nothing is left behind");
}

/// Stops after `jobs` jobs.
fn stopped(settings: &MatmulSettings, jobs: usize) -> paceline_matmul::ProductOutcome {
    let stop = AtomicBool::new(false);
    let seen = AtomicUsize::new(0);
    run(settings, &stop, &mut |progress| {
        seen.store(progress.done, Ordering::Relaxed);
        if progress.done >= jobs {
            stop.store(true, Ordering::Relaxed);
        }
    })
    .unwrap()
}

#[test]
fn a_stopped_run_resumes_with_other_workers_and_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    for work in [Work::Trace, Work::Product, Work::Identity] {
        let mut settings = settings(generated(500, 0), generated(500, 1), work, 25, 1);
        settings.threads = 1;
        let whole = done(&settings);
        settings.state = Some(folder.path().join("state.json"));
        if work == Work::Product {
            settings.output = Some(folder.path().join("c.npy"));
        }
        let first = stopped(&settings, 10);
        assert!(!first.complete && (10..400).contains(&first.done), "{}", first.done);
        settings.workers = 3;
        let second = done(&settings);
        assert_eq!(second.resumed, first.done);
        assert_eq!((second.trace, second.sum, second.norm), (whole.trace, whole.sum, whole.norm));
        assert!(!folder.path().join("state.json").exists(), "a finished run keeps no state");
        assert!(!folder.path().join("c.npy.partial").exists());
    }
}

#[test]
fn a_state_of_another_product_or_a_damaged_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let mut first = settings(generated(400, 0), generated(400, 1), Work::Trace, 20, 1);
    first.state = Some(path.clone());
    stopped(&first, 3);
    let attempt = |settings: &MatmulSettings| {
        run(settings, &AtomicBool::new(false), &mut |_| ()).unwrap_err().to_string()
    };
    let with = |change: &dyn Fn(&mut MatmulSettings)| {
        let mut settings = first.clone();
        change(&mut settings);
        attempt(&settings)
    };
    assert!(with(&|s| s.left = generated(400, 7)).contains("the left matrix differs"));
    assert!(with(&|s| s.right = generated(400, 7)).contains("the right matrix differs"));
    assert!(with(&|s| s.work = Work::Identity).contains("what is computed differs"));
    assert!(with(&|s| s.block = Some(40)).contains("the block size differs"));
    let text = fs::read_to_string(&path).unwrap();
    for damaged in [
        text[..text.len() / 2].to_owned(),
        String::new(),
        text.replace("\"version\":1", "\"version\":9"),
        text.replace("\"job\":0", "\"job\":1"),
        text.replace("\"job\":0", "\"job\":4000000"),
    ] {
        fs::write(&path, damaged).unwrap();
        let error = attempt(&first);
        assert!(error.contains("is not a state of this program"), "{error}");
    }
}

#[test]
fn an_output_that_vanished_is_not_taken_for_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(generated(300, 0), generated(300, 1), Work::Product, 20, 1);
    settings.state = Some(folder.path().join("state.json"));
    settings.output = Some(folder.path().join("c.npy"));
    stopped(&settings, 3);
    fs::remove_file(folder.path().join("c.npy.partial")).unwrap();
    let error = run(&settings, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(matches!(error, MatmulError::OutputLost { .. }), "{error}");
}

#[test]
fn an_output_that_cannot_be_written_is_an_error_before_the_work() {
    let mut settings = settings(generated(30, 0), generated(30, 1), Work::Product, 20, 1);
    settings.output = Some(PathBuf::from("/proc/no/such/folder/c.npy"));
    let error = run(&settings, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(matches!(error, MatmulError::Write { .. }), "{error}");
}
