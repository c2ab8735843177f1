//! Flags that change how a model learns, through the real binary: each has its effect, and none depends on chance.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::{fs, path::Path};
use support::{json_in, run_in, said};

const DIGITS: &str = "generated:digits?examples=600";

/// A run with these words.
fn train(folder: &Path, rest: &str) -> Value {
    let words = format!("train --data {DIGITS} --no-tensorboard --json {rest}");
    json_in(folder, &words.split(' ').collect::<Vec<_>>())
}

fn number(summary: &Value, pointer: &str) -> f64 {
    summary.pointer(pointer).and_then(Value::as_f64).unwrap_or(f64::NAN)
}

#[test]
fn augmentation_is_the_same_for_one_worker_and_three_and_spares_held_out_examples() {
    let folder = tempfile::tempdir().unwrap();
    let rest =
        "--model lenet --steps 12 --batch-size 30 --augment crop:0.3,rotate:20,color --seed 4";
    let alone = train(folder.path(), rest);
    let three = train(folder.path(), &format!("{rest} --strategy multi-worker --workers 3"));
    let plain = train(folder.path(), &rest.replace("--augment crop:0.3,rotate:20,color ", ""));
    for figure in ["/final/train_loss", "/final/test_loss"] {
        let (one, other) = (number(&alone, figure), number(&three, figure));
        assert!((one - other).abs() < 1e-3 * one, "{figure}: {one} {other}");
        assert!((one - number(&plain, figure)).abs() > 1e-3 * one, "{figure}: nothing was changed");
    }
}

#[test]
fn epochs_have_as_many_steps_as_asked_for_and_a_share_is_held_out() {
    let folder = tempfile::tempdir().unwrap();
    let rest =
        "--model softmax --steps-per-epoch 5 --epochs 2 --batch-size 20 --validation-split 0.25";
    let summary = train(folder.path(), rest);
    assert_eq!(summary["global_steps"], 10);
    let run = fs::read_dir(folder.path().join("runs")).unwrap().next().unwrap().unwrap().path();
    let plan: Value = serde_json::from_slice(&fs::read(run.join("plan.json")).unwrap()).unwrap();
    assert_eq!(plan["test_split"], "validation");
    let (train, test) = (number(&plan, "/train_examples"), number(&plan, "/test_examples"));
    assert!(test > 0.15 * (train + test) && test < 0.35 * (train + test), "{train} {test}");
    // The part that was held out is known again, and gives the figures of the run.
    let words = ["evaluate", run.to_str().unwrap(), DIGITS, "--latest", "--json"];
    let score = json_in(folder.path(), &words);
    assert_eq!(score["split"], "validation");
    assert_eq!(score["accuracy"], summary["final"]["test_accuracy"]);
}

#[test]
fn a_run_without_a_gain_stops_early_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let rest = "--model softmax --steps 5000 --eval-every 5 --lr 0.9 --stop-after-no-gain 2";
    let summary = train(folder.path(), rest);
    assert!(summary["global_steps"].as_u64().unwrap() < 5000, "{summary}");
    assert!(summary["warnings"].to_string().contains("stopped early"), "{}", summary["warnings"]);
}

#[test]
fn the_objective_changes_what_is_learned() {
    let folder = tempfile::tempdir().unwrap();
    let rest = "--model softmax --epochs 20 --batch-size 50";
    let plain = train(folder.path(), rest);
    let smooth = train(folder.path(), &format!("{rest} --label-smoothing 0.2"));
    // Part of a smoothed label cannot be learned.
    assert!(number(&smooth, "/final/train_loss") > number(&plain, "/final/train_loss") + 0.1);
    let apart = train(folder.path(), &format!("{rest} --loss hinge"));
    assert!(number(&apart, "/final/test_accuracy") > 0.7, "{apart}");
    let weights = "1,1,1,1,1,1,1,1,1,50";
    let nines = train(folder.path(), &format!("{rest} --class-weights {weights}"));
    assert_ne!(nines["final"]["test_loss"], plain["final"]["test_loss"]);
    train(folder.path(), &format!("{rest} --class-weights balanced"));
    let few = format!("train --data {DIGITS} {rest} --class-weights 1,2");
    let output = run_in(folder.path(), &few.split(' ').collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("10 classes"), "{}", said(&output));
}

