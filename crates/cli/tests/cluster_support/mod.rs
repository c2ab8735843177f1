//! Runs of several real processes, for tests that hurt them.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of it

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Long enough for a loaded machine; nothing here is a measurement.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A process that does not outlive a test that failed.
pub struct Owned(Child);

impl Deref for Owned {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Owned {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Most have ended long ago, and nobody else is killed for them: a child keeps its number until it was waited for.
        if let Ok(None) = self.0.try_wait() {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
}

/// A run of `paceline train` with several tasks.
pub struct Run {
    pub child: Owned,
    pub out: TempDir,
    /// What it says on stderr, gathered by a thread.
    talk: std::sync::Arc<std::sync::Mutex<String>>,
    result: std::sync::Arc<std::sync::Mutex<String>>,
}

/// How a run ended.
pub struct Ended {
    pub status: ExitStatus,
    pub talk: String,
    pub stdout: String,
    pub out: TempDir,
}

impl Ended {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.talk))
    }

    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }
}

/// Starts `paceline train --strategy …` on generated digits.
pub fn train(strategy: &str, flags: &[&str]) -> Run {
    let out = tempfile::tempdir().unwrap();
    train_in(
        out,
        &[&["--model", "softmax", "--data", DIGITS, "--strategy", strategy], flags].concat(),
    )
}

pub const DIGITS: &str = "generated:digits?examples=600";

/// Starts `paceline train` with these flags and runs under `out`.
pub fn train_in(out: TempDir, flags: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.arg("train").args(flags).args(["--json", "--no-tensorboard", "--out"]).arg(out.path());
    spawn(command, out)
}

/// Starts a command whose output is gathered.
pub fn spawn(mut command: Command, out: TempDir) -> Run {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let gather = |from: Box<dyn Read + Send>| {
        let text = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let ours = std::sync::Arc::clone(&text);
        std::thread::spawn(move || {
            let mut from = from;
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                ours.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        text
    };
    let talk = gather(Box::new(child.stderr.take().unwrap()));
    let result = gather(Box::new(child.stdout.take().unwrap()));
    Run { child: Owned(child), out, talk, result }
}

impl Run {
    pub fn talk(&self) -> String {
        self.talk.lock().unwrap().clone()
    }

    /// The run's folder, once it is there.
    pub fn folder(&self) -> PathBuf {
        let mut found = None;
        wait_for("the run folder", || {
            found = fs::read_dir(self.out.path())
                .ok()
                .and_then(|mut entries| entries.next())
                .map(|entry| entry.unwrap().path());
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until the run's own log has come to a step.
    pub fn wait_for_step(&mut self, step: u64) {
        let folder = self.folder();
        wait_for(&format!("step {step}"), || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("ended early, {status}: {}", self.talk());
            }
            steps(&folder) >= step
        });
    }

    /// The process of a task, as the log says.
    pub fn process(&self, task: &str) -> u32 {
        let folder = self.folder();
        let mut process = 0;
        wait_for(&format!("{task} to join"), || {
            process = processes(&folder).get(task).copied().unwrap_or(0);
            process > 0
        });
        process
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("it hangs: {}", self.talk());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        // The gathering threads end with the pipes.
        std::thread::sleep(Duration::from_millis(50));
        let (talk, stdout) = (self.talk(), self.result.lock().unwrap().clone());
        Ended { status, talk, stdout, out: self.out }
    }
}

/// Events of a kind in the chief's log.
pub fn events(folder: &Path, kind: &str) -> Vec<Value> {
    let Ok(text) = fs::read_to_string(folder.join("events-worker-0.jsonl")) else {
        return Vec::new();
    };
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|event| event["kind"] == kind).collect()
}

/// Seconds since 1970, as events have them. Times are compared between events: a test that is itself held up
/// proves nothing.
pub fn unix_seconds() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// When a task wrote down that the run was over for it.
pub fn ended_at(folder: &Path, task: &str) -> f64 {
    let path = folder.join(format!("events-{}.jsonl", task.replace('/', "-")));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let last = lines.rfind(|event| event["kind"] == "run_ended");
    last.unwrap_or_else(|| panic!("{task} wrote no end:\n{text}"))["time"].as_f64().unwrap()
}

/// Whether a checkpoint is committed.
pub fn has_checkpoint(folder: &Path) -> bool {
    fs::read_dir(folder.join("checkpoints")).is_ok_and(|entries| {
        entries.flatten().any(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
    })
}

/// The last step in the chief's log.
pub fn steps(folder: &Path) -> u64 {
    let step = |event: &Value| event["data"]["step"].as_u64();
    events(folder, "step").iter().filter_map(step).max().unwrap_or(0)
}

/// The latest process of each task.
pub fn processes(folder: &Path) -> BTreeMap<String, u32> {
    events(folder, "task_joined")
        .iter()
        .map(|event| {
            let data = &event["data"];
            let process = data["process"].as_u64().unwrap() as u32;
            (data["role"].as_str().unwrap().to_owned(), process)
        })
        .collect()
}

pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(sent.success(), "{name} to {process}");
}

pub fn exists(process: u32) -> bool {
    // A zombie whose parent has not looked yet is as good as gone.
    fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}
