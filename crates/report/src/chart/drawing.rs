//! A drawing that was made by this crate.

use std::fmt;
use std::ops::Deref;

/// A finished drawing: markup that a page takes as it is. Only the kinds of chart in this module make one, from text that they
/// escape, so that no other crate can put markup on a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drawing(String);

impl Drawing {
    /// Markup that was just drawn.
    pub(super) fn drawn(svg: String) -> Drawing {
        Drawing(svg)
    }
}

impl Deref for Drawing {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Drawing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
