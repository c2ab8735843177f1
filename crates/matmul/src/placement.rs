//! Which of several machines holds a block.
//!
//! Both matrices are cut in the same way and block `(row, column)` of either lies on the same machine. A trace needs
//! `A(i, k)` together with `B(k, i)`, so a placement that gives a block and its mirror image one machine moves nothing.

use paceline_kernels::random::mix;
use serde::{Deserialize, Serialize};

/// A rule that gives every block a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// `(row + column) mod machines`: a block and its mirror image meet.
    #[default]
    Diagonal,
    /// `row mod machines`.
    Rows,
    /// `column mod machines`.
    Columns,
    /// Machines as a rectangle that is laid over the blocks again and again.
    Grid,
    /// By a hash of row and column.
    Random,
}

impl Placement {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Diagonal, Self::Rows, Self::Columns, Self::Grid, Self::Random];

    /// The word users type.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Diagonal => "diagonal",
            Self::Rows => "rows",
            Self::Columns => "columns",
            Self::Grid => "grid",
            Self::Random => "random",
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|placement| placement.name() == name)
    }

    /// The machine of block `(row, column)`, one of `machines`.
    #[must_use]
    pub fn holder(self, row: usize, column: usize, machines: usize) -> usize {
        match self {
            Self::Diagonal => (row + column) % machines,
            Self::Rows => row % machines,
            Self::Columns => column % machines,
            Self::Grid => {
                // As near to a square as the number allows.
                let down = (1..=machines.isqrt()).rev().find(|down| machines.is_multiple_of(*down));
                let down = down.unwrap_or(1);
                let across = machines / down;
                row % down * across + column % across
            }
            Self::Random => {
                let mixed = mix((row as u64) << 32 ^ column as u64);
                usize::try_from(mixed % machines as u64).expect("below a usize")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_gets_its_share() {
        for placement in Placement::ALL {
            assert_eq!(Placement::named(placement.name()), Some(placement));
            for machines in 1..=9 {
                let mut blocks = vec![0; machines];
                for at in 0..36 * 36 {
                    blocks[placement.holder(at / 36, at % 36, machines)] += 1;
                }
                let fair = 36 * 36 / machines;
                let even = |count: &i32| (*count as usize).abs_diff(fair) <= fair / 4;
                assert!(blocks.iter().all(even), "{placement:?} on {machines}: {blocks:?}");
            }
        }
        assert_eq!(Placement::named("diagonals"), None);
    }
}
