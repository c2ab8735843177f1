//! What workers and servers say to each other: each fixed part is one struct, its reading and writing
//! side by side.
//!
//! ```text
//! worker                                server
//! ASK    what shall I do?            →  GRANT   batches; waits until there is one, or the run is over
//! FETCH  weights, from version n on  →  GRANT   with the weights
//! PUSH   gradient, step report              →  GRANT   after the update; with the weights if wanted
//! PUSH   to be kept until APPLY         (no answer)
//! APPLY  that one, with these others →  GRANT   as after a push
//! SUM    numbers to add up           →  SUMS    when all workers have sent theirs
//! HOLD   make no update for now      →  HELD    which batches are in the weights, who brought the last
//! CUT    a copy with these batches   →  STATE   and updates go on
//! TALLY                              →  COUNTS
//! MAP    have we common memory?      →  WINDOWS how to find it, or nothing
//! USE, STOP, SETTLE, LANDED, LEAVE      (no answer)
//! ```
//! After USE, dense gradients and weights lie in windows that both processes map, and messages only say
//! so: the worker writes its gradient before the push, the server the weights before the grant.
//! Instead of an answer there may be REFUSED, with the name of the task that was lost.

use super::tickets::{Done, Progress};
use crate::{
    StepReport, Tally,
    bytes::{u32_at, u64_at},
};
use paceline_models::StepLoss;

pub(crate) const ASK: u8 = 1;
pub(crate) const FETCH: u8 = 2;
pub(crate) const PUSH: u8 = 4;
pub(crate) const SUM: u8 = 5;
pub(crate) const HOLD: u8 = 6;
pub(crate) const CUT: u8 = 7;
pub(crate) const TALLY: u8 = 8;
pub(crate) const STOP: u8 = 9;
pub(crate) const SETTLE: u8 = 10;
pub(crate) const LEAVE: u8 = 11;
pub(crate) const MAP: u8 = 12;
pub(crate) const USE: u8 = 13;
pub(crate) const APPLY: u8 = 14;
pub(crate) const LANDED: u8 = 15;
pub(crate) const GRANT: u8 = 17;
pub(crate) const SUMS: u8 = 19;
pub(crate) const HELD: u8 = 20;
pub(crate) const STATE: u8 = 21;
pub(crate) const COUNTS: u8 = 22;
pub(crate) const REFUSED: u8 = 23;
pub(crate) const WINDOWS: u8 = 24;

/// Numbers in one meeting: a confusion matrix of a thousand classes and some more.
pub(crate) const MOST_SUMS: u64 = 8 << 20;
/// Bytes of a set of batches or of counts.
pub(crate) const MOST_SET: u64 = 1 << 20;

/// The message is not what its kind prescribes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// How the gradient of a push is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// There is none: the share was empty, or the gradient holds NaN or infinity.
    #[default]
    None,
    /// All values of the server's part.
    Dense,
    /// The same, in the window.
    Mapped,
}

/// The fixed part of a push.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct PushHead {
    /// Version of the weights the gradient was computed from.
    pub(crate) pulled: u64,
    pub(crate) rate: f32,
    pub(crate) form: Form,
    /// Whether the worker wants the new weights.
    pub(crate) wants_weights: bool,
    /// Whether the gradient is kept until the worker says what becomes of it.
    pub(crate) kept: bool,
    /// Examples of the whole global batch.
    pub(crate) global: u64,
    pub(crate) step_report: StepReport,
}

const FLAG_DENSE: u32 = 1;
const FLAG_STOP: u32 = 4;
const FLAG_NONFINITE: u32 = 8;
const FLAG_WEIGHTS: u32 = 16;
const FLAG_OVER: u32 = 32;
const FLAG_DROPPED: u32 = 64;
const FLAG_MAPPED: u32 = 128;
const FLAG_KEPT: u32 = 256;

impl PushHead {
    /// The last eight are zeros.
    pub(crate) const BYTES: usize = 56;

    pub(crate) fn write(&self) -> [u8; Self::BYTES] {
        let form = match self.form {
            Form::None => 0,
            Form::Dense => FLAG_DENSE,
            Form::Mapped => FLAG_MAPPED,
        };
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let flags = form
            | vote_flags(&self.step_report)
            | flag(self.wants_weights, FLAG_WEIGHTS)
            | flag(self.kept, FLAG_KEPT);
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.pulled.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.rate.to_le_bytes());
        bytes[12..16].copy_from_slice(&flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.global.to_le_bytes());
        write_loss(&self.step_report.loss, &mut bytes[24..48]);
        bytes
    }

    pub(crate) fn read(bytes: &[u8; Self::BYTES]) -> Self {
        let flags = u32_at(bytes, 12);
        let form = if flags & FLAG_DENSE != 0 {
            Form::Dense
        } else if flags & FLAG_MAPPED != 0 {
            Form::Mapped
        } else {
            Form::None
        };
        Self {
            pulled: u64_at(bytes, 0),
            rate: f32::from_bits(u32_at(bytes, 8)),
            form,
            wants_weights: flags & FLAG_WEIGHTS != 0,
            kept: flags & FLAG_KEPT != 0,
            global: u64_at(bytes, 16),
            step_report: read_vote(flags, &bytes[24..48]),
        }
    }
}

