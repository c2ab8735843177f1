//! Who takes part, decided in one place: the chief's list of tasks as a state machine.
//!
//! Pure: messages and the time go in, orders come out, so that every race can be written down as a
//! test. The threads around it are in `chief.rs`.

mod admission;
mod conclusion;
mod patience;
mod standstill;

pub(super) use self::patience::Rhythm;

use super::{
    OnLoss, Rules,
    clock::Offset,
    message::{Beat, Hello, Loss, Member, Stop, ToMember, View},
    notice::{Notice, TaskRow, TaskRowState},
    straggler::Watch,
};
use paceline_wire::{Role, TaskId};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long a broken connection may take to come back. A killed process's connections break at once,
/// so this is most of the time until its loss is known.
pub(super) const GRACE: Duration = Duration::from_millis(1500);
/// How long a task may be silent, unless told otherwise or all are late. TCP sends again after 0.2, 0.6, 1.4, 3.0 and 6.2 seconds, so a cut of
/// three seconds can silence a living task for more than six.
pub const SILENCE: Duration = Duration::from_secs(8);
/// Time between two heartbeats.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// How long a suspicion waits for the suspect to be found dead by itself.
const DOUBT: Duration = Duration::from_secs(3);

/// What the chief shall do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Order {
    /// Tell a task, the own one included.
    To(TaskId, ToMember),
    /// Close the connection to a task.
    Drop(TaskId),
}

