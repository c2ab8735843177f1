//! Who is let in, and who is told why not.

use super::{OnLoss, Order, Presence, Roster, RosterEntry};
use crate::session::message::{Hello, ToMember};
use paceline_wire::{Role, TaskId};
use serde_json::Value;
use std::time::Instant;

impl RosterEntry {
    /// A task that is not there yet.
    pub(super) fn expected(address: &str, listed: bool, now: Instant) -> Self {
        Self {
            presence: Presence::Expected,
            since: now,
            listed,
            address: address.to_owned(),
            host: String::new(),
            incarnation: 0,
            process: 0,
            heard: now,
            rhythm: super::patience::Rhythm::default(),
            error: None,
            offset: None,
            report: None,
        }
    }
}

impl Roster {
    /// Whether the same process connected again. What was on its way to it when its connection broke is lost, so it is
    /// told again; one that had done its part has.
    pub(super) fn is_back(&mut self, hello: &Hello, now: Instant, orders: &mut Vec<Order>) -> bool {
        let known = |entry: &&mut RosterEntry| entry.incarnation == hello.incarnation;
        let Some(entry) = self.entries.get_mut(&hello.task).filter(known) else { return false };
        match entry.presence {
            Presence::Present | Presence::Broken(..) => entry.presence = Presence::Present,
            Presence::Finished => {}
            Presence::Expected | Presence::Lost => return false,
        }
        entry.heard = now;
        let missed = match &self.stopped {
            Some(cause) => Some(ToMember::Stop { cause: cause.clone() }),
            None if self.released => Some(ToMember::Release),
            None => self.running.then(|| ToMember::View(self.view())),
        };
        orders.extend(missed.map(|message| Order::To(hello.task, message)));
        true
    }

    /// Says why a task is not there, where that could be found out.
    pub(in crate::session) fn missed(&mut self, task: TaskId, error: String) {
        if let Some(entry) = self.entries.get_mut(&task)
            && entry.presence == Presence::Expected
            && !entry.error.as_ref().is_some_and(|error| error.starts_with("refused"))
        {
            entry.error = Some(error);
        }
    }

    /// Why a task cannot be let in.
    pub(super) fn objection(&self, hello: &Hello) -> Option<String> {
        let entry = self.entries.get(&hello.task);
        if entry.is_none() && !self.has_room_for(hello.task) {
            let known: Vec<String> = self.entries.keys().map(ToString::to_string).collect();
            return Some(format!(
                "{} is not a task of this run, which has {}",
                hello.task,
                known.join(", ")
            ));
        }
        if entry.is_none() && self.running && self.rules.all_finish {
            return Some(format!("the other tasks have started without {}", hello.task));
        }
        if self.stopped.is_some() || self.released || self.concluded.is_some() {
            return Some("the run is ending".to_owned());
        }
        if let Some(difference) = difference(&self.plan, &hello.plan) {
            let what = match difference.strip_prefix("data.") {
                Some(difference) => format!("see different data: {difference}"),
                None => format!("were started with different settings: {difference}"),
            };
            return Some(format!("{} and {} {what}", self.me, hello.task));
        }
        let lost = entry.is_some_and(|entry| entry.presence == Presence::Lost);
        if lost && !self.may_return(hello.task) {
            return Some(format!("the run continued without {}", hello.task));
        }
        None
    }

    /// Whether a task that is not listed may take part all the same. `TF_CONFIG` leaves the evaluator out;
    /// no task depends on it, so it may join at any time.
    fn has_room_for(&self, task: TaskId) -> bool {
        let scores = |task: &TaskId| task.role == Role::Evaluator;
        scores(&task) && !self.entries.keys().any(scores)
    }

    /// Who else has a task's place.
    pub(super) fn taken(&self, hello: &Hello, now: Instant) -> Option<String> {
        let entry = self.entries.get(&hello.task)?;
        let taken = match entry.presence {
            Presence::Present => now - entry.heard < self.patience(now),
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
    let differing =
        ours.keys().chain(theirs.keys()).filter(|key| ours.get(*key) != theirs.get(*key));
    // Where several differ, a number says more than a checksum or a list.
    let most_telling = differing.min_by_key(|key| !ours.get(*key).is_some_and(Value::is_number));
    most_telling.map(|key| {
        // Deeper, as far as both have parts to compare: one number says more than two long lists.
        if let (Some(ours @ Value::Object(_)), Some(theirs @ Value::Object(_))) =
            (ours.get(key), theirs.get(key))
            && let Some(inner) = difference(ours, theirs)
        {
            return format!("{key}.{inner}");
        }
        let show = |map: &serde_json::Map<String, Value>| {
            map.get(key).map_or_else(|| "nothing".to_owned(), ToString::to_string)
        };
        format!("{key} is {} and {}", show(ours), show(theirs))
    })
}
