//! Processes that live and do not answer: stopped, or stuck in the system.
//!
//! The tasks find out among themselves which of them is silent, but only the process that started them can end
//! one of them. It must not do so on a whim: a chief that says anything lives, and a task that the
//! chief has given up may take a moment to leave by itself.
//!
//! Pure: the time goes in, the tasks that shall be ended come out.

use paceline_wire::TaskId;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long a task that was given up may take to leave by itself, if it can.
const GOODBYE: Duration = Duration::from_secs(3);
/// How long the chief may take for a word after a task has ended for want of one. One that lives
/// misses that task within two seconds, and says so.
const LAST_CHANCE: Duration = Duration::from_secs(5);
/// How long a task may take to end once it has said its last word.
const LEAVE: Duration = Duration::from_secs(12);

/// Which tasks do not answer, until when that is borne, and what was said about it.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    tasks: BTreeMap<TaskId, (Instant, String)>,
    chief: Option<(Instant, String)>,
}

impl Silence {
    /// The chief has given a task up whose process still runs.
    pub(crate) fn lost(&mut self, task: TaskId, reason: String, now: Instant) {
        self.tasks.entry(task).or_insert((now + GOODBYE, reason));
    }

    /// A task has said its last word.
    pub(crate) fn leaves(&mut self, task: TaskId, now: Instant) {
        let reason = "it had nothing more to do".to_owned();
        self.tasks.entry(task).or_insert((now + LEAVE, reason));
    }

    /// A task ended because the chief did not answer; says whether it is the first.
    pub(crate) fn without_chief(&mut self, words: &str, now: Instant) -> bool {
        let first = self.chief.is_none();
        self.chief.get_or_insert_with(|| (now + LAST_CHANCE, words.to_owned()));
        first
    }

    /// The chief said something, so it lives; says whether that was in doubt.
    pub(crate) fn chief_spoke(&mut self) -> bool {
        self.chief.take().is_some()
    }

    /// A task's process is gone.
    pub(crate) fn ended(&mut self, task: TaskId) {
        self.tasks.remove(&task);
    }

    /// The tasks that have been waited for long enough, with the reason; each is named once.
    pub(crate) fn overdue(&mut self, chief: TaskId, now: Instant) -> Vec<(TaskId, String)> {
        let over = self.tasks.extract_if(.., |_, (until, _)| now >= *until);
        let mut over: Vec<_> = over.map(|(task, (_, reason))| (task, reason)).collect();
        let silent = self.chief.take_if(|(until, _)| now >= *until);
        over.extend(silent.map(|(_, words)| (chief, words)));
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_wire::Role;

    fn worker(index: u32) -> TaskId {
        TaskId::new(Role::Worker, index)
    }

    #[test]
    fn who_was_given_up_and_does_not_leave_is_ended_once() {
        let (mut silence, begun) = (Silence::default(), Instant::now());
        silence.lost(worker(1), "silent for 8 s".to_owned(), begun);
        silence.lost(worker(2), "silent for 8 s".to_owned(), begun);
        assert!(silence.overdue(worker(0), begun + GOODBYE / 2).is_empty());
        silence.ended(worker(2));
        let after = begun + GOODBYE;
        let overdue = silence.overdue(worker(0), after);
        assert_eq!(overdue, [(worker(1), "silent for 8 s".to_owned())], "the other one has left");
        assert!(silence.overdue(worker(0), after + GOODBYE).is_empty());
    }

    #[test]
    fn a_task_that_has_said_its_last_word_must_end() {
        let (mut silence, begun) = (Silence::default(), Instant::now());
        silence.leaves(worker(0), begun);
        assert!(silence.overdue(worker(0), begun + GOODBYE).is_empty());
        assert_eq!(silence.overdue(worker(0), begun + LEAVE).len(), 1);
    }

    #[test]
    fn a_chief_that_speaks_lives() {
        let (mut silence, begun) = (Silence::default(), Instant::now());
        assert!(!silence.chief_spoke());
        assert!(silence.without_chief("lost worker/0", begun));
        assert!(!silence.without_chief("lost worker/0 too", begun + LAST_CHANCE / 2));
        assert!(silence.chief_spoke());
        assert!(silence.overdue(worker(0), begun + 2 * LAST_CHANCE).is_empty());
        assert!(silence.without_chief("lost worker/0 again", begun));
        let overdue = silence.overdue(worker(0), begun + LAST_CHANCE);
        assert_eq!(overdue, [(worker(0), "lost worker/0 again".to_owned())]);
    }
}
