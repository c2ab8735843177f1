//! How many machines to take, given what is known and what is not.

use super::{ScalingEstimate, ScalingFit};
use crate::doublings;

/// The answer to "how many machines?".
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ScalingChoice {
    pub machines: u32,
    /// What to expect of them.
    pub estimate: ScalingEstimate,
    /// Whether the deadline is kept even at the upper end of the interval.
    pub keeps_deadline: bool,
    /// The run that would settle whether numbers outside of what was run are better, if any could be.
    pub settled_by: Option<SettlingRun>,
}

impl ScalingChoice {
    /// What a run is expected to cost at this price of a machine and hour.
    #[must_use]
    pub fn usd(&self, usd_per_hour: f64) -> f64 {
        usd(usd_per_hour, self.machines, self.estimate.seconds)
    }
}

fn usd(per_hour: f64, machines: u32, seconds: f64) -> f64 {
    per_hour * f64::from(machines) * seconds / 3600.0
}

/// What is expected of one number of machines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalingSize {
    pub machines: u32,
    pub estimate: ScalingEstimate,
    /// Dollars of a run, where a price is known.
    pub usd: Option<f64>,
}

/// The curve at a few numbers of machines, and the choice.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingForecast {
    /// By rising number of machines, the choice among them.
    pub sizes: Vec<ScalingSize>,
    /// `None` if nothing is expected to keep the deadline.
    pub chosen: Option<ScalingChoice>,
}

/// A run worth making.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct SettlingRun {
    /// On so many machines.
    pub machines: u32,
    /// The number farthest from those that were run that could still be better than the choice.
    pub farthest: u32,
    /// What the run is expected to take.
    pub estimate: ScalingEstimate,
}

/// Savings below this share are not worth a further run.
const WORTH: f64 = 0.05;
/// Numbers of machines looked at one by one; above, they are spread by ratio.
const MOST: u32 = 160;

/// Numbers of machines from one to another, both included: all of them, or a geometric selection.
#[must_use]
pub fn sizes_between(first: u32, last: u32) -> Vec<u32> {
    if last < first {
        return Vec::new();
    }
    if last - first < MOST {
        return (first..=last).collect();
    }
    let ratio = f64::from(last) / f64::from(first.max(1));
    let mut sizes: Vec<u32> = (0..=MOST)
        .map(|at| f64::from(first.max(1)) * ratio.powf(f64::from(at) / f64::from(MOST)))
        .map(|size| size.round() as u32)
        .collect();
    sizes.dedup();
    sizes
}

impl ScalingFit {
    /// What to expect of 1 to `up_to` machines, and how many to take: see [`ScalingFit::choose`].
    #[must_use]
    pub fn forecast(
        &self,
        up_to: u32,
        usd_per_hour: Option<f64>,
        deadline: Option<f64>,
    ) -> ScalingForecast {
        let chosen = self.choose(up_to, usd_per_hour, deadline);
        let mut shown: Vec<u32> =
            doublings(up_to as usize).into_iter().map(|size| size as u32).collect();
        if let Some(chosen) = &chosen {
            shown.push(chosen.machines);
            shown.extend(chosen.settled_by.map(|run| run.machines));
        }
        shown.sort_unstable();
        shown.dedup();
        let size = |machines: u32| {
            let estimate = self.estimate(1.0, f64::from(machines));
            let usd = usd_per_hour.map(|price| usd(price, machines, estimate.seconds));
            ScalingSize { machines, estimate, usd }
        };
        ScalingForecast { sizes: shown.into_iter().map(size).collect(), chosen }
    }

