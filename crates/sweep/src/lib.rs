//! Grids of runs: what to vary, which cells are left, what they measured, how that compares with published figures.
//!
//! A sweep runs our own binary or any other program once per cell and repeat, in a seeded random order, and writes each result to a journal before
//! the next cell starts: after an interruption, the same call continues with the remaining cells. A failed cell is a row like
//! any other. The final page says, with intervals, where the measured shape agrees with the published one.
//!
//! ```
//! use paceline_sweep::{Recipe, SweepSettings};
//!
//! let recipe = Recipe::parse("demo", r#"
//!     title = "Batch size"
//!     command = ["train"]
//!     repeats = 2
//!     flags = { model = "softmax", data = "generated:digits", epochs = "{epochs}" }
//!     scaled = { epochs = { full = 10, least = 1 } }
//!     [[axis]]
//!     name = "batch-size"
//!     values = [10, 50]
//! "#)?;
//! let cells = SweepSettings { scale: 0.1, ..SweepSettings::default() }.cells(&recipe)?;
//! assert_eq!(cells.len(), 4);
//! assert!(cells[0].arguments.windows(2).any(|pair| pair == ["--epochs", "1"]));
//! # Ok::<(), paceline_sweep::SweepError>(())
//! ```

mod distributed;
mod effects;
mod error;
mod figures;
mod findings;
mod grid;
mod hosts;
mod journal;
mod measure;
mod page;
mod paired;
mod process;
mod prove;
mod recipe;
pub mod recipes;
mod recording;
mod run;
mod template;
mod tune;

pub use distributed::{Distributed, run_cells};
pub use effects::{Best, Better, Effect, bests, effects};
pub use error::SweepError;
pub use figures::check_pattern;
pub use findings::{Comparison, Findings, Group, Growth, analyse};
pub use grid::{Cell, SweepSettings, parse_vary};
pub use hosts::check_hosts;
pub use journal::{Failure, JOURNAL, Journal, MeanPeak, Row};
pub use measure::{Curve, Measure, Source, Statistic, default_measures};
pub use page::{csv, growth_words, html, markdown, tables};
pub use paired::{Comparison as PairedComparison, MeasuredBy, PairResult, Side};
pub use process::find_program;
pub use prove::{Change, Claim};
pub use recipe::{Axis, Choice, DataSet, Published, Recipe, Scaled, Setup, Value};
pub use recording::Score;
pub use run::{Places, Runner};
pub use tune::{TuneBudget, TuneEnd, TuneEvent, TuneQuestion, TuneSession};
