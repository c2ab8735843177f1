//! Products of square matrices too large for memory, block by block.
//!
//! `trace(A B)` needs only the matching block pairs `A(i, k)` and `B(k, i)`. Each pair is one job of
//! worker `(i + k) mod workers`, so that both blocks of a pair are in one worker and, for `A A`, so are a
//! block and its mirror image. The full product has a job for each block of the result. Workers are
//! threads or processes and hold three blocks each; their partial results are summed in job order.
//!
//! Blocks come from a seed (each value is a function of seed, row and column alone) or from `.npy` files.
//! Every product is checked by Freivalds' method. Finished jobs are kept in a state file, so that a run
//! that was stopped or killed resumes where it was.

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
