//! What the tasks of a simulated run do with each other: updates in lockstep or one by one, on weights of their own or on
//! servers, as `crates/training` and `crates/strategies` do it.

use super::{
    STEPS,
    schedule::SECOND,
    world::{World, task},
};
use crate::session::message::ToChief;
use paceline_wire::{Role, TaskId};
use serde_json::Value;

/// An exchange that stands still for so long is given up.
const STALL: u32 = 4 * SECOND;
/// How long a task waits for the generation that follows.
const REGROUP: u32 = 35 * SECOND;
/// Updates between two checkpoints.
const SAVE_EVERY: u64 = 5;

/// What stands between a task and an update.
enum Obstacle {
    /// Another task is not ready yet.
    NotYet,
    /// Another task does not answer.
    Silent(usize),
    /// The connection to another task broke.
    Dead(usize),
}

impl World<'_> {
    /// Everything that training does in one tick.
    pub(super) fn train(&mut self) -> Result<(), String> {
        for at in 0..self.processes.len() {
            if self.is_awake(at) {
                self.regroup(at);
            }
        }
        self.supply()?;
        let mut generations: Vec<u32> = Vec::new();
        for at in 0..self.processes.len() {
            let one = &self.processes[at];
            if one.task >= self.schedule.workers || !self.is_at_work(at) {
                continue;
            }
            let (generation, me) = (one.generation(), task(self.schedule, one.task));
            if !one.shared.lock().adopted.circle.contains(&me) {
                return Err(format!("{me} is in generation {generation}, which is without it"));
            }
            if !self.schedule.synchronous {
                self.update_alone(at)?;
            } else if !generations.contains(&generation) {
                generations.push(generation);
                self.update_together(generation)?;
            }
        }
        self.finish();
        Ok(())
    }

    fn is_at_work(&self, at: usize) -> bool {
        let one = &self.processes[at];
        self.is_awake(at) && one.generation() > 0 && one.regrouping.is_none() && !one.finished
    }

    /// Goes over to the next generation when the present one is over.
    fn regroup(&mut self, at: usize) {
        let tick = self.tick;
        let one = &mut self.processes[at];
        if one.finished {
            return;
        }
        let interrupted = one.is_interrupted();
        let generation = one.shared.lock().adopted.generation;
        if generation > 0 && interrupted && one.regrouping.is_none() {
            one.regrouping = Some(tick);
        }
        if (generation == 0 || one.regrouping.is_some())
            && one.shared.change(|state| one.shared.adopt(state)).is_some()
        {
            (one.regrouping, one.stalled) = (None, 0);
        }
        if one.regrouping.is_some() && one.shared.lock().is_concluded() {
            // Every update is made and saved: servers wait for the end, workers have done their part.
            one.finished = one.task < self.schedule.workers;
            if one.finished {
                self.say_finished(at);
            }
            return;
        }
        if one.regrouping.is_some_and(|since| tick - since >= REGROUP) {
            one.alive = false;
        }
    }

    /// An exchange failed: waits for what follows, and says which task could not be reached.
    fn suspect(&mut self, at: usize, about: usize) {
        let known = {
            let state = self.processes[at].shared.lock();
            state.latest.generation > state.adopted.generation || state.ended.is_some()
        };
        self.processes[at].regrouping = Some(self.tick);
        if !known {
            let task = task(self.schedule, about);
            self.say(at, ToChief::Suspect { task, reason: "reset".to_owned() });
        }
    }

    /// The tasks of a process's generation that have a role, by number.
    fn circle(&self, at: usize, role: Role) -> Vec<usize> {
        let number = |task: &TaskId| match task.role {
            Role::Ps => self.schedule.workers + task.index as usize,
            _ => task.index as usize,
        };
        let state = self.processes[at].shared.lock();
        state.adopted.circle.iter().filter(|task| task.role == role).map(number).collect()
    }

    /// The process of a task that works in a generation, or what stands in the way.
    fn partner(&self, by: usize, number: usize, generation: u32) -> Result<usize, Obstacle> {
        let at = |one: &super::world::Process| {
            one.task == number && one.alive && one.generation() == generation
        };
        let Some(found) = self.processes.iter().position(at) else {
            if self.is_cut(number) {
                return Err(Obstacle::Silent(number));
            }
            let waits = self.living(number).is_some_and(|living| {
                let one = &self.processes[living];
                one.generation() < generation
            });
            return Err(if waits { Obstacle::NotYet } else { Obstacle::Dead(number) });
        };
        if !self.is_awake(found) || !self.reach(self.processes[by].task, number) {
            return Err(Obstacle::Silent(number));
        }
        let one = &self.processes[found];
        if one.regrouping.is_some() || one.finished { Err(Obstacle::NotYet) } else { Ok(found) }
    }

    /// The processes of some tasks, or the first obstacle on the way to them.
    fn partners(&self, by: usize, numbers: &[usize]) -> Result<Vec<usize>, Obstacle> {
        let generation = self.processes[by].generation();
        numbers.iter().map(|number| self.partner(by, *number, generation)).collect()
    }

    fn held_up(&mut self, at: usize, obstacle: &Obstacle) {
        match obstacle {
            Obstacle::NotYet => {}
            Obstacle::Dead(about) => self.suspect(at, *about),
            Obstacle::Silent(about) => {
                self.processes[at].stalled += 1;
                if self.processes[at].stalled >= STALL {
                    self.suspect(at, *about);
                }
            }
        }
    }

    /// The chief sees to it that all servers of a generation hold weights of one lineage.
    fn supply(&mut self) -> Result<(), String> {
        if self.schedule.servers == 0 || !self.is_at_work(0) {
            return Ok(());
        }
        let generation = self.processes[0].generation();
        if self.supplied == generation {
            return Ok(());
        }
        let servers = match self.partners(0, &self.circle(0, Role::Ps)) {
            Ok(servers) => servers,
            Err(obstacle) => {
                self.held_up(0, &obstacle);
                return Ok(());
            }
        };
        let lineage = self.processes[0].lineage;
        let whole = lineage > 0 && servers.iter().all(|at| self.processes[*at].lineage == lineage);
        if !whole {
            for at in servers {
                (self.processes[at].lineage, self.processes[at].step) =
                    (generation, self.checkpoint);
            }
            self.processes[0].lineage = generation;
            self.book.begins(generation, self.checkpoint);
        }
        self.supplied = generation;
        Ok(())
    }

    /// Whether a worker can update the weights on all servers: those it works with.
    fn servers(&self, at: usize) -> Result<Vec<usize>, Obstacle> {
        let servers = self.partners(at, &self.circle(at, Role::Ps))?;
        let supplied = self.schedule.servers == 0
            || self.supplied == self.processes[at].generation() && !servers.is_empty();
        if supplied { Ok(servers) } else { Err(Obstacle::NotYet) }
    }

    /// One update of an asynchronous worker.
    fn update_alone(&mut self, at: usize) -> Result<(), String> {
        let servers = match self.servers(at) {
            Ok(servers) => servers,
            Err(obstacle) => {
                self.held_up(at, &obstacle);
                return Ok(());
            }
        };
        let me = task(self.schedule, self.processes[at].task);
        let hung_up = servers.iter().any(|server| {
            let state = self.processes[*server].shared.lock();
            state.latest.lost.iter().any(|loss| loss.task == me)
        });
        if hung_up {
            // A server closes its connections to tasks that are lost.
            self.suspect(at, self.processes[servers[0]].task);
            return Ok(());
        }
        let version = self.processes[servers[0]].step;
        if version < STEPS {
            self.commit(at, &servers, version + 1)?;
        }
        self.processes[at].step = self.processes[servers[0]].step;
        Ok(())
    }

    fn group(&self, generation: u32) -> Result<(Vec<usize>, Vec<usize>), (usize, Obstacle)> {
        let first = self.processes.iter().position(|one| {
            one.task < self.schedule.workers && one.alive && one.generation() == generation
        });
        let Some(first) = first else { return Ok((Vec::new(), Vec::new())) };
        let numbers = self.circle(first, Role::Worker);
        let mut group = Vec::new();
        for by in numbers.iter().filter_map(|number| self.partner(first, *number, generation).ok())
        {
            group = self.partners(by, &numbers).map_err(|obstacle| (by, obstacle))?;
        }
        let Some(one) = group.first() else {
            let found = self.partners(first, &numbers);
            return found.map(|group| (group, Vec::new())).map_err(|obstacle| (first, obstacle));
        };
        Ok((group.clone(), self.servers(*one).map_err(|obstacle| (*one, obstacle))?))
    }

    /// One update of all workers of a generation.
    fn update_together(&mut self, generation: u32) -> Result<(), String> {
        let (group, servers) = match self.group(generation) {
            Ok(found) => found,
            Err((_, obstacle)) => {
                for at in 0..self.processes.len() {
                    let one = &self.processes[at];
                    if one.task < self.schedule.workers
                        && self.is_at_work(at)
                        && one.generation() == generation
                        && !matches!(&obstacle, Obstacle::Silent(of) | Obstacle::Dead(of) if *of == one.task)
                    {
                        self.held_up(at, &obstacle);
                    }
                }
                return Ok(());
            }
        };
        let holders = if servers.is_empty() { &group } else { &servers };
        let Some(step) = holders.iter().map(|at| self.processes[*at].step).max() else {
            return Ok(());
        };
        if servers.is_empty() {
            self.book.continues(step);
        }
        self.commit(group[0], holders, step + 1)?;
        group.iter().for_each(|at| self.processes[*at].step = step + 1);
        Ok(())
    }

    fn commit(&mut self, by: usize, holders: &[usize], step: u64) -> Result<(), String> {
        let lineages: Vec<u32> = holders.iter().map(|at| self.processes[*at].lineage).collect();
        let steps = holders.iter().map(|at| self.processes[*at].step);
        if self.schedule.servers > 0 && steps.clone().max() != steps.min() {
            return Err(format!("servers hold different versions in step {step}"));
        }
        let generation = self.processes[by].generation();
        self.book.commits(&lineages, step, generation)?;
        for at in holders {
            self.processes[*at].step = step;
        }
        if by == 0 && step.is_multiple_of(SAVE_EVERY) {
            self.checkpoint = step;
        }
        Ok(())
    }

    /// A worker is killed in the middle of an update: some of the others may have it already.
    pub(super) fn tear(&mut self, process: usize) -> Result<(), String> {
        let one = &self.processes[process];
        let (number, generation) = (one.task, one.generation());
        let can = self.schedule.synchronous
            && self.schedule.servers == 0
            && number < self.schedule.workers
            && self.is_at_work(process);
        if !can || self.random.below(2) == 0 {
            return Ok(());
        }
        let Ok((group, _)) = self.group(generation) else { return Ok(()) };
        let Some(step) = group.iter().map(|at| self.processes[*at].step).max() else {
            return Ok(());
        };
        if step + 1 >= STEPS || !group.contains(&process) {
            return Ok(());
        }
        self.book.continues(step);
        self.book.commits(&[0], step + 1, generation)?;
        for at in group {
            let has = self.random.below(2) == 0;
            self.processes[at].step = step + u64::from(has);
        }
        Ok(())
    }

    pub(super) fn say_finished(&mut self, at: usize) {
        let generation = self.processes[at].shared.lock().adopted.generation;
        self.say(at, ToChief::Finished { report: Value::Null, generation });
    }

    /// Workers that have made all steps say so.
    fn finish(&mut self) {
        for at in 0..self.processes.len() {
            let one = &self.processes[at];
            if one.task < self.schedule.workers && self.is_at_work(at) && one.step >= STEPS {
                self.processes[at].finished = true;
                self.say_finished(at);
            }
        }
    }
}
