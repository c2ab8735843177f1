//! `/metrics`: what the server and the runs do, in Prometheus' text format.

use crate::rows::RunRow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What has been served so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Responses by status.
    responses: Mutex<BTreeMap<u16, u64>>,
    /// Open streams of events.
    pub(crate) viewers: AtomicU64,
}

/// A figure of a run: its name, what it is, and its value.
type Gauge = (&'static str, &'static str, fn(&RunRow) -> Option<f64>);

impl Counters {
    pub(crate) fn add(&self, status: u16) {
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        *responses.entry(status).or_default() += 1;
    }

    /// All figures; runs in progress one by one, all others by their number.
    pub(crate) fn text(&self, runs: &[RunRow], read_bytes: u64) -> String {
        let mut out = String::new();
        let mut states: BTreeMap<&str, u64> = BTreeMap::new();
        runs.iter().for_each(|run| *states.entry(&run.state).or_default() += 1);
        family(&mut out, "paceline_runs", "gauge", "Runs by state.");
        for (state, count) in states {
            line(&mut out, "paceline_runs", &[("state", state)], count as f64);
        }
        let figures: [Gauge; 5] = [
            ("paceline_run_step", "Global step of a run in progress.", |run| Some(run.step as f64)),
            ("paceline_run_train_loss", "Training loss, in nats.", |run| run.train_loss),
            ("paceline_run_test_loss", "Loss on held-out examples, in nats.", |run| run.test_loss),
            ("paceline_run_accuracy", "Share of held-out examples classified correctly.", |run| {
                run.accuracy
            }),
            ("paceline_run_examples_per_second", "Examples a second since the start.", |run| {
                run.rate
            }),
        ];
        for (name, words, figure) in figures {
            family(&mut out, name, "gauge", words);
            for run in runs.iter().filter(|run| run.state == "running") {
                if let Some(value) = figure(run) {
                    let labels = [("run", &*run.name), ("model", &run.model)];
                    line(&mut out, name, &labels, value);
                }
            }
        }
        family(&mut out, "paceline_http_responses_total", "counter", "Responses by status.");
        let responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (status, count) in responses {
            let labels = [("status", &*status.to_string())];
            line(&mut out, "paceline_http_responses_total", &labels, count as f64);
        }
        family(&mut out, "paceline_viewers", "gauge", "Open streams of updates.");
        line(&mut out, "paceline_viewers", &[], self.viewers.load(Ordering::Relaxed) as f64);
        let name = "paceline_event_log_bytes_total";
        family(&mut out, name, "counter", "Bytes of event logs read.");
        line(&mut out, name, &[], read_bytes as f64);
        out
    }
}

fn family(out: &mut String, name: &str, kind: &str, words: &str) {
    let _ = write!(out, "# HELP {name} {words}\n# TYPE {name} {kind}\n");
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    out.push_str(name);
    for (at, (label, text)) in labels.iter().enumerate() {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let before = if at == 0 { '{' } else { ',' };
        let _ = write!(out, "{before}{label}=\"{text}\"");
    }
    let _ = writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_label() {
        let run = RunRow {
            name: "a\"} 1\nb\\".to_owned(),
            state: "running".to_owned(),
            step: 7,
            ..RunRow::default()
        };
        let counters = Counters::default();
        counters.add(200);
        let text = counters.text(&[run], 5);
        assert!(text.contains("paceline_runs{state=\"running\"} 1\n"), "{text}");
        let step = "paceline_run_step{run=\"a\\\"} 1\\nb\\\\\",model=\"\"} 7\n";
        assert!(text.contains(step), "{text}");
        assert!(text.contains("paceline_http_responses_total{status=\"200\"} 1\n"), "{text}");
        assert!(text.lines().all(|line| line.starts_with("# ") || line.starts_with("paceline_")));
    }
}
