//! Preparing in slices, as an engine does it: any number of workers, attempts and deaths, the same bytes.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod support;

use std::{path::Path, sync::atomic::AtomicBool, thread};

use paceline_prepare::photos::{
    Begun, Origin, PhotoJob, PhotoOptions, PrepareError, Slice, Summary, Worked, work,
};
use paceline_store::{IfExists, LocalStore, Store};
use support::{assert_same, options, photos, run, snapshot};

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

fn slice(lines: &[&String]) -> Slice {
    let text: Vec<&str> = lines.iter().map(|line| line.as_str()).collect();
    Slice::read(&mut text.join("\n").as_bytes()).unwrap()
}

fn do_slice(lines: &[&String]) -> Result<Worked, PrepareError> {
    let slice = slice(lines);
    let (src, dst) = (LocalStore::new(slice.src()), LocalStore::new(slice.dst()));
    work(&src, &dst, &slice, Some(1), &never())
}

/// Begins, lets `workers` have the lines, collects and finishes.
fn distribute(
    src: &Path,
    dst: &Path,
    options: &PhotoOptions,
    workers: impl FnOnce(&[String]),
) -> Result<Summary, PrepareError> {
    let (src, dst) = (LocalStore::new(src), LocalStore::new(dst));
    let Begun::Open(mut job) = PhotoJob::begin(&src, &dst, options, &never(), &mut |_| {})? else {
        panic!("finished already");
    };
    workers(&job.hand_out()?);
    job.collect(&mut |_| {})?;
    job.finish()
}

#[test]
fn slices_in_any_grouping_give_the_bytes_of_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let (src, clean) = (dir.path().join("src"), dir.path().join("clean"));
    photos(&src, 90, 11);
    let whole = run(&src, &clean, &options()).unwrap();
    let wanted = snapshot(&clean);
    for size in [1, 2, 100] {
        let dst = dir.path().join(format!("dst{size}"));
        let summary = distribute(&src, &dst, &options(), |lines| {
            // Last first: the order in which tasks happen to run must not matter.
            for group in lines[1..].chunks(size).rev() {
                let mut slice = vec![&lines[0]];
                slice.extend(group);
                let worked = do_slice(&slice).unwrap();
                assert!(worked.shards.iter().all(|shard| shard.origin == Origin::Made));
            }
        });
        let summary = summary.unwrap();
        assert_eq!((summary.records, summary.rejects), (whole.records, whole.rejects));
        assert_eq!(summary.converted, whole.converted);
        assert_same(&wanted, &snapshot(&dst), &format!("{size} shards a slice"));
    }
}

/// What speculation does: the same slice several times at once.
#[test]
fn attempts_at_the_same_time_neither_double_nor_lose_a_photo() {
    let dir = tempfile::tempdir().unwrap();
    let (src, clean) = (dir.path().join("src"), dir.path().join("clean"));
    photos(&src, 120, 13);
    run(&src, &clean, &options()).unwrap();
    for round in 0..4 {
        let dst = dir.path().join(format!("dst{round}"));
        distribute(&src, &dst, &options(), |lines| {
            let all: Vec<&String> = lines.iter().collect();
            let worked: Vec<Worked> = thread::scope(|scope| {
                let attempts: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| do_slice(&all).unwrap())).collect();
                attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
            });
            let made = worked.iter().flat_map(|worked| &worked.shards);
            let made = made.filter(|shard| shard.origin == Origin::Made).count();
            assert_eq!(made, lines.len() - 1, "each shard is made by exactly one attempt");
        })
        .unwrap();
        assert_same(&snapshot(&clean), &snapshot(&dst), "four attempts at once");
    }
}

