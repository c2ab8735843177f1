//! Which tasks take part in a run, and what happens when one is lost.
//!
//! Every task opens a control link to the chief (`chief/0`, else `worker/0`), which holds the list of
//! tasks. A run starts when all tasks have joined, or fails at a deadline with the names of those that
//! have not. From then on heartbeats flow both ways once a second; a task whose connection breaks is
//! lost after a short grace, a silent one after eight seconds, and all tasks learn its name. What
//! follows is decided by [`Rules`]: the others form a new *generation* without it, wait until it is
//! back, or stop. At the end all tasks wait for each other, so that a finished task is never taken
//! for a failed one. Once the chief has done its part every update is made and saved: no generation begins after that, and who is
//! lost then is named and not waited for.
//!
//! No task trains alone: one that loses the chief ends, and only the chief begins a generation.

mod chief;
mod clock;
mod control;
mod door;
mod error;
mod gate;
mod member;
mod membership;
mod message;
mod notice;
mod roster;
mod shared;
#[cfg(test)]
mod simulation;
mod starved;
mod straggler;
#[cfg(test)]
mod tests;

pub use clock::Offset;
pub use error::SessionError;
pub use gate::{Gate, Switchboard, SwitchboardLine};
pub use message::{Beat, Loss, Member, Stop, View};
pub use notice::{Notice, SessionObserver, TaskRow, TaskRowState, Unobserved};
pub use roster::SILENCE;
pub use starved::Starved;
pub use straggler::Straggler;

use chief::{Chief, Heard};
use member::{Membership, Speaker};
use message::{Hello, ToChief};
use paceline_wire::{Channel, Closer, Link, LinkError, Purpose, Role, TaskId, Wait};
use roster::Roster;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::{SessionState, Shared};
use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// What happens when a worker is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLoss {
    /// The others go on without it.
    #[default]
    Continue,
    /// The others wait until it is back.
    Restart,
    /// All tasks stop.
    Stop,
}

impl OnLoss {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Continue, Self::Restart, Self::Stop];

    /// The word users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Restart => "restart",
            Self::Stop => "stop",
        }
    }
}

/// How a session deals with trouble.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// What happens when a worker is lost.
    pub on_loss: OnLoss,
    /// Whether workers are connected to each other, so that a change concerns them all and needs a
    /// new generation. Workers that only talk to servers go on undisturbed.
    pub regroup: bool,
    /// Whether servers and evaluators finish by themselves too; otherwise they are done when all
    /// workers are.
    pub all_finish: bool,
    /// How long to wait for all tasks, at the start and after a loss.
    pub join_timeout: Duration,
    /// How long a task may be silent before it counts as lost; longer where most tasks are late.
    pub patience: Duration,
}

/// Who takes part and how.
pub struct SessionSettings {
    pub me: TaskId,
    /// All tasks with their addresses, empty where they are not known beforehand.
    pub tasks: BTreeMap<TaskId, String>,
    /// Where the chief is; not needed by the chief itself.
    pub chief_address: String,
    /// Name of the run; the chief's counts.
    pub run: String,
    /// Settings that all tasks must share.
    pub plan: Value,
    /// How to deal with trouble.
    pub rules: Rules,
    /// Name of this host, for people.
    pub host: String,
    /// Raised to give up waiting for others.
    pub cancel: Arc<AtomicBool>,
}

