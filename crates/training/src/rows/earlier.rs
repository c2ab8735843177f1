//! What was done for a run before the stretch of it that goes on now.

use super::{Checkpoint, RowsReport, RowsSpec, Totals};
use paceline_runs::{Leg, RunFolder, Status, Summary};

/// What was done for a run before it was resumed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Earlier {
    /// The stretches it was done in.
    pub(crate) legs: Vec<Leg>,
    /// How rows were predicted in them, as far as that is known.
    pub(crate) totals: Option<Totals>,
    /// How the run ended by then, or as far as it came.
    pub(crate) report: Option<Box<RowsReport>>,
}

impl Earlier {
    /// Reads it from a checkpoint and, where there is one, from the summary beside it.
    pub(crate) fn read(run: &RunFolder, kept: &Checkpoint) -> Self {
        let summary = run.summary().ok().flatten();
        let legs = Leg::earlier(&kept.legs, &kept.whole(), summary.as_ref());
        let before = Summary::before(run, kept.step);
        // Of a run that was killed, the events tell only what every run has.
        let told = std::fs::read(run.path().join("summary.json")).ok();
        let told = told.and_then(|text| serde_json::from_slice::<RowsReport>(&text).ok());
        let told = told.filter(|told| told.summary.global_steps == kept.step);
        let report = RowsReport { summary: before, ..told.unwrap_or_default() };
        Self { legs, totals: kept.totals.clone(), report: Some(Box::new(report)) }
    }
}

impl RowsReport {
    /// Turns the report of a stretch without an update into one of the whole run: what was done before it stays, beside the
    /// scores that were found now. Returns why nothing was left to do.
    pub(crate) fn keep(&mut self, earlier: Earlier, spec: &RowsSpec) -> String {
        let step = self.summary.global_steps;
        let cancelled = self.summary.status == Status::Cancelled;
        if let Some(before) = earlier.report {
            self.summary.add_no_step(before.summary, &earlier.legs);
            if self.progressive.rows == 0 {
                self.progressive = before.progressive;
            }
            self.held_out = self.held_out.or(before.held_out);
            (self.rejected, self.bytes) = (before.rejected, before.bytes);
            self.bytes_per_second = before.bytes_per_second;
            (self.delay, self.most_behind) = (before.delay, before.most_behind);
            self.exchange = before.exchange.or(self.exchange.take());
        }
        if cancelled {
            return format!("stopped before an update was made: the run is still at step {step}");
        }
        let rule = match spec.tasks.as_ref().and_then(|tasks| tasks.steps) {
            Some(steps) if step >= steps => format!("it was to end at step {steps}"),
            _ => format!("its {} passes over the data are made", spec.epochs),
        };
        format!(
            "the stop rule is already met: the run is at step {step}, and {rule}; no update was made. \
             More --epochs or --steps extend it"
        )
    }
}
