//! Progress bars: how far, how fast, how long still.

use super::one_line;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What a bar counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things, named.
    Items(&'static str),
    /// Bytes, shown as MiB.
    Bytes,
}

/// One bar, gone when dropped. May be called from any thread; a hidden one costs an atomic.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn start(
        bars: &MultiProgress,
        what: String,
        total: Option<u64>,
        unit: Unit,
    ) -> Self {
        let bar = bars.add(total.map_or_else(ProgressBar::new_spinner, ProgressBar::new));
        bar.set_style(style(total.is_some(), unit));
        bar.set_prefix(what);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar }
    }

    /// Moves to `done` of the total.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }

    /// Corrects the total once it is known.
    pub fn set_total(&self, total: u64) {
        self.bar.set_length(total);
    }

    /// Says something short behind the bar: a loss, a count of rejects.
    pub fn message(&self, text: impl Into<String>) {
        self.bar.set_message(one_line(&text.into()).into_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Bars one after the other, for work that goes from stage to stage; the last is gone when dropped. May be called from
/// any thread.
#[derive(Debug)]
pub struct Stages<'a> {
    bars: &'a MultiProgress,
    current: Mutex<Option<(&'static str, Progress)>>,
}

impl<'a> Stages<'a> {
    pub(super) fn new(bars: &'a MultiProgress) -> Self {
        Self { bars, current: Mutex::new(None) }
    }

    /// Moves the bar of a stage; a stage that was not the last one gets a new bar.
    pub fn set(&self, what: &'static str, done: u64, total: Option<u64>, unit: Unit) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_none_or(|(known, _)| *known != what) {
            // The former bar must be gone before the next one is drawn.
            *current = None;
            *current = Some((what, Progress::start(self.bars, what.to_owned(), total, unit)));
        }
        if let Some((_, bar)) = &*current {
            bar.set(done);
        }
    }
}

/// A level between 0 and 100 %, gone when dropped.
#[derive(Debug)]
pub struct Gauge {
    bar: ProgressBar,
}

impl Gauge {
    pub(super) fn start(bars: &MultiProgress, what: String) -> Self {
        let bar = bars.add(ProgressBar::new(100));
        let style =
            ProgressStyle::with_template("{prefix:>10} {bar:28.cyan/dim} {pos:>3} % {msg:.dim}")
                .expect("the template above is well formed")
                .progress_chars("━╸─");
        bar.set_style(style);
        bar.set_prefix(what);
        Self { bar }
    }

    /// Sets the level, in percent, and says something short behind it.
    pub fn set(&self, percent: f64, text: impl Into<String>) {
        self.bar.set_position(percent.clamp(0.0, 100.0).round() as u64);
        self.bar.set_message(text.into());
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(known: bool, unit: Unit) -> ProgressStyle {
    let template = match (known, unit) {
        (true, Unit::Items(name)) => format!(
            "{{prefix}} {{bar:28.cyan/dim}} {{human_pos}}/{{human_len}} {name}, {{per_sec}}, {{eta}} left {{msg:.dim}}"
        ),
        (true, Unit::Bytes) => "{prefix} {bar:28.cyan/dim} {binary_bytes}/{binary_total_bytes}, {binary_bytes_per_sec}, {eta} left {msg:.dim}".to_owned(),
        (false, Unit::Items(name)) => {
            format!("{{prefix}} {{spinner}} {{human_pos}} {name}, {{per_sec}} {{msg:.dim}}")
        }
        (false, Unit::Bytes) => {
            "{prefix} {spinner} {binary_bytes}, {binary_bytes_per_sec} {msg:.dim}".to_owned()
        }
    };
    ProgressStyle::with_template(&template)
        .expect("the templates above are well formed")
        .progress_chars("━╸─")
}
