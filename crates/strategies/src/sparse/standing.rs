//! How far a server is, and how far each worker's gradients have come there.
//!
//! A worker sends every gradient to all servers, and the next one only when all have answered. So two servers
//! differ by one gradient of a worker at most, and its *turn* (a count) tells which has it: a gradient
//! that is sent again, because an answer was lost or a server never got it, is used exactly once.

use super::{
    message::{BOOKMARK, Bookmark, read_bookmark, write_bookmark},
    overseer::Beginning,
};
use crate::bytes;
use paceline_wire::TaskId;
use std::collections::BTreeMap;

/// How far a worker's gradients have come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Learned {
    /// How many of them since the chief gave the weights.
    pub(super) turn: u64,
    /// How far the worker had read with the last.
    pub(super) mark: Bookmark,
}

/// How far a server is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Updates in the weights.
    pub(super) version: u64,
    /// Rows in them.
    pub(super) examples: u64,
    pub(super) workers: BTreeMap<TaskId, Learned>,
}

impl Standing {
    /// Bytes before the workers.
    const FIXED: usize = 24;

    pub(super) fn turn(&self, task: TaskId) -> u64 {
        self.workers.get(&task).map_or(0, |learned| learned.turn)
    }

    /// The workers of whom `target` has a gradient that is missing here.
    pub(super) fn lacks<'a>(&'a self, target: &'a Self) -> impl Iterator<Item = TaskId> + 'a {
        let behind = move |(task, learned): &(&TaskId, &Learned)| self.turn(**task) < learned.turn;
        target.workers.iter().filter(behind).map(|(task, _)| *task)
    }

    /// Goes as far as the further of both with every worker; so the updates may be more than either counts.
    pub(super) fn join(&mut self, other: &Self) {
        self.version = self.version.max(other.version);
        self.examples = self.examples.max(other.examples);
        for (task, learned) in &other.workers {
            let here = self.workers.entry(*task).or_insert(*learned);
            if here.turn < learned.turn {
                *here = *learned;
            }
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::FIXED + self.workers.len() * (BOOKMARK + 24));
        for word in [self.version, self.examples, self.workers.len() as u64] {
            out.extend(word.to_le_bytes());
        }
        for (task, learned) in &self.workers {
            let name = task.to_string();
            out.push(u8::try_from(name.len()).expect("names of tasks are short"));
            out.extend(name.as_bytes());
            out.extend(learned.turn.to_le_bytes());
            out.extend(write_bookmark(&learned.mark));
        }
        out
    }

    pub(super) fn read(from: &[u8]) -> Option<Self> {
        let (fixed, mut rest) = from.split_first_chunk::<{ Self::FIXED }>()?;
        let word = |at: usize| bytes::u64_at(fixed, 8 * at);
        let mut workers = BTreeMap::new();
        for _ in 0..word(2) {
            let (length, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked(usize::from(*length))?;
            let (turn, after) = after.split_first_chunk::<8>()?;
            let (mark, after) = after.split_first_chunk::<BOOKMARK>()?;
            let task: TaskId = std::str::from_utf8(name).ok()?.parse().ok()?;
            let (turn, mark) = (u64::from_le_bytes(*turn), read_bookmark(mark));
            workers.insert(task, Learned { turn, mark });
            rest = after;
        }
        rest.is_empty().then_some(Self { version: word(0), examples: word(1), workers })
    }
}

impl From<&Beginning> for Standing {
    /// Turns are counted from zero again.
    fn from(beginning: &Beginning) -> Self {
        let marks = beginning.marks.iter();
        Self {
            version: beginning.version,
            examples: beginning.examples,
            workers: marks.map(|(task, mark)| (*task, Learned { turn: 0, mark: *mark })).collect(),
        }
    }
}

impl From<Standing> for Beginning {
    fn from(standing: Standing) -> Self {
        Self {
            version: standing.version,
            examples: standing.examples,
            marks: standing.workers.iter().map(|(task, learned)| (*task, learned.mark)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_wire::Role;

    fn standing(version: u64, turns: &[u64]) -> Standing {
        let learned = |(index, turn): (usize, &u64)| {
            let mark = [*turn, 0, 0, 0, 0, u64::MAX];
            (TaskId::new(Role::Worker, index as u32), Learned { turn: *turn, mark })
        };
        let workers = turns.iter().enumerate().map(learned).collect();
        Standing { version, examples: 10 * version, workers }
    }

    #[test]
    fn the_furthest_of_all_has_every_workers_last_gradient() {
        let (mut a, b) = (standing(7, &[4, 3]), standing(8, &[3, 4, 1]));
        let lacks: Vec<_> = a.lacks(&b).map(|task| task.index).collect();
        assert_eq!(lacks, [1, 2]);
        a.join(&b);
        assert_eq!(a, standing(8, &[4, 4, 1]));
        assert_eq!(a.lacks(&b).count(), 0);
    }

    #[test]
    fn standings_read_back_and_what_is_none_does_not() {
        let whole = standing(9, &[1, 0, 5]);
        let bytes = whole.write();
        assert_eq!(Standing::read(&bytes), Some(whole));
        for length in 0..bytes.len() {
            assert_eq!(Standing::read(&bytes[..length]), None, "{length} bytes");
        }
        assert_eq!(Standing::read(&[&bytes[..], &[0]].concat()), None);
    }
}
