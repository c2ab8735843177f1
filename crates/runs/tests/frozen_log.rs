//! A log written by the first version must stay readable for ever. Add files for later versions;
//! never change an old one.

#![allow(clippy::unwrap_used)]

use paceline_runs::{CheckpointAction, Event, Status, read_events};
use std::path::Path;

#[test]
fn the_log_of_version_1_still_means_the_same() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/events-v1.jsonl");
    let (records, broken) = read_events(&path).unwrap();
    assert_eq!(broken, 0);
    assert_eq!(records.len(), 11);
    assert!(records.iter().all(|record| record.task == "worker/0" && record.event.is_some()));
    let mut seen = [0; 9];
    for record in &records {
        match record.event.as_ref().unwrap() {
            Event::TaskJoined(joined) => {
                seen[0] += 1;
                assert_eq!((joined.role.as_str(), joined.process), ("worker", 4711));
            }
            Event::RunStarted(started) => {
                seen[1] += 1;
                assert_eq!((started.seed, started.planned_steps), (7, Some(6000)));
                assert_eq!((started.parameters, started.global_batch), (7850, 100));
            }
            Event::Step(step) if step.step == 12 => {
                seen[2] += 1;
                assert_eq!((step.loss, step.accuracy, step.steps), (2.25, 0.25, 12));
                assert_eq!(step.phases.compute, 0.0004);
            }
            Event::Step(step) => {
                seen[2] += 1;
                assert!(step.loss.is_nan() && step.accuracy.is_nan());
            }
            Event::WorkerEvaluation(_) | Event::Histograms(_) => {
                unreachable!("version 1 wrote neither")
            }
            Event::Evaluation(evaluation) => {
                seen[3] += 1;
                assert_eq!((evaluation.loss, evaluation.accuracy), (0.5, 0.875));
                assert!(evaluation.best);
            }
            Event::Checkpoint(checkpoint) => {
                seen[4] += 1;
                let refused = checkpoint.action == CheckpointAction::Refused;
                assert_eq!(checkpoint.reason.is_some(), refused);
            }
            Event::Resource(resource) => {
                seen[5] += 1;
                assert_eq!(resource.cpu_cores, 1.5);
            }
            Event::TaskLost(lost) => {
                seen[6] += 1;
                assert_eq!(lost.lost, "worker/1");
            }
            Event::TaskRecovered(recovered) => {
                seen[7] += 1;
                assert_eq!(recovered.seconds, 3.5);
            }
            Event::RunEnded(ended) => {
                seen[8] += 1;
                assert_eq!((ended.status, ended.step), (Status::Done, 6000));
            }
        }
    }
    assert_eq!(seen, [1, 1, 2, 1, 2, 1, 1, 1, 1]);
}