/// Batches a worker holds at most: the one it works on and some to read ahead.
pub(crate) const MOST_HELD: usize = 3;

/// The fixed part of a grant.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct GrantHead {
    /// Updates in the weights.
    pub(crate) version: u64,
    /// Of the update this answers.
    pub(crate) staleness: u64,
    /// Nanoseconds that the answer waited for other workers.
    pub(crate) held: u64,
    /// New batches for this worker.
    pub(crate) tickets: [u64; MOST_HELD],
    pub(crate) count: u16,
    /// How many workers' gradients are in the update. Where the first server decides which, their numbers
    /// follow; nothing elsewhere.
    pub(crate) taken: u16,
    /// Step reports counted since the last grant.
    pub(crate) step_report: StepReport,
    /// There is nothing left to do.
    pub(crate) over: bool,
    /// The gradient was thrown away.
    pub(crate) dropped: bool,
    /// The weights follow, or lie in the window.
    pub(crate) weights: bool,
    pub(crate) mapped: bool,
}

impl GrantHead {
    pub(crate) const BYTES: usize = 80;

    pub(crate) fn write(&self) -> [u8; Self::BYTES] {
        let flag = |set: bool, flag: u32| if set { flag } else { 0 };
        let flags = vote_flags(&self.step_report)
            | flag(self.over, FLAG_OVER)
            | flag(self.dropped, FLAG_DROPPED)
            | flag(self.weights, FLAG_WEIGHTS)
            | flag(self.mapped, FLAG_MAPPED);
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.version.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.staleness.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.held.to_le_bytes());
        for (at, ticket) in self.tickets.iter().enumerate() {
            bytes[24 + 8 * at..32 + 8 * at].copy_from_slice(&ticket.to_le_bytes());
        }
        bytes[48..50].copy_from_slice(&self.count.to_le_bytes());
        bytes[50..52].copy_from_slice(&self.taken.to_le_bytes());
        bytes[52..56].copy_from_slice(&flags.to_le_bytes());
        write_loss(&self.step_report.loss, &mut bytes[56..80]);
        bytes
    }

    pub(crate) fn read(bytes: &[u8; Self::BYTES]) -> Result<Self, Malformed> {
        let flags = u32_at(bytes, 52);
        let [count, taken] = [48, 50].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        if usize::from(count) > MOST_HELD {
            return Err(Malformed);
        }
        Ok(Self {
            version: u64_at(bytes, 0),
            staleness: u64_at(bytes, 8),
            held: u64_at(bytes, 16),
            tickets: std::array::from_fn(|at| u64_at(bytes, 24 + 8 * at)),
            count,
            taken,
            step_report: read_vote(flags, &bytes[56..80]),
            over: flags & FLAG_OVER != 0,
            dropped: flags & FLAG_DROPPED != 0,
            weights: flags & FLAG_WEIGHTS != 0,
            mapped: flags & FLAG_MAPPED != 0,
        })
    }
}

fn vote_flags(step_report: &StepReport) -> u32 {
    (if step_report.stop { FLAG_STOP } else { 0 })
        | (if step_report.nonfinite { FLAG_NONFINITE } else { 0 })
}

fn read_vote(flags: u32, loss: &[u8]) -> StepReport {
    StepReport {
        loss: StepLoss {
            loss_sum: f64::from_bits(u64_at(loss, 0)),
            correct: u64_at(loss, 8),
            examples: u64_at(loss, 16),
        },
        stop: flags & FLAG_STOP != 0,
        nonfinite: flags & FLAG_NONFINITE != 0,
    }
}

fn write_loss(loss: &StepLoss, bytes: &mut [u8]) {
    bytes[0..8].copy_from_slice(&loss.loss_sum.to_le_bytes());
    bytes[8..16].copy_from_slice(&loss.correct.to_le_bytes());
    bytes[16..24].copy_from_slice(&loss.examples.to_le_bytes());
}