/// Whether a task that introduced itself is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Admission {
    /// It takes its place.
    Joined,
    /// The same process connected again.
    Resumed,
    /// Not let in.
    Refused(String),
    /// Another process still has its place; it may have died without the chief having noticed yet.
    Taken(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Presence {
    /// Not there yet, or waited for again.
    Expected,
    /// Takes part.
    Present,
    /// Its connection broke a moment ago.
    Broken(Instant, String),
    /// Has done its part.
    Finished,
    /// Gone.
    Lost,
}

#[derive(Debug)]
struct RosterEntry {
    presence: Presence,
    since: Instant,
    /// Whether the run waits for it; an evaluator may come without having been announced.
    listed: bool,
    address: String,
    host: String,
    incarnation: u64,
    process: u32,
    heard: Instant,
    rhythm: Rhythm,
    /// Why it is not there, as far as is known.
    error: Option<String>,
    offset: Option<Offset>,
    report: Option<Value>,
}

/// The chief's list.
#[derive(Debug)]
pub(super) struct Roster {
    me: TaskId,
    run: String,
    plan: Value,
    rules: Rules,
    entries: BTreeMap<TaskId, RosterEntry>,
    generation: u32,
    /// The tasks of the present generation, those it has lost since it began included.
    circle: Vec<TaskId>,
    /// Generation since which servers hold the last checkpoint instead of what they had.
    restored: u32,
    processes: u32,
    running: bool,
    stopped: Option<Stop>,
    released: bool,
    /// The generation in which the chief did its part. Every update is made and saved then: no task forms again.
    concluded: Option<u32>,
    /// Whether all tasks were told so.
    conclusion_told: bool,
    began: Instant,
    beat_at: Instant,
    step: u64,
    doubts: BTreeMap<(TaskId, TaskId), (Instant, String, u32)>,
    watch: Watch,
    notices: Vec<Notice>,
}

impl Roster {
    /// `tasks` with the addresses that are known beforehand (empty where they are not).
    pub(super) fn new(
        me: &Hello,
        run: String,
        rules: Rules,
        tasks: &BTreeMap<TaskId, String>,
        now: Instant,
    ) -> Self {
        let expected = |address: &String| RosterEntry::expected(address, true, now);
        let mut roster = Self {
            me: me.task,
            run,
            plan: me.plan.clone(),
            rules,
            entries: tasks.iter().map(|(task, address)| (*task, expected(address))).collect(),
            generation: 0,
            circle: Vec::new(),
            restored: 0,
            processes: 0,
            running: false,
            stopped: None,
            released: false,
            concluded: None,
            conclusion_told: false,
            began: now,
            beat_at: now,
            step: 0,
            doubts: BTreeMap::new(),
            watch: Watch::default(),
            notices: Vec::new(),
        };
        roster.membership(me, None, now);
        roster
    }

    fn membership(&mut self, hello: &Hello, offset: Option<Offset>, now: Instant) {
        self.processes += 1;
        let process = self.processes;
        let Some(entry) = self.entries.get_mut(&hello.task) else { return };
        // A process that is replaced before anybody noticed its death is lost and back in one moment; it was away since its last word.
        let away = (self.running && entry.process > 0).then(|| now - entry.heard);
        *entry = RosterEntry {
            presence: Presence::Present,
            since: now,
            listed: entry.listed,
            address: hello.address.clone(),
            host: hello.host.clone(),
            incarnation: hello.incarnation,
            process,
            heard: now,
            rhythm: Rhythm::default(),
            error: None,
            offset,
            report: None,
        };
        self.notices.push(Notice::Joined {
            task: hello.task,
            address: hello.address.clone(),
            host: hello.host.clone(),
            process: hello.process,
            offset,
            away,
        });
    }

    /// A task introduces itself.
    pub(super) fn hello(
        &mut self,
        hello: &Hello,
        offset: Option<Offset>,
        now: Instant,
        orders: &mut Vec<Order>,
    ) -> Admission {
        if let Some(reason) = self.taken(hello, now) {
            return Admission::Taken(reason);
        }
        if self.is_back(hello, now, orders) {
            return Admission::Resumed;
        }
        let refused = self.objection(hello);
        if let Some(reason) = refused {
            if let Some(entry) = self.entries.get_mut(&hello.task)
                && entry.presence == Presence::Expected
            {
                entry.error = Some(format!("refused: {reason}"));
            }
            self.notices.push(Notice::Refused { task: hello.task, reason: reason.clone() });
            return Admission::Refused(reason);
        }
        let entry =
            self.entries.entry(hello.task).or_insert_with(|| RosterEntry::expected("", false, now));
        if matches!(entry.presence, Presence::Broken(..)) {
            self.lose_replaced(hello.task, now, orders);
            if self.stopped.is_some() {
                return Admission::Refused("the run is ending".to_owned());
            }
        }
        self.membership(hello, offset, now);
        if self.running {
            match hello.task.role {
                Role::Ps => {
                    // Its state is lost; no task may continue with a mixture.
                    self.begin_generation();
                    self.restored = self.generation;
                }
                // Where the others formed again without it, it would be in no generation.
                Role::Worker | Role::Chief
                    if self.rules.regroup || !self.circle.contains(&hello.task) =>
                {
                    self.begin_generation();
                }
                _ => {}
            }
        } else {
            self.begin_if_complete();
        }
        if self.running {
            self.show(orders);
        }
        Admission::Joined
    }

    /// A task was restarted before the chief noticed that it had died. No process is left at the other end of its old connection.
    fn lose_replaced(&mut self, task: TaskId, now: Instant, orders: &mut Vec<Order>) {
        let mut to_others = Vec::new();
        self.lose(task, "its process was replaced", now, &mut to_others);
        let to_old = |order: &Order| match order {
            Order::To(to, message) => *to == task && matches!(message, ToMember::Stop { .. }),
            Order::Drop(dropped) => *dropped == task,
        };
        orders.extend(to_others.into_iter().filter(|order| !to_old(order)));
    }

    /// All tasks have joined for the first time: the run begins.
    fn begin_if_complete(&mut self) -> bool {
        let begins = !self.running && self.complete();
        if begins {
            self.running = true;
            self.begin_generation();
        }
        begins
    }

    /// Something was heard of a task.
    pub(super) fn heard(&mut self, task: TaskId, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&task) {
            entry.speaks(now);
        }
    }

    /// A heartbeat with progress.
    pub(super) fn beat(&mut self, task: TaskId, beat: Beat, now: Instant) {
        self.heard(task, now);
        self.step = self.step.max(beat.step);
        let working =
            self.entries.get(&task).is_some_and(|entry| entry.presence == Presence::Present);
        if working
            && beat.steps > 0
            && let Some(straggler) = self.watch.note(task, beat)
        {
            self.notices.push(Notice::Straggler(straggler));
        }
    }

    /// A task says that it cannot go on.
    pub(super) fn failed(
        &mut self,
        task: TaskId,
        reason: &str,
        now: Instant,
        orders: &mut Vec<Order>,
    ) {
        if task == self.me {
            self.stop(Stop::Failed { task, reason: reason.to_owned() }, orders);
        } else if self.stopped.is_none() {
            // Who was told to stop only says so.
            self.lose(task, reason, now, orders);
        }
    }

    /// The connection to a task broke.
    pub(super) fn broken(&mut self, task: TaskId, incarnation: u64, reason: &str, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&task)
            && entry.incarnation == incarnation
            && entry.presence == Presence::Present
        {
            entry.presence = Presence::Broken(now, reason.to_owned());
        }
    }

    /// A task cannot reach another one.
    pub(super) fn suspect(&mut self, by: TaskId, about: TaskId, reason: &str, now: Instant) {
        if self.concluded.is_some() {
            return;
        }
        let doubt = self.doubts.entry((by, about)).or_insert((now, String::new(), 0));
        *doubt = (now, reason.to_owned(), doubt.2 + 1);
    }

    /// Time passes.
    pub(super) fn tick(&mut self, now: Instant, orders: &mut Vec<Order>) {
        if self.stopped.is_some() || self.released {
            return;
        }
        if self.begin_if_complete() {
            self.show(orders); // no other task is expected, so none that joins would begin it
        }
        if self.concluded.is_some() && !std::mem::replace(&mut self.conclusion_told, true) {
            self.show(orders);
        }
        let patience = self.patience(now);
        let lost: Vec<(TaskId, String)> = self
            .entries
            .iter()
            .filter(|(task, _)| **task != self.me)
            .filter_map(|(task, entry)| match &entry.presence {
                Presence::Broken(since, reason) if now - *since >= GRACE => {
                    Some((*task, reason.clone()))
                }
                Presence::Present if now - entry.heard >= patience => {
                    let seconds = (now - entry.heard).as_secs();
                    Some((*task, format!("silent for {seconds} s")))
                }
                _ => None,
            })
            .collect();
        for (task, reason) in lost {
            self.lose(task, &reason, now, orders);
        }
        self.settle_doubts(now, orders);
        if self.stopped.is_some() {
            return;
        }
        if self.running && !self.complete() {
            let overdue = self.entries.iter().find(|(_, entry)| {
                entry.presence == Presence::Expected && now - entry.since > self.rules.join_timeout
            });
            if let Some((task, entry)) = overdue {
                let mut loss = loss(*task, entry);
                loss.reason = format!(
                    "{}; it did not come back within {} s",
                    loss.reason,
                    self.rules.join_timeout.as_secs()
                );
                self.stop(Stop::Lost(loss), orders);
                return;
            }
        }
        if now - self.beat_at >= BEAT {
            self.beat_at = now;
            let beat = ToMember::Beat { step: self.step, patience: patience.as_secs_f64() };
            orders.extend(self.others().map(|task| Order::To(task, beat.clone())));
        }
        if self.running && self.workers_done() {
            self.released = true;
            self.notices.push(Notice::Released);
            orders.extend(self.present().map(|task| Order::To(task, ToMember::Release)));
        }
    }

    fn settle_doubts(&mut self, now: Instant, orders: &mut Vec<Order>) {
        let due: Vec<((TaskId, TaskId), String, u32)> = self
            .doubts
            .iter()
            .filter(|(_, (since, ..))| now - *since >= DOUBT)
            .map(|(pair, (_, reason, count))| (*pair, reason.clone(), *count))
            .collect();
        for ((by, about), reason, count) in due {
            let there = |task: &TaskId| {
                self.entries.get(task).is_some_and(|entry| entry.presence == Presence::Present)
            };
            let done =
                self.entries.get(&about).is_some_and(|one| one.presence == Presence::Finished);
            if there(&by) && done {
                // It has left with its part done, and is not missed: those that are left go on without it.
                self.doubts.remove(&(by, about));
                self.begin_generation();
                self.show(orders);
            } else if !there(&by) || !there(&about) {
                self.doubts.remove(&(by, about));
            } else if count == 1 {
                // Both answer here: perhaps only a connection broke. New ones show whether it was.
                if let Some(doubt) = self.doubts.get_mut(&(by, about)) {
                    doubt.0 = now + Duration::from_secs(3600); // wait for a second complaint
                }
                self.begin_generation();
                self.show(orders);
            } else {
                self.doubts.remove(&(by, about));
                // Two tasks that both answer here cannot reach each other: one must go, and it is not
                // the chief.
                let (gone, other) = if about == self.me { (by, about) } else { (about, by) };
                self.lose(gone, &format!("{other} cannot reach it: {reason}"), now, orders);
            }
        }
    }

    fn lose(&mut self, task: TaskId, reason: &str, now: Instant, orders: &mut Vec<Order>) {
        let Some(entry) = self.entries.get_mut(&task) else { return };
        if matches!(entry.presence, Presence::Lost | Presence::Finished | Presence::Expected) {
            return;
        }
        entry.error = Some(reason.to_owned());
        entry.since = now;
        let waits = !self.running && entry.listed;
        entry.presence = if waits { Presence::Expected } else { Presence::Lost };
        let loss = loss(task, entry);
        self.watch.forget(task);
        self.doubts.retain(|(by, about), _| *by != task && *about != task);
        orders.push(Order::To(
            task,
            ToMember::Stop { cause: Stop::Expelled { reason: reason.to_owned() } },
        ));
        orders.push(Order::Drop(task));
        self.notices.push(Notice::Lost(loss.clone()));
        if !self.running {
            return;
        }
        if self.concluded.is_some() {
            return self.show(orders);
        }
        let wait = |roster: &mut Self| {
            if let Some(entry) = roster.entries.get_mut(&task) {
                entry.presence = Presence::Expected;
            }
            roster.begin_generation();
        };
        match (task.role, self.rules.on_loss) {
            (Role::Evaluator, _) => {}
            (_, OnLoss::Stop) => return self.stop(Stop::Lost(loss), orders),
            (Role::Ps, _) => wait(self),
            (_, OnLoss::Restart) if self.rules.regroup => wait(self),
            (_, OnLoss::Continue) if self.rules.regroup => self.begin_generation(),
            (_, OnLoss::Restart | OnLoss::Continue) => {}
        }
        self.show(orders);
    }

    /// Ends the run for all tasks.
    pub(super) fn stop(&mut self, cause: Stop, orders: &mut Vec<Order>) {
        if self.stopped.is_some() || self.released {
            return;
        }
        self.stopped = Some(cause.clone());
        let stop = ToMember::Stop { cause };
        orders.extend(self.present().map(|task| Order::To(task, stop.clone())));
    }

    /// The tasks that are left, or waited for, work together from now on. Workers that have finished do
    /// not regroup: they have nothing more to contribute.
    fn begin_generation(&mut self) {
        self.generation += 1;
        let out = |task: &TaskId, entry: &RosterEntry| match entry.presence {
            Presence::Lost => true,
            Presence::Finished => task.role != Role::Ps,
            _ => false,
        };
        self.circle = self
            .entries
            .iter()
            .filter(|(task, entry)| !out(task, entry))
            .map(|(task, _)| *task)
            .collect();
    }

    fn show(&self, orders: &mut Vec<Order>) {
        let view = ToMember::View(self.view());
        orders.extend(self.present().map(|task| Order::To(task, view.clone())));
    }

    fn present(&self) -> impl Iterator<Item = TaskId> {
        self.entries
            .iter()
            .filter(|(_, entry)| {
                matches!(
                    entry.presence,
                    Presence::Present | Presence::Broken(..) | Presence::Finished
                )
            })
            .map(|(task, _)| *task)
    }

    fn others(&self) -> impl Iterator<Item = TaskId> {
        self.present().filter(|task| *task != self.me)
    }

    fn complete(&self) -> bool {
        self.entries.values().all(|entry| entry.presence != Presence::Expected)
    }

    fn workers_done(&self) -> bool {
        let done = |presence: &Presence| matches!(presence, Presence::Finished | Presence::Lost);
        let counts = |task: &TaskId| {
            self.rules.all_finish || matches!(task.role, Role::Chief | Role::Worker)
        };
        self.entries.iter().filter(|(task, _)| counts(task)).all(|(_, entry)| done(&entry.presence))
    }

    fn view(&self) -> View {
        let gone =
            |entry: &RosterEntry| matches!(entry.presence, Presence::Lost | Presence::Expected);
        View {
            generation: self.generation,
            complete: self.complete(),
            restored: self.restored,
            circle: self.circle.clone(),
            members: self
                .entries
                .iter()
                .filter(|(_, entry)| !gone(entry))
                .map(|(task, entry)| Member {
                    task: *task,
                    address: entry.address.clone(),
                    process: entry.process,
                })
                .collect(),
            lost: self
                .entries
                .iter()
                .filter(|(_, entry)| gone(entry))
                .map(|(task, entry)| loss(*task, entry))
                .collect(),
            run: self.run.clone(),
            concluded: self.concluded,
        }
    }

    /// Whether all tasks have joined once.
    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    /// How long to wait for all tasks.
    pub(super) fn join_timeout(&self) -> Duration {
        self.rules.join_timeout
    }

    /// Whether the time to join is over.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        !self.running && now - self.began >= self.rules.join_timeout
    }

    /// What happened since the last call.
    pub(super) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The list as people see it.
    pub(super) fn rows(&self, now: Instant) -> Vec<TaskRow> {
        self.entries
            .iter()
            .map(|(task, entry)| TaskRow {
                task: *task,
                address: entry.address.clone(),
                host: entry.host.clone(),
                state: match entry.presence {
                    Presence::Expected => TaskRowState::Waiting,
                    Presence::Present | Presence::Broken(..) => TaskRowState::Joined,
                    Presence::Finished => TaskRowState::Finished,
                    Presence::Lost => TaskRowState::Lost,
                },
                seconds: (now - entry.since).as_secs_f64(),
                error: entry.error.clone(),
                offset: entry.offset,
            })
            .collect()
    }
}

fn loss(task: TaskId, entry: &RosterEntry) -> Loss {
    Loss {
        task,
        address: entry.address.clone(),
        reason: entry.error.clone().unwrap_or_else(|| "not there".to_owned()),
    }
}

#[cfg(test)]
mod tests;
