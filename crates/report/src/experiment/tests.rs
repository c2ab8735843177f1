//! Pages of experiments: headline, table and figures agree.

use super::*;
use paceline_stats::experiment::{Observation, analyse};

/// Records and files over two settings, three repeats each; `slope` bends records by batch size.
fn experiment(ratios: [f64; 2]) -> Experiment {
    let parameter = |key: &str, name: &str, setting| Parameter {
        key: key.to_owned(),
        name: name.to_owned(),
        step: format!("each further {name}"),
        setting,
    };
    let group = |name: &str, ratios: [f64; 2]| Group {
        name: name.to_owned(),
        observations: (0..6)
            .map(|place| Observation {
                values: vec![[4.0, 32.0][place % 2], (place / 2) as f64],
                response: 100.0 * ratios[place % 2] * (1.0 + 0.02 * (place / 2) as f64),
                order: place as u64,
            })
            .collect(),
    };
    Experiment {
        verb: "are read".to_owned(),
        unit: "images/s".to_owned(),
        parameters: vec![
            parameter("batch_size", "batch size", true),
            parameter("repetition", "repetition", false),
        ],
        groups: vec![group("image files", [1.0, 1.0]), group("records", ratios)],
    }
}

/// Once: "No evidence that records and image files differ: 3.21 times (0.0612 to 168)".
#[test]
fn records_that_win_in_every_setting_are_said_to_be_faster() {
    let findings = analyse(&experiment([1.2, 8.6]));
    let (sentence, _) = verdict(&findings);
    assert!(
        sentence.starts_with("Records are read 3.21 times as fast as image files"),
        "{sentence}"
    );
    assert!(sentence.ends_with("faster in all 2 settings (ratios 1.20 to 8.60)"), "{sentence}");
    let table = ratio_table(&findings, &findings.ratios[0]);
    assert_eq!(table.rows.len(), 2);
    assert_eq!((table.rows[0][0].as_str(), table.rows[0][1].as_str()), ("4", "1.20"));
    assert_eq!((table.rows[1][0].as_str(), table.rows[1][1].as_str()), ("32", "8.60"));
    assert!(markdown(&findings, &Context::default()).contains("## Records against image files"));
}

/// Once the headline said "no evidence" where the table said "weak evidence" (p = 0.061).
#[test]
fn headline_and_table_name_the_same_evidence() {
    let mut experiment = experiment([1.0, 1.0]);
    let mut seen = BTreeSet::new();
    for bend in 0..60 {
        for (place, observation) in experiment.groups[1].observations.iter_mut().enumerate() {
            let noise = [0.0, 0.0, 3.0, -3.0, -3.0, 3.0][place];
            observation.response =
                100.0 + noise + f64::from(bend) * 0.01 * (observation.values[0] - 4.0);
        }
        let findings = analyse(&experiment);
        let (_, points) = verdict(&findings);
        let records = &points[1];
        let row = regression_table(&findings).rows[2].clone();
        assert_eq!((row[0].as_str(), row[1].as_str()), ("records", "batch size"));
        let label = row.last().unwrap().clone();
        let said = match label.as_str() {
            "no evidence" => "no evidence that batch size",
            "weak evidence" => "weak evidence that it rises with batch size",
            _ => "speed rises with batch size",
        };
        assert!(records.contains(said), "{label}: {records}");
        seen.insert(label);
    }
    assert!(seen.len() >= 4, "{seen:?}");
}
