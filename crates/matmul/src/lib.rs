//! Products of square matrices too large for memory, block by block.
//!
//! `trace(A B)` needs only the matching block pairs `A(i, k)` and `B(k, i)`. Each pair is one job of
//! worker `(i + k) mod workers`, so that both blocks of a pair are in one worker and, for `A A`, so are a
//! block and its mirror image. The full product has a job for each block of the result. Workers are
//! threads or processes and hold three blocks each; their partial results are summed in job order.
//!
//! With [`cluster`] the workers are tasks on several machines: each [holds](Placement) some of the blocks, others come over links.
//!
//! Blocks come from a seed (each value is a function of seed, row and column alone) or from `.npy` files.
//! Every product is checked by Freivalds' method. Finished jobs are kept in a state file, so that a run
//! that was stopped or killed resumes where it was.
//!
//! ```
//! use paceline_matmul::{Input, MatmulSettings, Placement, Work, run};
//! use std::{sync::atomic::AtomicBool, time::Duration};
//!
//! let matrix = |matrix| Input::Generated { size: 200, seed: 1, matrix };
//! let settings = MatmulSettings {
//!     left: matrix(0), right: matrix(1), work: Work::Trace, block: Some(64), memory: 1 << 30,
//!     workers: 2, threads: 2, isa: paceline_kernels::Isa::current()?, verify: true,
//!     output: None, state: None, launch: None, save_every: Duration::from_secs(60), placement: Placement::Diagonal,
//! };
//! let products = run(&settings, &AtomicBool::new(false), &mut |_| {})?;
//! assert_eq!((products.complete, products.plan.blocks), (true, 4));
//!
//! // The same number without a product.
//! let identity = MatmulSettings { work: Work::Identity, ..settings };
//! let identity = run(&identity, &AtomicBool::new(false), &mut |_| {})?;
//! assert!((products.trace - identity.trace).abs() < 1e-3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cluster;
mod error;
pub mod fuzzing;
mod input;
mod npy;
mod numeric;
mod placement;
mod plan;
mod run;
mod state;
mod task;
mod verify;
mod worker;

pub use error::MatmulError;
pub use input::Input;
pub use placement::Placement;
pub use plan::{LEAST_BLOCK, Plan, Work};
pub use run::{MatmulSettings, ProductOutcome, Progress, run};
pub use task::{Launch, Order, obey};
