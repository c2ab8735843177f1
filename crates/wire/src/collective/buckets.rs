//! All-reduce in parts, while the parts that follow are still being computed.
//!
//! Neighbouring ranges are gathered into buckets large enough to be worth a message. A full bucket goes
//! to a thread that sums it with the other ranks while the caller continues to compute; the caller sums the
//! rest at the end, so that a small model never pays for waking a thread. The caller's numbers
//! are copied (they are in its cache at that moment), so no other thread reads memory that the caller may write.
//! Within one machine the summing uses the same cores as the computation, so there is no thread: see `packed`.

use super::core::Core;
use super::lock;
use super::packed::Packed;
use crate::error::LinkError;
use crate::link::Wait;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A bucket of at least this many numbers goes on its way: 4 MiB.
pub const FULL: usize = 1 << 20;

/// One part on its way.
struct Bucket {
    /// Ranges of the whole, in the order of `numbers`.
    ranges: Vec<Range<usize>>,
    numbers: Vec<f32>,
}

type Outcome = (Bucket, Result<(), LinkError>);

/// The thread and what goes to and fro.
struct BucketThread {
    work: Sender<Bucket>,
    done: Receiver<Outcome>,
    cancel: Arc<AtomicBool>,
}

/// The parts of the present whole.
pub(super) struct Buckets {
    core: Arc<Mutex<Core>>,
    open: Bucket,
    /// Buckets with the thread.
    away: usize,
    /// Finished buckets whose memory serves again.
    spare: Vec<Bucket>,
    worker: Option<BucketThread>,
    packed: Packed,
}

impl Buckets {
    pub(super) fn new(core: Arc<Mutex<Core>>) -> Self {
        let open = Bucket { ranges: Vec::new(), numbers: Vec::new() };
        Self { core, open, away: 0, spare: Vec::new(), worker: None, packed: Packed::new() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.away == 0 && self.open.ranges.is_empty() && self.packed.is_idle()
    }

    pub(super) fn begin(&mut self, range: Range<usize>, data: &[f32]) {
        // The thread may hold the core for long, but only where nothing is packed.
        let together = self.away == 0
            && lock(&self.core)
                .local_now()
                .is_some_and(|local| self.packed.pack(local, &range, data));
        if together {
            return;
        }
        self.open.numbers.extend_from_slice(data);
        match self.open.ranges.last_mut() {
            // Backward passes go from the last range to the first, so neighbours often come in reverse;
            // their numbers lie in the order begun, so only an ascending neighbour can be merged.
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.open.ranges.push(range),
        }
        if self.open.numbers.len() >= FULL && !self.packed.has_missed() {
            self.hand_over();
        }
    }

    /// Sends the open bucket to the thread; without a thread it stays.
    fn hand_over(&mut self) {
        if self.worker.is_none() {
            self.worker = BucketThread::start(&self.core);
        }
        let Some(worker) = &self.worker else { return };
        let mut next =
            self.spare.pop().unwrap_or_else(|| Bucket { ranges: Vec::new(), numbers: Vec::new() });
        next.ranges.clear();
        next.numbers.clear();
        let full = std::mem::replace(&mut self.open, next);
        match worker.work.send(full) {
            Ok(()) => self.away += 1,
            Err(back) => self.open = back.0,
        }
    }

    pub(super) fn finish(
        &mut self,
        trailer: &mut [f64],
        wait: &Wait<'_>,
        mut each: impl FnMut(Range<usize>, &[f32]),
    ) -> Result<(), LinkError> {
        let began = Instant::now();
        while self.away > 0 {
            let Some(worker) = &self.worker else { break };
            let (bucket, result) = worker.next(wait, began);
            self.away -= 1;
            if let Err(error) = result {
                // The thread has ended, and what was left of its work with it.
                (self.away, self.worker) = (0, None);
                return Err(error);
            }
            give(&bucket, &mut each);
            self.spare.push(bucket);
        }
        let mut core = lock(&self.core);
        let rest = !self.open.ranges.is_empty();
        match core.local_now() {
            Some(local) if !self.packed.is_idle() => {
                self.packed.finish(local, trailer, wait, &mut each)?;
                if rest {
                    core.all_reduce(&mut self.open.numbers, &mut [], wait)?;
                }
            }
            _ => core.all_reduce(&mut self.open.numbers, trailer, wait)?,
        }
        self.packed.grow(&mut core, wait)?;
        drop(core);
        give(&self.open, &mut each);
        self.open.ranges.clear();
        self.open.numbers.clear();
        Ok(())
    }
}

/// Hands out the sums of a bucket.
fn give(bucket: &Bucket, each: &mut impl FnMut(Range<usize>, &[f32])) {
    let mut at = 0;
    for range in &bucket.ranges {
        each(range.clone(), &bucket.numbers[at..at + range.len()]);
        at += range.len();
    }
}

impl Drop for Buckets {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.cancel.store(true, Ordering::Relaxed);
        }
    }
}

impl BucketThread {
    fn start(core: &Arc<Mutex<Core>>) -> Option<Self> {
        let (work, inbox) = channel::<Bucket>();
        let (outbox, done) = channel();
        let cancel = Arc::new(AtomicBool::new(false));
        let (core, flag) = (Arc::clone(core), Arc::clone(&cancel));
        let run = move || {
            for mut bucket in inbox {
                // The caller has the deadline; it ends this wait through the flag.
                let wait = Wait::within(Duration::from_secs(86_400), "adding up gradients");
                let result =
                    lock(&core).all_reduce(&mut bucket.numbers, &mut [], &wait.unless(&flag));
                let failed = result.is_err();
                if outbox.send((bucket, result)).is_err() || failed {
                    return;
                }
            }
        };
        thread::Builder::new().name(String::from("all-reduce")).spawn(run).ok()?;
        Some(Self { work, done, cancel })
    }

    /// The next finished bucket. When the deadline passes, the thread is told to stop and says for whom
    /// it waited.
    fn next(&self, wait: &Wait<'_>, began: Instant) -> Outcome {
        loop {
            let stop = wait.cancelled();
            let late = wait.left().is_zero();
            if stop || late {
                self.cancel.store(true, Ordering::Relaxed);
            }
            match self.done.recv_timeout(Duration::from_millis(20)) {
                Ok((bucket, Err(LinkError::Cancelled { task, address, .. }))) if late => {
                    let (phase, waited) = (wait.phase.to_owned(), began.elapsed());
                    return (bucket, Err(LinkError::TimedOut { task, address, phase, waited }));
                }
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the thread ends only after telling of a failure")
                }
            }
        }
    }
}
