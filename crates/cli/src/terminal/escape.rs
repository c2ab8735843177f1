//! Text of others on a terminal: names of files, hosts and runs, what tools said, lines of data.
//!
//! A file may be called anything but `/`, and another machine may call itself what it likes. Printed as it is, such a name could move
//! the cursor, colour what follows, or look like a line of ours. Control characters are therefore shown as they would be typed in
//! a program (`\n`, `\u{1b}`), here for everything that is printed.

use std::borrow::Cow;

/// A name, or a message that is one line: no character of it ends the line or does anything else than being seen.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unseen)
}

/// What we print, which may have several lines: line ends stay, except within backquotes, which names stand in; tabs stay too.
pub(super) fn lines(text: &str) -> Cow<'_, str> {
    let paired = text.matches('`').count().is_multiple_of(2);
    let mut in_name = false;
    escaped(text, move |character| match character {
        '`' => {
            in_name = paired && !in_name;
            false
        }
        '\n' | '\t' => in_name,
        other => is_unseen(other),
    })
}

/// Control characters, the separators of lines and paragraphs, and those that reverse the direction of what follows.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, mut unseen: impl FnMut(char) -> bool) -> Cow<'_, str> {
    if !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let mut found = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if unseen(character) {
            found.extend(character.escape_default());
        } else {
            found.push(character);
        }
    }
    Cow::Owned(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_on_its_line_and_says_what_is_in_it() {
        assert!(matches!(one_line("runs/flowers é 花"), Cow::Borrowed(_)));
        assert_eq!(one_line("a\nerror: b\r\t\x1b[31m"), "a\\nerror: b\\r\\t\\u{1b}[31m");
        assert_eq!(
            one_line("x\u{9b}2Jy\u{7f}\u{202e}z\u{2028}"),
            "x\\u{9b}2Jy\\u{7f}\\u{202e}z\\u{2028}"
        );
    }

    #[test]
    fn lines_of_ours_stay_and_those_of_a_name_in_backquotes_do_not() {
        assert_eq!(lines("no runs in `a\nb`\n\thelp: `x`\n"), "no runs in `a\\nb`\n\thelp: `x`\n");
        assert_eq!(lines("two\nlines\x07"), "two\nlines\\u{7}");
        assert_eq!(lines("a\tb\nä – ≤"), "a\tb\nä – ≤");
        assert_eq!(lines("gpj.\u{202e}exe"), r"gpj.\u{202e}exe");
    }
}
