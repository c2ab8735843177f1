//! Axes: what they measure, how values become places, and where the ticks go.

use crate::number::{decimals_for_step, grouped};

/// How values become places along an axis.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Scale {
    /// Equal steps, equal distances.
    Linear,
    /// Equal factors, equal distances; values that are not positive are left out.
    Logarithmic,
    /// Named places 0, 1, 2, …
    Categories(Vec<String>),
}

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub label: String,
    /// In which unit; written in brackets after the label.
    pub unit: Option<String>,
    pub scale: Scale,
    /// Whether 0 must be seen, so that lengths may be compared.
    pub from_zero: bool,
    /// Smallest and largest value shown; by default what the data ask for.
    pub range: Option<(f64, f64)>,
    /// Where ticks stand; by default at round numbers. Measured values are often the better ticks.
    pub ticks: Option<Vec<f64>>,
}

impl Axis {
    /// A linear axis.
    pub fn new(label: impl Into<String>) -> Axis {
        Axis {
            label: label.into(),
            unit: None,
            scale: Scale::Linear,
            from_zero: false,
            range: None,
            ticks: None,
        }
    }

    /// An axis of named places.
    pub fn categories(
        label: impl Into<String>,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Axis {
        let names = names.into_iter().map(Into::into).collect();
        Axis { scale: Scale::Categories(names), ..Axis::new(label) }
    }

    /// With a unit.
    #[must_use]
    pub fn unit(mut self, unit: impl Into<String>) -> Axis {
        self.unit = Some(unit.into());
        self
    }

    /// With 0 in sight.
    #[must_use]
    pub fn from_zero(mut self) -> Axis {
        self.from_zero = true;
        self
    }

    /// With a logarithmic scale.
    #[must_use]
    pub fn logarithmic(mut self) -> Axis {
        self.scale = Scale::Logarithmic;
        self
    }

    /// With a fixed range.
    #[must_use]
    pub fn range(mut self, low: f64, high: f64) -> Axis {
        self.range = Some((low, high));
        self
    }

    /// With ticks at given values.
    #[must_use]
    pub fn ticks_at(mut self, ticks: impl IntoIterator<Item = f64>) -> Axis {
        self.ticks = Some(ticks.into_iter().collect());
        self
    }

    /// Round numbers from `low` to `high`, about as many as wanted, with their labels.
    pub(crate) fn round_ticks(low: f64, high: f64, wanted: f64) -> Vec<(f64, String)> {
        Fitted::of(&Axis::new("").range(low, high), std::iter::empty(), wanted).ticks
    }

    /// `label (unit)`, or whichever of the two there is.
    pub(super) fn caption(&self) -> String {
        match &self.unit {
            Some(unit) if self.label.is_empty() => unit.clone(),
            Some(unit) => format!("{} ({unit})", self.label),
            None => self.label.clone(),
        }
    }
}

/// An axis fitted to data: a place between 0 and 1 for every value.
#[derive(Debug, Clone)]
pub(super) struct Fitted {
    low: f64,
    high: f64,
    logarithmic: bool,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Fitted {
    /// Fits `axis` to `values`, with room for about `wanted` ticks.
    pub(super) fn of(axis: &Axis, values: impl Iterator<Item = f64>, wanted: f64) -> Fitted {
        if let Scale::Categories(names) = &axis.scale {
            let ticks = names
                .iter()
                .enumerate()
                .map(|(index, name)| (index as f64, name.clone()))
                .collect();
            return Fitted {
                low: -0.5,
                high: names.len().max(1) as f64 - 0.5,
                logarithmic: false,
                ticks,
            };
        }
        let logarithmic = axis.scale == Scale::Logarithmic;
        // Beyond these ends the arithmetic of padding and ticks would overflow; no measurement lies there.
        let usable = |value: &f64| value.abs() < 1e250 && (!logarithmic || *value > 1e-250);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(usable) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = if logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if axis.from_zero && !logarithmic {
            low = low.min(0.0);
            high = high.max(0.0);
        }
        if let Some(range) =
            axis.range.filter(|range| usable(&range.0) && usable(&range.1) && range.0 < range.1)
        {
            (low, high) = range;
        } else {
            (low, high) = padded(low, high, axis.from_zero, logarithmic);
        }
        let mut fitted = Fitted { low, high, logarithmic, ticks: Vec::new() };
        fitted.ticks = match &axis.ticks {
            Some(ticks) => fitted.given_ticks(ticks),
            // A narrow logarithmic axis may hold no round power; plain numbers serve there.
            None if logarithmic => {
                let ticks = fitted.logarithmic_ticks(wanted);
                if ticks.len() > 1 { ticks } else { fitted.round_ticks(wanted) }
            }
            None => fitted.round_ticks(wanted),
        };
        fitted
    }

    /// Place of a value: 0 at the low end, 1 at the high end; absent where a logarithm has none.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.logarithmic {
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.is_finite().then_some(place)
    }

    /// Where bars start: 0, or the nearest end of the axis.
    pub(super) fn floor(&self) -> f64 {
        if self.logarithmic { self.low } else { 0.0_f64.clamp(self.low, self.high) }
    }

