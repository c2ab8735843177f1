//! Results in sentences, for people who do not read p-values every day.
//!
//! A large p-value is worded as missing evidence, never as proof of no effect; the interval says what the data still allow.

use crate::compare::Ratio;
use crate::estimate::{Interval, NotEstimable};
use crate::line::LineFit;
use crate::multiple::{MultipleFit, NamedTerm, Term};

/// How strongly a p-value speaks against chance.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// p ≥ 0.1.
    None,
    /// p < 0.1.
    Weak,
    /// p < 0.05.
    Some,
    /// p < 0.01.
    Clear,
    /// p < 0.001.
    Strong,
}

impl Evidence {
    /// The class of a p-value.
    pub fn of(p: f64) -> Evidence {
        match p {
            p if p < 0.001 => Evidence::Strong,
            p if p < 0.01 => Evidence::Clear,
            p if p < 0.05 => Evidence::Some,
            p if p < 0.1 => Evidence::Weak,
            _ => Evidence::None,
        }
    }

    /// Two words for a table cell.
    pub fn label(self) -> &'static str {
        match self {
            Evidence::None => "no evidence",
            Evidence::Weak => "weak evidence",
            Evidence::Some => "some evidence",
            Evidence::Clear => "clear evidence",
            Evidence::Strong => "strong evidence",
        }
    }
}

/// The names a sentence about one parameter needs.
#[derive(Debug, Clone, Copy)]
pub struct Wording<'a> {
    /// The parameter, as "batch size".
    pub parameter: &'a str,
    /// One step of it, as "each further image per batch".
    pub step: &'a str,
    /// Unit of the response, as "images/s".
    pub unit: &'a str,
}

/// What a fitted line says about its parameter.
pub fn line(fit: &LineFit, wording: Wording<'_>) -> String {
    if fit.exact {
        let Wording { step, unit, .. } = wording;
        return format!(
            "{step} goes with exactly {} {unit}: all points lie on the line",
            signed(fit.slope.value)
        );
    }
    slope(fit.slope.value, fit.slope.interval, fit.p, wording)
}

/// What one term of a multiple regression says about its parameter.
pub fn term(named: &NamedTerm, wording: Wording<'_>) -> String {
    match named.estimate.as_result() {
        Ok(Term { coefficient, p, .. }) => {
            format!(
                "others held fixed, {}",
                slope(coefficient.value, coefficient.interval, *p, wording)
            )
        }
        Err(reason) => not_estimable(wording.parameter, reason),
    }
}

/// What a multiple regression says as a whole.
pub fn multiple(fit: &MultipleFit, unit: &str) -> String {
    let share = percent(fit.r_squared);
    let noise = number(fit.residual_standard_error);
    if fit.exact {
        return "the parameters explain the measurements exactly".to_owned();
    }
    match Evidence::of(fit.f_p) {
        Evidence::None => format!(
            "no evidence that the parameters together explain anything ({}, R² = {share}); a typical measurement lies {noise} {unit} off",
            p_equals(fit.f_p)
        ),
        evidence => format!(
            "the parameters together explain {share} of the variance ({}, {}); a typical measurement lies {noise} {unit} off",
            p_equals(fit.f_p),
            evidence.label()
        ),
    }
}

/// How many times larger the first of two sets is. The words follow [`Evidence`], as tables do.
pub fn ratio(ratio: &Ratio, first: &str, second: &str, verb: &str) -> String {
    let evidence = match ratio.p {
        Some(p) => Evidence::of(p),
        None if ratio.interval.contains(1.0) => Evidence::None,
        None => Evidence::Some,
    };
    let Interval { low, high } = ratio.interval;
    let p = ratio.p.map_or_else(String::new, |p| format!("; {}", p_equals(p)));
    if evidence == Evidence::None {
        return format!(
            "no evidence that {first} and {second} differ: {} (95 % interval {} to {}{p})",
            times(ratio.value),
            number(low),
            number(high)
        );
    }
    let said = if ratio.value >= 1.0 {
        let bounds = format!("95 % interval {} to {}", number(low), number(high));
        (format!("{first} {verb} {} as fast as {second}", times(ratio.value)), bounds)
    } else {
        let bounds = format!("95 % interval {} to {}", number(1.0 / high), number(1.0 / low));
        (format!("{second} {verb} {} as fast as {first}", times(1.0 / ratio.value)), bounds)
    };
    match evidence {
        Evidence::Weak => format!("weak evidence that {} ({}{p})", said.0, said.1),
        _ => format!("{} ({})", said.0, said.1),
    }
}

/// Why nothing can be said about a parameter.
pub fn not_estimable(parameter: &str, reason: &NotEstimable) -> String {
    format!("nothing can be said about {parameter}: {reason}")
}

fn slope(value: f64, interval: Interval, p: f64, wording: Wording<'_>) -> String {
    let Wording { parameter, step, unit } = wording;
    let (low, high) = (signed(interval.low), signed(interval.high));
    let p_text = p_equals(p);
    let goes = format!(
        "{step} goes with {} {unit} (95 % interval {low} to {high}); {p_text}",
        signed(value)
    );
    match Evidence::of(p) {
        Evidence::None => format!(
            "no evidence that {parameter} matters ({p_text}): were it without influence, {} of such experiments would still show a \
             slope at least this steep. That does not prove that there is no influence; anything from {low} to {high} {unit} per step fits the data",
            percent(p)
        ),
        Evidence::Weak => format!(
            "{goes}: weak evidence, chance alone does this in 1 of {:.0} experiments",
            1.0 / p
        ),
        Evidence::Some => format!(
            "{goes}: some evidence, chance alone does this in 1 of {:.0} experiments",
            1.0 / p
        ),
        Evidence::Clear => format!(
            "{goes}: clear evidence, chance alone does this in 1 of {:.0} experiments",
            1.0 / p
        ),
        Evidence::Strong => format!("{goes}: such a slope would hardly arise by chance"),
    }
}

