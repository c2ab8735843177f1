//! Everything a person or a pipe sees goes through here.
//!
//! stdout carries data, stderr carries talk. With `--json`, stdout holds exactly one JSON document,
//! for success and failure alike. Bars are drawn on stderr, and only when a person is watching.

mod ask;
pub(crate) mod desktop;
mod escape;
pub(crate) mod failure;
mod job;
mod members;
mod placement;
mod progress;
mod quantities;
pub(crate) mod recorder;
mod signals;
pub(crate) mod spark_job;
mod stand_ins;
mod streams;
mod table;

pub use ask::Question;
pub(crate) use escape::one_line;
pub use job::{JobTerminal, metrics_words};
pub use progress::{Gauge, Progress, Stages, Unit};
pub use quantities::{show_bytes, show_count, show_dollars, show_seconds};
pub(crate) use streams::{data_stream, typed_path};
pub use table::Table;

use failure::{Exit, Failure, exit_of};

use anstream::{AutoStream, ColorChoice};
use indicatif::{MultiProgress, ProgressDrawTarget};
use paceline_data::store;
use serde::Serialize;
use signals::Interrupt;
use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use streams::{is_reader_gone, text_stream};

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[0m";

/// Flags every command takes.
#[derive(Debug, Clone, clap::Args)]
pub struct OutputArgs {
    /// Print one JSON document on stdout instead of text
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// No progress, no notes; warnings and errors only
    #[arg(long, short, global = true, help_heading = "Output")]
    pub quiet: bool,
}

/// The one way to speak to the user or program that started us. A clone speaks to the same streams.
#[derive(Clone)]
pub struct Terminal {
    json: bool,
    quiet: bool,
    colour: bool,
    bars: MultiProgress,
    interrupted: Option<Interrupt>,
    /// Stand-ins, and what they stand for.
    places: Vec<(PathBuf, PathBuf)>,
}

impl Terminal {
    /// Decides once what the streams can show.
    pub fn new(args: &OutputArgs) -> Self {
        let watched = io::stderr().is_terminal() && !args.quiet;
        let target =
            if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self {
            json: args.json,
            quiet: args.quiet,
            colour: AutoStream::choice(&io::stderr()) != ColorChoice::Never,
            bars: MultiProgress::with_draw_target(target),
            interrupted: None,
            places: Vec::new(),
        }
    }

    /// From now on `here` is called `there`: it only stands in for it.
    pub fn call(&mut self, here: &Path, there: &Path) {
        self.places.push((here.to_owned(), there.to_owned()));
    }

    /// What people call a path.
    pub fn place(&self, path: &Path) -> PathBuf {
        let named = self.places.iter().find_map(|(here, there)| {
            let rest = path.strip_prefix(here).ok()?;
            Some(if rest.as_os_str().is_empty() { there.clone() } else { there.join(rest) })
        });
        named.unwrap_or_else(|| path.to_owned())
    }

    /// Whether the caller wants JSON.
    pub fn wants_json(&self) -> bool {
        self.json
    }

    /// Data for people, on stdout; nothing with `--json`.
    pub fn data(&self, text: impl Display) -> anyhow::Result<()> {
        if self.json { Ok(()) } else { self.stdout(&escape::lines(&text.to_string())) }
    }

    /// The result as JSON on stdout; nothing without `--json`.
    pub fn json(&self, value: &impl Serialize) -> anyhow::Result<()> {
        if self.json { self.stdout(&serde_json::to_string_pretty(value)?) } else { Ok(()) }
    }

    /// Talk: what is going on, on stderr.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            self.stderr(&escape::lines(&text.to_string()));
        }
    }

    /// A doubt the user should know of, even with `--quiet`.
    pub fn warn(&self, text: impl Display) {
        let text = text.to_string();
        let text = escape::lines(&text);
        self.stderr(&format!("{YELLOW}{BOLD}warning{RESET}{BOLD}:{RESET} {text}"));
    }

    /// A bar with rate and time left; draws nothing with `--quiet`, or when stderr is not a terminal.
    pub fn progress(&self, what: impl Into<String>, total: Option<u64>, unit: Unit) -> Progress {
        Progress::start(&self.bars, one_line(&what.into()).into_owned(), total, unit)
    }

    /// Bars for work that goes from stage to stage.
    pub fn stages(&self) -> Stages<'_> {
        Stages::new(&self.bars)
    }

    /// A level that goes up and down, such as how busy something is.
    pub fn gauge(&self, what: impl Into<String>) -> Gauge {
        Gauge::start(&self.bars, what.into())
    }

    /// Whether bars are drawn at all, for callers that would prepare something costly for them.
    pub fn watched(&self) -> bool {
        !self.bars.is_hidden()
    }

    /// A flag that Ctrl-C, SIGTERM and SIGHUP raise. The first signal asks; a second one, a moment later, ends at once.
    pub fn interrupt(&mut self) -> anyhow::Result<Arc<AtomicBool>> {
        let interrupt = match self.interrupted.take() {
            Some(interrupt) => interrupt,
            None => Interrupt::listen()?,
        };
        let flag = Arc::clone(&interrupt.flag);
        self.interrupted = Some(interrupt);
        Ok(flag)
    }

    /// The exit that a received signal asks for.
    pub fn signalled(&self) -> Option<Exit> {
        self.interrupted.as_ref()?.exit()
    }

    /// A signal that a command which runs inside this one is still to be told of; told once.
    pub fn signal_to_pass_on(&self, passed_on: &Cell<bool>) -> Option<i32> {
        self.interrupted.as_ref()?.to_pass_on(passed_on)
    }

    /// Shows an error with its causes and its hint, and says how to exit.
    pub fn failure(&self, error: &anyhow::Error) -> Exit {
        if is_reader_gone(error) {
            return Exit::Done; // the reader has seen enough, as with `| head`
        }
        let failure = error.downcast_ref::<Failure>();
        let store = store::advice(error.as_ref());
        let hint = failure.and_then(|failure| failure.hint.as_deref());
        let hint = hint.or(store.and_then(|advice| advice.hint));
        let hint = hint.or_else(|| failure::of_missing_data(error));
        let hint = if failure::is_of_later_version(error) {
            Some("the run was made by a later version of paceline: read it with that one")
        } else {
            hint
        };
        let causes: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
        let said = error.to_string();
        let mut text = format!("{RED}{BOLD}error{RESET}{BOLD}:{RESET} {}", escape::lines(&said));
        for cause in &causes {
            text.push_str(&format!(
                "\n  {DIM}caused by:{RESET} {}",
                escape::lines(cause.trim_end())
            ));
        }
        if let Some(hint) = hint {
            let hint = escape::lines(hint);
            text.push_str(&format!("\n\n{CYAN}{BOLD}hint{RESET}{BOLD}:{RESET} {hint}"));
        }
        self.stderr(&text);
        let passing = store.filter(|advice| advice.is_transient).map(|_| Exit::Retry);
        let exit = exit_of(error).or(passing).unwrap_or(Exit::Failed);
        if self.json {
            let document = serde_json::json!({
                "error": said, "causes": causes, "hint": hint, "exit": exit.code(),
            });
            // stdout may be closed; the text on stderr has been said already.
            let _ = self.json(&document);
        }
        exit
    }

    /// Takes the bars away; the last words stay.
    pub fn finish(&mut self) {
        let _ = self.bars.clear();
    }

    fn stdout(&self, text: &str) -> anyhow::Result<()> {
        let write = || -> io::Result<()> {
            let mut out = text_stream();
            out.write_all(text.trim_end_matches('\n').as_bytes())?;
            out.write_all(b"\n")?;
            out.flush()
        };
        self.bars.suspend(write).map_err(anyhow::Error::from)
    }

    fn stderr(&self, text: &str) {
        let write = || -> io::Result<()> {
            let choice = if self.colour { ColorChoice::Always } else { ColorChoice::Never };
            let mut out = AutoStream::new(io::stderr(), choice);
            writeln!(out, "{text}")
        };
        // When stderr itself is closed, there is nowhere left to report it.
        let _ = self.bars.suspend(write);
    }
}
