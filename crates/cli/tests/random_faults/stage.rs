//! A run of real processes, and the means to hurt it.

use super::{
    clock::Clocks,
    cluster_support::{
        DIGITS, ENDLESS, Ended, Run, events, exists, has_checkpoint, processes, signal, spawn,
        steps, unix_seconds, wait_for,
    },
    lab::{Cable, Lab},
    schedule::{Fault, Place, Schedule},
    support,
};
use paceline_testing::SmallDisk;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Examples of a step.
pub const BATCH: u64 = 30;
/// A process that is stopped for so long is not lost.
const STOPPED: Duration = Duration::from_secs(1);
/// A cut of so long is not a loss either.
const CUT: Duration = Duration::from_millis(1500);
/// Data that differs from what the others have.
const OTHER_DIGITS: &str = "generated:digits?examples=600&seed=2";

/// A run under way. Processes go before what they stand on.
pub struct Stage<'a> {
    schedule: &'a Schedule,
    /// All tasks, or the chief where each task is a process of ours.
    pub chief: Run,
    others: BTreeMap<&'static str, Run>,
    /// Folders of tasks that have ended.
    outs: BTreeMap<&'static str, TempDir>,
    grounds: Grounds,
    /// When each lost task was killed or cut off.
    hurt: BTreeMap<String, f64>,
    began: Instant,
    /// All processes that ever belonged to it.
    seen: Vec<u32>,
}

/// What a run stands on.
struct Grounds {
    clocks: Option<Clocks>,
    lab: Option<Lab>,
    disk: Option<(SmallDisk, PathBuf)>,
    folder: TempDir,
}

/// How a run ended: the chief, then every other task that was a process of ours.
pub struct Outcome {
    pub chief: Ended,
    pub others: BTreeMap<&'static str, Ended>,
    pub folder: PathBuf,
    pub seconds: f64,
    /// When each lost task was killed or cut off.
    pub hurt: BTreeMap<String, f64>,
}

impl Grounds {
    /// Nothing where a schedule cannot be played here.
    fn new(schedule: &Schedule) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let clocks = if schedule.has(|fault| matches!(fault, Fault::Clock(..))) {
            Some(Clocks::new(folder.path())?)
        } else {
            None
        };
        let lab = match schedule.place {
            Place::Hosts => Some(Lab::new(schedule.tasks().len())?),
            Place::Local => None,
        };
        let disk = if schedule.has(|fault| *fault == Fault::FullDisk) {
            let path = folder.path().join("disk");
            Some((SmallDisk::mount(&path, "4m")?, path))
        } else {
            None
        };
        let grounds = Self { clocks, lab, disk, folder };
        if schedule.sparse {
            grounds.write_rows("rows", 0);
            grounds.write_rows("other", 1);
        }
        Some(grounds)
    }

    /// Rows for three workers.
    fn write_rows(&self, name: &str, shift: u64) {
        let folder = self.folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        for number in 0..3 {
            let row =
                |at: u64| format!("{} {}:1 {}:0.5\n", (at + shift) % 2, 1 + at % 7, 10 + at % 31);
            let rows: String = (number * 900..number * 900 + 900).map(row).collect();
            fs::write(folder.join(format!("{number}.svm")), rows).unwrap();
        }
    }

    fn data(&self, schedule: &Schedule, other: bool) -> String {
        if !schedule.sparse {
            return if other { OTHER_DIGITS } else { DIGITS }.to_owned();
        }
        let folder = self.folder.path().join(if other { "other" } else { "rows" });
        let files = (0..3).map(|number| folder.join(format!("{number}.svm")).display().to_string());
        files.collect::<Vec<_>>().join(",")
    }

    fn out(&self) -> TempDir {
        let place = self.disk.as_ref().map_or(self.folder.path(), |(_, path)| path);
        tempfile::tempdir_in(place).unwrap()
    }

    fn flags(&self, schedule: &Schedule, other: bool) -> Vec<String> {
        let data = self.data(schedule, other);
        let batch = BATCH.to_string();
        let kind: &[&str] = if schedule.sparse {
            &[
                "--model",
                "sparse-logistic",
                "--format",
                "libsvm",
                "--epochs",
                "1000000",
                "--bits",
                "12",
            ]
        } else {
            &["--model", "softmax", "--checkpoint-every", "100"]
        };
        let common =
            ["--data", &data, "--strategy", schedule.strategy, "--on-loss", schedule.policy];
        let more = ["--steps", ENDLESS, "--batch-size", &batch];
        kind.iter().chain(&common).chain(&more).map(|word| (*word).to_owned()).collect()
    }

    /// A command that starts all tasks here, or one on its host.
    fn command(&self, schedule: &Schedule, task: &str) -> Command {
        let mut command = match &self.lab {
            None => {
                let mut command = support::paceline();
                command.arg("train");
                command
            }
            Some(lab) => {
                let number = schedule.tasks().iter().position(|known| *known == task).unwrap();
                let mut command = lab.paceline(number);
                command.args(["node", "--threads", "1", "--no-shared-memory"]);
                command.env("TF_CONFIG", configuration(schedule, task));
                command
            }
        };
        if let Some(clocks) = &self.clocks {
            clocks.govern(&mut command);
        }
        command.args(["--json", "--no-tensorboard"]);
        command
    }

    fn start(&self, schedule: &Schedule, task: &str, other: bool) -> Run {
        let mut command = self.command(schedule, task);
        command.args(self.flags(schedule, other));
        if self.lab.is_none() {
            command.args(["--workers", "3"]);
            if schedule.strategy.starts_with("ps") {
                command.args(["--ps", "2"]);
            }
        }
        let out = self.out();
        command.arg("--out").arg(out.path());
        spawn(command, out)
    }
}