/// `p = 0.95`, `p = 4.2e-4`, `p < 1e-300`.
pub fn p_equals(p: f64) -> String {
    if p < 1e-300 { "p < 1e-300".to_owned() } else { format!("p = {}", p_value(p)) }
}

/// A p-value with two digits: `0.95`, `0.0031`, `4.2e-5`, `< 1e-300`.
pub fn p_value(p: f64) -> String {
    match p {
        p if p < 1e-300 => "< 1e-300".to_owned(),
        p if p < 0.000_95 => format!("{p:.1e}"),
        p if p < 0.009_5 => format!("{p:.4}"),
        p if p < 0.095 => format!("{p:.3}"),
        // 0.998 must not become 1.00.
        p if p > 0.994_9 && p < 1.0 => format!("{p:.3}").replace("1.000", "> 0.999"),
        p => format!("{p:.2}"),
    }
}

/// A number with three significant digits or all of its integer part, thousands grouped: `0.305`, `12.4`, `7,608`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    if !(1e-4..1e9).contains(&size) {
        return minus(format!("{value:.2e}"));
    }
    // Of the rounded number: 0.9997 has one digit before the point, not none.
    let rounded: f64 = format!("{size:.2e}").parse().unwrap_or(size);
    let whole_digits = rounded.log10().floor() as i32 + 1;
    let decimals = usize::try_from(3 - whole_digits).unwrap_or(0);
    grouped(value, decimals)
}

/// A number with fixed decimals, grouped thousands and a real minus sign.
pub fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut out = String::with_capacity(text.len() + 4);
    // A value that rounds to zero has no sign.
    if value < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) {
        out.push('\u{2212}');
    }
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// [`number`] with its sign always shown.
pub fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", number(value)) } else { number(value) }
}

/// A share as a percentage with two digits: `95 %`, `0.31 %`.
pub fn percent(share: f64) -> String {
    let hundred = share * 100.0;
    match hundred.abs() {
        size if size >= 99.95 => format!("{hundred:.0} %"),
        size if size >= 99.0 => format!("{hundred:.1} %"),
        size if size >= 9.5 => format!("{hundred:.0} %"),
        size if size >= 0.95 => format!("{hundred:.1} %"),
        _ => format!("{hundred:.2} %"),
    }
}

/// A factor: `1.42 times`.
pub fn times(factor: f64) -> String {
    format!("{} times", number(factor))
}

/// A real minus sign in place of the hyphen, except in an exponent.
fn minus(text: String) -> String {
    match text.strip_prefix('-') {
        Some(rest) => format!("\u{2212}{rest}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit_line;

    const WORDING: Wording<'static> =
        Wording { parameter: "batch size", step: "each further image per batch", unit: "images/s" };

    #[test]
    fn numbers_keep_three_digits_and_group_thousands() {
        let cases = [
            (0.304_9, "0.305"),
            (12.44, "12.4"),
            (7608.57, "7,609"),
            (-64.13, "\u{2212}64.1"),
            (1_234_567.0, "1,234,567"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(0.0), "0");
        assert_eq!(number(3.2e-12), "3.20e-12");
        assert_eq!(signed(5.0), "+5.00");
        assert_eq!(grouped(-1_234_567.891, 2), "\u{2212}1,234,567.89");
        assert_eq!(grouped(-0.001, 1), "0.0");
    }

    #[test]
    fn p_values_never_round_to_zero_or_one() {
        let cases = [
            (0.95, "0.95"),
            (0.0031, "0.0031"),
            (4.2e-5, "4.2e-5"),
            (0.0, "< 1e-300"),
            (0.998, "0.998"),
            (0.999_99, "> 0.999"),
        ];
        for (p, text) in cases {
            assert_eq!(p_value(p), text);
        }
        assert_eq!(p_equals(0.0), "p < 1e-300");
    }

    #[test]
    fn a_large_p_is_missing_evidence_and_not_proof_of_absence() {
        let fit = fit_line(&[(1.0, 10.0), (2.0, 12.0), (3.0, 9.0), (4.0, 11.0), (5.0, 10.5)])
            .expect("estimable");
        let words = line(&fit, WORDING);
        assert!(words.starts_with("no evidence that batch size matters (p = "), "{words}");
        assert!(words.contains("not prove that there is no influence"), "{words}");
        assert!(!words.contains("significant"), "{words}");
    }

    #[test]
    fn a_tiny_p_says_that_chance_is_unlikely() {
        let points: Vec<(f64, f64)> =
            (1..30).map(|x| (f64::from(x), 124.0 * f64::from(x) + f64::from(x % 3))).collect();
        let words = line(&fit_line(&points).expect("estimable"), WORDING);
        assert!(
            words.starts_with(
                "each further image per batch goes with +124 images/s (95 % interval +124"
            ),
            "{words}"
        );
        assert!(words.ends_with("would hardly arise by chance"), "{words}");
    }

    #[test]
    fn a_slower_first_set_is_told_the_other_way_round() {
        let slower =
            crate::compare::ratio(&[1.0, 1.01, 0.99], &[2.0, 2.02, 1.98]).expect("estimable");
        let words = ratio(&slower, "records", "files", "read");
        assert!(
            words.starts_with("files read 2.00 times as fast as records (95 % interval 1.9"),
            "{words}"
        );
    }
}
