//! Numbers against scipy, statsmodels and exact rational arithmetic (`reference/make.py` wrote them), and against fifty digits
//! of mpmath (`reference/precise.py`).

use paceline_stats::compare::ratio;
use paceline_stats::distribution::{f_upper, t_critical, t_quantile, t_two_sided};
use paceline_stats::erfc;
use paceline_stats::{Coefficient, Predictor, fit_line, fit_multiple, lack_of_fit};
use serde_json::Value;

/// Relative agreement asked of every number.
const TOLERANCE: f64 = 1e-8;

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("reference files are JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("an array").iter().map(number).collect()
}

fn assert_close(what: &str, found: f64, wanted: f64) {
    assert_within(what, found, wanted, TOLERANCE);
}

fn assert_within(what: &str, found: f64, wanted: f64, tolerance: f64) {
    // Below 1e-300 the reference itself has lost digits to denormal numbers.
    let close = (found - wanted).abs() <= tolerance * wanted.abs()
        || (found < 1e-300 && wanted < 1e-300 && found >= 0.0 && wanted >= 0.0);
    assert!(close, "{what}: {found:e}, reference {wanted:e}");
}

fn assert_coefficient(what: &str, found: &Coefficient, expected: &Value, index: usize) {
    assert_close(what, found.value, number(&expected["coefficients"][index]));
    assert_close(
        &format!("{what}: error"),
        found.standard_error,
        number(&expected["standard_errors"][index]),
    );
    assert_close(&format!("{what}: low"), found.interval.low, number(&expected["low"][index]));
    assert_close(&format!("{what}: high"), found.interval.high, number(&expected["high"][index]));
}

#[test]
fn lines_agree_with_the_reference() {
    let cases = parse(include_str!("reference/line.json"));
    for (name, case) in cases.as_object().expect("cases by name") {
        let points: Vec<(f64, f64)> =
            numbers(&case["x"]).into_iter().zip(numbers(&case["y"])).collect();
        let fit = fit_line(&points).unwrap_or_else(|reason| panic!("{name}: {reason}"));
        let expected = &case["expected"];
        assert_eq!(fit.n, points.len(), "{name}");
        if *name != "p near one" {
            assert_coefficient(&format!("{name}: slope"), &fit.slope, expected, 1);
            assert_close(&format!("{name}: r"), fit.r, number(&expected["r"]));
        } else {
            // The slope is what is left after 1e5 times larger terms cancel.
            assert_within(
                "slope near zero",
                fit.slope.value,
                number(&expected["coefficients"][1]),
                1e-6,
            );
        }
        assert_coefficient(&format!("{name}: intercept"), &fit.intercept, expected, 0);
        assert_close(&format!("{name}: p"), fit.p, number(&expected["p"][1]));
        assert_close(
            &format!("{name}: noise"),
            fit.residual_standard_error,
            number(&expected["residual_standard_error"]),
        );
        assert_within(&format!("{name}: R²"), fit.r_squared, number(&expected["r_squared"]), 1e-6);
    }
}

#[test]
fn multiple_regressions_agree_with_the_reference_even_on_longley() {
    let cases = parse(include_str!("reference/multiple.json"));
    for (name, case) in cases.as_object().expect("cases by name") {
        let columns: Vec<Vec<f64>> =
            case["columns"].as_array().expect("columns").iter().map(numbers).collect();
        let names: Vec<String> = (0..columns.len()).map(|index| format!("x{index}")).collect();
        let predictors: Vec<Predictor<'_>> =
            columns.iter().zip(&names).map(|(values, name)| Predictor { name, values }).collect();
        let fit = fit_multiple(&numbers(&case["y"]), &predictors)
            .unwrap_or_else(|reason| panic!("{name}: {reason}"));
        let expected = &case["expected"];
        assert_coefficient(&format!("{name}: intercept"), &fit.intercept.coefficient, expected, 0);
        for (index, term) in fit.terms.iter().enumerate() {
            let what = format!("{name}: {}", term.name);
            let term = term.estimate.known().expect("full rank");
            assert_coefficient(&what, &term.coefficient, expected, index + 1);
            assert_close(
                &format!("{what}: t"),
                term.t.expect("noisy"),
                number(&expected["t"][index + 1]),
            );
            assert_close(&format!("{what}: p"), term.p, number(&expected["p"][index + 1]));
            // statsmodels takes 1 / (1 - R²), which loses digits where this is large.
            assert_within(
                &format!("{what}: inflation"),
                term.variance_inflation,
                number(&expected["variance_inflation"][index]),
                1e-4,
            );
        }
        assert_close(&format!("{name}: R²"), fit.r_squared, number(&expected["r_squared"]));
        assert_close(
            &format!("{name}: adjusted R²"),
            fit.adjusted_r_squared,
            number(&expected["adjusted_r_squared"]),
        );
        assert_close(&format!("{name}: F"), fit.f.expect("noisy"), number(&expected["f"]));
        assert_close(&format!("{name}: p of F"), fit.f_p, number(&expected["f_p"]));
        assert_close(
            &format!("{name}: noise"),
            fit.residual_standard_error,
            number(&expected["residual_standard_error"]),
        );
        assert_within(
            &format!("{name}: condition"),
            fit.collinearity.condition_number,
            number(&expected["condition_number"]),
            1e-6,
        );
    }
}

