//! Text that is safe inside HTML and SVG, in element content and in quoted attributes alike.

use std::fmt::{self, Write};

/// Displays a text with the characters that mean something in HTML escaped, and those it forbids left out.
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\t' | '\n' => f.write_str(" ")?,
                c if c.is_control() => {}
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// In a template; what is forgotten to be wrapped is escaped by the template itself.
impl maud::Render for Escaped<'_> {
    fn render_to(&self, buffer: &mut String) {
        write!(buffer, "{self}").expect("a text takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_name_stays_text() {
        let hostile = "<img src=x onerror='alert(1)'> & \"more\"\u{0}\u{1b}[31m";
        let safe = Escaped(hostile).to_string();
        assert!(!safe.contains(['<', '>', '"', '\'', '\u{0}', '\u{1b}']), "{safe}");
        assert!(safe.contains("&lt;img src=x") && safe.contains("&amp; &quot;more&quot;"));
    }
}
