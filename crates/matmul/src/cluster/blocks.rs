//! Blocks on their way from the task that holds them to the one that needs them.

use super::Node;
use crate::{
    MatmulError, Plan,
    input::{BlockSource, Matrices, Side},
};
use paceline_cluster::session::Session;
use paceline_kernels::{Buffer, Compute, Isa};
use paceline_wire::{
    Channel, Link, LinkError, TaskId,
    collective::{number_bytes, number_bytes_mut},
};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// A block is asked for by this, with its side, row and column in the number.
const ASK: u8 = 1;
/// The answer: its numbers.
const GIVE: u8 = 2;

/// What went in and out, counted by all threads of a task.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) blocks: AtomicU64,
    pub(super) reread: AtomicU64,
    pub(super) microseconds: AtomicU64,
}

/// A block in one number: columns are named by at most 31 bits, rows too.
fn name_of(side: Side, (row, column): (usize, usize)) -> u64 {
    u64::from(side == Side::Right) << 63 | (row as u64) << 32 | column as u64
}

fn block_of(number: u64) -> (Side, (usize, usize)) {
    let side = if number >> 63 == 1 { Side::Right } else { Side::Left };
    let half = |value: u64| usize::try_from(value & 0x7fff_ffff).expect("31 bits");
    (side, (half(number >> 32), half(number)))
}

/// Blocks that this task holds are read here, others come from their holder.
pub(super) struct SharedBlocks<'a> {
    own: Matrices,
    session: &'a Session,
    tasks: &'a [TaskId],
    number: usize,
    traffic: &'a Traffic,
    /// Raised to give up.
    stop: [&'a AtomicBool; 2],
    /// To each holder; none before the first block, and none any more to one that is lost.
    links: Vec<HolderLink>,
}

enum HolderLink {
    Unused,
    Open(Box<Link>),
    Gone,
}

impl<'a> SharedBlocks<'a> {
    pub(super) fn new(node: &'a Node<'a>, stop: [&'a AtomicBool; 2]) -> Result<Self, MatmulError> {
        let Node { session, settings, tasks, number, traffic } = node;
        Ok(Self {
            own: Matrices::open((&settings.left, &settings.right))?,
            session,
            tasks,
            number: *number,
            traffic,
            stop,
            links: tasks.iter().map(|_| HolderLink::Unused).collect(),
        })
    }

    /// Asks the holder; an error means that it is gone, or that we are to stop.
    fn fetch(&mut self, holder: usize, name: u64, to: &mut [f32]) -> Result<(), LinkError> {
        let wait = Node::wait("waiting for a block").unless(self.stop[0]).unless(self.stop[1]);
        if let HolderLink::Unused = self.links[holder] {
            let link = self.session.connect(self.tasks[holder], Channel::MatrixBlocks, &wait)?;
            self.links[holder] = HolderLink::Open(Box::new(link));
        }
        let HolderLink::Open(link) = &mut self.links[holder] else {
            unreachable!("a holder that is gone is not asked")
        };
        link.sender.send(ASK, name, &[])?;
        let head = link.receiver.receive(&wait)?;
        let bytes = number_bytes_mut(to);
        if head.kind != GIVE || head.length != bytes.len() as u64 {
            return Err(link.receiver.too_long(head.length, bytes.len() as u64));
        }
        link.receiver.read(bytes)
    }
}

impl BlockSource for SharedBlocks<'_> {
    fn load(
        &mut self,
        compute: &Compute,
        plan: &Plan,
        side: Side,
        block: (usize, usize),
        to: &mut [f32],
        stop: &dyn Fn() -> bool,
    ) -> Result<(), MatmulError> {
        let holder = plan.holder(block.0, block.1);
        if holder == self.number {
            return self.own.load(compute, plan, side, block, to, stop);
        }
        if !matches!(self.links[holder], HolderLink::Gone) {
            let begun = Instant::now();
            let length = plan.range(block.0).len() * plan.range(block.1).len();
            let fetched = self.fetch(holder, name_of(side, block), &mut to[..length]);
            let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.traffic.microseconds.fetch_add(took, Ordering::Relaxed);
            if fetched.is_ok() {
                self.traffic.blocks.fetch_add(1, Ordering::Relaxed);
                self.traffic.received.fetch_add(4 * length as u64, Ordering::Relaxed);
                return Ok(());
            }
            self.links[holder] = HolderLink::Gone;
        }
        // Its holder is lost: the block is read where the holder had it from.
        self.traffic.reread.fetch_add(1, Ordering::Relaxed);
        self.own.load(compute, plan, side, block, to, stop)
    }
}

/// What all threads that give blocks away share: one block at a time is read for others.
pub(super) struct Shelf {
    matrices: Matrices,
    compute: Compute,
    block: Buffer,
}

impl Shelf {
    pub(super) fn new(node: &Node<'_>, plan: &Plan) -> Result<Mutex<Self>, MatmulError> {
        let settings = node.settings;
        let isa: Isa = settings.isa;
        Ok(Mutex::new(Self {
            matrices: Matrices::open((&settings.left, &settings.right))?,
            // One thread: the others multiply.
            compute: Compute::with_isa(isa, 1),
            block: Buffer::zeroed(plan.block_rows() * plan.block_rows()),
        }))
    }
}

impl Node<'_> {
    /// Gives one other task the blocks it asks for, until `over` is raised or it is gone.
    pub(super) fn serve(&self, plan: &Plan, shelf: &Mutex<Shelf>, to: TaskId, over: &AtomicBool) {
        let wait = Self::wait("waiting to be asked for a block").unless(over);
        let Ok(mut link) = self.session.accept(to, Channel::MatrixBlocks, &wait) else { return };
        while let Ok(head) = link.receiver.receive(&wait) {
            let (side, block) = block_of(head.number);
            if head.kind != ASK || block.0.max(block.1) >= plan.blocks {
                return;
            }
            let mut shelf = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            let Shelf { matrices, compute, block: memory } = &mut *shelf;
            // One that cannot be read here is read by the one who asks, whose error names the file.
            let given_up = || over.load(Ordering::Relaxed);
            if matrices.load(compute, plan, side, block, memory, &given_up).is_err() {
                return;
            }
            let length = plan.range(block.0).len() * plan.range(block.1).len();
            let bytes = number_bytes(&memory[..length]);
            // Counted before it is sent: with the last block the product may be done, and the counts be asked for.
            self.traffic.sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
            if link.sender.send(GIVE, head.number, &[bytes]).is_err() {
                self.traffic.sent.fetch_sub(bytes.len() as u64, Ordering::SeqCst);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_one_name() {
        for block in [(0, 0), (3, 5), (5, 3), ((1 << 31) - 1, 0), (0, (1 << 31) - 1)] {
            for side in [Side::Left, Side::Right] {
                assert_eq!(block_of(name_of(side, block)), (side, block));
            }
        }
    }
}
