//! The end of a run: tasks that have done their part, and what follows when the chief has.

use super::{Presence, Roster};
use paceline_wire::TaskId;
use serde_json::Value;
use std::time::Instant;

impl Roster {
    /// A task has done its part, in that generation.
    pub(in crate::session) fn finished(
        &mut self,
        task: TaskId,
        report: Value,
        generation: u32,
        now: Instant,
    ) {
        self.heard(task, now);
        if let Some(entry) = self.entries.get_mut(&task) {
            entry.presence = Presence::Finished;
            entry.report = Some(report);
        }
        // Its steps stay: the tasks still at work are compared with them.
        if task == self.me && !self.rules.all_finish {
            self.conclude(generation);
        }
    }

    /// Every update is made and saved: tasks that are gone are not waited for, and those that are there form no more generations,
    /// for which the chief would have to give servers their weights.
    fn conclude(&mut self, generation: u32) {
        self.concluded = Some(generation);
        self.doubts.clear();
        for entry in self.entries.values_mut() {
            if entry.presence == Presence::Expected {
                entry.presence = Presence::Lost;
            }
        }
    }

    /// Reports of those that finished.
    pub(in crate::session) fn reports(&self) -> Vec<(TaskId, Value)> {
        self.entries
            .iter()
            .filter_map(|(task, entry)| Some((*task, entry.report.clone()?)))
            .collect()
    }

    /// Forgets that the chief has done its part: a mistake of old, for the simulation.
    #[cfg(test)]
    pub(in crate::session) fn reopen(&mut self) {
        self.concluded = None;
    }
}
