//! Chief, members and servers of one run with a virtual clock and network, in one thread.
//!
//! The chief's [`Roster`] and each task's [`Shared`] are the real ones. What is written here a second time is what threads
//! and sockets do around them: connections that keep their order, break and stall, processes that die, stop and start.

use super::{
    Mutation,
    promises::Book,
    schedule::{Fault, SECOND, Schedule, hello},
};
use crate::session::{
    Rules, SessionError,
    message::{Beat, Hello, Stop, ToChief, ToMember},
    roster::{Admission, BEAT, Order, Roster, SILENCE},
    shared::Shared,
};
use paceline_stats::random::Random;
use paceline_wire::{Role, TaskId};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

pub(super) const TICK: Duration = Duration::from_millis(1000 / SECOND as u64);
/// How long the chief waits for tasks, at the start and after a loss.
const JOIN_TIMEOUT: u32 = 20 * SECOND;
/// Silence that counts as a loss.
pub(super) const PATIENCE: u32 = SILENCE.as_secs() as u32 * SECOND;
/// How long a member tries to connect again, as in `member.rs`.
const RECONNECT: u32 = SECOND;
/// How long an heir waits for the death of its predecessor to be noticed, and the chief for the others to leave: `chief.rs`.
const SUCCESSION: u32 = 3 * SECOND;
const LINGER: u32 = SECOND;
/// A process that was stopped for shorter does not notice: `stood_still`.
const UNNOTICED: u32 = 2 * SECOND;

/// One process of a task.
pub(super) struct Process {
    pub(super) task: usize,
    incarnation: u64,
    pub(super) shared: Shared,
    pub(super) alive: bool,
    pub(super) released: bool,
    stopped_until: u32,
    stopped_from: Option<u32>,
    link: Option<usize>,
    heard: u32,
    patience: u32,
    broken_since: Option<u32>,
    started: u32,
    leaving: Option<u32>,
    /// What training holds: updates in its weights, and of which lineage they are where servers hold them.
    pub(super) step: u64,
    pub(super) lineage: u32,
    pub(super) regrouping: Option<u32>,
    pub(super) stalled: u32,
    pub(super) finished: bool,
}

/// A control connection: what was sent is received in order, or not at all.
struct Link {
    process: usize,
    to_chief: VecDeque<(u32, ToChief)>,
    to_member: VecDeque<(u32, ToMember)>,
    broken: bool,
    /// When the chief learns that it broke: the thread that listens may be late.
    seen_from: Option<u32>,
}

/// A run.
pub(super) struct World<'a> {
    pub(super) schedule: &'a Schedule,
    mutation: Option<Mutation>,
    pub(super) random: Random,
    pub(super) tick: u32,
    base: Instant,
    roster: Roster,
    /// The chief's connection to each task.
    connections: BTreeMap<usize, usize>,
    heirs: Vec<(u32, Hello, usize)>,
    links: Vec<Link>,
    pub(super) processes: Vec<Process>,
    /// Until when the host of each task is cut off.
    cut_until: Vec<u32>,
    apart: Vec<(usize, usize, u32)>,
    /// Updates in the last checkpoint, and the generation in which the chief saw to the servers.
    pub(super) checkpoint: u64,
    pub(super) supplied: u32,
    pub(super) book: Book,
}

/// The task of a number: workers first.
pub(super) fn task(schedule: &Schedule, number: usize) -> TaskId {
    match number.checked_sub(schedule.workers) {
        None => TaskId::new(Role::Worker, number as u32),
        Some(server) => TaskId::new(Role::Ps, server as u32),
    }
}

