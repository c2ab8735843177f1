//! Which configuration should the job run on.
//!
//! A [`Catalogue`] says what can be rented, [`Measurements`] what past jobs took on it. A [`Search`]
//! holds the runs made for the job in question; an [`Advisor`] proposes the next one, and recommends a
//! configuration with its expected time and cost, an interval and the runner-up. Methods are in
//! [`methods`], one file each; [`evaluate`] replays recorded runs to say how good each of them is.
//! A [`SearchSession`] is all of that for one question, kept in a file; it can run the job by itself.

mod catalogue;
mod completion;
mod error;
pub mod evaluate;
mod forest;
mod gp;
mod history;
mod job_command;
mod measurements;
pub mod methods;
mod own_runs;
mod search;
mod session;
mod state;
mod transfer;

pub use catalogue::{Catalogue, Configuration, Machine};
pub use error::AdvisorError;
pub use job_command::JobCommand;
pub use measurements::{Measurement, Measurements, Outcome};
pub use search::{Advisor, Objective, Prediction, Problem, Proposal, Recommendation, Run, Search};
pub use session::{Advice, SearchBudget, SearchEnd, SearchEvent, SearchQuestion, SearchSession};
pub use state::{State, StateMachine, StateRun};
