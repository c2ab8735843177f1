//! Input from which nothing, or not everything, can be estimated: each case has its own reason.

use paceline_stats::compare::ratio;
use paceline_stats::experiment::{Experiment, Findings, Group, Observation, Parameter, analyse};
use paceline_stats::{
    Doubt, Estimate, NotEstimable, Predictor, fit_line, fit_multiple, lack_of_fit,
};

#[test]
fn too_few_points() {
    for n in 0..3 {
        let points: Vec<(f64, f64)> = (0..n).map(|x| (f64::from(x), f64::from(x * x))).collect();
        assert_eq!(
            fit_line(&points),
            Err(NotEstimable::TooFewPoints { found: points.len(), needed: 3 })
        );
    }
    assert_eq!(ratio(&[1.0], &[1.0, 2.0]), Err(NotEstimable::TooFewPoints { found: 1, needed: 2 }));
}

#[test]
fn constant_parameter_and_constant_response() {
    let same_x = [(2.0, 1.0), (2.0, 2.0), (2.0, 4.0)];
    assert_eq!(fit_line(&same_x), Err(NotEstimable::ConstantPredictor { value: 2.0 }));
    let same_y = [(1.0, 7.0), (2.0, 7.0), (3.0, 7.0)];
    assert_eq!(fit_line(&same_y), Err(NotEstimable::ConstantResponse { value: 7.0 }));
}

#[test]
fn a_nan_names_its_measurement() {
    let points = [(1.0, 1.0), (2.0, f64::NAN), (3.0, 3.0)];
    assert_eq!(fit_line(&points), Err(NotEstimable::NotFinite { index: 1 }));
    assert_eq!(
        ratio(&[1.0, 0.0], &[1.0, 2.0]),
        Err(NotEstimable::NotPositive { index: 1, value: 0.0 })
    );
}

#[test]
fn numbers_beyond_double_precision_are_refused_rather_than_infinite() {
    assert_eq!(
        fit_line(&[(1.0, 1e200), (2.0, -1e200), (3.0, 3e200)]),
        Err(NotEstimable::OutOfRange)
    );
    assert_eq!(
        fit_line(&[(0.0, 1.0), (1e-200, 2.0), (2e-200, 4.0)]),
        Err(NotEstimable::OutOfRange)
    );
}

#[test]
fn a_perfect_line_is_exact_and_has_no_width() {
    let points: Vec<(f64, f64)> =
        (0..10).map(|x| (f64::from(x), 3.0 + 0.1 * f64::from(x))).collect();
    let fit = fit_line(&points).expect("estimable");
    assert!(fit.exact);
    assert_eq!((fit.p, fit.t, fit.slope.standard_error), (0.0, None, 0.0));
    assert_eq!(lack_of_fit(&points), Err(NotEstimable::NoRepeats));
    assert_eq!(
        lack_of_fit(&[(1.0, 2.0), (1.0, 2.1), (2.0, 3.0)]),
        Err(NotEstimable::TooFewValues { found: 2 })
    );
}

#[test]
fn a_dependent_column_is_left_out_and_names_what_it_follows_from() {
    let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
    let b = [2.0, 1.0, 4.0, 3.0, 6.0, 5.0, 9.0];
    let sum: Vec<f64> = a.iter().zip(b).map(|(a, b)| 0.1 * a + 0.7 * b).collect();
    let fixed = [4.0; 7];
    let y = [1.0, 2.5, 2.0, 4.5, 5.0, 6.5, 7.0];
    let column = |name, values| Predictor { name, values };
    let fit = fit_multiple(
        &y,
        &[column("fixed", &fixed), column("a", &a), column("b", &b), column("sum", &sum)],
    )
    .expect("a and b");
    assert_eq!(
        fit.terms[0].estimate.as_result(),
        Err(&NotEstimable::ConstantPredictor { value: 4.0 })
    );
    assert!(fit.terms[1].estimate.known().is_some());
    assert_eq!(
        fit.terms[3].estimate.as_result(),
        Err(&NotEstimable::Collinear { with: vec!["a".into(), "b".into()] })
    );
    assert_eq!(fit.collinearity.left_out, ["sum"]);
    assert_eq!(fit.residual_freedom, 4);
}

#[test]
fn no_freedom_left_for_noise() {
    let a = [1.0, 2.0, 3.0];
    let b = [1.0, 4.0, 2.0];
    let columns = [Predictor { name: "a", values: &a }, Predictor { name: "b", values: &b }];
    assert_eq!(
        fit_multiple(&[1.0, 2.0, 4.0], &columns),
        Err(NotEstimable::TooFewPoints { found: 3, needed: 4 })
    );
    assert_eq!(
        fit_multiple(&[1.0, 2.0], &columns),
        Err(NotEstimable::UnequalLengths { column: 0, found: 3, expected: 2 })
    );
}

