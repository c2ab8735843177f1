//! The tasks of a cluster on stderr: a table that is redrawn on a terminal, and a line every few seconds elsewhere.

use super::one_line;
use paceline_jobs::MissingTask;
use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Tells people which tasks are missing, and what happens to the others.
#[derive(Default)]
pub(super) struct MemberTable {
    shown: Mutex<Option<Shown>>,
}

/// When tasks were last said to be missing, how many, and in how many lines that can still be redrawn.
struct Shown {
    at: Instant,
    missing: usize,
    lines: usize,
}

/// Time between two lines about missing tasks; a table that is redrawn moves faster.
const REPEAT: Duration = Duration::from_secs(5);
const REDRAW: Duration = Duration::from_millis(500);

impl MemberTable {
    /// Says something people should worry about.
    pub(super) fn warn(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    /// Says something; a table above it stays as it is.
    pub(super) fn say(&self, text: &str) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shown) = &mut *shown {
            shown.lines = 0;
        }
        // When stderr is closed, there is no one to tell.
        let _ = writeln!(io::stderr(), "{}", one_line(text));
    }

    /// Shows which tasks are missing, unless that was just said.
    pub(super) fn show(&self, missing: &[MissingTask], joined: usize) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let live = io::stderr().is_terminal()
            && std::env::var_os("TERM").is_some_and(|kind| kind != "dumb");
        let again = if live { REDRAW } else { REPEAT };
        let due = match &*shown {
            None => !missing.is_empty(),
            Some(last) => {
                last.at.elapsed() >= again && !missing.is_empty() || last.missing != missing.len()
            }
        };
        if due {
            let drawn = shown.as_ref().map_or(0, |last| last.lines);
            let all = missing.len() + joined;
            let mut lines = vec![format!("{joined} of {all} tasks joined")];
            let waiting = missing.iter().map(|task| format!("  {}", one_line(&waiting_for(task))));
            lines.extend(waiting);
            let _ = io::stderr().write_all(draw(&lines, live, drawn).as_bytes());
            let (at, missing) = (Instant::now(), missing.len());
            *shown = Some(Shown { at, missing, lines: lines.len() });
        }
    }
}

/// A line about a task that has not joined.
pub(super) fn waiting_for(missing: &MissingTask) -> String {
    let MissingTask { task, address, seconds, error } = missing;
    let place = if address.is_empty() { String::new() } else { format!(" at {address}") };
    let error = error.as_ref().map(|error| format!(", last error: {error}"));
    format!("waiting for {task}{place}, {seconds:.0} s{}", error.unwrap_or_default())
}

/// The lines of a table; on a terminal they take the place of the last `drawn` ones, each cut at the edge.
fn draw(lines: &[String], live: bool, drawn: usize) -> String {
    let text = lines.join("\n");
    match (live, drawn) {
        (false, _) => format!("{text}\n"),
        (true, 0) => format!("\x1b[?7l{text}\x1b[?7h\n"),
        (true, drawn) => format!("\x1b[{drawn}A\x1b[J\x1b[?7l{text}\x1b[?7h\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_the_place_of_the_one_before_on_a_terminal_only() {
        let lines = ["1 of 2 tasks joined".to_owned(), "  waiting for worker/1".to_owned()];
        assert_eq!(
            draw(&lines, false, 2),
            "1 of 2 tasks joined\n  waiting for worker/1\n",
            "no control characters in a log"
        );
        assert!(draw(&lines, true, 2).starts_with("\x1b[2A\x1b[J"));
        assert!(!draw(&lines, true, 0).contains("\x1b[0A"), "which would move up by one");
    }
}
