//! Questions to the person at the terminal, one at a time.

use super::Terminal;
use super::failure::usage;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How soon Ctrl-C ends the wait for an answer.
const LOOK: Duration = Duration::from_millis(50);

/// What is to be known, and the flag that tells it without being asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// With a question mark at its end.
    pub what: &'static str,
    /// What Enter alone stands for, in the words of the flag.
    pub default: String,
    /// With its value: `--growth SIZE`.
    pub flag: &'static str,
}

impl Terminal {
    /// Whether someone is there to be asked: never with `--json`, and not where questions or answers would go to a file.
    pub fn can_ask(&self) -> bool {
        !self.json && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// The answer, asked for again until it can be read; `None` after Ctrl-C.
    pub fn ask<T>(
        &mut self,
        question: &Question,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> anyhow::Result<Option<T>> {
        loop {
            self.prompt(question);
            let line = match self.line()? {
                Answer::Line(line) => line,
                Answer::Interrupted => {
                    self.stderr("");
                    return Ok(None);
                }
                Answer::End => {
                    self.stderr("");
                    let what = format!("no answer to `{}`", question.what);
                    return Err(usage(what, format!("give `{}`", question.flag)));
                }
            };
            let typed = line.trim();
            match read(if typed.is_empty() { &question.default } else { typed }) {
                Ok(value) => return Ok(Some(value)),
                Err(reason) => self.stderr(&format!("  {reason}")),
            }
        }
    }

    fn prompt(&self, question: &Question) {
        let write = || -> io::Result<()> {
            let mut out = io::stderr();
            write!(out, "{} [{}] ", question.what, super::one_line(&question.default))?;
            out.flush()
        };
        // Who cannot be asked cannot be told so either.
        let _ = self.bars.suspend(write);
    }

    /// One line of standard input. It is read by a thread, because a read that waits does not hear of Ctrl-C.
    fn line(&mut self) -> anyhow::Result<Answer> {
        let stop = self.interrupt()?;
        let (give, lines) = mpsc::channel();
        std::thread::Builder::new().name("answer".to_owned()).spawn(move || {
            let mut line = Vec::new();
            let read = io::BufRead::read_until(&mut io::stdin().lock(), b'\n', &mut line);
            // After Ctrl-C it is not waited for any more.
            let _ = give.send(read.map(|_| line));
        })?;
        loop {
            match lines.recv_timeout(LOOK) {
                Ok(line) => {
                    let line = line?;
                    return Ok(if line.is_empty() {
                        Answer::End
                    } else {
                        Answer::Line(String::from_utf8_lossy(&line).into_owned())
                    });
                }
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Ok(Answer::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Answer::End),
            }
        }
    }
}

enum Answer {
    Line(String),
    /// The end of standard input: Ctrl-D.
    End,
    Interrupted,
}