fn speed_test(rate: impl Fn(f64, f64, f64, u64) -> f64) -> Experiment {
    let parameter = |key: &str, name: &str, setting| Parameter {
        key: key.into(),
        name: name.into(),
        step: format!("each further step of {name}"),
        setting,
    };
    let mut order = 0;
    let mut observations = Vec::new();
    for repetition in [1.0, 2.0, 3.0, 4.0] {
        for batch in [2.0, 4.0, 8.0] {
            for batches in [3.0, 6.0, 9.0] {
                let values = vec![batch, batches, repetition, batch * batches];
                observations.push(Observation {
                    values,
                    response: rate(batch, batches, repetition, order),
                    order,
                });
                order += 1;
            }
        }
    }
    let faster = observations
        .iter()
        .map(|o| Observation { response: o.response * 2.0, ..o.clone() })
        .collect();
    Experiment {
        verb: "are read".into(),
        unit: "images/s".into(),
        parameters: vec![
            parameter("batch_size", "batch size", true),
            parameter("batches", "batches", true),
            parameter("repetition", "repetition", false),
            parameter("images", "data set size", true),
        ],
        groups: vec![
            Group { name: "image files".into(), observations },
            Group { name: "records".into(), observations: faster },
        ],
    }
}

/// Deterministic noise of about ±1.
fn noise(order: u64) -> f64 {
    ((order.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / f64::from(1u32 << 24) - 0.5) * 2.0
}

fn has(findings: &Findings, wanted: fn(&Doubt) -> bool) -> bool {
    let group = &findings.groups[0];
    let of_parameters = group.parameters.iter().flat_map(|parameter| &parameter.doubts);
    group
        .doubts
        .iter()
        .chain(of_parameters)
        .chain(&findings.doubts)
        .any(|worded| wanted(&worded.doubt))
}

#[test]
fn data_set_size_is_told_to_be_a_product() {
    let findings = analyse(&speed_test(|batch, _, _, order| 500.0 + 30.0 * batch + noise(order)));
    let size = &findings.groups[0].parameters[3];
    let product = Doubt::Product {
        parameter: "data set size".into(),
        of: vec!["batch size".into(), "batches".into()],
    };
    assert!(size.doubts.iter().any(|worded| worded.doubt == product), "{:?}", size.doubts);
    assert!(!has(&findings, |doubt| matches!(
        doubt,
        Doubt::Bent { .. } | Doubt::Drift { .. } | Doubt::Outliers { .. }
    )));
    assert!(
        findings.groups[0].parameters[2].words.starts_with("no evidence that repetition matters")
    );
    assert!(findings.groups[0].multiple.known().is_some());
}

#[test]
fn a_factor_of_two_between_groups_is_found_exactly() {
    let findings =
        analyse(&speed_test(|batch, batches, _, order| 100.0 * batch + batches + noise(order)));
    let Estimate::Known(ratio) = &findings.ratios[0].ratio else { panic!("estimable") };
    assert!((ratio.value - 2.0).abs() < 1e-12);
    assert!(
        findings.ratios[0].words.starts_with("records are read 2.00 times as fast as image files")
    );
}

#[test]
fn each_kind_of_trouble_raises_its_doubt() {
    let bent = analyse(&speed_test(|batch, _, _, order| {
        900.0 - (batch - 4.0).powi(2) * 30.0 + noise(order)
    }));
    assert!(has(&bent, |doubt| matches!(doubt, Doubt::Bent { .. })));
    let drifting = analyse(&speed_test(|batch, _, _, order| {
        500.0 + batch + 6.0 * order as f64 + noise(order)
    }));
    assert!(has(&drifting, |doubt| matches!(doubt, Doubt::Drift { change, .. } if *change > 0.2)));
    let spike = analyse(&speed_test(
        |batch, _, _, order| if order == 17 { 90.0 } else { 500.0 + batch + noise(order) },
    ));
    assert!(has(&spike, |doubt| matches!(doubt, Doubt::Outliers { count: 1, .. })));
    let noisy = analyse(&speed_test(|_, _, _, order| 500.0 + 100.0 * noise(order)));
    assert!(has(&noisy, |doubt| matches!(doubt, Doubt::NoiseExceedsEffect { .. })));
    let mut once = speed_test(|batch, _, _, order| 500.0 + batch + noise(order));
    once.groups[0].observations.truncate(9);
    let once = analyse(&once);
    assert!(has(&once, |doubt| matches!(doubt, Doubt::FewRepeats { found: 1, .. })));
    assert!(has(&once, |doubt| matches!(doubt, Doubt::TooFewPoints { found: 9, .. })));
}

#[test]
fn an_empty_experiment_is_analysed_without_a_number() {
    let mut empty = speed_test(|_, _, _, _| 1.0);
    empty.groups.iter_mut().for_each(|group| group.observations.clear());
    let findings = analyse(&empty);
    assert!(findings.groups[0].summary.known().is_none());
    assert!(findings.ratios[0].words.contains("cannot be compared"));
    let json = serde_json::to_value(&findings).expect("serializable");
    assert_eq!(json["groups"][0]["multiple"]["not_estimable"]["reason"], "too_few_points");
}

#[test]
fn findings_survive_json_and_back() {
    let findings = analyse(&speed_test(|batch, _, _, order| 500.0 + batch + noise(order)));
    let text = serde_json::to_string(&findings).expect("serializable");
    let back: Findings = serde_json::from_str(&text).expect("readable");
    assert_eq!(back.parameters, findings.parameters);
    assert_eq!(back.groups[1].parameters[3].words, findings.groups[1].parameters[3].words);
    assert_eq!(back.groups[0].parameters[3].doubts, findings.groups[0].parameters[3].doubts);
    assert_eq!(back.groups[0].multiple.known().map(|fit| fit.n), Some(36));
    assert!(text.contains("\"kind\":\"product\""), "{text}");
}
