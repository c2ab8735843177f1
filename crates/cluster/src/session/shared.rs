//! What a task knows of the run, shared between the session's threads and the training.

use super::{
    SessionError,
    message::{Beat, Stop, ToMember, View},
    starved::Reading,
};
use paceline_wire::{Channel, Closer, Link, TaskId};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Fewest steps between two heartbeats that a worker asks for besides the regular ones.
const STEPS_PER_BEAT: u64 = 8;
/// Least time between two of them.
const EARLY_BEAT: Duration = Duration::from_millis(100);
/// How much longer or shorter steps must have become for early heartbeats where workers are synchronous: each heartbeat
/// takes a moment from a worker that computes, and all wait for it. A slow worker changes the pace of all.
const CHANGE: f64 = 1.5;
/// For so many steps after a change, and at the start, heartbeats are early.
const WATCHFUL: u64 = 64;

/// What a task knows of the run.
pub(super) struct Shared {
    pub(super) me: TaskId,
    state: Mutex<SessionState>,
    changed: Condvar,
    /// Raised when the present generation is over: threads that wait for data should stop.
    pub(super) interrupted: Arc<AtomicBool>,
    /// Raised when the run is over for this task.
    pub(super) over: Arc<AtomicBool>,
    /// Raised when the session ends: its threads leave.
    pub(super) closing: AtomicBool,
    beat: Mutex<Sent>,
    beat_due: Condvar,
    /// The last sign of life: of the chief or, for the chief, of any other task.
    heard: Mutex<Instant>,
    /// Whether the training waits for its own data.
    pub(super) reading: Reading,
}

#[derive(Default)]
struct Sent {
    now: Beat,
    /// Steps and time of the last heartbeat.
    steps: u64,
    at: Option<Instant>,
    due: bool,
    /// Steps and seconds in them when the pace was last looked at, the pace, and the step up to which heartbeats are early.
    looked: (u64, f64),
    pace: Option<f64>,
    watchful: u64,
}

impl Sent {
    /// Looks every few steps how long they take.
    fn watch(&mut self, now: &Beat) {
        if now.steps < self.looked.0 {
            (self.looked, self.pace) = ((0, 0.0), None); // restarted
        }
        let (steps, seconds) = self.looked;
        if now.steps < steps + STEPS_PER_BEAT {
            return;
        }
        let pace = (now.step_seconds - seconds) / (now.steps - steps) as f64;
        if self.pace.is_none_or(|before| pace > CHANGE * before || before > CHANGE * pace) {
            self.watchful = now.steps + WATCHFUL;
        }
        self.looked = (now.steps, now.step_seconds);
        self.pace = Some(pace);
    }
}

#[derive(Default)]
pub(super) struct SessionState {
    /// The generation that the training works in.
    pub(super) adopted: View,
    /// The latest one heard of.
    pub(super) latest: View,
    pub(super) ended: Option<SessionError>,
    pub(super) released: bool,
    /// The reports of all tasks, for the chief.
    pub(super) reports: Vec<(TaskId, serde_json::Value)>,
    /// What this task reported when it had done its part: said again if the connection breaks before it is heard.
    pub(super) finished: Option<serde_json::Value>,
    /// Data connections that no thread has asked for yet.
    pub(super) mailbox: BTreeMap<(TaskId, u32, Channel), Link>,
    /// Ends the data connections in use, by task, channel and whether this task dialled.
    pub(super) open: BTreeMap<(TaskId, Channel, bool), Closer>,
}

impl SessionState {
    /// Whether no generation follows.
    pub(super) fn is_concluded(&self) -> bool {
        self.released || self.latest.concluded.is_some()
    }

    /// Whether the chief does not work in a generation, and never will: servers get no weights in it.
    fn is_beyond(&self, generation: u32) -> bool {
        self.released || self.latest.concluded.is_some_and(|last| last < generation)
    }