    /// Chooses among 1 to `up_to` machines what costs least, or takes least time without a price per machine
    /// and hour; `None` if nothing is expected to keep the deadline.
    ///
    /// Among the numbers between those that were run, the curve decides. A number outside must be better at
    /// the upper ends of the intervals: a fit that cannot tell whether the time rises again
    /// there has a high upper end, so it is not believed.
    #[must_use]
    pub fn choose(
        &self,
        up_to: u32,
        usd_per_hour: Option<f64>,
        deadline: Option<f64>,
    ) -> Option<ScalingChoice> {
        let value = |machines: u32, seconds: f64| {
            usd_per_hour.map_or(seconds, |price| usd(price, machines, seconds))
        };
        let limit = deadline.unwrap_or(f64::INFINITY);
        let all: Vec<(u32, ScalingEstimate)> = sizes_between(1, up_to)
            .into_iter()
            .map(|machines| (machines, self.estimate(1.0, f64::from(machines))))
            .collect();
        let pick = |within: &dyn Fn(&ScalingEstimate) -> f64| {
            let in_time = || all.iter().filter(|(_, estimate)| within(estimate) <= limit).copied();
            let by = |a: f64, b: f64| a.total_cmp(&b);
            let inside = in_time()
                .filter(|(_, estimate)| !estimate.extrapolated)
                .min_by(|a, b| by(value(a.0, a.1.seconds), value(b.0, b.1.seconds)));
            let outside = in_time()
                .filter(|(_, estimate)| estimate.extrapolated)
                .min_by(|a, b| by(value(a.0, a.1.high), value(b.0, b.1.high)));
            match (inside, outside) {
                (Some(inside), Some(outside))
                    if value(outside.0, outside.1.high) < value(inside.0, inside.1.high) =>
                {
                    Some(outside)
                }
                (inside, outside) => inside.or(outside),
            }
        };
        // Surely in time if anything is; else as expected.
        let (machines, estimate) =
            pick(&|estimate| estimate.high).or_else(|| pick(&|estimate| estimate.seconds))?;
        let settled_by = self.settling(&all, limit, value(machines, estimate.seconds), &value);
        let keeps_deadline = estimate.high <= limit;
        Some(ScalingChoice { machines, estimate, keeps_deadline, settled_by })
    }

    /// The run half way (by ratio) between what was run and the farthest number that could be better.
    fn settling(
        &self,
        all: &[(u32, ScalingEstimate)],
        limit: f64,
        chosen: f64,
        value: &dyn Fn(u32, f64) -> f64,
    ) -> Option<SettlingRun> {
        let (least, most) = self.machines;
        let could_be_better = |(machines, estimate): &&(u32, ScalingEstimate)| {
            estimate.extrapolated
                && estimate.low <= limit
                && value(*machines, estimate.low) < chosen * (1.0 - WORTH)
        };
        let better = || all.iter().filter(could_be_better);
        let above = better().filter(|(machines, _)| f64::from(*machines) > most).last();
        let below = better().find(|(machines, _)| f64::from(*machines) < least);
        let promise = |at: &&(u32, ScalingEstimate)| value(at.0, at.1.low);
        let farthest = match (above, below) {
            (Some(above), Some(below)) if promise(&below) < promise(&above) => below.0,
            (Some(above), _) => above.0,
            (None, below) => below?.0,
        };
        if let Some(room) = self.per_host.filter(|room| f64::from(farthest) > *room)
            && self.is_beyond_border(f64::from(farthest))
        {
            // Two full hosts show what leaving one costs; beyond them nothing is known before.
            let machines = farthest.min(2 * room as u32);
            let estimate = self.estimate(1.0, f64::from(machines));
            return Some(SettlingRun { machines, farthest, estimate });
        }
        let edge = if f64::from(farthest) > most { most } else { least };
        let machines = (edge * f64::from(farthest)).sqrt().round() as u32;
        // Next to the edge nothing lies half way.
        let measured = |machines: u32| (least..=most).contains(&f64::from(machines));
        let machines = if measured(machines) { farthest } else { machines };
        let estimate = self.estimate(1.0, f64::from(machines));
        Some(SettlingRun { machines, farthest, estimate })
    }
}