impl<'a> World<'a> {
    pub(super) fn new(schedule: &'a Schedule, mutation: Option<Mutation>) -> Self {
        let base = Instant::now();
        let count = schedule.workers + schedule.servers;
        let tasks = (0..count).map(|number| (task(schedule, number), String::new())).collect();
        let rules = Rules {
            on_loss: schedule.on_loss,
            regroup: schedule.synchronous,
            all_finish: false,
            join_timeout: TICK * JOIN_TIMEOUT,
            patience: SILENCE,
        };
        let mut random = Random::new(schedule.seed, 28);
        let processes: Vec<Process> = (0..count)
            .map(|number| {
                let started = if number == 0 { 0 } else { random.below(SECOND as usize) as u32 };
                Process::new(schedule, number, 1, started)
            })
            .collect();
        let roster = Roster::new(&hello(schedule, 0, 1), "run".to_owned(), rules, &tasks, base);
        Self {
            schedule,
            mutation,
            random,
            tick: 0,
            base,
            roster,
            connections: BTreeMap::new(),
            heirs: Vec::new(),
            links: Vec::new(),
            processes,
            cut_until: vec![0; count],
            apart: Vec::new(),
            checkpoint: 0,
            supplied: 0,
            book: Book::new(schedule),
        }
    }

    fn now(&self) -> Instant {
        self.base + TICK * self.tick
    }

    pub(super) fn is_cut(&self, task: usize) -> bool {
        self.tick < self.cut_until[task]
    }

    pub(super) fn is_awake(&self, process: usize) -> bool {
        let one = &self.processes[process];
        one.alive && self.tick >= one.stopped_until && self.tick >= one.started
    }

    /// Whether data pass between two tasks.
    pub(super) fn reach(&self, one: usize, other: usize) -> bool {
        let apart = |&(a, b, until): &(usize, usize, u32)| {
            self.tick < until && ((a, b) == (one, other) || (a, b) == (other, one))
        };
        one == other || !self.is_cut(one) && !self.is_cut(other) && !self.apart.iter().any(apart)
    }

    /// The oldest process of a task that lives.
    pub(super) fn living(&self, task: usize) -> Option<usize> {
        self.processes.iter().position(|one| one.task == task && one.alive)
    }

    /// One tick; a promise that is broken ends the simulation.
    pub(super) fn advance(&mut self) -> Result<(), String> {
        self.tick += 1;
        let schedule = self.schedule;
        for fault in schedule.faults.at(self.tick - 1) {
            self.befall(fault)?;
        }
        for process in 1..self.processes.len() {
            if self.is_awake(process) {
                self.live(process);
            }
        }
        self.train()?;
        if self.is_awake(0) {
            self.decide();
        }
        let chief = &self.processes[0];
        let latest = chief.shared.lock().latest.generation;
        if chief.finished {
            self.book.forms_after_the_end(latest)?;
        }
        let trouble = !self.is_awake(0) || self.is_cut(0);
        self.book.check(self.tick, trouble, !self.processes[0].alive)
    }

    pub(super) fn is_over(&self) -> bool {
        let later = self.schedule.faults.iter().filter(|(tick, _)| tick + 1 > self.tick);
        let more = later.map(|(_, fault)| fault).any(|fault| matches!(fault, Fault::Start(_)));
        !more && self.processes.iter().all(|one| !one.alive)
    }

    fn befall(&mut self, fault: Fault) -> Result<(), String> {
        match fault {
            Fault::Kill(task) => {
                if let Some(process) = self.living(task).filter(|_| self.is_started(task)) {
                    self.tear(process)?;
                    self.processes[process].alive = false;
                    let bound = if self.is_cut(task) { PATIENCE } else { 8 };
                    self.expect_loss(task, process, bound, self.cut_until[task]);
                }
            }
            Fault::Start(task) if task > 0 => {
                let incarnation = 1 + self.processes.len() as u64;
                let new = Process::new(self.schedule, task, incarnation, self.tick);
                self.processes.push(new);
            }
            Fault::Start(_) => {} // a chief that is gone ends the run
            Fault::Stop(task, ticks) => {
                if let Some(process) = self.living(task).filter(|_| self.is_started(task)) {
                    self.processes[process].stop(self.tick, ticks);
                    let until = self.cut_until[task];
                    if self.tick + ticks > self.tick.max(until) + PATIENCE + SECOND {
                        self.expect_loss(task, process, PATIENCE, until);
                    }
                }
            }
            Fault::Cut(task, ticks) => {
                // TCP tries again after pauses that double, so a cut is felt for up to twice as long.
                let before = self.cut_until[task];
                let felt = ticks + self.random.below(ticks as usize + 1) as u32;
                self.cut_until[task] = self.cut_until[task].max(self.tick + felt);
                // The end of a process that died a moment ago may not come through.
                self.book.later(task, self.tick, PATIENCE + 4);
                let process = self.living(task).filter(|_| ticks > PATIENCE + SECOND);
                if let Some(process) = process {
                    self.expect_loss(task, process, PATIENCE, before);
                }
            }
            Fault::Pause(ticks) => {
                for one in self.processes.iter_mut().filter(|one| one.alive) {
                    one.stop(self.tick, ticks);
                }
                let processes = &self.processes;
                let lives = |number| processes.iter().any(|one| one.task == number && one.alive);
                self.book.pause((ticks, self.tick + ticks), |number| !lives(number));
            }
            Fault::Reset(task) => {
                let process = self.living(task).and_then(|process| self.processes[process].link);
                if let Some(link) = process.map(|link| &mut self.links[link]) {
                    link.broken = true;
                    link.to_chief.clear();
                    link.to_member.clear();
                }
            }
            Fault::Apart(one, other, ticks) => self.apart.push((one, other, self.tick + ticks)),
        }
        Ok(())
    }

