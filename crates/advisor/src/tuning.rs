//! Searches the settings of any command: batch size, learning rate, strategy, workers, whatever its command line takes.
//!
//! A [`SearchSpace`] says what may be varied, a [`Tuner`] which point to measure next. Nothing here runs anything: the caller measures a
//! point in any way it likes and tells of it in a [`Trial`]. A proposal follows from space, goals, trials and seed alone, so a search
//! that was interrupted continues where it was.
//!
//! ```
//! use paceline_advisor::tuning::{Goal, GoalScale, SearchSpace, Trial, TrialOutcome, Tuner};
//!
//! let space = SearchSpace::parse(["lr=0.001..1:log", "model=small,large"])?;
//! let goal = Goal { name: "loss".to_owned(), maximise: false, scale: GoalScale::Logarithmic };
//! let tuner = Tuner::new(space, vec![goal], 1);
//! let mut trials = Vec::new();
//! for _ in 0..12 {
//!     let Some(next) = tuner.propose(&trials) else { break };
//!     let lr: f64 = next.point[0].as_deref().and_then(|lr| lr.parse().ok()).expect("it always applies");
//!     // Here the command would run; it likes a rate of 0.1.
//!     let loss = 1.0 + (lr / 0.1).log10().powi(2);
//!     trials.push(Trial { point: next.point, outcome: TrialOutcome::Measured(vec![loss]), seconds: 1.0 });
//! }
//! let best = tuner.best(&trials).expect("something was measured");
//! # let TrialOutcome::Measured(values) = &trials[best].outcome else { unreachable!() };
//! # assert!(values[0] < 1.1, "{values:?}");
//! # Ok::<(), paceline_advisor::tuning::SpaceError>(())
//! ```

mod space;
mod tuner;

pub use space::{Condition, Dimension, Point, SearchSpace, SpaceError, Values};
pub use tuner::{Goal, GoalScale, Trial, TrialOutcome, TuneProposal, TuneReason, Tuner};
