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

mod barrier;
mod bytes;
mod client;
mod dense;
mod error;
mod exchange;
mod lockstep;
mod options;
mod protocol;
pub mod server;
mod server_link;
pub mod sparse;
pub mod strategies;

pub use dense::Server;
pub use error::StrategyError;
pub use exchange::{
    Exchange, Origin, Pushed, Snapshot, StepInfo, StepReport, Tally, Ticket, Traffic, Version,
};
pub use options::{Combine, SplitDense, StrategyOptions, Transfer};
pub use strategies::{ALL, Connect, Setup, StrategyEntry, find};