/// `TF_CONFIG` of a task.
fn configuration(schedule: &Schedule, task: &str) -> String {
    let of = |role: &str| {
        let tasks = schedule.tasks();
        let here = tasks.iter().enumerate().filter(|(_, task)| task.starts_with(role));
        let all = here.map(|(host, _)| format!("\"{}:7000\"", Lab::address(host)));
        all.collect::<Vec<_>>().join(",")
    };
    let servers = if schedule.strategy.starts_with("ps") {
        format!(",\"ps\":[{}]", of("ps"))
    } else {
        String::new()
    };
    let (role, index) = task.split_once('/').unwrap();
    format!(
        r#"{{"cluster":{{"worker":[{}]{servers}}},"task":{{"type":"{role}","index":{index}}}}}"#,
        of("worker")
    )
}

impl<'a> Stage<'a> {
    /// Starts a run; nothing where it cannot be played here.
    pub fn set(schedule: &'a Schedule) -> Option<Self> {
        let grounds = Grounds::new(schedule)?;
        if schedule.place == Place::Hosts && schedule.has(|fault| *fault == Fault::OtherData) {
            refuses_other_data(schedule, &grounds);
        }
        let chief = grounds.start(schedule, "worker/0", false);
        let mut others = BTreeMap::new();
        if schedule.place == Place::Hosts {
            for task in &schedule.tasks()[1..] {
                others.insert(*task, grounds.start(schedule, task, false));
            }
        }
        let (outs, hurt) = (BTreeMap::new(), BTreeMap::new());
        let (began, seen) = (Instant::now(), Vec::new());
        Some(Self { schedule, chief, others, outs, grounds, hurt, began, seen })
    }

    fn process(&self, task: &str) -> u32 {
        match (self.schedule.place, self.others.get(task)) {
            (_, Some(other)) => other.child.id(),
            (Place::Hosts, None) => self.chief.child.id(),
            (Place::Local, None) => self.chief.process(task),
        }
    }

    /// All processes that live.
    fn living(&self) -> Vec<u32> {
        let mut all: Vec<u32> = match self.schedule.place {
            Place::Local => processes(&self.chief.folder()).into_values().collect(),
            Place::Hosts => self.others.values().map(|run| run.child.id()).collect(),
        };
        all.push(self.chief.child.id());
        all.retain(|process| exists(*process));
        all
    }

    /// Inflicts the faults one after the other; says whether one of them ended the run.
    pub fn inflict(&mut self) -> bool {
        let schedule = self.schedule;
        self.chief.wait_for_step(50);
        for fault in &schedule.faults {
            let made = steps(&self.chief.folder());
            self.chief.wait_for_step(made + 50);
            self.seen.extend(self.living());
            match fault {
                Fault::Kill(task) => self.kill(task),
                Fault::LongCut(task) => self.cut_off(task),
                Fault::Stop(task) => {
                    let process = self.process(task);
                    signal(process, "-STOP");
                    std::thread::sleep(STOPPED);
                    signal(process, "-CONT");
                }
                Fault::Pause => self.pause(),
                Fault::SecondOwner => self.second_owner(),
                Fault::FullDisk => self.fill_disk(),
                Fault::Clock(task, ahead) => {
                    let process = self.process(task);
                    self.grounds.clocks.as_ref().unwrap().set(process, *ahead);
                }
                Fault::Cut(task) => self.for_a_while(task, Cable::Cut),
                Fault::Delay(task) => self.for_a_while(task, Cable::Slow),
                Fault::OtherData => {} // at the beginning and at the end
            }
            if schedule
                .losses()
                .any(|task| self.hurt.contains_key(task) && schedule.ends_with(task))
            {
                return true;
            }
        }
        false
    }

