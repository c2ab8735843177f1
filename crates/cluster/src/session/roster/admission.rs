//! Who is let in, and who is told why not.

use super::{OnLoss, Presence, Roster, SILENCE};
use crate::{Role, TaskId, session::message::Hello};
use serde_json::Value;
use std::time::Instant;

impl Roster {
    /// Why a task cannot be let in.
    pub(super) fn objection(&self, hello: &Hello) -> Option<String> {
        let Some(entry) = self.entries.get(&hello.task) else {
            let known: Vec<String> = self.entries.keys().map(ToString::to_string).collect();
            return Some(format!(
                "{} is no task of this run, which has {}",
                hello.task,
                known.join(", ")
            ));
        };
        if self.stopped.is_some() || self.released {
            return Some("the run is ending".to_owned());
        }
        if let Some(difference) = difference(&self.plan, &hello.plan) {
            return Some(format!(
                "{} and {} were started with different settings: {difference}",
                self.me, hello.task
            ));
        }
        if entry.presence == Presence::Lost && !self.may_return(hello.task) {
            return Some(format!("the run went on without {}", hello.task));
        }
        None
    }

    /// Who else has a task's place.
    pub(super) fn taken(&self, hello: &Hello, now: Instant) -> Option<String> {
        let entry = self.entries.get(&hello.task)?;
        let taken = match entry.presence {
            Presence::Present => now - entry.heard < SILENCE,
            Presence::Finished => true,
            _ => false,
        };
        (taken && entry.incarnation != hello.incarnation).then(|| {
            format!(
                "{} is taken by another process, on {} at {}",
                hello.task, entry.host, entry.address
            )
        })
    }

    /// Whether a task that was lost may take its place again.
    fn may_return(&self, task: TaskId) -> bool {
        match task.role {
            Role::Ps => self.rules.on_loss != OnLoss::Stop,
            Role::Evaluator => true,
            Role::Worker | Role::Chief => {
                task != self.me && self.rules.on_loss == OnLoss::Restart
                    || !self.rules.regroup && self.rules.on_loss == OnLoss::Continue
            }
        }
    }
}

/// The first setting in which two plans differ, with both values.
fn difference(ours: &Value, theirs: &Value) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let (Some(ours), Some(theirs)) = (ours.as_object(), theirs.as_object()) else {
        return Some(format!("{ours} and {theirs}"));
    };
    let differing = ours.keys().chain(theirs.keys()).find(|key| ours.get(*key) != theirs.get(*key));
    differing.map(|key| {
        let show = |map: &serde_json::Map<String, Value>| {
            map.get(key).map_or_else(|| "nothing".to_owned(), ToString::to_string)
        };
        format!("{key} is {} and {}", show(ours), show(theirs))
    })
}