    fn is_started(&self, task: usize) -> bool {
        self.living(task).is_some_and(|process| self.tick >= self.processes[process].started)
    }

    /// From here on the chief must name a task within so many ticks, if it knows this process of it. What a cut that lasts until
    /// `until` held back is still heard.
    fn expect_loss(&mut self, task: usize, process: usize, ticks: u32, until: u32) {
        let known = self.connections.get(&task).is_some_and(|link| {
            self.links[*link].process == process && !self.processes[process].finished
        });
        let starting = if self.roster.is_running() { 1 } else { 4 };
        if known && task > 0 && self.is_awake(0) {
            // One that is silent may die before its silence was long enough, and has the grace of a broken connection then.
            let grace = if ticks == PATIENCE { 8 } else { 0 };
            self.book.expect(task, self.tick.max(until) + starting * ticks + grace + 4);
        }
    }

    /// A process that connects, listens and speaks; not the chief.
    fn live(&mut self, at: usize) {
        let (tick, task) = (self.tick, self.processes[at].task);
        let one = &mut self.processes[at];
        if let Some(from) = one.stopped_from.take()
            && tick - from > UNNOTICED
        {
            one.heard += tick - from;
        }
        let cut = self.is_cut(task) || self.is_cut(0);
        let answers = !cut && self.is_awake(0);
        if let Some(link) = self.processes[at].link {
            self.listen(at, link, cut);
            let gone = !self.processes[0].alive && !cut;
            if self.links[link].broken || gone {
                self.reconnect(at, answers);
            }
        } else if answers {
            self.dial(at);
        } else if tick - self.processes[at].started >= JOIN_TIMEOUT {
            self.processes[at].alive = false; // no chief
            return;
        }
        let one = &mut self.processes[at];
        if one.link.is_some() && tick - one.heard >= one.patience {
            one.lose_chief("silent");
        }
        if (tick - one.started).is_multiple_of(BEAT.as_secs() as u32 * SECOND) {
            let beat = Beat { step: one.step, ..Beat::default() };
            self.say(at, ToChief::Beat(beat));
        }
        self.leave(at);
    }

    /// A process that is released or that the run is over for exits.
    fn leave(&mut self, at: usize) {
        let (released, ended) = {
            let state = self.processes[at].shared.lock();
            (state.released, state.ended.is_some())
        };
        if ended && !released {
            self.say(at, ToChief::Failed { reason: "ended".to_owned() });
        }
        if released || ended {
            self.processes[at].alive = false;
            self.processes[at].released = released;
        }
    }

    fn listen(&mut self, at: usize, link: usize, cut: bool) {
        while let Some((due, _)) = self.links[link].to_member.front() {
            if cut || *due > self.tick {
                return;
            }
            let Some((_, message)) = self.links[link].to_member.pop_front() else { return };
            let one = &mut self.processes[at];
            one.heard = self.tick;
            match &message {
                ToMember::Beat { patience, .. } => {
                    one.patience = PATIENCE.max((patience * f64::from(SECOND)) as u32);
                }
                ToMember::View(view) if view.complete => one.patience = PATIENCE,
                _ => {}
            }
            one.shared.apply(message, task(self.schedule, 0), "");
        }
    }

