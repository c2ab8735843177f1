//! What goes wrong in a run, and in which order: drawn from a seed.

use paceline_stats::random::Random;
use std::collections::BTreeSet;

/// Where the tasks of a run are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// All on this machine, started by `paceline train`.
    Local,
    /// Each on a host of its own, started by `paceline node`.
    Hosts,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    Kill(String),
    /// Stopped by a signal, and continued.
    Stop(String),
    /// All processes of the run are, as a machine that sleeps.
    Pause,
    /// A second process wants to continue the run.
    SecondOwner,
    /// The disk of the run folder is full for a while.
    FullDisk,
    /// The clock of a task's machine is set, by so many seconds.
    Clock(String, i64),
    /// No packet reaches or leaves a task's host for a moment: not a loss.
    Cut(String),
    /// The same for longer than a task may be silent: it is lost, and must not train alone.
    LongCut(String),
    /// Packets from and to a task's host are late.
    Delay(String),
    /// A task is started with other data than the rest has: before the run, and when it is to continue.
    OtherData,
}

#[derive(Debug)]
pub struct Schedule {
    pub place: Place,
    pub sparse: bool,
    pub strategy: &'static str,
    pub policy: &'static str,
    pub faults: Vec<Fault>,
}

impl Schedule {
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 31);
        // Starting hosts takes longer, so they are rarer.
        let place = if random.below(4) == 0 { Place::Hosts } else { Place::Local };
        let sparse = random.below(3) == 0;
        let strategies: &[&str] = if sparse {
            &["ps-sync", "ps-async"]
        } else {
            &["multi-worker", "ps-sync", "ps-async"]
        };
        let strategy = strategies[random.below(strategies.len())];
        let policy = ["continue", "restart", "stop"][random.below(3)];
        let mut drawn = Self { place, sparse, strategy, policy, faults: Vec::new() };
        let mut gone = BTreeSet::new();
        for _ in 0..1 + random.below(3) {
            let fault = drawn.fault(&mut random, &mut gone);
            drawn.faults.push(fault);
        }
        drawn
    }

    /// All tasks, the chief first.
    pub fn tasks(&self) -> Vec<&'static str> {
        let mut tasks = vec!["worker/0", "worker/1", "worker/2"];
        if self.strategy.starts_with("ps") {
            tasks.extend(["ps/0", "ps/1"]);
        }
        tasks
    }

    fn fault(&self, random: &mut Random, gone: &mut BTreeSet<String>) -> Fault {
        let tasks = self.tasks();
        let task = tasks[random.below(tasks.len())].to_owned();
        // A task that is gone for good cannot be hurt again.
        let there = !gone.contains(&task);
        match (self.place, random.below(12)) {
            (_, 0..4) if there => {
                gone.insert(task.clone());
                Fault::Kill(task)
            }
            (_, 4) if there => Fault::Stop(task),
            (_, 5) => Fault::SecondOwner,
            (_, 6) => Fault::FullDisk,
            (_, 7) if there => Fault::Clock(task, [3600, -3600, 30, -30][random.below(4)]),
            (_, 8) if !self.faults.contains(&Fault::OtherData) => Fault::OtherData,
            (Place::Hosts, 9) if there => Fault::Cut(task),
            (Place::Hosts, 10) if there => Fault::Delay(task),
            // A server that is cut off is a server that is lost; the chief's cut is the end of all.
            (Place::Hosts, _) if there && task.starts_with("worker") => {
                gone.insert(task.clone());
                Fault::LongCut(task)
            }
            _ => Fault::Pause,
        }
    }

    /// Whether the run ends when a task is lost.
    pub fn ends_with(&self, task: &str) -> bool {
        task == "worker/0" || self.policy == "stop"
    }

    /// Tasks that are lost in the course of it.
    pub fn losses(&self) -> impl Iterator<Item = &str> {
        self.faults.iter().filter_map(|fault| match fault {
            Fault::Kill(task) | Fault::LongCut(task) => Some(task.as_str()),
            _ => None,
        })
    }

    pub fn has(&self, wanted: impl Fn(&Fault) -> bool) -> bool {
        self.faults.iter().any(wanted)
    }
}
