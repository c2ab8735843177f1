//! Sums by `MPI_Allreduce`, where all ranks of a group are the ranks of one MPI job.
//!
//! Our links decide which ranks take part, in which order and until when. Before each sum the ranks meet over the links, with
//! the numbers that ride along; only then do they enter MPI. MPI has no deadlines and waits forever for a rank that died inside,
//! so it has its own thread and memory: the caller that waits for that thread checks its deadline and the links, fails with the
//! name of the lost rank, and abandons the thread. This process cannot use MPI after that; the remaining ranks continue over
//! the links alone.

use super::core::Core;
use super::number::{Number, bytes, bytes_mut, numbers_in};
use crate::error::LinkError;
use crate::link::Wait;
use mpi::Threading;
use mpi::collective::{CommunicatorCollectives, SystemOperation};
use mpi::environment::{Universe, initialize_with_threading};
use mpi::topology::Communicator;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Sums of up to this many bytes ride along with the meeting, which must take place anyway.
pub(super) const RIDE: usize = 16 << 10;
/// Bytes of a rank's share in one call of MPI: enough for a network to be busy, little enough for caches.
const SHARE: usize = 512 << 10;
/// A length travels as two digits, so that sums of their squares are exact.
const DIGIT: usize = 1 << 20;
/// Time between two looks at deadline and links.
const GLANCE: Duration = Duration::from_millis(20);
/// A rank that has its sums may leave before another has them. One that died leaves MPI waiting longer than this.
const GRACE: Duration = Duration::from_secs(2);
/// How long the end of a process waits for all ranks to end the job together: the first one may still evaluate and write.
const FAREWELL: Duration = Duration::from_secs(600);