    fn dial(&mut self, at: usize) {
        let one = &mut self.processes[at];
        one.link = Some(self.links.len());
        (one.heard, one.broken_since) = (self.tick, None);
        let hello = hello(self.schedule, one.task, one.incarnation);
        self.links.push(Link {
            process: at,
            to_chief: VecDeque::new(),
            to_member: VecDeque::new(),
            broken: false,
            seen_from: None,
        });
        self.say(at, ToChief::Hello(hello));
        if self.processes[at].finished {
            self.say_finished(at);
        }
    }

    fn reconnect(&mut self, at: usize, answers: bool) {
        let one = &mut self.processes[at];
        let over = {
            let state = one.shared.lock();
            state.released || state.ended.is_some()
        };
        let since = *one.broken_since.get_or_insert(self.tick);
        if over {
        } else if answers {
            self.dial(at);
        } else if self.tick - since >= RECONNECT {
            one.lose_chief("connection reset");
        }
    }

    /// Sends to the chief; a connection that is broken loses it.
    pub(super) fn say(&mut self, at: usize, message: ToChief) {
        if at == 0 {
            self.hear(0, message);
            return;
        }
        let due = self.tick + self.random.below(2) as u32;
        if let Some(link) = self.processes[at].link.map(|link| &mut self.links[link])
            && !link.broken
        {
            let due = link.to_chief.back().map_or(due, |(last, _)| due.max(*last));
            link.to_chief.push_back((due, message));
        }
    }

    /// The chief's turn: hears, decides, speaks.
    fn decide(&mut self) {
        let now = self.now();
        if let Some(from) = self.processes[0].stopped_from.take()
            && self.tick - from > UNNOTICED
            && self.mutation != Some(Mutation::StandstillCounts)
        {
            self.roster.stood_still(TICK * (self.tick - from));
        }
        let mut orders = Vec::new();
        for link in 0..self.links.len() {
            self.hear_link(link, &mut orders);
        }
        for (since, hello, link) in std::mem::take(&mut self.heirs) {
            self.admit(since, hello, link, &mut orders);
        }
        let own = Beat { step: self.processes[0].step, ..Beat::default() };
        self.roster.beat(task(self.schedule, 0), own, now);
        self.roster.tick(now, &mut orders);
        if self.roster.is_overdue(now) {
            let me = task(self.schedule, 0);
            let reason = "not all tasks joined".to_owned();
            self.roster.stop(Stop::Failed { task: me, reason }, &mut orders);
        }
        self.carry_out(orders);
        for notice in self.roster.take_notices() {
            self.book.noticed(self.tick, &notice);
        }
        let one = &self.processes[0];
        let state = one.shared.lock();
        let (released, ended) = (state.released, state.ended.is_some());
        drop(state);
        if released || ended {
            self.book.ends();
            let since = *self.processes[0].leaving.get_or_insert(self.tick);
            if self.connections.is_empty() || self.tick - since >= LINGER {
                self.processes[0].alive = false;
                self.processes[0].released = released;
            }
        }
    }

    fn hear_link(&mut self, at: usize, orders: &mut Vec<Order>) {
        let process = self.links[at].process;
        let number = self.processes[process].task;
        let cut = self.is_cut(number) || self.is_cut(0);
        while let Some((due, _)) = self.links[at].to_chief.front() {
            if cut || *due > self.tick {
                return;
            }
            let Some((_, message)) = self.links[at].to_chief.pop_front() else { return };
            match message {
                ToChief::Hello(hello) => self.admit(self.tick, hello, at, orders),
                message if self.connections.get(&number) == Some(&at) => {
                    self.said(number, message, orders);
                }
                _ => {}
            }
        }
        let over = self.links[at].broken || !self.processes[process].alive;
        if !over || cut {
            return;
        }
        self.links[at].broken = true;
        let late = self.random.below(3) as u32;
        let seen_from = *self.links[at].seen_from.get_or_insert(self.tick + late);
        if self.tick >= seen_from {
            let stale = self.mutation == Some(Mutation::StaleBreakCounts);
            let mine = self.connections.get(&number) == Some(&at);
            if let Some(link) = self.connections.get(&number).filter(|_| mine || stale) {
                let incarnation = self.processes[self.links[*link].process].incarnation;
                let now = self.base + TICK * self.tick;
                self.roster.broken(task(self.schedule, number), incarnation, "reset", now);
                self.connections.remove(&number);
            }
        }
    }

