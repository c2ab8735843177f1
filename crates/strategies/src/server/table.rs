//! What a parameter server asks of the weights it serves.

use super::{Core, Failure, Next, WorkerSession};
use paceline_wire::{Head, Link};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// One kind of weights: how they are stored and changed, which messages concern them, and what is counted beside them.
pub(crate) trait Table: fmt::Debug + Send + Sync + Sized {
    /// What lies behind the server's lock: counters, and the weights where they change under it.
    type Ledger: fmt::Debug + Send;
    /// A worker's gradient as it came.
    type Inbox: fmt::Debug + Default + Send + Sync;
    /// What a session keeps from one message to the next.
    type Buffers: Default + Send;
    /// How far a server is, in the words in which servers compare themselves.
    type Progress: fmt::Debug + Clone + Send;
    /// How the last update is rolled back.
    type Undo: fmt::Debug + Send;

    /// The kind of message that ends a conversation; its payload names the task that is missing, where one is.
    const REFUSED: u8;
    /// Whether waits for other workers end when one of them is lost, as [`Core::lost`] says.
    const LOSS_ENDS_WAITS: bool;

    /// The longest wait for a worker's next request.
    fn patience(&self) -> Duration;

    /// The longest wait of one worker's thread for other workers, where there is a limit.
    fn longest_wait(&self) -> Option<Duration>;

    /// A generation begins: the core knows its workers and expects all of them.
    fn begin(&self, core: &mut Core<Self>);

    /// A worker's presence has changed.
    fn presence_changed(&self, core: &mut Core<Self>, rank: usize);

    /// A worker has opened a link; nothing has been said yet.
    fn connected(session: &mut WorkerSession<'_, Self>, link: &mut Link);

    /// Answers one message, whose payload is still to be read.
    fn answer(
        session: &mut WorkerSession<'_, Self>,
        link: &mut Link,
        head: Head,
    ) -> Result<Next, Failure>;

    /// Updates in the weights.
    fn version(ledger: &Self::Ledger) -> u64;

    /// Makes the last update undone, bit by bit.
    fn roll_back(&self, ledger: &mut Self::Ledger, undo: Self::Undo);

    /// How far this server is.
    fn progress(&self, ledger: &Self::Ledger) -> Self::Progress;

    /// Whether an update has begun and not ended. Never where updates are made under the lock.
    fn is_updating(_ledger: &Self::Ledger) -> bool {
        false
    }

    /// Updates may be made again, or up to a `target`: those that waited for nothing else are made now.
    fn resume(&self, core: &mut Core<Self>, target: Option<&Self::Progress>);

    /// Whether a copy as far as `target`, asked for at `since`, has to wait for a gradient.
    fn lags(&self, core: &Core<Self>, target: &Self::Progress, since: Instant) -> bool;

    /// Counts what never came as if it had, because its worker died before this server had its part. False where it may still
    /// come, and the copy is to be tried again.
    fn go_without(&self, core: &mut Core<Self>, target: &Self::Progress) -> bool;
}
