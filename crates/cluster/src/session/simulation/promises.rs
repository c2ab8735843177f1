//! What a session promises, held against everything that happens in a simulated run.

use super::{
    STEPS,
    schedule::{Fault, Schedule},
    world::task,
};
use crate::session::notice::Notice;
use paceline_testing::schedules::Fault as _;
use paceline_wire::TaskId;

/// What was seen so far.
pub(super) struct Book {
    tasks: Vec<TaskId>,
    /// Tasks that something went wrong with, and whether that is so for what all others depend on.
    touched: Vec<bool>,
    /// The last update that was made, its lineage and the generation that made it.
    pub(super) step: u64,
    lineage: u32,
    generation: u32,
    /// Tasks that must be named by some tick.
    due: Vec<(usize, u32)>,
    lost: Vec<usize>,
    /// The chief has told all tasks to leave.
    over: bool,
    /// Until when all processes stand still.
    paused_until: u32,
    /// The generation that was the latest when the chief had done its part.
    last: Option<u32>,
}

impl Book {
    pub(super) fn new(schedule: &Schedule) -> Self {
        let count = schedule.workers + schedule.servers;
        let faults = || schedule.faults.iter().map(|(_, fault)| fault);
        let chief = faults()
            .any(|fault| !matches!(fault, Fault::Start(_) | Fault::Reset(_)) && fault.touches(0));
        // A connection that breaks is not a reason to lose a task.
        let harms = |fault: &Fault| !matches!(fault, Fault::Reset(_));
        let touched = |number| chief || faults().filter(harms).any(|fault| fault.touches(number));
        Self {
            tasks: (0..count).map(|number| task(schedule, number)).collect(),
            touched: (0..count).map(touched).collect(),
            step: 0,
            lineage: 0,
            generation: 0,
            due: Vec::new(),
            lost: Vec::new(),
            over: false,
            paused_until: 0,
            last: None,
        }
    }

    /// Servers were given weights: those of a checkpoint.
    pub(super) fn begins(&mut self, lineage: u32, step: u64) {
        (self.lineage, self.step) = (lineage, step);
    }

    /// Workers formed again with what the furthest of them has; later updates went down with those that had them.
    pub(super) fn continues(&mut self, step: u64) {
        self.step = self.step.min(step);
    }

    /// An update was made.
    pub(super) fn commits(
        &mut self,
        lineages: &[u32],
        step: u64,
        generation: u32,
    ) -> Result<(), String> {
        if lineages.iter().any(|lineage| *lineage != self.lineage) {
            return Err(format!(
                "step {step} is made on weights of {lineages:?}, not of {}",
                self.lineage
            ));
        }
        if step != self.step + 1 {
            return Err(format!("step {step} is made after step {}", self.step));
        }
        if generation < self.generation {
            return Err(format!(
                "generation {generation} makes step {step}, but {} is at work: some tasks train alone",
                self.generation
            ));
        }
        (self.step, self.generation) = (step, generation);
        Ok(())
    }

    /// The chief must name a task by then.
    pub(super) fn expect(&mut self, number: usize, by: u32) {
        self.due.push((number, by));
    }

    /// Its end may not come through, so it is known by its silence.
    pub(super) fn later(&mut self, number: usize, tick: u32, patience: u32) {
        let by = tick.max(self.paused_until) + patience;
        let of_it = |(due, _): &&mut (usize, u32)| *due == number;
        self.due.iter_mut().filter(of_it).for_each(|(_, tick)| *tick = by.max(*tick));
    }

    /// All processes stand still for so long and until then, the chief's too. Those that only do not answer may answer again when it does.
    pub(super) fn pause(&mut self, (ticks, until): (u32, u32), is_dead: impl Fn(usize) -> bool) {
        self.due.retain(|(number, _)| is_dead(*number));
        self.due.iter_mut().for_each(|(_, tick)| *tick += ticks);
        self.paused_until = self.paused_until.max(until);
    }

    /// The chief says something.
    pub(super) fn noticed(&mut self, _tick: u32, notice: &Notice) {
        let of = |task: TaskId| self.tasks.iter().position(|known| *known == task);
        let named = match notice {
            Notice::Lost(loss) => {
                let number = of(loss.task);
                self.lost.extend(number);
                number
            }
            // A process was replaced: its death is told with the arrival of the new one.
            Notice::Joined { task, away: Some(_), .. } => of(*task),
            _ => None,
        };
        self.due.retain(|(number, _)| Some(*number) != named);
    }

    /// The chief has done its part, and this is the latest generation: there is no task left that could give servers their weights.
    pub(super) fn forms_after_the_end(&mut self, latest: u32) -> Result<(), String> {
        if *self.last.get_or_insert(latest) == latest {
            return Ok(());
        }
        Err(format!("generation {latest} begins after the chief has done its part"))
    }

    /// The chief has told all tasks to leave, so losses are not named any more.
    pub(super) fn ends(&mut self) {
        self.over = true;
    }

    /// After every tick; `trouble` says that the chief does not answer, `dead` that it never will.
    pub(super) fn check(&mut self, tick: u32, trouble: bool, dead: bool) -> Result<(), String> {
        if dead || self.over || trouble && tick >= self.paused_until {
            self.due.clear();
        }
        if let Some((number, _)) = self.due.iter().find(|(_, by)| tick > *by) {
            return Err(format!("the loss of {} is not named in time", self.tasks[*number]));
        }
        if let Some(number) = self.lost.iter().find(|number| !self.touched[**number]) {
            return Err(format!("{} is lost, and nothing was wrong with it", self.tasks[*number]));
        }
        Ok(())
    }

    /// When all processes have ended; `released` says whether the chief left because all was done.
    pub(super) fn close(&self, released: bool) -> Result<(), String> {
        if released && self.step < STEPS && self.lost.is_empty() {
            return Err(format!("the run is done after step {} of {STEPS}", self.step));
        }
        if !released && !self.touched.contains(&true) {
            return Err("nothing was wrong, and the run failed".to_owned());
        }
        Ok(())
    }
}
