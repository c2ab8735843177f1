//! What must hold for any measurements, whatever their numbers.

use paceline_stats::compare::ratio;
use paceline_stats::{Estimate, Predictor, fit_line, fit_multiple};
use proptest::prelude::*;

fn points() -> impl Strategy<Value = Vec<(f64, f64)>> {
    // Whole parameter values, as grids have, and enough noise to keep the slope's error away from rounding.
    prop::collection::vec((0i32..20, -1000i32..1000), 5..40)
        .prop_map(|raw| raw.into_iter().map(|(x, y)| (f64::from(x), f64::from(y) / 8.0)).collect())
}

fn close(a: f64, b: f64, scale: f64) -> bool {
    (a - b).abs() <= 1e-9 * (a.abs() + b.abs() + scale)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn shifting_and_scaling_move_the_line_and_leave_the_evidence(points in points(), shift in -50i32..50, scale in 1i32..20) {
        let (shift, scale) = (f64::from(shift), f64::from(scale));
        let moved: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x * 2.0 + 3.0, y * scale + shift)).collect();
        if let (Ok(fit), Ok(other)) = (fit_line(&points), fit_line(&moved)) {
            prop_assert!(close(other.slope.value, fit.slope.value * scale / 2.0, 1.0));
            prop_assert!(close(other.slope.standard_error, fit.slope.standard_error * scale / 2.0, 1.0));
            prop_assert!(close(other.r, fit.r, 1.0));
            prop_assert!(close(other.p, fit.p, 1e-6));
            prop_assert!(close(other.at(2.0 * 7.0 + 3.0), fit.at(7.0) * scale + shift, 100.0));
        }
    }

    #[test]
    fn order_of_measurements_does_not_matter(points in points(), turn in 0usize..40) {
        let mut turned = points.clone();
        let places = turned.len();
        turned.rotate_left(turn % places);
        turned.reverse();
        match (fit_line(&points), fit_line(&turned)) {
            (Ok(fit), Ok(other)) => {
                prop_assert!(close(fit.slope.value, other.slope.value, 1.0));
                prop_assert!(close(fit.p, other.p, 1e-9));
            }
            (Err(a), Err(b)) => prop_assert_eq!(a, b),
            (a, b) => prop_assert!(false, "{:?} against {:?}", a, b),
        }
    }

    #[test]
    fn one_predictor_of_many_is_the_simple_line(points in points()) {
        let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
        let many = fit_multiple(&y, &[Predictor { name: "x", values: &x }]);
        if let (Ok(line), Ok(many)) = (fit_line(&points), many) {
            let Estimate::Known(term) = many.terms[0].estimate else { panic!("one varying column is estimable") };
            prop_assert!(close(term.coefficient.value, line.slope.value, 1.0));
            prop_assert!(close(term.p, line.p, 1e-9));
            prop_assert!(close(many.intercept.coefficient.standard_error, line.intercept.standard_error, 1.0));
            prop_assert!(close(many.r_squared, line.r_squared, 1.0));
        }
    }

    #[test]
    fn no_input_gives_a_number_that_json_cannot_hold(
        points in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 0..8),
        tame in prop::collection::vec((-3i32..3, -3i32..3), 0..8),
    ) {
        let tame: Vec<(f64, f64)> = tame.into_iter().map(|(x, y)| (f64::from(x), f64::from(y))).collect();
        for points in [points, tame] {
            let (x, y): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
            let line: Estimate<_> = fit_line(&points).into();
            let many: Estimate<_> = fit_multiple(&y, &[Predictor { name: "x", values: &x }, Predictor { name: "y", values: &y }]).into();
            let ratios: Estimate<_> = ratio(&x, &y).into();
            for text in [serde_json::to_string(&line), serde_json::to_string(&many), serde_json::to_string(&ratios)] {
                let text = text.expect("serializable");
                // serde_json writes a NaN or an infinity as null; the only null allowed is the absent t or F of an exact fit.
                let allowed = text.replace("\"t\":null", "").replace("\"f\":null", "");
                prop_assert!(!allowed.contains("null"), "{text}");
            }
        }
    }

    #[test]
    fn swapping_the_sets_inverts_the_ratio(first in prop::collection::vec(1u32..1000, 2..12), second in prop::collection::vec(1u32..1000, 2..12)) {
        let (a, b): (Vec<f64>, Vec<f64>) = (first.into_iter().map(f64::from).collect(), second.into_iter().map(f64::from).collect());
        let (there, back) = (ratio(&a, &b), ratio(&b, &a));
        if let (Ok(there), Ok(back)) = (there, back) {
            prop_assert!(close(there.value * back.value, 1.0, 0.0));
            prop_assert!(close(there.interval.low * back.interval.high, 1.0, 0.0));
            prop_assert!(there.interval.contains(there.value));
        }
    }
}