/// What `mpirun` of Open MPI and of MPICH, and `srun` with PMIx, tell a process about its place.
const RANK: &[&str] = &["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];
const SIZE: &[&str] = &["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

/// Whether MPI has added up anything in this process.
static USED: AtomicBool = AtomicBool::new(false);

pub(super) fn used() -> bool {
    USED.load(Ordering::Relaxed)
}

/// What the thread that has MPI is asked for.
enum Order {
    Sum(Block),
    /// The end of the job, with somewhere to say that it has come.
    End(Sender<()>),
}

/// Numbers on their way through MPI, in memory that may stay with it.
struct Block {
    numbers: Vec<f64>,
    sums: Vec<f64>,
    /// How many numbers there are, `f32` or `f64`.
    length: usize,
    single: bool,
}

/// Membership in an MPI job.
pub(super) struct World {
    orders: Sender<Order>,
    done: Receiver<Block>,
    /// Absent while MPI has it, and for ever after a failure.
    block: Option<Block>,
    /// Bytes that went to the other ranks.
    pub(super) moved: u64,
}

impl World {
    /// Whether this process was started as that rank of an MPI job of that size. What is entered later is asked again: a launcher
    /// that only looks like MPI makes each process a job of its own.
    fn expected(rank: usize, size: usize) -> bool {
        let number = |name: &&str| std::env::var(name).ok().and_then(|text| text.parse().ok());
        let first = |names: &[&str]| names.iter().find_map(number);
        let refused = std::env::var("PACELINE_MPI").is_ok_and(|word| word == "off");
        !refused && first(RANK) == Some(rank) && first(SIZE) == Some(size)
    }

    /// Begins to enter the job; whether it worked comes out of the channel.
    fn enter(rank: usize, size: usize) -> (Self, Receiver<bool>) {
        let (orders, inbox) = mpsc::channel();
        let (outbox, done) = mpsc::channel();
        let (entered, answer) = mpsc::channel();
        let serve = move || serve((rank, size), &entered, &inbox, &outbox);
        // If the thread cannot be started, the channel closes, which the receiver takes as the answer.
        let _ = thread::Builder::new().name("mpi".to_owned()).spawn(serve);
        *job() = Some(orders.clone());
        let block = Block { numbers: Vec::new(), sums: Vec::new(), length: 0, single: true };
        (Self { orders, done, block: Some(block), moved: 0 }, answer)
    }

    /// Hands numbers to MPI.
    fn hand_over<T: Number>(&mut self, numbers: &[T]) {
        let Some(mut block) = self.block.take() else { return };
        let words = size_of_val(numbers).div_ceil(size_of::<f64>());
        if block.numbers.len() < words {
            block.numbers.resize(words, 0.0);
            block.sums.resize(words, 0.0);
        }
        bytes_mut(&mut block.numbers)[..size_of_val(numbers)].copy_from_slice(bytes(numbers));
        (block.length, block.single) = (numbers.len(), size_of::<T>() == size_of::<f32>());
        // The caller that waits for the thread notices if it is gone.
        drop(self.orders.send(Order::Sum(block)));
    }
}

/// The thread that alone calls MPI.
fn serve(
    (rank, size): (usize, usize),
    entered: &Sender<bool>,
    inbox: &Receiver<Order>,
    outbox: &Sender<Block>,
) {
    let Some((universe, threading)) = initialize_with_threading(Threading::Funneled) else {
        let _ = entered.send(false); // another group of this process has it
        return;
    };
    let world = universe.world();
    let place = (usize::try_from(world.rank()).ok(), usize::try_from(world.size()).ok());
    let fits = threading >= Threading::Funneled && place == (Some(rank), Some(size));
    // The receiver is gone if the other ranks were lost meanwhile.
    let _ = entered.send(fits);
    for order in inbox {
        match order {
            Order::Sum(mut block) => {
                let Block { numbers, sums, length, single } = &mut block;
                if *single {
                    let from = &numbers_in::<f32>(numbers)[..*length];
                    let into = &mut numbers_in::<f32>(sums)[..*length];
                    world.all_reduce_into(from, into, SystemOperation::sum());
                } else {
                    let into = &mut sums[..*length];
                    world.all_reduce_into(&numbers[..*length], into, SystemOperation::sum());
                }
                let _ = outbox.send(block);
            }
            Order::End(over) => {
                drop::<Universe>(universe);
                let _ = over.send(());
                return;
            }
        }
    }
    // The job is given up. Ending it would wait for ranks that are gone; the system tidies up behind this process.
    std::mem::forget(universe);
}

/// The job this process has entered, until it ends or is given up.
static JOB: Mutex<Option<Sender<Order>>> = Mutex::new(None);

fn job() -> MutexGuard<'static, Option<Sender<Order>>> {
    JOB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// After a failure no rank may wait for the others to end the MPI job together.
pub(super) fn give_up() {
    *job() = None;
}

/// Ends the job, which is a meeting of all ranks: not before the process ends, because until then they may need a word from
/// this one. Without it `mpirun` takes the end of the process for a crash.
extern "C" fn end_job() {
    let Some(orders) = job().take() else { return };
    let (over, end) = mpsc::channel();
    if orders.send(Order::End(over)).is_ok() {
        // If it does not come, the process ends all the same.
        let _ = end.recv_timeout(FAREWELL);
    }
}

impl Core {
    /// Enters MPI, if all ranks can; every rank calls it, whatever it finds.
    pub(super) fn join_mpi(&mut self, wait: &Wait<'_>) -> Result<Option<World>, LinkError> {
        let (rank, size) = (self.rank, self.size());
        if size == 1 {
            return Ok(None);
        }
        // One MPI job per process: a second group finds it taken.
        let free = job().is_none() && !used();
        if !self.agree(free && World::expected(rank, size), wait)? {
            return Ok(None);
        }
        // All ranks of the job are here, so no rank waits in vain for others to enter.
        let (world, entered) = World::enter(rank, size);
        let joined = self.attend(&entered, wait).and_then(|fits| self.agree(fits, wait));
        if !matches!(joined, Ok(true)) {
            give_up();
            return joined.map(|_| None);
        }
        // SAFETY: the function takes nothing and touches statics only, which live as long as the process.
        #[allow(unsafe_code)] // std has no hook for the end of a process
        unsafe {
            libc::atexit(end_job);
        }
        USED.store(true, Ordering::Relaxed);
        Ok(Some(world))
    }

    fn agree(&mut self, mine: bool, wait: &Wait<'_>) -> Result<bool, LinkError> {
        let mut votes = [f64::from(u8::from(mine))];
        self.over_links(&mut votes, &mut [], wait)?;
        Ok(votes[0] == self.size() as f64)
    }

    /// Waits for MPI's thread with an eye on the clock and on the other ranks.
    fn attend<R>(&self, from: &Receiver<R>, wait: &Wait<'_>) -> Result<R, LinkError> {
        let began = Instant::now();
        let mut lost: Option<(Instant, LinkError)> = None;
        loop {
            match from.recv_timeout(GLANCE.min(wait.left())) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let cause = io::Error::other("the thread that calls MPI has ended");
                    return Err(self.some_peer().lost(wait.phase, cause));
                }
            }
            if wait.cancelled() {
                return Err(self.some_peer().cancelled(wait.phase));
            }
            if lost.is_none() {
                lost = self.gone(wait).map(|error| (Instant::now(), error));
            }
            match lost {
                Some((since, error)) if since.elapsed() >= GRACE || wait.left().is_zero() => {
                    return Err(error);
                }
                None if wait.left().is_zero() => {
                    return Err(self.some_peer().timed_out(wait.phase, began.elapsed()));
                }
                _ => {}
            }
        }
    }

    /// All ranks meet, with the trailer and the length of their data, and then sum the data by MPI.
    pub(super) fn all_reduce_by_mpi<T: Number>(
        &mut self,
        data: &mut [T],
        trailer: &mut [f64],
        wait: &Wait<'_>,
    ) -> Result<(), LinkError> {
        let size = self.size();
        let digits = [data.len() % DIGIT, data.len() / DIGIT].map(|digit| digit as f64);
        let mut meeting: Vec<f64> =
            digits.iter().flat_map(|digit| [*digit, digit * digit]).collect();
        meeting.extend_from_slice(trailer);
        self.over_links(&mut meeting, &mut [], wait)?;
        let (lengths, sums) = meeting.split_at(4);
        // Equal numbers are those whose squares add up to the square of their sum, divided by their count. All ranks
        // have the same sums, so they all decide the same.
        let equal = lengths.chunks(2).all(|sums| sums[1] * size as f64 == sums[0] * sums[0]);
        if !equal {
            let peer = self.some_peer();
            return Err(peer.protocol("sums of different lengths", "the same length at all ranks"));
        }
        trailer.copy_from_slice(sums);
        for part in data.chunks_mut(SHARE * size / size_of::<T>()) {
            let Some(world) = self.mpi() else { break };
            world.hand_over(part);
            let Some(world) = self.mpi_now() else { break };
            let block = self.attend(&world.done, wait)?;
            let length = size_of_val(part);
            bytes_mut(part).copy_from_slice(&bytes(&block.sums)[..length]);
            if let Some(world) = self.mpi() {
                world.block = Some(block);
                // MPI does not tell what it sends; no algorithm sends less.
                world.moved += 2 * (length / size * (size - 1)) as u64;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::pair;
    use crate::{Role, TaskId};

    /// A group of two, as rank 0 sees it, and the link of the other.
    fn two() -> (Core, crate::link::Link) {
        let [a, b] = [0, 1].map(|index| TaskId::new(Role::Worker, index));
        let (to_b, to_a) = pair(a, b);
        (Core::new(0, vec![None, Some(to_b)]), to_a)
    }

    #[test]
    fn mpi_that_never_comes_back_is_left_behind_at_the_deadline() {
        let (core, _other) = two();
        let (_never, answer) = mpsc::channel::<()>();
        let wait = Wait::within(Duration::from_millis(60), "adding up");
        let error = core.attend(&answer, &wait).unwrap_err();
        assert!(matches!(error, LinkError::TimedOut { .. }), "{error}");
        assert!(error.to_string().contains("worker/1"), "{error}");
    }

    #[test]
    fn a_flag_ends_the_wait_for_mpi() {
        let (core, _other) = two();
        let (_never, answer) = mpsc::channel::<()>();
        let stop = AtomicBool::new(true);
        let wait = Wait::within(Duration::from_secs(60), "adding up").unless(&stop);
        let error = core.attend(&answer, &wait).unwrap_err();
        assert!(matches!(error, LinkError::Cancelled { .. }), "{error}");
    }
}