impl SessionSettings {
    fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// The task that all others join: `chief/0` where there is one, else `worker/0`.
#[must_use]
pub fn chief_of(tasks: impl IntoIterator<Item = TaskId>) -> TaskId {
    let chief = TaskId::new(Role::Chief, 0);
    if tasks.into_iter().any(|task| task == chief) { chief } else { TaskId::new(Role::Worker, 0) }
}

/// How this task speaks to the chief.
enum Voice {
    /// It is the chief.
    Own(mpsc::Sender<Heard>),
    /// Over a link.
    Far(Speaker),
}

/// A task's part in a run.
pub struct Session {
    chief: TaskId,
    gate: Arc<dyn Gate>,
    shared: Arc<Shared>,
    voice: Voice,
    rules: Rules,
    cancel: Arc<AtomicBool>,
    exit_barrier: Duration,
    threads: Vec<JoinHandle<()>>,
}

/// What a task does until all have joined, in words for [`SessionError::Cancelled`].
pub const JOINING: &str = "joining the run";

/// How long a task stays in the exit barrier after the last sign of life of those it waits for. The last
/// evaluation or save may take hours; a silent task is lost long before this.
const EXIT_BARRIER: Duration = Duration::from_secs(600);

impl Session {
    /// Joins the run: returns when all tasks have.
    ///
    /// # Errors
    /// [`SessionError::NotStarted`] and [`SessionError::NoChief`] name who is missing after the
    /// deadline; [`SessionError::Refused`] says why the chief did not let this task in.
    pub fn start(
        gate: Arc<dyn Gate>,
        settings: &SessionSettings,
        observer: Arc<dyn SessionObserver>,
    ) -> Result<Self, SessionError> {
        let chief = chief_of(settings.tasks.keys().copied());
        let shared = Arc::new(Shared::new(settings.me));
        let hello = Hello {
            task: settings.me,
            address: gate.address(),
            host: settings.host.clone(),
            process: std::process::id(),
            incarnation: incarnation(),
            plan: settings.plan.clone(),
        };
        let mut threads = Vec::new();
        let (to_chief, heard) = mpsc::channel();
        let voice = if settings.me == chief {
            let now = Instant::now();
            let roster =
                Roster::new(&hello, settings.run.clone(), settings.rules, &settings.tasks, now);
            let core = Chief {
                me: chief,
                roster,
                shared: Arc::clone(&shared),
                observer,
                heard,
                probes: to_chief.clone(),
                heirs: Vec::new(),
            };
            threads.push(spawn("chief", move || core.run())?);
            Voice::Own(to_chief.clone())
        } else {
            let membership = Membership {
                gate: Arc::clone(&gate),
                chief,
                address: settings.chief_address.clone(),
                hello,
                patience: settings.rules.patience,
                shared: Arc::clone(&shared),
            };
            let (speaker, receiver) = member::join(&membership, settings, &*observer)?;
            let (ours, knows) = (Arc::clone(&speaker), Arc::clone(&shared));
            threads.push(spawn("heartbeat", move || member::beat(&knows, &ours))?);
            let ours = Arc::clone(&speaker);
            threads.push(spawn("control", move || membership.listen(receiver, &ours))?);
            Voice::Far(speaker)
        };
        let (door, knows) = (Arc::clone(&gate), Arc::clone(&shared));
        let hear = matches!(voice, Voice::Own(_)).then_some(to_chief);
        threads.push(spawn("door", move || door::keep(&*door, &knows, hear.as_ref()))?);
        let session = Self {
            chief,
            gate,
            shared,
            voice,
            rules: settings.rules,
            cancel: Arc::clone(&settings.cancel),
            exit_barrier: EXIT_BARRIER,
            threads,
        };
        session.wait_for_start()?;
        Ok(session)
    }

    fn wait_for_start(&self) -> Result<(), SessionError> {
        // The chief keeps the deadline and says who is missing; members wait a little longer.
        let limit = self.rules.join_timeout + Duration::from_secs(5);
        let started = self.shared.wait_for(
            Instant::now() + limit,
            &[Some(&self.cancel)],
            |state| match &state.ended {
                Some(error) => Some(Err(error.clone())),
                None => self.shared.adopt(state).map(|_| Ok(())),
            },
        );
        started.unwrap_or_else(|| {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(SessionError::Cancelled { me: self.me(), phase: JOINING });
            }
            Err(SessionError::NotRegrouped {
                me: self.me(),
                seconds: limit.as_secs(),
                reason: "joining".to_owned(),
            })
        })
    }

    /// This task.
    #[must_use]
    pub fn me(&self) -> TaskId {
        self.shared.me
    }

    /// The task that all others joined.
    #[must_use]
    pub fn chief(&self) -> TaskId {
        self.chief
    }

    /// Whether this task is the chief.
    #[must_use]
    pub fn is_chief(&self) -> bool {
        self.me() == self.chief
    }

    /// Who takes part in the present generation.
    #[must_use]
    pub fn view(&self) -> View {
        self.shared.lock().adopted.clone()
    }

    /// Raised when the present generation is over: the flag for every wait on other tasks.
    #[must_use]
    pub fn interrupted(&self) -> &AtomicBool {
        self.shared.interrupted()
    }

