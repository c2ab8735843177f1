//! `crates/cli/python/paceline`: training loops of other programs, recorded in a real interpreter and judged by the real binary.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use support::{json_in, program, said};

/// A loop whose batches take a hundred times as long to come as to be used: on a machine that makes it wait for a core whenever it
/// wakes up, most of its time is still the input's.
const SLOW_INPUT: &str = r#"
import time, paceline
def loader():
    for number in range(24):
        time.sleep(0.15)
        yield number
with paceline.Run("toy", data="numbers", batch_size=32, settings={"learning_rate": 0.5}) as run:
    for number in run.batches(loader()):
        time.sleep(0.002)
        run.step(1 / (number + 1))
"#;

fn script(folder: &Path, text: &str) -> Option<Command> {
    let python = paceline_testing::python("json")?;
    let mut command = Command::new(python);
    command.current_dir(folder).args(["-c", text]).stdin(Stdio::null());
    command.env("PYTHONPATH", paceline_testing::workspace().join("crates/cli/python"));
    command.env("PACELINE", program());
    Some(command)
}

fn runs(folder: &Path) -> Value {
    json_in(folder, &["runs", "--json"])
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    let runs = paceline_runs::list(&folder.join("runs")).unwrap();
    runs.iter().flat_map(|run| run.event_files().unwrap()).collect()
}

#[test]
fn a_python_loop_is_judged_and_its_events_are_as_the_schema_says() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut command) = script(folder.path(), SLOW_INPUT) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    let found = runs(folder.path());
    let (run, summary) = (&found[0], &found[0]["summary"]);
    assert_eq!(run["status"], "done", "{run}");
    assert!(run["verdict"].as_str().unwrap().starts_with("input-bound"), "{run}");
    assert_eq!((&summary["global_steps"], &summary["examples"]), (&24.into(), &768.into()));
    assert_eq!((&summary["model"], &summary["data"]), (&"toy".into(), &"numbers".into()));
    for log in logs(folder.path()) {
        let errors = paceline_testing::schema_errors("run-folder.schema.json", &log);
        assert_eq!(errors.unwrap_or_default(), "");
    }
}

#[test]
fn what_was_recorded_is_read_back_as_columns_with_the_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let reading = format!(
        "{SLOW_INPUT}
record = paceline.read(run.path)
columns = record.columns()
assert sum(columns['steps']) == 24 and len({{len(column) for column in columns.values()}}) == 1
assert sum(columns['input_seconds']) > sum(columns['compute_seconds'])
print(record.verdict)
assert 'examples/s' in run._repr_html_()
"
    );
    let Some(mut command) = script(folder.path(), &reading) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("input-bound"), "{output:?}");
}

/// Scoring and saving between and after steps once counted as compute.
#[test]
fn time_of_evaluations_and_of_the_end_is_not_compute() {
    let folder = tempfile::tempdir().unwrap();
    let text = SLOW_INPUT.replace(
        "run.step(1 / (number + 1))",
        "run.step(1 / (number + 1))
        if number % 8 == 7:
            time.sleep(1.0)
            run.evaluation(0.5, 0.9, examples=10, seconds=1.0)",
    );
    let text = text + "    time.sleep(1.0)\n";
    let Some(mut command) = script(folder.path(), &text) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    let found = runs(folder.path());
    let summary = &found[0]["summary"];
    assert_eq!(
        (&summary["global_steps"], &summary["final"]["test_loss"]),
        (&24.into(), &0.5.into())
    );
    // Four seconds of sleeping lie outside the steps, however long these take here.
    let outside = summary["seconds"].as_f64().unwrap() - summary["step_seconds"].as_f64().unwrap();
    assert!(outside >= 3.9, "{outside} s: {summary}");
}

#[test]
fn an_exception_in_the_loop_is_the_reason_of_a_failed_run() {
    let folder = tempfile::tempdir().unwrap();
    let text = SLOW_INPUT.replace("time.sleep(0.002)", "raise ValueError('shapes differ')");
    let Some(mut command) = script(folder.path(), &text) else { return };
    assert!(!command.output().unwrap().status.success());
    let found = runs(folder.path());
    assert_eq!(found[0]["status"], "failed", "{found}");
    assert_eq!(found[0]["verdict"], "ValueError: shapes differ", "{found}");
}

#[test]
fn a_killed_script_leaves_a_run_that_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let text = SLOW_INPUT.replace("range(24)", "range(10**9)").replace(
        "run.step(1 / (number + 1))",
        "run.step(1 / (number + 1)); print(number, flush=True)",
    );
    let Some(mut command) = script(folder.path(), &text) else { return };
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while logs(folder.path()).first().is_none_or(|log| {
        let text = fs::read_to_string(log).unwrap();
        text.lines().filter(|line| line.contains("\"step\"")).count() < 8
    }) {
        lines.next().unwrap().unwrap();
    }
    assert_eq!(runs(folder.path())[0]["status"], "running");
    child.kill().unwrap();
    child.wait().unwrap();
    let found = runs(folder.path());
    assert_eq!(found[0]["status"], "died");
    assert!(found[0]["verdict"].as_str().unwrap().contains("input-bound"), "{found}");
}

#[test]
fn ranks_of_one_launcher_meet_in_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let ranks: Option<Vec<Command>> = (0..2).map(|_| script(folder.path(), SLOW_INPUT)).collect();
    let Some(ranks) = ranks else { return };
    let started: Vec<_> = ranks
        .into_iter()
        .enumerate()
        .map(|(rank, mut command)| {
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").spawn().unwrap()
        })
        .collect();
    for mut child in started {
        assert!(child.wait().unwrap().success());
    }
    let found = runs(folder.path());
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    let summary = &found[0]["summary"];
    assert_eq!(summary["workers"].as_array().unwrap().len(), 2, "{summary}");
    assert_eq!(summary["examples"], 768, "the batch is divided over the ranks: {summary}");
}

/// A disk that cannot be written must not end a training.
#[test]
fn recording_that_fails_is_one_warning_and_the_training_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("runs"), "a file, not a folder").unwrap();
    let Some(mut command) = script(folder.path(), SLOW_INPUT) else { return };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output).matches("paceline stops recording").count(), 1, "{}", said(&output));
}

/// Loader workers inherit the recorder by a fork or import the script again; only the training itself is recorded.
#[test]
fn forked_and_spawned_workers_leave_no_steps_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
import multiprocessing, os, paceline
if __name__ == "__main__":
    with paceline.Run("toy", batch_size=4) as run:
        for kind in ("fork", "spawn"):
            with multiprocessing.get_context(kind).Pool(2) as pool:
                for number in run.batches(pool.imap(abs, range(20))):
                    run.step(0.5)
        child = os.fork()
        if child == 0:
            for _ in range(50):
                run.step(9.0)
            run.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
"#;
    fs::write(folder.path().join("train.py"), text).unwrap();
    let Some(python) = paceline_testing::python("json") else { return };
    // A spawned worker imports the main module by its file.
    let mut command = Command::new(python);
    command.arg("train.py").current_dir(folder.path()).stdin(Stdio::null());
    command.env("PYTHONPATH", paceline_testing::workspace().join("crates/cli/python"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let found = runs(folder.path());
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(
        (&found[0]["status"], &found[0]["summary"]["global_steps"]),
        (&"done".into(), &40.into())
    );
    assert_eq!(logs(folder.path()).len(), 1);
}
