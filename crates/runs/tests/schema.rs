//! `docs/run-folder.md` and its schema say what the program writes, and nothing that it does not.

#![allow(clippy::unwrap_used)]

use paceline_runs::{
    Checkpoint, CheckpointAction, Evaluation, Event, EventLog, Histograms, Resource, RunEnded,
    RunStarted, Status, Step, TaskJoined, TaskLost, TaskRecovered, Tensor,
};
use paceline_testing::{schema_errors, workspace};
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
