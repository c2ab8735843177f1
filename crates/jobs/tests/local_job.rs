//! Jobs started through the library. This executable is also what their tasks run, hence a `main` of its own.

#![allow(clippy::print_stdout, clippy::unwrap_used)] // a test, which clippy cannot see without cargo's harness

use paceline_jobs::{Job, JobError, JobNotice, Work, run_if_launched, run_in_process};
use paceline_runs::{Event, Status};
use paceline_training::rows::{DataSpec, RowsSpec, Tasks};
use paceline_training::{RunSpec, Start, Stop};
use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

/// A test and its name.
type Case = (&'static str, fn(&Path));

const CASES: &[Case] = &[
    ("two_workers_train_together_and_tell_of_it", two_workers_train_together_and_tell_of_it),
    ("a_finished_job_says_so_when_it_is_resumed", a_finished_job_says_so_when_it_is_resumed),
    ("a_server_and_two_workers_learn_from_rows", a_server_and_two_workers_learn_from_rows),
    ("an_evaluator_scores_held_out_rows", an_evaluator_scores_held_out_rows),
    ("a_task_that_fails_is_named_with_its_words", a_task_that_fails_is_named_with_its_words),
    ("a_strategy_of_one_process_is_refused", a_strategy_of_one_process_is_refused),
    ("a_program_that_is_missing_is_named", a_program_that_is_missing_is_named),
    ("one_process_needs_no_other", one_process_needs_no_other),
];

fn main() -> ExitCode {
    if let Some(exit) = run_if_launched() {
        return exit;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.iter().find(|argument| !argument.starts_with('-'));
    let listed = arguments.iter().any(|argument| argument == "--list");
    for (name, case) in CASES {
        if wanted.is_some_and(|wanted| !name.contains(wanted.as_str())) {
            continue;
        }
        if listed {
            println!("{name}: test");
            continue;
        }
        // A panic ends the process, with a code that cargo sees.
        case(tempfile::tempdir().unwrap().path());
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn digits(steps: u64) -> RunSpec {
    RunSpec {
        strategy: "multi-worker".to_owned(),
        batch_size: 16,
        stop: Stop { steps: Some(steps), ..Stop::default() },
        ..RunSpec::new("softmax", "generated:digits?examples=64")
    }
}

fn two_workers_train_together_and_tell_of_it(folder: &Path) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = Arc::clone(&heard);
    let observer = move |notice: JobNotice| ears.lock().unwrap().push(notice);
    let outcome = Job::local(2).out(folder).observer(Arc::new(observer)).run(digits(6)).unwrap();
    let summary = outcome.result.summary();
    assert_eq!((summary.status, summary.global_steps), (Status::Done, 6));
    let names: Vec<&str> = summary.workers.iter().map(|worker| &*worker.task).collect();
    assert_eq!(names, ["worker/0", "worker/1"]);
    assert_eq!(outcome.run.path().parent(), Some(folder));
    for log in ["worker-0.log", "worker-1.log"] {
        assert!(outcome.run.path().join("logs").join(log).is_file(), "{log}");
    }
    let heard = heard.lock().unwrap();
    let begun = heard.iter().filter(|notice| {
        matches!(notice, JobNotice::Started { plan, run, first_step: 0 }
            if plan.details.workers == 2 && run == outcome.run.path())
    });
    assert_eq!(begun.count(), 1, "{heard:?}");
    let scored = |notice: &JobNotice| matches!(notice, JobNotice::Evaluated(_));
    assert!(heard.iter().any(scored), "{heard:?}");
}

fn a_finished_job_says_so_when_it_is_resumed(folder: &Path) {
    let outcome = Job::local(2).out(folder).run(digits(3)).unwrap();
    let start = Start::Resume { run: outcome.run };
    let error = Job::local(2).start(start.clone()).run(digits(3)).unwrap_err();
    assert!(error.is_finished(), "{error}");
    let further = Job::local(2).start(start).run(digits(5)).unwrap();
    assert_eq!(further.result.summary().global_steps, 5);
}

/// Rows of which one feature says all, for two workers and a server.
fn rows(folder: &Path) -> RowsSpec {
    for file in ["a.txt", "b.txt"] {
        let mut text = String::new();
        for row in 0..200 {
            let label = if row % 2 == 0 { "1" } else { "-1" };
            writeln!(text, "{label} |f side_{} row_{}", row % 2, row % 7).unwrap();
        }
        fs::write(folder.join(file), text).unwrap();
    }
    let list = ["a.txt", "b.txt"].map(|file| folder.join(file).display().to_string());
    let data = DataSpec::Read(list.join(","));
    let mut spec = RowsSpec::new(data, "ftrl").unwrap();
    spec.format = Some("vw".to_owned());
    spec.hashing.bits = 12;
    spec.batch_size = 8;
    spec.tasks = Some(Tasks {
        strategy: "ps-sync".to_owned(),
        workers: 2,
        servers: 1,
        transfer: Default::default(),
        on_loss: Default::default(),
        steps: None,
        evaluator: false,
    });
    spec
}

fn a_server_and_two_workers_learn_from_rows(folder: &Path) {
    let outcome = Job::local(2).servers(1).out(folder).run(rows(folder)).unwrap();
    let paceline_jobs::JobResult::Rows(report) = &outcome.result else { panic!("another result") };
    assert_eq!(report.summary.examples, 400);
    assert_eq!(report.summary.workers.len(), 2);
}

/// Nothing but a score ends this run before its time, and no task but the evaluator scores while it trains.
fn an_evaluator_scores_held_out_rows(folder: &Path) {
    let mut spec = rows(folder);
    (spec.epochs, spec.eval_every, spec.until_loss) = (100_000_000, Some(400), Some(0.3));
    spec.test = Some(folder.join("a.txt").display().to_string());
    if let Some(tasks) = &mut spec.tasks {
        tasks.evaluator = true;
    }
    let outcome = Job::local(2).servers(1).out(folder).run(spec).unwrap();
    let summary = outcome.result.summary();
    assert_eq!(summary.status, Status::Done);
    assert!(summary.reached.is_some() && summary.last.test_loss < 0.3, "{summary:?}");
    let (records, _) = outcome.run.events().unwrap();
    let scores: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.event {
            Some(Event::Evaluation(score)) => Some(score),
            _ => None,
        })
        .collect();
    let (last, before) = scores.split_last().expect("scores in the log");
    // All tasks have stopped by then, so the servers give the last word.
    assert_eq!((last.scored_by.as_deref(), last.examples), (None, 200), "{scores:?}");
    assert!(!before.is_empty(), "{scores:?}");
    for score in before {
        assert_eq!(score.scored_by.as_deref(), Some("evaluator/0"), "{scores:?}");
        assert_eq!(score.examples, 200, "{scores:?}");
        assert!(score.loss.is_finite() && score.auc.is_some(), "{scores:?}");
    }
}

fn a_task_that_fails_is_named_with_its_words(folder: &Path) {
    let mut spec = digits(50);
    spec.learning_rate = Some(1e30);
    let JobError::Tasks(failed) = Job::local(2).out(folder).run(spec).unwrap_err() else {
        panic!("another error")
    };
    let words = failed.last_words().expect("a task that diverges says so");
    assert_eq!(failed.exit(), words.exit);
    assert_eq!(words.exit, 1, "{failed}");
    assert!(failed.to_string().contains(&words.error), "{failed}");
}

fn a_strategy_of_one_process_is_refused(folder: &Path) {
    let spec = RunSpec { strategy: "one-device".to_owned(), ..digits(3) };
    let error = Job::local(2).out(folder).run(spec).unwrap_err();
    assert!(matches!(error, JobError::OneProcess { strategy: "one-device" }), "{error}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "no trace of it");
}

fn a_program_that_is_missing_is_named(folder: &Path) {
    let error = Job::local(2).out(folder).program(Path::new("/no/such/program")).run(digits(3));
    let error = error.unwrap_err();
    assert!(matches!(error, JobError::Launch(_)), "{error}");
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}

fn one_process_needs_no_other(folder: &Path) {
    let work = Work::from(RunSpec { strategy: "one-device".to_owned(), ..digits(3) });
    let heard = Mutex::new(0);
    let observer = |notice: JobNotice| {
        if matches!(notice, JobNotice::Started { .. }) {
            *heard.lock().unwrap() += 1;
        }
    };
    let start = Start::New { out: folder.to_path_buf() };
    let outcome = run_in_process(&work, &start, &AtomicBool::new(false), &observer).unwrap();
    assert_eq!(outcome.result.summary().global_steps, 3);
    assert!(outcome.run.resources_path("worker/0").is_file());
    assert_eq!(*heard.lock().unwrap(), 1);
}
