//! A task's control link to the chief: joins, listens, sends heartbeats, connects again.

use super::{
    JOINING, SessionError, SessionSettings,
    chief::reason,
    clock::unix_seconds,
    control,
    gate::Gate,
    message::{Hello, ToChief, ToMember},
    notice::{SessionObserver, TaskRow, TaskRowState},
    roster::{BEAT, GRACE, Rhythm},
    shared::Shared,
    starved::Telling,
};
use paceline_wire::{Link, LinkError, Purpose, Receiver, Refusal, Sender, TaskId, Wait};
use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

/// Time between two attempts to reach the chief.
const RETRY: Duration = Duration::from_millis(100);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(3);
/// How long to try again after the connection broke; shorter than the chief's own patience.
const RECONNECT: Duration = Duration::from_millis(1000);

/// The sending half, which heartbeats and training share.
pub(super) type Speaker = Arc<Mutex<Box<dyn Sender>>>;

/// A task's side of the control link.
pub(super) struct Membership {
    pub(super) gate: Arc<dyn Gate>,
    pub(super) chief: TaskId,
    pub(super) address: String,
    pub(super) hello: Hello,
    /// How long the chief may be silent, at least.
    pub(super) patience: Duration,
    pub(super) shared: Arc<Shared>,
}

/// Dials the chief until it answers or time is up.
pub(super) fn join(
    membership: &Membership,
    settings: &SessionSettings,
    observer: &dyn SessionObserver,
) -> Result<(Speaker, Box<dyn Receiver>), SessionError> {
    let Membership { chief, address, hello, .. } = membership;
    let begun = Instant::now();
    let limit = settings.rules.join_timeout;
    loop {
        let error = match membership.dial(ATTEMPT.min(limit)) {
            Ok(link) => {
                let Link { mut sender, receiver, .. } = link;
                match control::send(&mut *sender, &ToChief::Hello(hello.clone())) {
                    Ok(()) => return Ok((Arc::new(Mutex::new(sender)), receiver)),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        // What will not change by waiting is said at once.
        if let LinkError::Refused { reason, .. } = &error
            && !matches!(reason, Refusal::Task { .. })
        {
            return Err(error.into());
        }
        if settings.cancelled() {
            return Err(SessionError::Cancelled { me: hello.task, phase: JOINING });
        }
        if begun.elapsed() >= limit {
            return Err(SessionError::NoChief {
                chief: *chief,
                address: address.clone(),
                seconds: limit.as_secs(),
                reason: reason(&error),
            });
        }
        observer.table(&[TaskRow {
            task: *chief,
            address: address.clone(),
            host: String::new(),
            state: TaskRowState::Waiting,
            seconds: begun.elapsed().as_secs_f64(),
            error: Some(reason(&error)),
            offset: None,
        }]);
        std::thread::sleep(RETRY);
    }
}

impl Membership {
    fn dial(&self, limit: Duration) -> Result<Link, LinkError> {
        let wait = Wait::within(limit, JOINING).unless(&self.shared.closing);
        self.gate.dial(self.chief, &self.address, Purpose::Control, &wait)
    }

    /// Listens to the chief until the session ends.
    pub(super) fn listen(&self, mut receiver: Box<dyn Receiver>, speaker: &Speaker) {
        let from = (self.chief, self.address.as_str());
        let mut buffer = Vec::new();
        // The chief knows how late most tasks are, and says with every heartbeat what follows from that. Before the
        // first one it may be busy with hundreds that join.
        let mut patience = self.patience.saturating_mul(4);
        // Where hundreds share too few cores, the chief speaks late and its word on that is late too.
        let (mut rhythm, mut heard) = (Rhythm::default(), Instant::now());
        loop {
            let wait =
                Wait::within(patience, "listening to the chief").unless(&self.shared.closing);
            let error = match control::receive(&mut *receiver, &wait, &mut buffer, from) {
                Ok(ToMember::Ping { number }) => {
                    // A link that cannot carry the answer fails at the next receive too.
                    let _ = say(speaker, &ToChief::Pong { number, clock: unix_seconds() });
                    continue;
                }
                Ok(message) => {
                    rhythm.heard(heard.elapsed());
                    heard = Instant::now();
                    let usual = rhythm.unusual(self.patience);
                    match &message {
                        ToMember::Beat { patience: told, .. } => {
                            let told = Duration::try_from_secs_f64(*told).unwrap_or_default();
                            patience = told.max(usual);
                        }
                        // All have joined: what the chief says from here on is of a run under way.
                        ToMember::View(view) if view.complete => patience = usual,
                        _ => {}
                    }
                    self.shared.hear();
                    self.shared.apply(message, self.chief, &self.address);
                    continue;
                }
                Err(error) => error,
            };
            let over = {
                let state = self.shared.lock();
                state.released || state.ended.is_some()
            };
            if over || self.shared.closing.load(Ordering::Relaxed) {
                return;
            }
            let why = match &error {
                LinkError::TimedOut { .. } => format!("silent for {} s", patience.as_secs()),
                error => match self.reconnect(speaker) {
                    Some(new) => {
                        receiver = new;
                        continue;
                    }
                    None => reason(error),
                },
            };
            return self.lose_chief(why);
        }
    }

    fn lose_chief(&self, reason: String) {
        let (chief, address) = (self.chief, self.address.clone());
        self.shared.end(SessionError::ChiefLost { chief, address, reason });
    }

    /// A connection may break while both ends live; a dead chief does not answer again.
    fn reconnect(&self, speaker: &Speaker) -> Option<Box<dyn Receiver>> {
        debug_assert!(RECONNECT < GRACE);
        let begun = Instant::now();
        while begun.elapsed() < RECONNECT && !self.shared.closing.load(Ordering::Relaxed) {
            if let Ok(link) = self.dial(RECONNECT) {
                let Link { mut sender, receiver, .. } = link;
                if control::send(&mut *sender, &ToChief::Hello(self.hello.clone())).is_ok() {
                    *speaker.lock().unwrap_or_else(PoisonError::into_inner) = sender;
                    // The old connection may have taken it along; said twice, it counts once.
                    let (finished, generation) = {
                        let state = self.shared.lock();
                        (state.finished.clone(), state.adopted.generation)
                    };
                    if let Some(report) = finished {
                        let _ = say(speaker, &ToChief::Finished { report, generation });
                    }
                    return Some(receiver);
                }
            }
            std::thread::sleep(RETRY);
        }
        None
    }
}

/// Sends heartbeats until the session ends.
pub(super) fn beat(shared: &Shared, speaker: &Speaker) {
    let mut telling = Telling::new();
    while !shared.closing.load(Ordering::Relaxed) {
        let beat = shared.next_beat(BEAT);
        // The listening half notices a broken connection and mends it.
        let _ = say(speaker, &ToChief::Beat(beat));
        if let Some(seconds) = telling.news(&shared.reading) {
            let _ = say(speaker, &ToChief::Starved { seconds });
        }
    }
}

/// Sends one message to the chief.
pub(super) fn say(speaker: &Speaker, message: &ToChief) -> Result<(), LinkError> {
    control::send(&mut **speaker.lock().unwrap_or_else(PoisonError::into_inner), message)
}