#[test]
fn a_later_attempt_goes_on_behind_one_that_died() {
    let dir = tempfile::tempdir().unwrap();
    let (src, clean) = (dir.path().join("src"), dir.path().join("clean"));
    photos(&src, 80, 0);
    run(&src, &clean, &options()).unwrap();
    let dst = dir.path().join("dst");
    distribute(&src, &dst, &options(), |lines| {
        do_slice(&[&lines[0], &lines[1]]).unwrap();
        // Died between the shard and its report, and with a file half written.
        let store = LocalStore::new(&dst);
        let shard = &snapshot(&clean)["train-00001-of-00005.tfrecord"];
        store.write("train-00001-of-00005.tfrecord", shard).unwrap();
        std::mem::forget(store.create("train-00002-of-00005.tfrecord", IfExists::Fail).unwrap());
        let worked = do_slice(&lines.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(worked.shards[0].origin, Origin::Found);
        assert!(worked.shards[1..].iter().all(|shard| shard.origin == Origin::Made));
    })
    .unwrap();
    assert_same(&snapshot(&clean), &snapshot(&dst), "after a death");
}

#[test]
fn a_worker_that_outlives_its_job_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 30, 0);
    let mut late = Vec::new();
    let unfinished = distribute(&src, &dst, &options(), |lines| late = lines.to_vec());
    assert!(
        matches!(unfinished, Err(PrepareError::Unfinished { shards: 6, .. })),
        "{unfinished:?}"
    );
    let before = snapshot(&dst);
    let late: Vec<&String> = late.iter().collect();
    assert!(matches!(do_slice(&late), Err(PrepareError::Over { .. })));
    assert_same(&before, &snapshot(&dst), "after its job");
    // Handed out again with other settings: the old ticket is not valid for it.
    let changed = PhotoOptions { width: 16, fresh: true, ..options() };
    distribute(&src, &dst, &changed, |lines| {
        assert!(matches!(do_slice(&late), Err(PrepareError::Over { .. })));
        do_slice(&lines.iter().collect::<Vec<_>>()).unwrap();
    })
    .unwrap();
    assert!(matches!(do_slice(&late), Err(PrepareError::TargetUnseen { .. })));
}

#[test]
fn attempts_that_see_different_photos_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 30, 0);
    let outcome = distribute(&src, &dst, &options(), |lines| {
        let store = LocalStore::new(&dst);
        store.write("train-00000-of-00005.tfrecord", b"another photo in it").unwrap();
        let error = do_slice(&lines.iter().collect::<Vec<_>>()).unwrap_err();
        assert!(matches!(error, PrepareError::Conflict { .. }), "{error}");
    });
    assert!(matches!(outcome, Err(PrepareError::Unfinished { .. })));
    // The same call puts it right.
    distribute(&src, &dst, &options(), |lines| {
        do_slice(&lines.iter().collect::<Vec<_>>()).unwrap();
    })
    .unwrap();
}

#[test]
fn a_machine_without_the_photos_fails_instead_of_rejecting_them() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 30, 0);
    let _ = distribute(&src, &dst, &options(), |lines| {
        let slice = slice(&lines.iter().collect::<Vec<_>>());
        let target = LocalStore::new(&dst);
        let nowhere = LocalStore::new(dir.path().join("nowhere"));
        let error = work(&nowhere, &target, &slice, Some(1), &never()).unwrap_err();
        assert!(matches!(error, PrepareError::SourceUnseen { .. }), "{error}");
        let error = work(&LocalStore::new(&src), &nowhere, &slice, Some(1), &never()).unwrap_err();
        assert!(matches!(error, PrepareError::TargetUnseen { .. }), "{error}");
        assert!(error.hint().unwrap().contains("every executor"));
    });
}

#[test]
fn retried_rejects_are_made_again_by_slices_too() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 40, 20);
    let first = run(&src, &dst, &options()).unwrap();
    assert_eq!(first.rejects, 2);
    let good = std::fs::read(src.join("daisy/0000.jpg")).unwrap();
    std::fs::write(src.join("rose/0019.jpg"), good).unwrap();
    let again = PhotoOptions { retry_rejects: true, ..options() };
    let second = distribute(&src, &dst, &again, |lines| {
        assert!(lines.len() - 1 < first.splits.iter().map(|split| split.shards).sum());
        do_slice(&lines.iter().collect::<Vec<_>>()).unwrap();
    });
    assert_eq!(second.unwrap().rejects, 1);
}

#[test]
fn text_that_is_not_a_slice_is_named_by_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    photos(&src, 12, 0);
    let _ = distribute(&src, &dst, &options(), |lines| {
        let read = |text: String| Slice::read(&mut text.as_bytes()).unwrap_err().to_string();
        assert!(read(String::new()).contains("cannot read the slice"));
        assert!(read(lines[0].clone()).contains("cannot read the slice"));
        assert!(read("{}".into()).contains("line 1"));
        let (heading, shard) = (&lines[0], &lines[1]);
        assert!(read(format!("{heading}\n{}", &shard[..9])).contains("line 2"));
        assert!(read(format!("{heading}\n{shard}\n{shard}")).contains("line 3"));
        let foreign = heading.replace("paceline 0", "paceline 99");
        assert!(read(format!("{foreign}\n{shard}")).contains("handed out by paceline 99"));
        let label = r#"{"shard":"train-00000-of-00001.tfrecord","photos":[[7,1,"a.jpg"]]}"#;
        assert!(read(format!("{heading}\n{label}")).contains("line 2"));
    });
}