/// Numbers, eight bytes each.
pub(crate) fn write_numbers(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// As [`write_numbers`].
pub(crate) fn read_numbers(bytes: &[u8]) -> Result<Vec<u64>, Malformed> {
    let (words, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(Malformed);
    }
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

impl Progress {
    pub(crate) fn write(&self) -> Vec<u8> {
        let brought = self.brought.iter().flat_map(|(batch, worker)| [*batch, *worker]);
        let fixed = [self.done.below, self.brought.len() as u64];
        write_numbers(fixed.into_iter().chain(brought).chain(self.done.beyond.iter().copied()))
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let numbers = read_numbers(bytes)?;
        let ([below, count], rest) = numbers.split_first_chunk::<2>().ok_or(Malformed)?;
        let (pairs, _) = rest.as_chunks::<2>();
        let count = usize::try_from(*count).ok().filter(|count| *count <= pairs.len());
        let count = count.ok_or(Malformed)?;
        Ok(Self {
            done: Done { below: *below, beyond: rest[2 * count..].iter().copied().collect() },
            brought: pairs[..count].iter().map(|[batch, worker]| (*batch, *worker)).collect(),
        })
    }
}

impl Tally {
    pub(crate) fn write(&self) -> Vec<u8> {
        let fixed = [self.dropped, self.dropped_examples, self.examples];
        write_numbers(fixed.into_iter().chain(self.staleness.iter().copied()))
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let numbers = read_numbers(bytes)?;
        let ([dropped, dropped_examples, examples], staleness) =
            numbers.split_first_chunk::<3>().ok_or(Malformed)?;
        Ok(Self {
            staleness: staleness.to_vec(),
            dropped: *dropped,
            dropped_examples: *dropped_examples,
            examples: *examples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who changes this raises the number of `paceline_wire`'s format, so that programs with different messages refuse each other.
    #[test]
    fn the_bytes_of_messages_are_those_of_wire_format_2() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let step_report = StepReport {
            loss: StepLoss { loss_sum: 2.5, correct: 3, examples: 4 },
            stop: true,
            nonfinite: true,
        };
        let push = PushHead {
            pulled: 0x0102_0304_0506_0708,
            rate: 1.5,
            form: Form::Dense,
            wants_weights: true,
            kept: true,
            global: 9,
            step_report,
        };
        let written = "08070605040302010000c03f1d0100000900000000000000\
             00000000000004400300000000000000040000000000000\
             00000000000000000";
        assert_eq!(hex(&push.write()), written);
        let grant = GrantHead {
            version: 1,
            staleness: 2,
            held: 3,
            tickets: [4, 5, 6],
            count: 3,
            taken: 2,
            step_report,
            over: true,
            dropped: true,
            weights: true,
            mapped: true,
        };
        let written = "010000000000000002000000000000000300000000000000\
             040000000000000005000000000000000600000000000000\
             03000200fc00000000000000000004400300000000000000\
             0400000000000000";
        assert_eq!(hex(&grant.write()), written);
        assert!(paceline_wire::version("").ends_with("(wire 2)"));
    }

    #[test]
    fn messages_read_back() {
        let step_report = StepReport {
            loss: StepLoss { loss_sum: -1.25, correct: 3, examples: 9 },
            stop: true,
            nonfinite: false,
        };
        for form in [Form::None, Form::Dense, Form::Mapped] {
            let head = PushHead {
                pulled: 7,
                rate: 0.125,
                form,
                wants_weights: form == Form::Dense,
                kept: form == Form::Mapped,
                global: 64,
                step_report,
            };
            assert_eq!(PushHead::read(&head.write()), head);
        }
        let grant = GrantHead {
            version: 1 << 40,
            staleness: 2,
            held: 3,
            tickets: [4, 5, 6],
            count: 2,
            taken: 700,
            step_report: StepReport { nonfinite: true, ..step_report },
            over: true,
            dropped: false,
            weights: true,
            mapped: true,
        };
        assert_eq!(GrantHead::read(&grant.write()), Ok(grant));
        let greedy = GrantHead { count: 4, ..grant };
        assert_eq!(GrantHead::read(&greedy.write()), Err(Malformed));
        let done = Done { below: 3, beyond: [5, 9, 11].into() };
        for brought in [vec![], vec![(5, 0), (9, 1)]] {
            let progress = Progress { done: done.clone(), brought };
            assert_eq!(Progress::read(&progress.write()), Ok(progress));
        }
        assert_eq!(Progress::read(&[1, 2, 3]), Err(Malformed));
        assert_eq!(Progress::read(&write_numbers([3, 2, 5, 0, 9])), Err(Malformed));
        assert_eq!(Progress::read(&[]), Err(Malformed));
        let tally =
            Tally { staleness: vec![5, 0, 1], dropped: 2, dropped_examples: 64, examples: 9 };
        assert_eq!(Tally::read(&tally.write()), Ok(tally));
    }
}