/// NIST publishes these digits for its Longley data set.
#[test]
fn longley_matches_the_certified_values() {
    let cases = parse(include_str!("reference/multiple.json"));
    let expected = &cases["Longley"]["expected"];
    assert_within("intercept", number(&expected["coefficients"][0]), -3_482_258.634_595_82, 1e-14);
    assert_within("year", number(&expected["coefficients"][6]), 1_829.151_464_613_55, 1e-14);
    assert_within(
        "error of year",
        number(&expected["standard_errors"][6]),
        455.478_499_142_212,
        1e-14,
    );
    assert_within(
        "noise",
        number(&expected["residual_standard_error"]),
        304.854_073_561_965,
        1e-14,
    );
}

#[test]
fn special_functions_agree_with_fifty_digits() {
    let cases = parse(include_str!("reference/precise.json"));
    let rows = |name: &str| -> Vec<Vec<f64>> {
        cases[name].as_array().expect("rows").iter().map(numbers).collect()
    };
    for row in rows("erfc") {
        assert_within(&format!("erfc({})", row[0]), erfc(row[0]), row[1], 2e-15);
    }
    for row in rows("t_two_sided") {
        let [t, freedom, wanted] = row[..] else { panic!("three numbers") };
        assert_within(&format!("t {t} {freedom}"), t_two_sided(t, freedom), wanted, 1e-12);
    }
    for row in rows("t_quantile") {
        let [share, freedom, wanted] = row[..] else { panic!("three numbers") };
        let what = format!("quantile {share} {freedom}");
        assert_within(&what, t_quantile(share, freedom), wanted, 1e-12);
        assert_within(&what, -t_quantile(1.0 - share, freedom), wanted, 1e-12);
    }
    for row in rows("f_upper") {
        let [f, a, b, wanted] = row[..] else { panic!("four numbers") };
        assert_within(&format!("F {f} {a} {b}"), f_upper(f, a, b), wanted, 1e-12);
    }
    assert_eq!([erfc(f64::INFINITY), erfc(f64::NEG_INFINITY)], [0.0, 2.0]);
    assert!(erfc(f64::NAN).is_nan());
}

#[test]
fn tail_probabilities_agree_with_scipy_far_out() {
    let tails = parse(include_str!("reference/tails.json"));
    let rows = |name: &str| -> Vec<Vec<f64>> {
        tails[name].as_array().expect("rows").iter().map(numbers).collect()
    };
    for row in rows("t_two_sided") {
        assert_close(
            &format!("P(|t| > {}), freedom {}", row[0], row[1]),
            t_two_sided(row[0], row[1]),
            row[2],
        );
    }
    for row in rows("t_critical") {
        assert_close(
            &format!("t of p = {}, freedom {}", row[0], row[1]),
            t_critical(row[0], row[1]),
            row[2],
        );
    }
    for row in rows("f_upper") {
        assert_close(
            &format!("P(F > {}), freedom {}, {}", row[0], row[1], row[2]),
            f_upper(row[0], row[1], row[2]),
            row[3],
        );
    }
}

#[test]
fn comparisons_agree_with_scipy() {
    for case in parse(include_str!("reference/comparisons.json")).as_array().expect("cases") {
        let (first, second) = (numbers(&case["first"]), numbers(&case["second"]));
        let what = format!("{} and {} measurements", first.len(), second.len());
        let welch = ratio(&first, &second).expect("estimable");
        assert_close(&format!("{what}: ratio"), welch.value, number(&case["ratio"]));
        assert_close(&format!("{what}: low"), welch.interval.low, number(&case["ratio_low"]));
        assert_close(&format!("{what}: high"), welch.interval.high, number(&case["ratio_high"]));
        assert_close(
            &format!("{what}: p"),
            welch.p.expect("Welch has one"),
            number(&case["ratio_p"]),
        );
    }
}

#[test]
fn lack_of_fit_agrees_with_nested_models() {
    for case in parse(include_str!("reference/lack_of_fit.json")).as_array().expect("cases") {
        let points: Vec<(f64, f64)> =
            numbers(&case["x"]).into_iter().zip(numbers(&case["y"])).collect();
        let found = lack_of_fit(&points).expect("estimable");
        assert_close("F", found.f.expect("noisy"), number(&case["f"]));
        assert_close("p", found.p, number(&case["p"]));
    }
}