    /// Why the run is over for this task, if it is.
    pub fn check(&self) -> Result<(), SessionError> {
        match &self.shared.lock().ended {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Whether all tasks are done.
    #[must_use]
    pub fn released(&self) -> bool {
        self.shared.lock().released
    }

    /// Says how far this task is; call it after every step.
    pub fn progress(&self, beat: Beat) {
        self.shared.progress(beat, self.rules.regroup);
    }

    /// Since when this task has been waiting for its own data; nothing when it has them. Call it before and after every
    /// read: if that takes very long, the chief says which task all others wait for.
    pub fn reading(&self, since: Option<Instant>) {
        self.shared.reading.note(since);
    }

    /// The exchange with another task failed: waits for the generation that follows.
    ///
    /// `suspect` is the task that could not be reached, if one is known. When the chief knows nothing
    /// of any trouble, it lets all tasks connect again; a second failure is taken as a loss.
    ///
    /// Nothing comes back where no generation follows: the chief has done its part, so that every update is made and saved.
    pub fn regroup(
        &self,
        suspect: Option<TaskId>,
        reason: &str,
    ) -> Result<Option<View>, SessionError> {
        let known = {
            let state = self.shared.lock();
            state.latest.generation > state.adopted.generation || state.ended.is_some()
        };
        if let Some(task) = suspect
            && !known
            && task != self.me()
        {
            self.say(ToChief::Suspect { task, reason: reason.to_owned() });
        }
        let limit = self.rules.join_timeout + Duration::from_secs(15);
        let next =
            self.shared.wait_for(
                Instant::now() + limit,
                &[Some(&self.cancel)],
                |state| match &state.ended {
                    Some(error) => Some(Err(error.clone())),
                    None => {
                        let view = self.shared.adopt(state);
                        (view.is_some() || state.is_concluded()).then_some(Ok(view))
                    }
                },
            );
        next.unwrap_or_else(|| {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(SessionError::Cancelled {
                    me: self.me(),
                    phase: "waiting for the others",
                });
            }
            Err(SessionError::NotRegrouped {
                me: self.me(),
                seconds: limit.as_secs(),
                reason: reason.to_owned(),
            })
        })
    }

    /// Goes over to the latest generation if it is complete, without waiting: for tasks that need not meet
    /// the others when they regroup.
    pub fn follow(&self) {
        self.shared.change(|state| self.shared.adopt(state));
    }

    /// Tells the chief a result while the run goes on; its [`SessionObserver`] is told.
    pub fn tell(&self, value: Value) {
        self.say(ToChief::Note { value });
    }

    /// This task cannot go on. From the chief it ends the run for all.
    pub fn fail(&self, reason: &str) {
        self.say(ToChief::Failed { reason: reason.to_owned() });
        if self.is_chief() {
            // The others must hear it before this process is gone.
            let deadline = Instant::now() + Duration::from_secs(1);
            self.shared.wait_for(deadline, &[], |state| state.ended.as_ref().map(|_| ()));
        }
    }

    /// This task has done what there is to do in its generation: waits until the chief has saved it.
    ///
    /// A generation that comes instead is adopted and returned: a server may have lost what this task did, which is then to be done again.
    /// Nothing comes back where all of it is safe.
    pub fn wait_for_chief(&self) -> Result<Option<View>, SessionError> {
        let saved = |state: &mut SessionState| match &state.ended {
            Some(error) => Some(Err(error.clone())),
            None if state.is_concluded() => Some(Ok(None)),
            None => self.shared.adopt(state).map(|view| Ok(Some(view))),
        };
        self.wait_while_heard("waiting until the chief has saved the weights", saved)
    }

    /// This task has done its part: waits until all have. The chief gets the reports of all tasks.
    pub fn finish(&self, report: Value) -> Result<Vec<(TaskId, Value)>, SessionError> {
        // The last steps count too: a short run, or a machine on which heartbeats come late, ends before
        // the next heartbeat.
        let last = self.shared.present_beat();
        if last.steps > 0 {
            self.say(ToChief::Beat(last));
        }
        let generation = self.shared.change(|state| {
            state.finished = Some(report.clone());
            state.adopted.generation
        });
        self.say(ToChief::Finished { report, generation });
        self.wait_for_release()
    }

    /// Waits until all tasks are done, without a part of its own; used by servers.
    pub fn wait_for_release(&self) -> Result<Vec<(TaskId, Value)>, SessionError> {
        self.wait_while_heard("finishing", |state| {
            if state.released {
                return Some(Ok(std::mem::take(&mut state.reports)));
            }
            state.ended.as_ref().map(|error| Err(error.clone()))
        })
    }

    /// Waits for as long as the chief gives signs of life.
    fn wait_while_heard<T>(
        &self,
        phase: &str,
        mut ready: impl FnMut(&mut SessionState) -> Option<Result<T, SessionError>>,
    ) -> Result<T, SessionError> {
        let mut deadline = Instant::now() + self.exit_barrier;
        loop {
            if let Some(end) = self.shared.wait_for(deadline, &[], &mut ready) {
                return end;
            }
            let renewed = self.shared.heard() + self.exit_barrier;
            if renewed <= deadline {
                return Err(SessionError::NotRegrouped {
                    me: self.me(),
                    seconds: self.exit_barrier.as_secs(),
                    reason: phase.to_owned(),
                });
            }
            deadline = renewed;
        }
    }

    fn say(&self, message: ToChief) {
        match &self.voice {
            // The deciding thread lives as long as the session.
            Voice::Own(chief) => drop(chief.send(Heard::Own(message))),
            // A broken link is noticed, mended or reported by the listening thread.
            Voice::Far(speaker) => drop(member::say(speaker, &message)),
        }
    }

    /// Connects to a task of the present generation. Ends early if that task is lost.
    pub fn connect(
        &self,
        to: TaskId,
        channel: Channel,
        wait: &Wait<'_>,
    ) -> Result<Link, LinkError> {
        let place = (to, channel, true);
        let lost = Arc::new(AtomicBool::new(false));
        let raise = Arc::clone(&lost);
        let known = self.shared.change(|state| {
            let member = state.adopted.members.iter().find(|member| member.task == to)?;
            let known = (state.adopted.generation, member.address.clone());
            state.open.insert(place, Closer::new(move || raise.store(true, Ordering::Relaxed)));
            Some(known)
        });
        let Some((generation, address)) = known else { return Err(self.gone(to, wait)) };
        let purpose = Purpose::Data { generation, channel };
        let dialled = self.gate.dial(to, &address, purpose, &wait.unless(&lost));
        let mut state = self.shared.lock();
        if lost.load(Ordering::Relaxed) && !wait.cancelled() {
            drop(state);
            return Err(self.gone(to, wait));
        }
        let mut link = dialled?;
        self.keep(&mut state, place, &mut link);
        Ok(link)
    }

    /// Remembers a data connection that is now in use: it is closed when the task at its other end is lost, and waits
    /// on it end when the generation (for evaluators, the run) is over.
    fn keep(&self, state: &mut SessionState, place: (TaskId, Channel, bool), link: &mut Link) {
        state.open.insert(place, link.closer.clone());
        let lasting = evaluates(self.me()) || evaluates(place.0);
        link.heed(if lasting { &self.shared.over } else { &self.shared.interrupted });
    }

    /// Waits for a task of the present generation to connect.
    pub fn accept(
        &self,
        from: TaskId,
        channel: Channel,
        wait: &Wait<'_>,
    ) -> Result<Link, LinkError> {
        let begun = Instant::now();
        let address = |state: &SessionState| {
            let member = state.adopted.members.iter().find(|member| member.task == from);
            member.map(|member| member.address.clone())
        };
        let found = self.shared.wait_for(wait.deadline, &wait.cancel, |state| {
            let present = |of: u32| of == state.adopted.generation || evaluates(self.me());
            let mut keys = state.mailbox.keys().copied();
            let key = keys.rfind(|(task, of, on)| (*task, *on) == (from, channel) && present(*of));
            match key.and_then(|key| state.mailbox.remove(&key)) {
                Some(mut link) => {
                    self.keep(state, (from, channel, false), &mut link);
                    Some(Some(link))
                }
                None => address(state).is_none().then_some(None),
            }
        });
        match found {
            Some(Some(link)) => Ok(link),
            Some(None) => Err(self.gone(from, wait)),
            None => {
                let address = address(&self.shared.lock()).unwrap_or_default();
                let phase = wait.phase.to_owned();
                Err(if wait.cancelled() {
                    LinkError::Cancelled { task: from, address, phase }
                } else {
                    LinkError::TimedOut { task: from, address, phase, waited: begun.elapsed() }
                })
            }
        }
    }

    fn gone(&self, task: TaskId, wait: &Wait<'_>) -> LinkError {
        let state = self.shared.lock();
        let mut losses = state.latest.lost.iter().chain(&state.adopted.lost);
        let loss = losses.find(|loss| loss.task == task);
        LinkError::Lost {
            task,
            address: loss.map(|loss| loss.address.clone()).unwrap_or_default(),
            phase: wait.phase.to_owned(),
            cause: io::Error::other(
                loss.map_or_else(|| "it does not take part".to_owned(), |loss| loss.reason.clone()),
            ),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.close();
        self.gate.nudge();
        if let Voice::Own(chief) = &self.voice {
            let _ = chief.send(Heard::Closing); // a chief who is gone knows
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so on stderr; there is nothing left to undo.
            let _ = thread.join();
        }
    }
}

/// Whether a task is an evaluator. Evaluators belong to no generation: they continue when the others regroup.
fn evaluates(task: TaskId) -> bool {
    task.role == Role::Evaluator
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, SessionError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| SessionError::Thread(Arc::new(error)))
}

/// A number that no other process of this task has.
fn incarnation() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanoseconds = (clock::unix_seconds() * 1e9) as u64;
    nanoseconds ^ (u64::from(std::process::id()) << 40) ^ COUNT.fetch_add(1, Ordering::Relaxed)
}
