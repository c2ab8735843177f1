//! The one script of every page: it makes charts and tables workable.
//!
//! A file of its own, `assets/charts.js`, in plain JavaScript with types in its comments: nothing has to be built, and the live
//! page uses the same. A page reads the same without it.

/// The script. It starts by itself when the page is there; `pacelineCharts.start(element)` makes content workable that came later.
pub const CHARTS: &str = include_str!("../assets/charts.js");
