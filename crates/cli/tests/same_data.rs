//! Tasks that train together, and a run that continues, must see the same data: a task that does not is named with what differs.

#![allow(clippy::unwrap_used)]

mod cluster_support;
#[path = "cluster_support/places.rs"]
mod places;
mod support;

use cluster_support::*;
use places::*;
use std::path::Path;
use support::{paceline, run_in, said};

/// Starts a task for each list of flags; each waits so long for the others.
fn ranks(each: &[Vec<String>], patience: &str) -> Vec<Ended> {
    let folder = tempfile::tempdir().unwrap();
    let (port, key) = (ports(1)[0], key(&folder, "key"));
    let runs: Vec<Run> = each
        .iter()
        .enumerate()
        .map(|(rank, flags)| {
            let out = tempfile::tempdir().unwrap();
            let mut command = paceline();
            command.arg("node").args(flags).args(["--join-timeout", patience, "--no-tensorboard"]);
            command.arg("--out").arg(out.path()).env("PACELINE_KEY_FILE", &key);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", each.len().to_string());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            spawn(command, out)
        })
        .collect();
    runs.into_iter().map(Run::end).collect()
}

/// The same where a task is refused, so that the chief waits for it in vain: as long as it takes to hear of that.
fn refused(each: &[Vec<String>]) -> Vec<Ended> {
    let heard =
        |ended: &Vec<Ended>| ended[..2].iter().all(|task| task.talk.contains("see different data"));
    with_patience(|patience| ranks(each, patience), heard)
}

fn in_words(folder: &Path, text: &str) -> std::process::Output {
    run_in(folder, &text.split_whitespace().collect::<Vec<_>>())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_worker_with_other_images_is_refused_by_name() {
    for (strategy, other, differs) in [
        ("multi-worker", "generated:digits?examples=600&seed=2", "see different data: contents is"),
        (
            "ps-async --ps 1",
            "generated:digits?examples=500",
            "see different data: test_examples is 100 and 84",
        ),
    ] {
        let flags = |data: &str| {
            words(&format!(
                "--model softmax --data {data} --strategy {strategy} --epochs 2 --lr 0.1"
            ))
        };
        let ours = flags("generated:digits?examples=600");
        let servers = usize::from(strategy.contains("--ps"));
        let mut each = vec![ours.clone(), flags(other)];
        each.extend(vec![ours; servers]);
        let ended = refused(&each);
        assert_eq!(ended[1].code(), 1, "{}", ended[1].talk);
        assert!(ended[1].talk.contains(differs), "{}", ended[1].talk);
        assert!(ended[1].talk.contains("worker/0 and worker/1"), "{}", ended[1].talk);
        assert_eq!(ended[0].code(), 75, "{}", ended[0].talk);
        assert!(
            ended[0].talk.contains("worker/1") && ended[0].talk.contains(differs),
            "{}",
            ended[0].talk
        );
    }
}

#[test]
fn a_worker_with_another_click_log_is_refused_by_name() {
    let here = tempfile::tempdir().unwrap();
    for (name, seed) in [("a", 1), ("b", 1), ("c", 2)] {
        for part in 0..2 {
            std::fs::create_dir_all(here.path().join(name)).unwrap();
            let seed = seed * 10 + part;
            let made = in_words(
                here.path(),
                &format!("data synth clicks {name}/{part}.tsv --rows 2000 --seed {seed}"),
            );
            assert!(made.status.success(), "{}", said(&made));
        }
    }
    let flags = |data: &str| {
        let data = here.path().join(data);
        words(&format!(
            "--model sparse-logistic --data {} --strategy ps-async --ps 1 --bits 12",
            data.display()
        ))
    };
    // Another folder with the same rows is the same data.
    for task in ranks(&[flags("a"), flags("b"), flags("a")], JOINS) {
        assert_eq!(task.code(), 0, "{}", task.talk);
    }
    let ended = refused(&[flags("a"), flags("c"), flags("a")]);
    assert_eq!(ended[1].code(), 1, "{}", ended[1].talk);
    assert!(
        ended[1].talk.contains("worker/0 and worker/1 see different data"),
        "{}",
        ended[1].talk
    );
}

#[test]
fn a_run_continues_on_a_copy_of_its_data_and_on_nothing_else() {
    let here = tempfile::tempdir().unwrap();
    let run = |text: &str| in_words(here.path(), text);
    for (name, seed) in [("a", 1), ("copy", 1), ("other", 2)] {
        let made = run(&format!("data synth digits {name} --train 300 --test 60 --seed {seed}"));
        assert!(made.status.success(), "{}", said(&made));
    }
    let trained = run("train --model softmax --data a --epochs 1 --lr 0.1 --no-tensorboard");
    assert!(trained.status.success(), "{}", said(&trained));
    let refused = run("train --resume --data other --epochs 2");
    assert!(!refused.status.success());
    assert!(said(&refused).contains("the data was contents with checksum"), "{}", said(&refused));
    assert!(said(&refused).contains("hint: give --data"), "{}", said(&refused));
    let moved = run("train --resume --data copy --epochs 2");
    assert!(moved.status.success(), "{}", said(&moved));
    // A run of 0.1 did not write down what it read.
    let folder =
        std::fs::read_dir(here.path().join("runs")).unwrap().next().unwrap().unwrap().path();
    let plan = folder.join("plan.json");
    let mut old: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&plan).unwrap()).unwrap();
    assert!(old.as_object_mut().unwrap().remove("data").is_some());
    std::fs::write(&plan, old.to_string()).unwrap();
    let old = run("train --resume --data copy --epochs 3");
    assert!(old.status.success(), "{}", said(&old));
}

#[test]
fn a_stream_continues_when_its_log_grew_and_not_on_another_log() {
    let here = tempfile::tempdir().unwrap();
    let run = |text: &str| in_words(here.path(), text);
    for (name, rows, seed) in [("a.tsv", 3000, 1), ("more.tsv", 100, 3), ("other.tsv", 4000, 2)] {
        let made = run(&format!("data synth clicks {name} --rows {rows} --seed {seed}"));
        assert!(made.status.success(), "{}", said(&made));
    }
    let trained = run("train --model sparse-logistic --data a.tsv --bits 12 --no-tensorboard");
    assert!(trained.status.success(), "{}", said(&trained));
    let refused = run("train --resume --data other.tsv --epochs 2");
    assert!(!refused.status.success());
    assert!(said(&refused).contains("cannot continue: the data was `a.tsv`"), "{}", said(&refused));
    let more = std::fs::read(here.path().join("more.tsv")).unwrap();
    let log = here.path().join("a.tsv");
    let all = [std::fs::read(&log).unwrap(), more].concat();
    std::fs::write(&log, all).unwrap();
    let grown = run("train --resume --epochs 2");
    assert!(grown.status.success(), "{}", said(&grown));
}
