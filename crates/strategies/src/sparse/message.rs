//! What workers, servers and the chief tell each other about sparse weights.

use crate::bytes;

/// "Here I am", from a worker.
pub(super) const HELLO: u8 = 32;
/// The updates so far, whether a bookmark is known, the worker's last turn, and the bookmark.
pub(super) const WELCOME: u8 = 33;
/// A [`StepHead`], the gradient of the weights that the worker asked for last, sizes of the values behind it, numbers of those it wants.
pub(super) const STEP: u8 = 34;
/// A [`ValuesHead`], then the weights asked for.
pub(super) const VALUES: u8 = 35;
/// "My files have ended", from a worker; answered when those of all workers have.
pub(super) const END: u8 = 36;
/// The files of all workers have ended.
pub(super) const ENDED: u8 = 37;
/// The conversation cannot go on; the payload names the task that is missing, where one is.
pub(super) const REFUSED: u8 = 38;

/// "Which lineage of weights do you hold?", from the chief.
pub(super) const ASK: u8 = 48;
/// The lineage, 0 for none; then the updates in them, and how few the server can go back to.
pub(super) const HOLDS: u8 = 49;
/// "Keep them"; in synchronous training, those of this number of updates.
pub(super) const KEEP: u8 = 50;
/// The head of a copy: a standing; [`SLOTS`] follow, then [`LAST`].
pub(super) const BEGIN: u8 = 51;
/// Some slots: numbers, then two floats each.
pub(super) const SLOTS: u8 = 52;
/// The copy is complete.
pub(super) const LAST: u8 = 53;
/// "Make no update until I say which."
pub(super) const HOLD: u8 = 54;
/// "Score the held-out rows."
pub(super) const SCORE: u8 = 55;
/// The server's share of every row's logit, then labels, a byte each; nothing if it could not.
pub(super) const SCORES: u8 = 56;
/// The standing of a server that holds back updates.
pub(super) const HELD: u8 = 57;
/// "Go as far as this standing and give me a copy", which is answered by one, or [`LATER`].
pub(super) const CUT: u8 = 58;
/// "Go on without a copy."
pub(super) const RELEASE: u8 = 59;
/// A gradient that others have has not come.
pub(super) const LATER: u8 = 60;
/// "Who has given no gradient for so many milliseconds?"
pub(super) const IDLE: u8 = 61;
/// Their names, one a line.
pub(super) const IDLERS: u8 = 62;

/// How far a worker has read: numbers that only the worker understands.
pub type Bookmark = [u64; 6];

/// Bytes of a bookmark.
pub(super) const BOOKMARK: usize = 48;

pub(super) fn write_bookmark(mark: &Bookmark) -> [u8; BOOKMARK] {
    let mut out = [0; BOOKMARK];
    for (to, number) in out.as_chunks_mut::<8>().0.iter_mut().zip(mark) {
        *to = number.to_le_bytes();
    }
    out
}

pub(super) fn read_bookmark(bytes: &[u8; BOOKMARK]) -> Bookmark {
    let words = bytes.as_chunks::<8>().0;
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

/// How weights or gradients follow a head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Not at all.
    #[default]
    None,
    /// Those that were named.
    Sparse,
    /// All of the server's part.
    Dense,
}

impl Form {
    fn read(number: u32) -> Option<Self> {
        [Self::None, Self::Sparse, Self::Dense].into_iter().find(|form| *form as u32 == number)
    }
}

/// A worker's step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct StepHead {
    /// Examples in the gradient.
    pub(super) examples: u64,
    /// How the gradient follows.
    pub(super) push: Form,
    /// How weights are asked for.
    pub(super) pull: Form,
    /// How many numbers of weights follow, in how many bytes.
    pub(super) count: u32,
    pub(super) bytes: u32,
    /// All workers shall stop.
    pub(super) stop: bool,
    /// Whether the sizes of the values follow the gradient, two bytes each.
    pub(super) sized: bool,
    /// Which gradient of the worker it is, counted from 1.
    pub(super) turn: u64,
    /// Where the worker stands after the gradient.
    pub(super) mark: Bookmark,
}

impl StepHead {
    pub(super) const BYTES: usize = 40 + BOOKMARK;

    pub(super) fn write(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.examples.to_le_bytes());
        let words = [
            self.push as u32,
            self.pull as u32,
            self.count,
            self.bytes,
            self.stop.into(),
            self.sized.into(),
        ];
        for (to, word) in out[8..].as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        out[32..40].copy_from_slice(&self.turn.to_le_bytes());
        out[40..].copy_from_slice(&write_bookmark(&self.mark));
        out
    }

    pub(super) fn read(from: &[u8; Self::BYTES]) -> Option<Self> {
        let mark: &[u8; BOOKMARK] = from.last_chunk().expect("a head ends with a bookmark");
        Some(Self {
            examples: bytes::u64_at(from, 0),
            push: Form::read(bytes::u32_at(from, 8))?,
            pull: Form::read(bytes::u32_at(from, 12))?,
            count: bytes::u32_at(from, 16),
            bytes: bytes::u32_at(from, 20),
            stop: bytes::u32_at(from, 24) != 0,
            sized: bytes::u32_at(from, 28) != 0,
            turn: bytes::u64_at(from, 32),
            mark: read_bookmark(mark),
        })
    }
}

/// A server's answer to a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ValuesHead {
    /// Nanoseconds the answer was held back for other workers.
    pub(super) held: u64,
    /// Rows in the weights, over all workers.
    pub(super) examples: u64,
    /// Updates by others between the worker's pull and its own update.
    pub(super) staleness: u64,
    /// All workers shall stop.
    pub(super) stop: bool,
}

impl ValuesHead {
    pub(super) const BYTES: usize = 32;

    pub(super) fn write(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let words = [self.held, self.examples, self.staleness, self.stop.into()];
        for (to, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        out
    }

    pub(super) fn read(from: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| bytes::u64_at(from, 8 * at);
        Self { held: word(0), examples: word(1), staleness: word(2), stop: word(3) != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_read_back_and_unknown_forms_do_not() {
        let head = StepHead {
            examples: 512,
            push: Form::Sparse,
            pull: Form::Dense,
            count: 7,
            bytes: 21,
            stop: true,
            sized: true,
            turn: u64::MAX - 1,
            mark: [1, 2, 3, u64::MAX, 5, 6],
        };
        let mut bytes = head.write();
        assert_eq!(StepHead::read(&bytes), Some(head));
        bytes[8] = 9;
        assert_eq!(StepHead::read(&bytes), None);
        let values = ValuesHead { held: 1, examples: 2, staleness: 3, stop: true };
        assert_eq!(ValuesHead::read(&values.write()), values);
    }
}
