//! Runs of several real processes, for tests that hurt them.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of it

use paceline_testing::lateness::LatenessWatch;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Long enough for a loaded machine; nothing here is a measurement.
pub const PATIENCE: Duration = paceline_testing::HANG;

/// As long for tasks to meet, as a flag says it.
pub const JOINS: &str = "900s";

/// For tasks of which one gives up: how long it waits until it does. More where the machine was too slow for less.
const GIVES_UP: [&str; 3] = ["4s", "40s", "400s"];

/// Plays with a patience of a few seconds; again with more of it where a task gave up before it `heard` what it was to hear.
pub fn with_patience<T>(play: impl Fn(&str) -> T, heard: impl Fn(&T) -> bool) -> T {
    let [first, more @ ..] = GIVES_UP;
    more.into_iter()
        .fold(play(first), |seen, patience| if heard(&seen) { seen } else { play(patience) })
}

/// So many steps that a run outlives any test; those that hurt it also end it.
pub const ENDLESS: &str = "100000000";

/// A run of `paceline train` with several tasks.
pub struct Run {
    pub child: Kept,
    pub out: TempDir,
    /// What it says on stderr.
    talk: Gathered,
    result: Gathered,
    /// How late this machine was since it was started.
    pub lateness: LatenessWatch,
}

/// A process that does not outlive its test: one that fails must not leave an endless run to those after it.
pub struct Kept(Child);

impl Deref for Kept {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Its tasks go with it. One that has ended already needs neither.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a process writes to a pipe, read by a thread.
struct Gathered {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Gathered {
    fn from(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let ours = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut piece) {
                ours.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Self { bytes, reader }
    }

    /// So far.
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    /// All of it, once the process has ended.
    fn all(&self) -> String {
        wait_for("the end of what it wrote", || self.reader.is_finished());
        self.text()
    }
}

/// How a run ended.
pub struct Ended {
    pub status: ExitStatus,
    pub talk: String,
    pub stdout: String,
    pub out: TempDir,
    /// How late this machine was meanwhile.
    pub lateness: LatenessWatch,
}

impl Ended {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.talk))
    }

    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Seconds from a time until a task wrote down that the run was over for it, without those for which this machine kept
    /// ready processes from running.
    pub fn ended_within(&self, folder: &Path, task: &str, from: f64) -> f64 {
        self.lateness.answered_for(from, ended_at(folder, task))
    }
}

/// Starts `paceline train --strategy …` on generated digits.
pub fn train(strategy: &str, flags: &[&str]) -> Run {
    let out = tempfile::tempdir().unwrap();
    let meet: &[&str] = if strategy == "one-device" { &[] } else { &["--join-timeout", JOINS] };
    let what = ["--model", "softmax", "--data", DIGITS, "--strategy", strategy];
    train_in(out, &[&what, meet, flags].concat())
}

pub const DIGITS: &str = "generated:digits?examples=600";

/// Starts `paceline train` with these flags and runs under `out`.
pub fn train_in(out: TempDir, flags: &[&str]) -> Run {
    let mut command = crate::support::paceline();
    command.arg("train").args(flags).args(["--json", "--no-tensorboard", "--out"]).arg(out.path());
    spawn(command, out)
}

/// Starts a command whose output is gathered.
pub fn spawn(mut command: Command, out: TempDir) -> Run {
    let lateness = LatenessWatch::start();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let talk = Gathered::from(child.stderr.take().unwrap());
    let result = Gathered::from(child.stdout.take().unwrap());
    Run { child: Kept(child), out, talk, result, lateness }
}

impl Run {
    pub fn talk(&self) -> String {
        self.talk.text()
    }

    /// What it has written on stdout.
    pub fn printed(&self) -> String {
        self.result.text()
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
            assert!(begun.elapsed() < PATIENCE, "it hangs: {}", self.talk());
            std::thread::sleep(Duration::from_millis(5));
        };
        let (talk, stdout) = (self.talk.all(), self.result.all());
        Ended { status, talk, stdout, out: self.out, lateness: self.lateness }
    }
}