#[test]
fn weights_start_in_a_range_and_files_that_call_code_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    // So far off that a step cannot have made it.
    let far = train(folder.path(), "--model softmax --steps 1 --lr 0.0001 --init uniform:-10:10");
    assert!(number(&far, "/final/train_loss") > 20.0, "{far}");
    for (init, needle) in [("uniform:3:1", "the lower first"), ("uniform:x", "two numbers")] {
        let words = format!("train --data {DIGITS} --model lenet --steps 1 --init {init}");
        let output = run_in(folder.path(), &words.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains(needle), "{}", said(&output));
    }
    let archive = b"PK\x03\x04 config.json model.weights.h5 PK\x05\x06";
    for (name, bytes) in [("w.h5", &b"\x89HDF\r\n\x1a\n\0\0"[..]), ("w.keras", &archive[..])] {
        fs::write(folder.path().join(name), bytes).unwrap();
        let words = format!("train --data {DIGITS} --model lenet --steps 1 --init {name}");
        let output = run_in(folder.path(), &words.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success());
        let wanted = ["data fetch weights mobilenet-v2", "mobilenet_v2-b0353104.pth", "torch.save"];
        for needle in [name, "keras.applications.MobileNetV2"].iter().chain(&wanted) {
            assert!(said(&output).contains(needle), "{needle}: {}", said(&output));
        }
    }
    let bare =
        [0x80, 2, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, b'.'];
    let call = b"\x80\x02cos\nsystem\nX\x05\x00\x00\x00touch\x85R.";
    fs::write(folder.path().join("evil.pth"), [&bare[..], call].concat()).unwrap();
    let words = format!("train --data {DIGITS} --model lenet --steps 1 --init evil.pth");
    let output = run_in(folder.path(), &words.split(' ').collect::<Vec<_>>());
    assert!(!output.status.success());
    for needle in ["evil.pth", "os.system", "nothing is executed"] {
        assert!(said(&output).contains(needle), "{needle}: {}", said(&output));
    }
}

/// Every worker's own weights: alike where all hold the same, each by itself where updates are asynchronous.
#[test]
fn each_worker_scores_the_weights_it_ended_with_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let rest = "--model softmax --epochs 2 --batch-size 20";
    for strategy in ["mirrored --replicas 2", "ps-async --workers 2"] {
        let rest = format!("{rest} --strategy {strategy} --evaluate-workers");
        let summary = train(here, &rest);
        let workers = summary["workers"].as_array().unwrap();
        assert_eq!(workers.len(), 2);
        for worker in workers {
            let accuracy = number(worker, "/test_accuracy");
            // On a busy machine one may have done all the steps before the other's first; that one ends with the weights of the start.
            let took_part = number(worker, "/iterations") > 0.0;
            assert!(!took_part || accuracy > 0.2, "{worker}");
            assert!(accuracy >= 0.0 && number(worker, "/test_loss") > 0.0, "{worker}");
            if strategy.starts_with("mirrored") {
                assert_eq!(worker["test_accuracy"], summary["final"]["test_accuracy"]);
            }
        }
        let run = here.join("runs").join(summary["run"].as_str().unwrap());
        let logs = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path());
        let logs = logs.filter(|path| path.extension().is_some_and(|it| it == "jsonl"));
        let told = logs.map(|path| fs::read_to_string(path).unwrap()).collect::<String>();
        let count = told.matches("\"worker_evaluation\"").count();
        // Replicas of one process have one log, of which the first speaks.
        assert_eq!(count, if strategy.starts_with("mirrored") { 1 } else { 2 }, "{told}");
        let words = ["report", run.to_str().unwrap(), "--format", "html", "--out", "r.html"];
        assert!(run_in(here, &words).status.success());
        let page = fs::read_to_string(here.join("r.html")).unwrap();
        // In the tables of runs, of evaluations and of workers.
        assert_eq!(page.matches(">test accuracy").count(), 3);
    }
    // Stopped at a loss, the others were once taken for cancelled, and only the chief was scored.
    let rest = "--model softmax --until-loss 1.5 --epochs 100 --eval-every 20 --lr 0.05";
    for strategy in ["ps-async --workers 2", "ps-sync --workers 2 --evaluator"] {
        let words = format!("{rest} --batch-size 20 --strategy {strategy} --evaluate-workers");
        let summary = train(here, &words);
        assert!(number(&summary, "/reached/step") > 0.0, "{summary}");
        for worker in summary["workers"].as_array().unwrap() {
            assert!(number(worker, "/test_accuracy") > 0.2, "{strategy}: {worker}");
        }
    }
    let rest = "--model softmax --epochs 2 --batch-size 20";
    let plain = train(here, &format!("{rest} --strategy mirrored --replicas 2"));
    assert!(plain["workers"][0].get("test_accuracy").is_none(), "it was not asked for");
}