    fn host(&self, task: &str) -> usize {
        self.schedule.tasks().iter().position(|known| *known == task).unwrap()
    }

    fn for_a_while(&self, task: &str, cable: Cable) {
        let (lab, host) = (self.grounds.lab.as_ref().unwrap(), self.host(task));
        lab.connect(host, cable);
        std::thread::sleep(CUT);
        lab.connect(host, Cable::Whole);
    }

    fn kill(&mut self, task: &str) {
        let process = self.process(task);
        self.hurt.insert(task.to_owned(), unix_seconds());
        signal(process, "-KILL");
        self.is_named(task);
        self.start_again(task);
        if !self.schedule.ends_with(task) {
            self.is_written_down(task);
        }
    }

    /// The task ends by itself, on the wrong side of a cut that lasts until then.
    fn cut_off(&mut self, task: &str) {
        let host = self.host(task);
        self.hurt.insert(task.to_owned(), unix_seconds());
        self.grounds.lab.as_ref().unwrap().connect(host, Cable::Cut);
        let process = self.process(task);
        wait_for(&format!("{task}, cut off, to end"), || !exists(process));
        self.is_named(task);
        self.grounds.lab.as_ref().unwrap().connect(host, Cable::Whole);
        self.start_again(task);
        if !self.schedule.ends_with(task) {
            self.is_written_down(task);
        }
    }

    /// The chief says so at once, and writes it down when the others go on.
    fn is_named(&mut self, task: &str) {
        let chief = &mut self.chief;
        wait_for(&format!("the loss of {task} to be named"), || {
            chief.talk().contains(task) || chief.child.try_wait().unwrap().is_some()
        });
    }

    fn is_written_down(&mut self, task: &str) {
        let folder = self.chief.folder();
        let chief = &mut self.chief;
        wait_for(&format!("{task} in the log"), || {
            let ended = chief.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended by the loss of {task}: {}", chief.talk());
            events(&folder, "task_lost").iter().any(|event| event["data"]["lost"] == *task)
        });
    }

    /// As what watches over hosts does: lost tasks where the policy says so, servers always.
    fn start_again(&mut self, task: &str) {
        let Some((name, run)) = self.others.remove_entry(task) else { return };
        if self.schedule.ends_with(task) {
            self.others.insert(name, run);
            return;
        }
        let ended = run.end();
        assert_ne!(ended.code(), 0, "{task} was lost: {}", ended.talk);
        self.outs.insert(name, ended.out);
        if self.schedule.policy == "restart" || task.starts_with("ps") {
            self.others.insert(name, self.grounds.start(self.schedule, task, false));
        }
    }

    fn pause(&self) {
        let all = self.living();
        let send = |name: &str| {
            // One that has ended in between needs no signal.
            for process in &all {
                let _ = Command::new("kill").args([name, &process.to_string()]).status();
            }
        };
        send("-STOP");
        std::thread::sleep(STOPPED);
        send("-CONT");
    }

    fn second_owner(&self) {
        let mut second = support::paceline();
        let output =
            second.args(["train", "--quiet", "--resume"]).arg(self.chief.folder()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(75), "a second owner: {said}");
    }

    fn fill_disk(&mut self) {
        let (_, disk) = self.grounds.disk.as_ref().unwrap();
        let filler = disk.join("filler");
        assert!(
            fs::write(&filler, vec![0; 8 << 20]).is_err(),
            "the disk is larger than it should be"
        );
        std::thread::sleep(STOPPED);
        fs::remove_file(&filler).unwrap();
        if !self.schedule.sparse {
            let (folder, now) = (self.chief.folder(), unix_seconds());
            wait_for("a checkpoint when there is room again", || {
                let saved = |event: &serde_json::Value| event["data"]["action"] == "saved";
                let later = |event: &serde_json::Value| event["time"].as_f64() > Some(now);
                events(&folder, "checkpoint").iter().any(|event| saved(event) && later(event))
            });
        }
    }

