//! How workers exchange gradients.
//!
//! A strategy gives each worker an [`Exchange`]. The step loop of the trainer is the same for all of
//! them, so that their timings are comparable:
//!
//! ```text
//! pull   brings the parameters up to date      (servers; nothing to do where workers hold them)
//! ready  a range of the gradient is final      (update in cache, or start sending it)
//! push   the step is over: finish the update, agree on loss and on whether to go on
//! ```
//!
//! Model and strategy meet only at flat `f32` slices. Adding a strategy is one file in
//! [`strategies`] and one line in [`ALL`].
//!
//! ```
//! use paceline_models::{Layout, optimizer::{self, Mask, Optimizer}};
//! use paceline_strategies::{Setup, find};
//!
//! let mut layout = Layout::default();
//! layout.push("dense.weight", &[10], true);
//! let rule = optimizer::find("sgd")?;
//! let optimizer = Optimizer::with_mask(rule, rule.defaults, &layout, Mask::of(&layout))?;
//! let exchanges = (find("mirrored")?.connect)(&Setup::alone(2, &layout, &optimizer))?;
//! assert_eq!(exchanges[1].place(), (1, 2)); // the second of two replicas
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod barrier;
mod bytes;
mod client;
mod compress;
mod dense;
mod error;
mod exchange;
mod lockstep;
mod options;
mod protocol;
pub mod server;
mod server_link;
#[cfg(test)]
mod simulation;
pub mod sparse;
pub mod strategies;

pub use dense::Server;
pub use error::StrategyError;
pub use exchange::{
    Exchange, Origin, Pushed, Snapshot, StepInfo, StepReport, Tally, Ticket, Traffic, Version,
};
pub use options::{Combine, Compression, SplitDense, StrategyOptions, Transfer};
pub use strategies::{ALL, Connect, Setup, StrategyEntry, find};
