//! Which configuration should the job run on.
//!
//! A [`Catalogue`] says what can be rented, [`Measurements`] what past jobs took on it. A [`Search`]
//! holds the runs made for the job in question; an [`Advisor`] proposes the next one, and recommends a
//! configuration with its expected time and cost, an interval and the runner-up. Methods are in
//! [`methods`], one file each; [`evaluate`] replays recorded runs to say how good each of them is.
//! A [`SearchSession`] is all of that for one question, kept in a file; it can run the job by itself.
//!
//! ```
//! use paceline_advisor::{Catalogue, Machine, Measurements, Objective, Outcome, Problem, Run, Search, methods};
//! use std::sync::Arc;
//!
//! let machine = |name: &str, cores, usd_per_hour| Machine {
//!     name: name.to_owned(), cores, memory_gib: 16.0, usd_per_hour,
//!     speed: None, disk_mb_per_s: None, network_gbit: None, extra: Default::default(),
//! };
//! let offers = [(machine("small", 4.0, 0.2), vec![1, 2]), (machine("large", 16.0, 1.0), vec![1])];
//! let problem = Problem {
//!     catalogue: Arc::new(Catalogue::from_parts(offers)),
//!     history: Arc::new(Measurements::default()),
//!     objective: Objective::Cost,
//! };
//! let advisor = (methods::find("exhaustive")?.build)(&problem, 1)?;
//! let mut search = Search::new(problem, 1);
//! while let Some(next) = advisor.propose(&search) {
//!     // Here the job would run; two small machines are the ones it likes.
//!     let seconds = if next.configuration == 1 { 600.0 } else { 3600.0 };
//!     let (configuration, outcome) = (next.configuration, Outcome::Completed { seconds });
//!     search.tell(Run { configuration, outcome, metrics: Vec::new() })?;
//! }
//! assert_eq!(search.best().map(|(configuration, _)| configuration), Some(1));
//! # Ok::<(), paceline_advisor::AdvisorError>(())
//! ```

mod catalogue;
mod causes;
mod completion;
mod error;
pub mod evaluate;
mod extra_columns;
mod forest;
mod gp;
mod history;
mod job_command;
mod laws;
mod measurements;
pub mod methods;
mod own_runs;
mod search;
mod session;
mod state;
mod transfer;
pub mod tuning;

pub use catalogue::{Catalogue, Configuration, Machine};
pub use error::AdvisorError;
pub use extra_columns::{ExtraColumns, ExtraValue};
pub use job_command::JobCommand;
pub use measurements::{Measurement, Measurements, Outcome, OutsideRuns};
pub use search::{
    Advisor, Objective, Prediction, Problem, Proposal, Recommendation, Run, RunOutlook, Search,
    repeats_within,
};
pub use session::{
    Advice, ExpectedValue, SearchBudget, SearchEnd, SearchEvent, SearchQuestion, SearchSession,
    SearchedRun,
};
pub use state::{SearchState, StateMachine, StateRun};