    fn given_ticks(&self, ticks: &[f64]) -> Vec<(f64, String)> {
        let inside = ticks.iter().copied().filter(|tick| *tick >= self.low && *tick <= self.high);
        inside.map(|tick| (tick, plain(tick))).collect()
    }

    fn round_ticks(&self, wanted: f64) -> Vec<(f64, String)> {
        let step = round_step((self.high - self.low) / wanted.max(1.0));
        if !(step > 0.0 && step.is_finite()) {
            return Vec::new();
        }
        let decimals = decimals_for_step(step);
        let first = (self.low / step - 1e-9).ceil();
        let last = (self.high / step + 1e-9).floor();
        // A step derived from the range gives a handful; the bound guards against extreme ranges only.
        (0..=((last - first) as usize).min(50))
            .map(|index| {
                let tick = (first + index as f64) * step;
                (tick, axis_number(tick, decimals, self.high.abs().max(self.low.abs())))
            })
            .collect()
    }

    fn logarithmic_ticks(&self, wanted: f64) -> Vec<(f64, String)> {
        let decades = self.high.log10() - self.low.log10();
        let steps: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = (decades / wanted.max(1.0)).ceil().max(1.0) as i32;
        let (first, last) = (
            self.low.log10().floor().max(-300.0) as i32,
            self.high.log10().ceil().min(300.0) as i32,
        );
        let powers = (first..=last).filter(|power| power.rem_euclid(every) == 0);
        powers
            .flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)))
            .filter(|tick| *tick >= self.low * 0.999 && *tick <= self.high * 1.001)
            .map(|tick| (tick, plain(tick)))
            .collect()
    }
}

/// Room around the data, so that no point sits on the edge.
fn padded(low: f64, high: f64, from_zero: bool, logarithmic: bool) -> (f64, f64) {
    if logarithmic {
        let margin = ((high / low).ln() * 0.05).max(0.1);
        return (low * (-margin).exp(), high * margin.exp());
    }
    let span = high - low;
    let margin = if span > 0.0 { span * 0.06 } else { (high.abs() * 0.1).max(0.5) };
    let keep = |end: f64| from_zero && end == 0.0 && span > 0.0;
    (if keep(low) { low } else { low - margin }, if keep(high) { high } else { high + margin })
}

/// The round number (1, 2, 2.5 or 5 times a power of ten) nearest above `rough`, give or take.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let lead = rough / power;
    let round =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|step| lead <= step * 1.15).unwrap_or(10.0);
    round * power
}

/// A tick's label: grouped thousands, or k and M where the axis reaches far.
fn axis_number(value: f64, decimals: usize, largest: f64) -> String {
    if largest >= 1e9 || (largest > 0.0 && largest < 1e-4) {
        return if value == 0.0 {
            "0".to_owned()
        } else {
            format!("{value:.1e}").replace('-', "\u{2212}")
        };
    }
    if largest >= 1e6 && value != 0.0 {
        return format!("{}M", plain(value / 1e6));
    }
    grouped(value, decimals)
}

/// A number as short as it is exact, to six decimals.
pub(super) fn plain(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e9).contains(&value.abs()) {
        return format!("{value:.0e}").replace('-', "\u{2212}");
    }
    let text = grouped(value, 6);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, values: &[f64], wanted: f64) -> Vec<String> {
        Fitted::of(axis, values.iter().copied(), wanted)
            .ticks
            .into_iter()
            .map(|tick| tick.1)
            .collect()
    }

    #[test]
    fn ticks_are_round_and_share_their_decimals() {
        assert_eq!(
            labels(&Axis::new("x").from_zero(), &[0.0, 8700.0], 5.0),
            ["0", "2,000", "4,000", "6,000", "8,000"]
        );
        assert_eq!(
            labels(&Axis::new("x"), &[0.11, 0.49], 5.0),
            ["0.1", "0.2", "0.3", "0.4", "0.5"]
        );
        assert_eq!(labels(&Axis::new("x"), &[-3.0, 3.0], 4.0), ["\u{2212}2", "0", "2"]);
        assert_eq!(labels(&Axis::new("x").from_zero(), &[3.0e6], 4.0), ["0", "1M", "2M", "3M"]);
    }

    #[test]
    fn logarithmic_ticks_are_powers_or_one_two_five() {
        assert_eq!(
            labels(&Axis::new("x").logarithmic(), &[1.0, 10_000.0], 5.0),
            ["1", "10", "100", "1,000", "10,000"]
        );
        assert_eq!(
            labels(&Axis::new("x").logarithmic(), &[2.0, 60.0], 6.0),
            ["2", "5", "10", "20", "50"]
        );
    }

    #[test]
    fn hostile_values_leave_an_axis_that_can_be_drawn() {
        for values in [
            vec![],
            vec![f64::NAN],
            vec![f64::INFINITY, 1.0],
            vec![5.0, 5.0],
            vec![0.0],
            vec![-1e308, 1e308],
        ] {
            for axis in [Axis::new("x"), Axis::new("x").from_zero(), Axis::new("x").logarithmic()] {
                let fitted = Fitted::of(&axis, values.iter().copied(), 5.0);
                assert!(fitted.ticks.len() < 60, "{values:?}");
                assert!(fitted.place(1.0).is_none_or(f64::is_finite));
            }
        }
    }
}
