//! A session as strategies see it.

use super::Session;
use crate::JobMembership;
use paceline_wire::{Channel, Link, LinkError, Role, TaskId, Wait};
use std::{fmt, sync::atomic::AtomicBool};

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session of {} in generation {}", self.me(), self.view().generation)
    }
}

impl Session {
    fn of_role(&self, wanted: impl Fn(Role) -> bool) -> Vec<TaskId> {
        self.view().circle.into_iter().filter(|task| wanted(task.role)).collect()
    }
}

impl JobMembership for Session {
    fn me(&self) -> TaskId {
        self.me()
    }

    fn workers(&self) -> Vec<TaskId> {
        self.of_role(|role| matches!(role, Role::Chief | Role::Worker))
    }

    fn servers(&self) -> Vec<TaskId> {
        self.of_role(|role| role == Role::Ps)
    }

    fn generation(&self) -> u32 {
        self.view().generation
    }

    fn connect(&self, to: TaskId, channel: Channel, wait: &Wait<'_>) -> Result<Link, LinkError> {
        self.connect(to, channel, wait)
    }

    fn accept(&self, from: TaskId, channel: Channel, wait: &Wait<'_>) -> Result<Link, LinkError> {
        self.accept(from, channel, wait)
    }

    fn alarm(&self) -> &AtomicBool {
        self.interrupted()
    }

    fn lost(&self) -> Vec<TaskId> {
        // The latest generation may not be this task's yet: whom it misses more is why the alarm is raised.
        let state = self.shared.lock();
        let mut lost: Vec<_> = state.latest.lost.iter().map(|loss| loss.task).collect();
        lost.sort_by_key(|task| !state.adopted.lost.iter().any(|loss| loss.task == *task));
        lost
    }
}
