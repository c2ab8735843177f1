//! Charts, HTML, Markdown and CSV.
