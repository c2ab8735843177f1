//! Tasks of a local run that live and do not answer, or end before all have met: nobody waits for them in silence.

#![allow(clippy::unwrap_used)]

mod cluster_support;

use cluster_support::*;

/// Stopped for good: only the launcher can put an end to the chief, and it must say why.
#[test]
fn a_frozen_chief_is_named_and_the_run_ends() {
    let flags = ["--workers", "2", "--steps", ENDLESS, "--batch-size", "30", "--evaluator"];
    let mut runs: Vec<Run> =
        ["multi-worker", "ps-sync", "ps-async"].map(|strategy| train(strategy, &flags)).into();
    let mut frozen = Vec::new();
    for run in &mut runs {
        run.wait_for_step(20);
        let tasks = processes(&run.folder());
        signal(tasks["worker/0"], "-STOP");
        frozen.push((unix_seconds(), tasks));
    }
    for (run, (since, tasks)) in runs.into_iter().zip(frozen) {
        let folder = run.folder();
        let ended = run.end();
        assert_eq!(ended.code(), 75, "{}", ended.talk);
        let after = ended_at(&folder, "worker/1") - since;
        assert!(after < 10.0, "{after:.1} s");
        // Said when it was found out, and again as the reason of the end.
        assert!(ended.talk.contains("lost worker/0 at 127.0.0.1:"), "{}", ended.talk);
        assert!(ended.talk.contains("worker/0: did not answer ("), "{}", ended.talk);
        assert!(!ended.talk.contains("starting it again"), "{}", ended.talk);
        assert!(tasks.values().all(|process| !exists(*process)), "{tasks:?}");
    }
}

#[test]
fn a_frozen_task_is_a_dead_one() {
    let cases = [
        ("multi-worker", "worker/2", "continue"),
        ("multi-worker", "worker/1", "restart"),
        ("ps-async", "ps/0", "continue"),
        ("ps-sync", "worker/1", "stop"),
    ];
    let mut runs = Vec::new();
    for (strategy, task, policy) in cases {
        let workers = if task == "worker/2" { "3" } else { "2" };
        let flags = ["--workers", workers, "--steps", ENDLESS, "--batch-size", "30"];
        let mut run = train(strategy, &[&flags[..], &["--on-loss", policy]].concat());
        run.wait_for_step(20);
        let process = run.process(task);
        signal(process, "-STOP");
        runs.push((run, process));
    }
    for ((strategy, task, policy), (run, process)) in cases.into_iter().zip(runs) {
        let (what, folder) = (format!("{strategy}, {policy}"), run.folder());
        wait_for("its loss to be named", || run.talk().contains(&format!("lost {task} at")));
        wait_for("its process to be ended", || !exists(process));
        let talk = run.talk();
        assert!(talk.contains("silent for 8 s"), "{what}: {talk}");
        if policy == "stop" {
            let ended = run.end();
            assert_eq!(ended.code(), 75, "{what}: {}", ended.talk);
            let said = format!("{task}: did not answer (silent for 8 s)");
            assert!(ended.talk.contains(&said), "{what}: {}", ended.talk);
            continue;
        }
        let back = task == "ps/0" || policy == "restart";
        if back {
            wait_for("it to be back", || !events(&folder, "task_recovered").is_empty());
            assert_ne!(run.process(task), process, "{what}");
        }
        let (summary, ended) = end_in_order(run);
        let said =
            format!("{task} did not answer (silent for 8 s) and was ended by force; starting");
        assert_eq!(ended.talk.contains(&said), back, "{what}: {}", ended.talk);
        assert_eq!(summary["lost"].as_array().unwrap().len(), 1, "{what}: {summary}");
        assert_eq!(summary["workers"].as_array().unwrap().len(), 2, "{what}: {summary}");
    }
}

/// What was overcome long ago does not stand on top of the error, and the chief's name always does.
#[test]
fn a_task_that_came_back_is_not_blamed_for_the_end() {
    for policy in ["restart", "continue"] {
        let flags = ["--workers", "3", "--steps", ENDLESS, "--on-loss", policy];
        let mut run = train("multi-worker", &flags);
        kill_and_go_on(&mut run, "worker/1");
        let (folder, chief) = (run.folder(), run.process("worker/0"));
        let again = if policy == "restart" { "task_recovered" } else { "task_lost" };
        wait_for("the others to go on", || !events(&folder, again).is_empty());
        signal(chief, "-KILL");
        let ended = run.end();
        assert_eq!(ended.code(), 75, "{policy}: {}", ended.talk);
        let error = ended.talk.split_once("\nerror: ").unwrap().1;
        assert!(error.contains("worker/0: was killed (signal 9"), "{policy}: {error}");
        assert_eq!(error.starts_with("worker/0: "), policy == "restart", "{policy}: {error}");
    }
}
