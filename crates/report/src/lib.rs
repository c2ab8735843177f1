//! Charts, HTML, Markdown and CSV.
//!
//! What a measurement says, made visible: [`chart`] draws SVG, [`page`] builds one self-contained HTML page (no
//! network, light, dark and print; workable with [`script`] and readable without), [`table`] writes the same rows as HTML, Markdown or aligned text, [`csv`] keeps the raw
//! numbers. [`experiment`] turns the findings of an analysis into such a page.
//!
//! Output is a pure function of its input: the same findings give the same bytes. All text from outside is escaped.
//!
//! ```
//! use paceline_report::chart::{Axis, Chart, Series};
//!
//! let loss = Series::line("<softmax>", [(0.0, 2.3), (100.0, 0.6), (200.0, 0.4)]);
//! let chart = Chart::new("Loss", Axis::new("step"), Axis::new("loss")).with(loss);
//! let svg = chart.svg();
//! assert!(svg.starts_with("<svg") && svg.contains("&lt;softmax&gt;"));
//! assert_eq!(svg, chart.svg());
//! ```

pub mod chart;
mod comparison;
pub mod csv;
mod curves;
pub mod epochs;
mod escape;
pub mod experiment;
mod groups;
mod layers;
mod many;
pub mod names;
pub mod nodes;
mod number;
pub mod page;
pub mod policy;
mod repeats;
pub mod script;
mod settings;
pub mod table;
mod tasks;
pub mod theme;
pub mod timeline;
pub mod training;
mod verdicts;
mod weights;

pub use escape::Escaped;
