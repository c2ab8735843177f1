//! Products of square matrices too large for memory, block by block.
//!
//! `trace(A B)` needs only the block pairs that meet: `A(i, k)` and `B(k, i)`. Each pair is one job, done
//! by worker `(i + k) mod workers`, so that both blocks of a pair live in one place and, for `A A`, so
//! do a block and its mirror image. The whole product has a job for each block of the result. Workers
//! are threads or processes and hold three blocks each; their partial results are added in one place, in the order of the jobs.
//!
//! Blocks come from a seed (each value is a function of seed, row and column, whoever makes it) or from
//! `.npy` files. Every product is checked by Freivalds' method. Finished jobs are kept in a state file,
//! so that a run which was stopped or killed goes on where it was.

mod error;
mod input;
mod npy;
mod numeric;
mod plan;
mod run;
mod state;
mod task;
mod verify;
mod worker;

pub use error::MatmulError;
pub use input::Input;
pub use plan::{LEAST_BLOCK, Plan, Work};
pub use run::{Outcome, Progress, Settings, run};
pub use task::{Launch, Order, obey};