    fn admit(&mut self, since: u32, hello: Hello, link: usize, orders: &mut Vec<Order>) {
        if self.links[link].broken {
            return;
        }
        let refused = match self.roster.hello(&hello, None, self.now(), orders) {
            Admission::Taken(_) if self.tick - since < SUCCESSION => {
                self.heirs.push((since, hello, link));
                return;
            }
            Admission::Taken(reason) | Admission::Refused(reason) => Some(reason),
            Admission::Joined | Admission::Resumed => None,
        };
        match refused {
            Some(reason) => self.send(link, ToMember::Refused { reason }),
            None => {
                let number = self.processes[self.links[link].process].task;
                if let Some(old) = self.connections.insert(number, link) {
                    self.links[old].broken = true;
                }
            }
        }
    }

    /// What a task's training says to the chief, the chief's own included.
    fn hear(&mut self, number: usize, message: ToChief) {
        let mut orders = Vec::new();
        self.said(number, message, &mut orders);
        self.carry_out(orders);
    }

    fn said(&mut self, number: usize, message: ToChief, orders: &mut Vec<Order>) {
        let (now, from) = (self.now(), task(self.schedule, number));
        match message {
            ToChief::Beat(beat) => self.roster.beat(from, beat, now),
            ToChief::Suspect { task, reason } => self.roster.suspect(from, task, &reason, now),
            ToChief::Finished { report, generation } => {
                self.roster.finished(from, report, generation, now);
                if self.mutation == Some(Mutation::FormsAfterTheEnd) {
                    self.roster.reopen();
                }
            }
            ToChief::Failed { reason } => self.roster.failed(from, &reason, now, orders),
            _ => self.roster.heard(from, now),
        }
    }

    fn send(&mut self, link: usize, message: ToMember) {
        let due = self.tick + self.random.below(2) as u32;
        let link = &mut self.links[link];
        if !link.broken {
            let due = link.to_member.back().map_or(due, |(last, _)| due.max(*last));
            link.to_member.push_back((due, message));
        }
    }

    fn carry_out(&mut self, orders: Vec<Order>) {
        let numbers: BTreeMap<TaskId, usize> =
            (0..self.cut_until.len()).map(|number| (task(self.schedule, number), number)).collect();
        for order in orders {
            match order {
                Order::To(to, message) if numbers[&to] == 0 => {
                    self.processes[0].shared.apply(message, to, "");
                }
                Order::To(to, message) => {
                    if let Some(link) = self.connections.get(&numbers[&to]) {
                        self.send(*link, message);
                    }
                }
                Order::Drop(task) => {
                    self.connections.remove(&numbers[&task]);
                }
            }
        }
    }
}

impl Process {
    fn new(schedule: &Schedule, number: usize, incarnation: u64, started: u32) -> Self {
        Self {
            task: number,
            incarnation,
            shared: Shared::new(task(schedule, number)),
            alive: true,
            released: false,
            stopped_until: 0,
            stopped_from: None,
            link: None,
            heard: started,
            patience: 4 * PATIENCE,
            broken_since: None,
            started,
            leaving: None,
            step: 0,
            lineage: 0,
            regrouping: None,
            stalled: 0,
            finished: false,
        }
    }

    fn stop(&mut self, tick: u32, ticks: u32) {
        self.stopped_from = self.stopped_from.or(Some(tick));
        self.stopped_until = self.stopped_until.max(tick + ticks);
    }

    fn lose_chief(&mut self, reason: &str) {
        self.shared.end(SessionError::ChiefLost {
            chief: TaskId::new(Role::Worker, 0),
            address: String::new(),
            reason: reason.to_owned(),
        });
    }

    /// The generation it works in; 0 before the first, and when the run is over for it.
    pub(super) fn generation(&self) -> u32 {
        let state = self.shared.lock();
        if state.ended.is_some() || state.released { 0 } else { state.adopted.generation }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.shared.interrupted().load(Ordering::Relaxed)
    }
}
