//! `mpirun -n N paceline node`: with the feature `mpi` gradients are added up by `MPI_Allreduce`, without it by our own transport;
//! the run is the same.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod support;

use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use support::{paceline, said};

/// What is trained, for so many steps.
fn training(steps: &str) -> Vec<&str> {
    let data = "generated:digits?examples=600";
    let mut words = vec!["--model", "lenet", "--data", data, "--strategy", "multi-worker"];
    words.extend(["--batch-size", "24", "--lr", "0.1", "--threads", "1", "--seed=5"]);
    words.extend(["--no-tensorboard", "--steps", steps]);
    words
}

fn mpirun(ranks: usize, steps: &str, out: &Path, flags: &[&str]) -> Option<Command> {
    let program = paceline_testing::mpirun()?;
    let mut command = Command::new(program);
    command
        .args(["--oversubscribe", "--bind-to", "none", "-n", &ranks.to_string()])
        .args(["--mca", "oob_tcp_if_include", "lo", "--mca", "btl_tcp_if_include", "lo"])
        .args(flags)
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .arg(support::program())
        .args(["node", "--insecure", "--join-timeout", "900s"])
        .args(training(steps))
        .arg("--out")
        .arg(out);
    Some(command)
}

/// The summary of the only run in a folder.
fn summary(out: &Path) -> Value {
    let runs = paceline_runs::list(out).unwrap();
    assert_eq!(runs.len(), 1, "ranks of one job are one run");
    let text = std::fs::read_to_string(runs[0].path().join("summary.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn local(workers: usize, out: &Path) -> Value {
    let mut command = paceline();
    command.arg("train").args(training("12"));
    command.args(["--workers", &workers.to_string(), "--out"]).arg(out);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    summary(out)
}

#[test]
fn ranks_of_a_job_train_what_local_processes_train() {
    for ranks in [2, 3, 4] {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("local"), dir.path().join("mpi"));
        let Some(mut command) = mpirun(ranks, "12", &there, &[]) else { return };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{ranks} ranks: {}", said(&output));
        let (wanted, found) = (local(ranks, &here), summary(&there));
        for part in ["global_steps", "examples", "status"] {
            assert_eq!(wanted[part], found[part], "{ranks} ranks: {part}");
        }
        assert_eq!(found["workers"].as_array().unwrap().len(), ranks);
        // The order in which MPI adds is its own, so bits may differ and losses may not.
        let loss = |summary: &Value| summary["final"]["test_loss"].as_f64().unwrap();
        let (wanted, found) = (loss(&wanted), loss(&found));
        assert!((wanted - found).abs() < 1e-3, "{ranks} ranks: {wanted} and {found}");
        let by_mpi = said(&output).contains("gradients were added up by MPI_Allreduce");
        assert_eq!(by_mpi, cfg!(feature = "mpi"), "{ranks} ranks: {}", said(&output));
    }
}

#[test]
fn mpi_can_be_refused() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut command) = mpirun(2, "12", dir.path(), &[]) else { return };
    let output = command.env("PACELINE_MPI", "off").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(!said(&output).contains("MPI_Allreduce"), "{}", said(&output));
    assert_eq!(summary(dir.path())["global_steps"], 12);
}

/// The process of a rank, found by the variable that `mpirun` gave it.
fn process_of(rank: usize, launcher: u32) -> Option<u32> {
    let wanted = format!("OMPI_COMM_WORLD_RANK={rank}");
    let tasks = std::fs::read_dir(format!("/proc/{launcher}/task")).ok()?.flatten();
    let children = tasks.flat_map(|task| {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    });
    children.into_iter().find(|pid| {
        let set = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        set.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    })
}

/// Whether any rank has said that it made a step.
fn training_goes_on(out: &Path) -> bool {
    let runs = paceline_runs::list(out).unwrap_or_default();
    let files = runs.iter().flat_map(|run| std::fs::read_dir(run.path()).into_iter().flatten());
    files.flatten().any(|file| {
        let events = file.file_name().to_string_lossy().starts_with("events-");
        events && std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains("\"step\""))
    })
}

fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let since = Instant::now();
    while since.elapsed() < limit {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Kills rank 1 in the middle; how the job ended, and what it said.
fn killed(steps: &str, out: &Path, flags: &[&str]) -> Option<(ExitStatus, String)> {
    let mut command = mpirun(3, steps, out, flags)?;
    let log = out.with_extension("log");
    let mut job =
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    let begun = within(paceline_testing::HANG, || training_goes_on(out));
    let victim = process_of(1, job.id());
    if let Some(pid) = victim.filter(|_| begun) {
        let kill = Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
        assert!(kill.success());
    }
    let ended = within(paceline_testing::HANG, || job.try_wait().unwrap().is_some());
    if !ended {
        job.kill().unwrap();
    }
    let status = job.wait().unwrap();
    assert!(begun && victim.is_some(), "training never began: {}", said());
    assert!(ended, "the job does not end: {}", said());
    Some((status, said()))
}

/// `mpirun` ends what is left of a job, and says whose fault it was.
#[test]
fn a_killed_rank_ends_the_job_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let Some((status, said)) = killed("1000000000", &dir.path().join("runs"), &[]) else { return };
    assert!(!status.success(), "{said}");
    assert!(said.contains("rank 1") || said.contains("worker/1"), "{said}");
}

/// Under a launcher that leaves the others alone they go on, where MPI would wait for ever.
#[test]
fn ranks_that_are_left_alone_name_the_lost_one_and_go_on_without_mpi() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("runs");
    let Some((_, said)) = killed("3000", &out, &["--enable-recovery"]) else { return };
    assert!(said.contains("worker/1"), "{said}");
    let summary = summary(&out);
    assert_eq!((&summary["status"], &summary["global_steps"]), (&"done".into(), &3000.into()));
}
