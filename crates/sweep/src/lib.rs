//! Grids of runs: what to vary, which cells are left, what they measured, how that compares with published figures.
//!
//! A sweep runs our own binary once per cell and repeat, in a seeded random order, and writes each result to a journal before
//! the next cell starts: after an interruption, the same call continues with the remaining cells. A failed cell is a row like
//! any other. The final page says, with intervals, where the measured shape agrees with the published one.
//!
//! ```
//! use paceline_sweep::{Recipe, Settings};
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
//! let cells = Settings { scale: 0.1, ..Settings::default() }.cells(&recipe)?;
//! assert_eq!(cells.len(), 4);
//! assert!(cells[0].arguments.windows(2).any(|pair| pair == ["--epochs", "1"]));
//! # Ok::<(), paceline_sweep::SweepError>(())
//! ```

mod distributed;
mod error;
mod findings;
mod grid;
mod journal;
mod measure;
mod page;
mod recipe;
pub mod recipes;
mod recording;
mod run;
mod template;

pub use distributed::{Distributed, run_cells};
pub use error::SweepError;
pub use findings::{Comparison, Findings, Group, Growth, analyse};
pub use grid::{Cell, Settings, parse_vary};
pub use journal::{Failure, JOURNAL, Journal, MeanPeak, Row};
pub use measure::{Curve, Measure, Source, Statistic, default_measures};
pub use page::{csv, growth_words, html, markdown, tables};
pub use recipe::{Axis, Choice, DataSet, Published, Recipe, Scaled, Setup, Value};
pub use recording::Score;
pub use run::{Places, Runner};
