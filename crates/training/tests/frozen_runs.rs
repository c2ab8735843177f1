//! Run folders as version 0.1 wrote them, stored in `testdata`: they still resume.
//!
//! Made with `paceline train` of that version, on `generated:images?size=4&classes=2&examples=8` and on `rows.svm`.

#![allow(clippy::unwrap_used)]

use paceline_runs::{RunFolder, Status};
use paceline_training::{
    Control, ExamplesPlan, Parts, RunSpec, Silent, Start, TrainError, check_resume,
    rows::{self, DataSpec},
    train,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

fn thawed(name: &str, folder: &Path) -> RunFolder {
    copy(&testdata(name), &folder.join(name));
    RunFolder::open(&folder.join(name)).unwrap()
}

#[test]
fn a_run_on_examples_continues() {
    let folder = tempfile::tempdir().unwrap();
    let run = thawed("examples-0.1", folder.path());
    let mut spec = run.plan::<RunSpec, ExamplesPlan>().unwrap().spec;
    let parts = Parts::open(&spec).unwrap();
    let finished = check_resume(&spec, &parts, &run);
    assert!(matches!(finished, Err(TrainError::Finished { .. })), "{finished:?}");
    spec.stop.epochs = Some(3.0);
    let cancel = AtomicBool::new(false);
    let control = Control { cancel: &cancel, observer: &Silent };
    let summary = train(&spec, &parts, &Start::Resume { run }, &control).unwrap();
    assert_eq!((summary.status, summary.global_steps), (Status::Done, 6));
    assert_eq!((summary.examples, summary.legs.len()), (24, 2));
}

#[test]
fn a_run_on_rows_continues() {
    let folder = tempfile::tempdir().unwrap();
    let run = thawed("rows-0.1", folder.path());
    let mut spec = run.plan::<rows::RowsSpec, rows::RowsPlan>().unwrap().spec;
    spec.data = DataSpec::Read(testdata("rows.svm").to_str().unwrap().to_owned());
    let finished = rows::check_resume(&spec, &run);
    assert!(matches!(finished, Err(TrainError::Finished { .. })), "{finished:?}");
    spec.epochs = 2;
    let cancel = AtomicBool::new(false);
    let control = rows::Control { cancel: &cancel, observer: &rows::Silent };
    let report = rows::learn(&spec, &Start::Resume { run }, &control).unwrap();
    assert_eq!((report.summary.status, report.summary.global_steps), (Status::Done, 30));
    assert_eq!((report.summary.examples, report.progressive.rows), (120, 120));
    assert_eq!(report.summary.legs.len(), 2);
}