/// Kills a task and waits until it is named; returns what was said, and how many seconds later the chief
/// wrote it down: as a loss or, where the policy ends the run, as its end. What this machine was late does not count.
pub fn kill_and_go_on(run: &mut Run, task: &str) -> (String, f64) {
    run.wait_for_step(50);
    let (process, folder) = (run.process(task), run.folder());
    signal(process, "-KILL");
    let killed = unix_seconds();
    wait_for("the loss to be named", || run.talk().contains(&format!("lost {task}")));
    let talk = run.talk();
    // The log has it too, unless the policy ends the run first.
    wait_for("the loss in the log", || {
        !events(&folder, "task_lost").is_empty() || run.child.try_wait().unwrap().is_some()
    });
    let named = events(&folder, "task_lost").first().map(|event| event["time"].as_f64().unwrap());
    let named = named.unwrap_or_else(|| ended_at(&folder, "worker/0"));
    (talk, run.lateness.answered_for(killed, named))
}

/// Waits for steps after now, then ends the run in order and returns its summary.
pub fn end_in_order(mut run: Run) -> (Value, Ended) {
    let folder = run.folder();
    let now = steps(&folder);
    run.wait_for_step(now + 200);
    signal(run.child.id(), "-INT");
    let ended = run.end();
    assert_eq!(ended.code(), 130, "{}", ended.talk);
    (ended.json(), ended)
}

/// Events of a kind in the chief's log.
pub fn events(folder: &Path, kind: &str) -> Vec<Value> {
    events_of(folder, "worker/0", kind)
}

/// Events of a kind in a task's log.
pub fn events_of(folder: &Path, task: &str, kind: &str) -> Vec<Value> {
    let name = format!("events-{}.jsonl", task.replace('/', "-"));
    let Ok(text) = fs::read_to_string(folder.join(name)) else { return Vec::new() };
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

/// How many seconds of silence a loss is put down to: eight, and more only where the machine made all tasks late.
pub fn silence(talk: &str, lateness: &LatenessWatch) -> f64 {
    let (_, after) = talk.split_once("silent for ").unwrap_or_else(|| panic!("{talk}"));
    let seconds: f64 = after.split(' ').next().unwrap().parse().unwrap();
    // A silence has to be four times as long as usual.
    let most = 8.0 + 4.0 * lateness.longest();
    assert!((8.0..=most).contains(&seconds), "{seconds} s, at most {most} s: {talk}");
    seconds
}

/// Those of some processes that are still there, each with its state and its command line.
pub fn still_there(tasks: &BTreeMap<String, u32>) -> Vec<String> {
    let read = |process: u32, file: &str| {
        fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default().replace('\0', " ")
    };
    let there = tasks.iter().filter(|(_, process)| exists(**process));
    there
        .map(|(task, process)| {
            let [stat, command] = ["stat", "cmdline"].map(|file| read(*process, file));
            format!("{task}: `{command}`, {stat}")
        })
        .collect()
}

/// The log of a task's process.
pub fn log(folder: &Path, task: &str) -> (PathBuf, String) {
    let path = folder.join(format!("logs/{}.log", task.replace('/', "-")));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    (path, text)
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

/// The process of a task whether it has joined or not: the child whose log is called after it.
pub fn child(run: &Run, task: &str) -> u32 {
    let log = format!("/logs/{}.log", task.replace('/', "-"));
    let parent = run.child.id();
    let mut found = None;
    wait_for(&format!("{task} to be started"), || {
        let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        let listed = listed.unwrap_or_default();
        let mut children = listed.split_whitespace().filter_map(|word| word.parse::<u32>().ok());
        found = children.find(|child| {
            // Before it runs the program it is a copy of its parent, which waits for it.
            let words = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            words.contains("--launched")
                && fs::read_link(format!("/proc/{child}/fd/2"))
                    .is_ok_and(|target| target.to_string_lossy().ends_with(&log))
        });
        found.is_some()
    });
    found.unwrap()
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
