//! `docs/run-folder.md` and its schema say what the program writes, and nothing that it does not.

#![allow(clippy::unwrap_used)]

use paceline_runs::{
    Checkpoint, CheckpointAction, Diagnosis, Evaluation, Event, EventLog, Histograms, Learning,
    Leg, Machine, PhaseTimes, Reached, Resource, RunEnded, RunFolder, RunStarted, Status, Step,
    Summary, TaskJoined, TaskLoad, TaskLost, TaskRecovered, Tensor, WorkerSummary,
};
use paceline_testing::{schema_errors, unlisted_fields, workspace};
use std::fs;
use std::path::Path;

const SCHEMA: &str = "run-folder.schema.json";

/// One event of each kind with every field in it.
fn all() -> [Event; 11] {
    let text = || "text".to_owned();
    let evaluation = Evaluation {
        auc: Some(0.5),
        normalised_entropy: Some(1.0),
        scored_by: Some(text()),
        ..Evaluation::default()
    };
    [
        Event::RunStarted(RunStarted {
            data: text(),
            framework: text(),
            settings: serde_json::json!({ "optimizer": "AdamW" }),
            planned_steps: Some(10),
            ..RunStarted::default()
        }),
        Event::TaskJoined(TaskJoined { clock_offset: Some(0.1), ..TaskJoined::default() }),
        Event::Step(Step { step: 1, steps: 1, loss: f64::NAN, ..Step::default() }),
        Event::Evaluation(evaluation.clone()),
        Event::WorkerEvaluation(evaluation),
        Event::Histograms(Histograms {
            step: 1,
            tensors: vec![Tensor { name: text(), min: -1.0, max: 1.0, counts: vec![3, 4] }],
        }),
        Event::Resource(Resource::default()),
        Event::Checkpoint(Checkpoint {
            action: CheckpointAction::Saved,
            step: 1,
            seconds: 0.1,
            bytes: 1,
            reason: Some(text()),
        }),
        Event::TaskLost(TaskLost::default()),
        Event::TaskRecovered(TaskRecovered::default()),
        Event::RunEnded(RunEnded { status: Status::Done, ..RunEnded::default() }),
    ]
}

#[test]
fn every_field_that_is_written_is_in_the_document_and_in_the_schema() {
    let document = fs::read_to_string(workspace().join("docs/run-folder.md")).unwrap();
    let schema: serde_json::Value =
        serde_json::from_slice(&fs::read(workspace().join("docs").join(SCHEMA)).unwrap()).unwrap();
    let mut fields = 0;
    for event in all() {
        let written = serde_json::to_value(&event).unwrap();
        let kind = written["kind"].as_str().unwrap();
        assert!(document.contains(&format!("| `{kind}` |")), "{kind}");
        let rules = schema["allOf"].as_array().unwrap();
        let rule = rules.iter().find(|rule| rule["if"]["properties"]["kind"]["const"] == kind);
        let known = &rule.unwrap()["then"]["properties"]["data"]["properties"];
        for (field, _) in written["data"].as_object().unwrap() {
            assert!(document.contains(&format!("`{field}`")), "{kind}: {field}");
            assert!(known.get(field).is_some(), "{kind}: {field}");
            fields += 1;
        }
        let written = written["data"].as_object().unwrap();
        for (field, _) in known.as_object().unwrap() {
            assert!(written.contains_key(field), "{kind}: nothing writes {field}");
        }
    }
    assert!(fields > 50, "{fields}");
}

/// A value with every field in it, as the program writes it: the fields that are left out where there is nothing to say are put in.
fn full_summary() -> Summary {
    let worker = WorkerSummary {
        test_loss: Some(0.5),
        test_accuracy: Some(0.5),
        ..WorkerSummary::default()
    };
    Summary {
        status: Status::Done,
        legs: vec![Leg::default()],
        learning: Some(Learning::default()),
        reached: Some(Reached::default()),
        phases: PhaseTimes { recovery: 0.5, ..PhaseTimes::default() },
        workers: vec![worker],
        diagnosis: Some(Diagnosis::default()),
        tasks: vec![TaskLoad::default()],
        ..Summary::default()
    }
}

