//! Settings that were run several times: what each gave, and how far it is from the first one, with an interval.
//!
//! One accuracy against another says nothing: with another seed their order may turn. Repeats of a setting show how much it varies.

use crate::groups::Group;
use crate::table::{Column, Table};
use crate::training::{RunView, decimal};
use paceline_runs::Status;
use paceline_stats::compare::difference;
use paceline_stats::repeats::{Scale, repeats};
use std::collections::HashMap;

/// A result that settings are compared by: name, unit, decimals, scale, and where it is found.
type Outcome = (&'static str, &'static str, usize, Scale, fn(&RunView) -> f64);

const OUTCOMES: [Outcome; 3] = [
    ("test accuracy", "%", 2, Scale::PERCENT, |run| 100.0 * run.summary.last.test_accuracy),
    ("test loss", "", 4, Scale::Logarithmic, |run| run.summary.last.test_loss),
    ("training loss", "", 4, Scale::Logarithmic, |run| run.summary.last.train_loss),
];

/// The table, one row for each setting; nothing where fewer than two settings were repeated.
pub(crate) fn table(group: &Group<'_>) -> Option<Table> {
    let mut settings: Vec<(String, Vec<&RunView>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (run, label) in group.runs.iter().zip(&group.labels) {
        if run.summary.status != Status::Done {
            continue;
        }
        let place = *places.entry(run.settings.repeats_key()).or_insert(settings.len());
        match settings.get_mut(place) {
            Some((_, of)) => of.push(run),
            None => settings.push((setting(label), vec![run])),
        }
    }
    if settings.iter().filter(|(_, of)| of.len() > 1).count() < 2 {
        return None;
    }
    let known = |of: &dyn Fn(&RunView) -> f64| {
        settings.iter().flat_map(|(_, runs)| runs).all(|run| of(run).is_finite())
    };
    let (name, unit, digits, scale, of) = OUTCOMES.into_iter().find(|it| known(&it.4))?;
    let mut table = Table::new([
        Column::words("setting"),
        Column::numbers("runs"),
        Column::numbers(name).unit(unit),
        Column::numbers("interval").unit("95 %"),
        Column::numbers("difference from the first").unit(if unit == "%" {
            "points"
        } else {
            unit
        }),
        Column::numbers("interval").unit("95 %"),
        Column::words("told apart"),
    ])
    .captioned("Intervals rest on the repeats of each setting; with two repeats they are wide.");
    let values = |runs: &[&RunView]| runs.iter().map(|run| of(run)).collect::<Vec<f64>>();
    let first = values(&settings[0].1);
    for (at, (label, runs)) in settings.iter().enumerate() {
        let own = values(runs);
        let Ok(set) = repeats(&own, scale) else { continue };
        let dash = || "–".to_owned();
        let against = (at > 0).then(|| difference(&own, &first).ok()).flatten();
        let signed = |value: f64| format!("{value:+.digits$}").replace('-', "\u{2212}");
        let told = match &against {
            Some(found) if found.interval.low > 0.0 || found.interval.high < 0.0 => "yes",
            Some(_) => "no",
            None => "–",
        };
        table.row([
            label.clone(),
            own.len().to_string(),
            decimal(set.centre, digits),
            set.spread.words(),
            against.as_ref().map_or_else(dash, |found| signed(found.value)),
            against.as_ref().map_or_else(dash, |found| {
                format!("{} to {}", signed(found.interval.low), signed(found.interval.high))
            }),
            told.to_owned(),
        ]);
    }
    Some(table)
}

/// A run's name without what tells it from its repeats.
fn setting(label: &str) -> String {
    let parts = label.split(", ");
    let kept: Vec<&str> =
        parts.filter(|part| !part.starts_with("seed ") && !part.starts_with("run ")).collect();
    if kept.is_empty() { label.to_owned() } else { kept.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::groups;
    use paceline_runs::{Final, RecordedPlan, RunSettings, Summary};
    use serde_json::json;

    fn run(rate: f64, seed: u64, accuracy: f64) -> RunView {
        let plan = json!({ "spec": { "model": "lenet", "learning_rate": rate, "seed": seed } });
        RunView {
            summary: Summary {
                model: "lenet".to_owned(),
                status: Status::Done,
                last: Final { test_accuracy: accuracy, ..Final::default() },
                ..Summary::default()
            },
            settings: RunSettings::of(&plan, None),
            plan: RecordedPlan::of(plan),
            ..RunView::default()
        }
    }

    #[test]
    fn settings_are_told_apart_where_the_interval_of_their_difference_is_clear_of_zero() {
        let all = |accuracies: [[f64; 3]; 3]| -> Vec<RunView> {
            let rates = [0.1, 0.2, 0.3].into_iter().zip(accuracies);
            rates
                .flat_map(|(rate, of)| (1..).zip(of).map(move |(seed, it)| run(rate, seed, it)))
                .collect()
        };
        let runs = all([[0.90, 0.91, 0.92], [0.95, 0.96, 0.97], [0.88, 0.91, 0.95]]);
        let found = table(&groups(&runs)[0]).unwrap();
        let told: Vec<&str> = found.rows.iter().map(|row| row[6].as_str()).collect();
        assert_eq!(told, ["–", "yes", "no"], "{found:?}");
        assert_eq!(found.rows[1][0], "lr 0.2");
        assert_eq!((found.rows[1][1].as_str(), found.rows[1][4].as_str()), ("3", "+5.00"));
        // Welch: 5 points, 4 degrees of freedom, 2.776 x 0.8165.
        assert_eq!(found.rows[1][5], "+2.73 to +7.27");
        let single = [run(0.1, 1, 0.9), run(0.2, 1, 0.8)];
        assert!(table(&groups(&single)[0]).is_none(), "one run each says nothing of chance");
    }
}