    /// Ends the connections to tasks that are lost. A host that is cut off cannot do so itself, and threads
    /// would wait for it forever.
    fn hang_up(&mut self, view: &View) {
        let lost = |task: TaskId| view.lost.iter().any(|loss| loss.task == task);
        self.mailbox.retain(|(task, ..), _| !lost(*task));
        for (_, closer) in self.open.extract_if(.., |(task, ..), _| lost(*task)) {
            closer.close();
        }
    }
}

impl Shared {
    pub(super) fn new(me: TaskId) -> Self {
        Self {
            me,
            state: Mutex::default(),
            changed: Condvar::new(),
            interrupted: Arc::default(),
            over: Arc::default(),
            closing: AtomicBool::new(false),
            beat: Mutex::default(),
            beat_due: Condvar::new(),
            heard: Mutex::new(Instant::now()),
            reading: Reading::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SessionState> {
        // The state is whole at every point where a holder could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the threads that wait.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut SessionState) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `ready` has an answer or the deadline passes.
    pub(super) fn wait_for<T>(
        &self,
        deadline: Instant,
        cancel: &[Option<&AtomicBool>],
        mut ready: impl FnMut(&mut SessionState) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(answer) = ready(&mut state) {
                return Some(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let mut flags = cancel.iter().flatten().peekable();
            let flagged = flags.peek().is_some();
            if left.is_zero() || flags.any(|flag| flag.load(Ordering::Relaxed)) {
                return None;
            }
            // A flag cannot wake us, so we look at it now and then.
            let most = if flagged { left.min(Duration::from_millis(20)) } else { left };
            (state, _) =
                self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Another task gave a sign of life.
    pub(super) fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// When the last one was.
    pub(super) fn heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what the chief says.
    pub(super) fn apply(&self, message: ToMember, chief: TaskId, chief_address: &str) {
        match message {
            ToMember::View(view) => self.change(|state| {
                if view.generation < state.latest.generation {
                    return;
                }
                if view.generation == state.adopted.generation {
                    state.adopted = view.clone();
                } else if state.adopted.generation > 0 {
                    self.interrupted.store(true, Ordering::Relaxed);
                }
                state.hang_up(&view);
                state.latest = view;
                if state.is_beyond(state.adopted.generation) {
                    self.interrupted.store(true, Ordering::Relaxed);
                }
            }),
            ToMember::Stop { cause } => self.end(match cause {
                Stop::Lost(loss) => SessionError::Lost(loss),
                Stop::Failed { task, reason } => SessionError::Failed { task, reason },
                Stop::Expelled { reason } => SessionError::Expelled { me: self.me, reason },
            }),
            ToMember::Refused { reason } => self.end(SessionError::Refused {
                chief,
                address: chief_address.to_owned(),
                me: self.me,
                reason,
            }),
            ToMember::Release => self.change(|state| {
                state.released = true;
                // A task that still waits for another waits in vain.
                self.interrupted.store(true, Ordering::Relaxed);
            }),
            ToMember::Ping { .. } | ToMember::Beat { .. } => {}
        }
    }

    /// The run is over for this task; the first reason counts.
    pub(super) fn end(&self, error: SessionError) {
        self.change(|state| {
            if !state.released {
                state.ended.get_or_insert(error);
            }
            self.interrupted.store(true, Ordering::Relaxed);
            self.over.store(true, Ordering::Relaxed);
        });
    }

    /// Goes over to the latest generation, if it is complete and newer.
    pub(super) fn adopt(&self, state: &mut SessionState) -> Option<View> {
        let newer = state.latest.generation > state.adopted.generation;
        // Who has just joined begins all the same, and sees at its first wait that it is over.
        let barred = state.adopted.generation > 0 && state.is_beyond(state.latest.generation);
        if !newer || !state.latest.complete || barred {
            return None;
        }
        state.adopted = state.latest.clone();
        let generation = state.adopted.generation;
        // Connections of the past are of no use to anybody.
        state.mailbox.retain(|(_, of, _), _| *of >= generation);
        let over = state.ended.is_some() || state.is_beyond(generation);
        self.interrupted.store(over, Ordering::Relaxed);
        Some(state.adopted.clone())
    }

    pub(super) fn interrupted(&self) -> &AtomicBool {
        &self.interrupted
    }

    /// What the training says about itself, after every step: cheap, no system call unless a
    /// heartbeat is due early. `in_lockstep` says that all workers wait for each other in every step.
    pub(super) fn progress(&self, now: Beat, in_lockstep: bool) {
        let mut beat = self.beat.lock().unwrap_or_else(PoisonError::into_inner);
        beat.now = now;
        beat.watch(&now);
        // Where workers are asynchronous, a slow worker is known by each of its few steps.
        let (wanted, apart) =
            if in_lockstep { (now.steps <= beat.watchful, STEPS_PER_BEAT) } else { (true, 1) };
        if wanted
            && now.steps >= beat.steps + apart
            && !beat.due
            && beat.at.is_none_or(|at| at.elapsed() >= EARLY_BEAT)
        {
            beat.due = true;
            self.beat_due.notify_one();
        }
    }

    /// Waits for the next heartbeat's time.
    pub(super) fn next_beat(&self, every: Duration) -> Beat {
        let mut beat = self.beat.lock().unwrap_or_else(PoisonError::into_inner);
        let closing = || self.closing.load(Ordering::Relaxed);
        (beat, _) = self
            .beat_due
            .wait_timeout_while(beat, every, |beat| !beat.due && !closing())
            .unwrap_or_else(PoisonError::into_inner);
        beat.due = false;
        beat.steps = beat.now.steps;
        // The first heartbeat with steps in it must not hold up the second.
        if beat.now.steps > 0 {
            beat.at = Some(Instant::now());
        }
        beat.now
    }

    /// The progress at this moment, as the chief notes its own: it needs no heartbeat.
    pub(super) fn take_beat(&self) -> Beat {
        let mut beat = self.beat.lock().unwrap_or_else(PoisonError::into_inner);
        beat.steps = beat.now.steps;
        beat.now
    }

    /// Steps that the chief has been told of, or is being told of.
    #[cfg(test)]
    pub(super) fn steps_told(&self) -> u64 {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner).steps
    }

    /// The own progress at this moment.
    pub(super) fn present_beat(&self) -> Beat {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner).now
    }

    /// Ends the session's threads.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.beat_due.notify_all();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_wire::Role;

    /// Makes steps of that many milliseconds; whether an early heartbeat was asked for in one of them.
    fn step(
        shared: &Shared,
        beat: &mut Beat,
        steps: u64,
        milliseconds: f64,
        in_lockstep: bool,
    ) -> bool {
        let mut early = false;
        for _ in 0..steps {
            beat.steps += 1;
            beat.step_seconds += 1e-3 * milliseconds;
            shared.progress(*beat, in_lockstep);
            early |= std::mem::take(&mut shared.beat.lock().unwrap().due);
        }
        shared.beat.lock().unwrap().steps = beat.steps; // as if one had been sent
        early
    }

    #[test]
    fn heartbeats_are_early_at_the_start_and_when_the_pace_changes() {
        let shared = Shared::new(TaskId::new(Role::Worker, 1));
        let mut beat = Beat::default();
        assert!(step(&shared, &mut beat, STEPS_PER_BEAT, 2.0, true), "at the start");
        step(&shared, &mut beat, WATCHFUL, 2.0, true);
        assert!(!step(&shared, &mut beat, 1000, 2.0, true), "at a steady pace");
        assert!(step(&shared, &mut beat, 1, 2.0, false), "where workers are asynchronous");
        assert!(step(&shared, &mut beat, STEPS_PER_BEAT, 20.0, true), "when steps become slower");
        assert!(step(&shared, &mut beat, STEPS_PER_BEAT, 20.0, true), "and a while after");
    }
}
