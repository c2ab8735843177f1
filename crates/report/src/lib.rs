//! Charts, HTML, Markdown and CSV.
//!
//! What a measurement says, made visible: [`chart`] draws SVG, [`page`] builds one self-contained HTML page (no
//! network, light, dark and print; workable with [`script`] and readable without), [`table`] writes the same rows as HTML, Markdown or aligned text, [`csv`] keeps the raw
//! numbers. [`experiment`] turns the findings of an analysis into such a page.
//!
//! Output is a pure function of its input: the same findings give the same bytes. All text from outside is escaped.

pub mod chart;
mod comparison;
pub mod csv;
mod curves;
mod escape;
pub mod experiment;
mod groups;
mod number;
pub mod page;
pub mod policy;
pub mod script;
pub mod table;
mod tasks;
pub mod theme;
pub mod timeline;
pub mod training;

pub use escape::Escaped;