/// Fields of runs on rows alone, which another crate writes, and their parts.
const OF_ROWS: [&str; 9] = [
    "progressive",
    "held_out",
    "nonzero",
    "rejected",
    "bytes",
    "bytes_per_second",
    "delay",
    "most_behind",
    "exchange",
];

#[test]
fn every_field_of_a_summary_and_of_a_machine_is_in_document_and_schema_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::create(folder.path(), "lenet", "one-device").unwrap();
    run.write_summary(&full_summary()).unwrap();
    run.write_machine(&Machine { command: "train".to_owned(), ..Machine::default() }).unwrap();
    let document = fs::read_to_string(workspace().join("docs/run-folder.md")).unwrap();
    for name in ["summary", "machine"] {
        let schema = format!("run-folder.{name}.schema.json");
        let path = run.path().join(format!("{name}.json"));
        let written: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(unlisted_fields(&schema, &written), [""; 0], "{name}");
        let rules = fs::read(workspace().join("docs").join(&schema)).unwrap();
        let rules: serde_json::Value = serde_json::from_slice(&rules).unwrap();
        for (field, _) in rules["properties"].as_object().unwrap() {
            let said = written.get(field).is_some() || OF_ROWS.contains(&&**field);
            assert!(said, "{name}: nothing writes {field}");
        }
        for (part, place) in [("worker", "workers"), ("leg", "legs"), ("task", "tasks")] {
            for (field, _) in rules["$defs"][part]["properties"].as_object().into_iter().flatten() {
                assert!(written[place][0].get(field).is_some(), "nothing writes {part}.{field}");
            }
        }
        let parts = rules["$defs"].as_object().unwrap().values().chain([&rules]);
        for (field, _) in parts.flat_map(|part| part["properties"].as_object().unwrap()) {
            assert!(document.contains(&format!("| `{field}` |")), "{name}: {field}");
        }
        let Some(errors) = schema_errors(&schema, &path) else { return };
        assert_eq!(errors, "", "{name}");
    }
    // And one that is wrong fails.
    fs::write(run.path().join("summary.json"), r#"{"status":"fine","seconds":-1}"#).unwrap();
    let path = run.path().join("summary.json");
    let errors = schema_errors("run-folder.summary.schema.json", &path).unwrap();
    assert!(errors.contains("fine") && errors.contains("seconds"), "{errors}");
}

#[test]
fn what_is_written_and_the_log_of_version_1_pass_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events-worker-0.jsonl");
    let mut log = EventLog::append(&path, "worker/0").unwrap();
    for event in all() {
        log.write(1.0, &event).unwrap();
    }
    log.flush().unwrap();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/events-v1.jsonl");
    for file in [path, old] {
        let Some(errors) = schema_errors(SCHEMA, &file) else { return };
        assert_eq!(errors, "", "{}", file.display());
    }
}

#[test]
fn lines_that_are_wrong_fail_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("events.jsonl");
    for line in [
        r#"{"v":1,"time":1.0,"task":"worker/0","kind":"step","data":{"seconds":1.0}}"#,
        r#"{"v":1,"time":1.0,"task":"worker/0","kind":"step","data":{"step":1,"seconds":-1.0}}"#,
        r#"{"v":1,"time":"now","task":"worker/0","kind":"run_ended","data":{"status":"done"}}"#,
        r#"{"v":1,"time":1.0,"task":"worker/0","kind":"run_ended","data":{"status":"fine"}}"#,
        r#"{"v":1,"time":1.0,"kind":"run_started","data":{}}"#,
    ] {
        fs::write(&path, format!("{line}\n")).unwrap();
        let Some(errors) = schema_errors(SCHEMA, &path) else { return };
        assert!(!errors.is_empty(), "{line}");
    }
}