    /// Ends the run if that has not happened yet, and waits for all of it to be gone.
    pub fn end(mut self, over: bool) -> (Outcome, Rest<'a>) {
        if !over {
            let made = steps(&self.chief.folder());
            self.chief.wait_for_step(made + 50);
            self.seen.extend(self.living());
            signal(self.chief.child.id(), "-INT");
        }
        let folder = self.chief.folder();
        let Self { schedule, chief, others, mut outs, grounds, began, seen, hurt } = self;
        let chief = chief.end();
        let seconds = began.elapsed().as_secs_f64();
        let others: BTreeMap<_, _> =
            others.into_iter().map(|(task, run)| (task, run.end())).collect();
        wait_for("all processes to be gone", || !seen.iter().any(|process| exists(*process)));
        for task in schedule.tasks() {
            outs.entry(task).or_insert_with(|| grounds.out());
        }
        (Outcome { chief, others, folder, seconds, hurt }, Rest { schedule, grounds, outs })
    }
}

/// What is left when a run has ended.
pub struct Rest<'a> {
    schedule: &'a Schedule,
    grounds: Grounds,
    outs: BTreeMap<&'static str, TempDir>,
}

impl Rest<'_> {
    /// Continues a run that has a checkpoint to some more steps; with other data first, where the schedule says so.
    pub fn resume(mut self, outcome: Outcome, last: u64) {
        if !has_checkpoint(&outcome.folder) {
            return;
        }
        let name = outcome.folder.file_name().unwrap().to_str().unwrap().to_owned();
        let target = last + 60;
        self.outs.insert("worker/0", outcome.chief.out);
        for (task, ended) in outcome.others {
            self.outs.insert(task, ended.out);
        }
        if self.schedule.has(|fault| *fault == Fault::OtherData)
            && self.schedule.place == Place::Local
        {
            let refused = self.again(&name, target, true).remove(0);
            assert_eq!(refused.code(), 1, "{}", refused.talk);
            assert!(refused.talk.contains("the data was"), "{}", refused.talk);
            self.outs.insert("worker/0", refused.out);
        }
        let ended = self.again(&name, target, false);
        // The chief last: it can only say that another is missing.
        for task in ended.iter().rev() {
            assert_eq!(task.code(), 0, "resumed: {}", task.talk);
        }
        let made = ended[0].json()["global_steps"].as_u64().unwrap();
        assert!(
            made == target || self.schedule.strategy == "ps-async" && made > target,
            "{made}, not {target}"
        );
        assert!(ended[0].talk.contains("continuing a"), "{}", ended[0].talk); // at a step, after rows
    }

    /// Runs it to its end once more.
    fn again(&mut self, name: &str, target: u64, other: bool) -> Vec<Ended> {
        let tasks = match self.schedule.place {
            Place::Local => vec!["worker/0"],
            Place::Hosts => self.schedule.tasks(),
        };
        let start = |task: &&'static str| {
            let mut command = self.grounds.command(self.schedule, task);
            let out = self.outs.remove(task).unwrap();
            command.args(["--resume", name, "--steps", &target.to_string(), "--out"]);
            command.arg(out.path());
            if other {
                command.args(["--data", &self.grounds.data(self.schedule, true)]);
            }
            spawn(command, out)
        };
        let runs: Vec<Run> = tasks.iter().map(start).collect();
        runs.into_iter().map(Run::end).collect()
    }
}

/// One worker has other data: no step is made, and it is said which one and what differs.
fn refuses_other_data(schedule: &Schedule, grounds: &Grounds) {
    let start = |task: &&str| grounds.start(schedule, task, *task == "worker/2");
    let runs: Vec<Run> = schedule.tasks().iter().map(start).collect();
    let ended: Vec<Ended> = runs.into_iter().map(Run::end).collect();
    let (chief, other) = (&ended[0], &ended[2]);
    assert_eq!((chief.code(), other.code()), (75, 1), "{}\n{}", chief.talk, other.talk);
    assert!(other.talk.contains("see different data"), "{}", other.talk);
    assert!(chief.talk.contains("worker/2"), "{}", chief.talk);
    let made = |out: &Path| {
        let mut folders = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
        folders.any(|folder| steps(&folder) > 0)
    };
    assert!(!ended.iter().any(|task| made(task.out.path())), "steps on data that differs");
}
