//! Many runs by what they were asked for: which settings go with which results.
//!
//! Curves of a hundred runs cannot be told apart; lines across their settings and dots against single settings can.

use crate::chart::{Axis, Chart, Drawing, Parallel, ParallelAxis, Series};
use crate::groups::Group;
use crate::many::MOST_LISTED;
use crate::page::Figure;
use crate::training::RunView;

/// Fewest runs for which settings are drawn; fewer are read in the table.
const FEWEST: usize = 5;
/// Most settings with an axis of their own; those with more values come first.
const MOST_SETTINGS: usize = 4;
/// Runs that stand out, or a fifth of them.
const BEST: usize = 3;
/// Beyond this factor between smallest and largest, an axis is logarithmic.
const WIDE: f64 = 20.0;
/// Settings that describe the machine or the chance, not the choice.
const LEFT_OUT: &[&str] = &["seed", "version", "host", "steps"];

/// A result of a run: name, unit, whether high is good, and where it is found.
struct Outcome {
    name: &'static str,
    unit: &'static str,
    high_is_good: bool,
    of: fn(&RunView) -> f64,
}

const OUTCOMES: &[Outcome] = &[
    Outcome {
        name: "rate",
        unit: "examples/s",
        high_is_good: true,
        of: |run| run.summary.examples_per_second,
    },
    Outcome {
        name: "training loss",
        unit: "",
        high_is_good: false,
        of: |run| run.summary.last.train_loss,
    },
    Outcome {
        name: "test loss",
        unit: "",
        high_is_good: false,
        of: |run| run.summary.last.test_loss,
    },
    Outcome {
        name: "test accuracy",
        unit: "%",
        high_is_good: true,
        of: |run| 100.0 * run.summary.last.test_accuracy,
    },
];

/// Lines across settings and results, and dots of each number against the result that matters most; nothing for a few runs, or
/// where all runs have the same result. Of thousands of runs some are drawn, from the best to the worst.
pub(crate) fn figures(group: &Group<'_>) -> Vec<Figure> {
    if group.runs.len() < FEWEST {
        return Vec::new();
    }
    let known = |outcome: &&Outcome| {
        let known = group.runs.iter().filter(|run| (outcome.of)(run).is_finite()).count();
        2 * known > group.runs.len()
    };
    let outcomes: Vec<&Outcome> = OUTCOMES.iter().filter(known).collect();
    let Some(result) = outcomes.last() else { return Vec::new() };
    let order = ordered(group, result);
    let shown = |at: usize| short((result.of)(group.runs[at]));
    if order.iter().all(|at| shown(*at) == shown(order[0])) {
        return Vec::new();
    }
    let all = group.runs.len();
    let mut places: Vec<usize> = match order.len() {
        many if many > MOST_LISTED => {
            (0..MOST_LISTED).map(|at| order[at * many / MOST_LISTED]).collect()
        }
        _ if all > MOST_LISTED => order,
        _ => (0..all).collect(),
    };
    places.sort_unstable();
    let mut figures = figures_of(&group.of(&places), &outcomes, result);
    if let (true, Some(first)) = (places.len() < all, figures.first_mut()) {
        let some = places.len();
        first.words =
            format!("{some} of {all} runs, evenly from best to worst; in colour: the best fifth.");
    }
    figures
}

/// The runs that have a result, by their places, the best first.
fn ordered(group: &Group<'_>, result: &Outcome) -> Vec<usize> {
    let value = |at: &usize| (result.of)(group.runs[*at]);
    let mut order: Vec<usize> = (0..group.runs.len()).collect();
    order.retain(|at| value(at).is_finite());
    order.sort_by(|a, b| {
        let by = value(a).total_cmp(&value(b));
        if result.high_is_good { by.reverse() } else { by }
    });
    order
}

/// Which runs stand out: the best. Runs whose results read the same do so together or not at all.
fn best(group: &Group<'_>, result: &Outcome) -> Vec<bool> {
    let order = ordered(group, result);
    let text = |at: usize| short((result.of)(group.runs[at]));
    let wanted = BEST.max(group.runs.len() / 5).min(order.len());
    let last = order[..wanted].last().map(|at| text(*at));
    let tied = order.iter().filter(|at| Some(text(**at)) == last).count();
    let first = order.iter().position(|at| Some(text(*at)) == last).unwrap_or(0);
    let whole = first == 0 || 2 * (first + tied) <= group.runs.len();
    let count = if whole { first + tied } else { first };
    let mut found = vec![false; group.runs.len()];
    order[..count].iter().for_each(|at| found[*at] = true);
    found
}

fn figures_of(group: &Group<'_>, outcomes: &[&Outcome], result: &Outcome) -> Vec<Figure> {
    let varied: Vec<(&String, &Vec<String>)> = group
        .telling()
        .into_iter()
        .filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()))
        .map(|(name, values)| (name, values))
        .take(MOST_SETTINGS)
        .collect();
    if varied.is_empty() {
        return Vec::new();
    }
    let mut figures = vec![parallel(group, &varied, outcomes, result)];
    figures.extend(varied.iter().filter_map(|(name, values)| scatter(group, name, values, result)));
    figures
}

fn figure(title: String, svg: Drawing, words: String) -> Figure {
    Figure { title, colour: None, key: Vec::new(), svg, words, notes: Vec::new() }
}

fn parallel(
    group: &Group<'_>,
    varied: &[(&String, &Vec<String>)],
    outcomes: &[&Outcome],
    result: &Outcome,
) -> Figure {
    let mut axes: Vec<ParallelAxis> =
        varied.iter().map(|(name, values)| axis(name, values)).collect();
    // The speed, and the result that runs are ordered by.
    let ends = outcomes.iter().filter(|it| it.name == "rate" || it.name == result.name);
    for outcome in ends {
        let value = |run: &&RunView| {
            let value = (outcome.of)(run);
            if value.is_finite() { short(value) } else { "–".to_owned() }
        };
        axes.push(axis(outcome.name, &group.runs.iter().map(value).collect::<Vec<_>>()));
    }
    let best = best(group, result);
    let lines = group.labels.iter().zip(&best).map(|(label, best)| (label.clone(), *best));
    let title = format!("Which settings go with a good {}?", result.name);
    let end = if result.high_is_good { "highest" } else { "lowest" };
    let count = best.iter().filter(|best| **best).count();
    let which = if count == 1 { "run".to_owned() } else { format!("{count} runs") };
    let words = format!("In colour: the {which} with the {end} {}.", result.name);
    let drawing = Parallel { title: title.clone(), axes, lines: lines.collect() };
    figure(title, drawing.svg(), words)
}

/// Four digits, as a cell of a table has them; whole numbers whole.
fn short(value: f64) -> String {
    let size = value.abs().max(1e-9).log10().floor();
    let digits = (3.0 - size).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Numbers at their places, or names at equal distances.
fn axis(name: &str, values: &[String]) -> ParallelAxis {
    let numbers: Vec<Option<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    let numeric = values.iter().zip(&numbers).all(|(text, value)| value.is_some() || text == "–");
    let mut known: Vec<f64> = numbers.iter().copied().flatten().collect();
    known.sort_by(f64::total_cmp);
    known.dedup();
    let (places, ticks) = match (numeric, known.first(), known.last()) {
        (true, Some(&low), Some(&high)) => {
            let logarithmic = low > 0.0 && high / low > WIDE;
            let on = |value: f64| if logarithmic { value.ln() } else { value };
            let span = on(high) - on(low);
            let place = |value: f64| if span > 0.0 { (on(value) - on(low)) / span } else { 0.5 };
            // A few values are named themselves, many by their ends and middle.
            let shown = if known.len() > 6 {
                vec![low, known[known.len() / 2], high]
            } else {
                known.clone()
            };
            let ticks = shown.into_iter().map(|value| (place(value), short(value)));
            (numbers.iter().map(|value| value.map(place)).collect(), ticks.collect())
        }
        _ => {
            let mut names: Vec<&String> = values.iter().filter(|value| *value != "–").collect();
            names.sort();
            names.dedup();
            let step = (names.len().max(2) - 1) as f64;
            let place = |value: &String| {
                names.iter().position(|name| *name == value).map(|at| at as f64 / step)
            };
            let ticks: Vec<(f64, String)> =
                names.iter().map(|name| (place(name).unwrap_or(0.0), (*name).clone())).collect();
            (values.iter().map(place).collect::<Vec<_>>(), ticks)
        }
    };
    ParallelAxis { name: name.to_owned(), places, values: values.to_vec(), ticks }
}

/// A number that was asked for against the result; nothing where fewer than three values were.
fn scatter(group: &Group<'_>, name: &str, values: &[String], result: &Outcome) -> Option<Figure> {
    let numbers: Vec<Option<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    let mut known: Vec<f64> = numbers.iter().copied().flatten().collect();
    known.sort_by(f64::total_cmp);
    known.dedup();
    if known.len() < 3 {
        return None;
    }
    let x = Axis::new(name);
    let wide = known[0] > 0.0 && known[known.len() - 1] / known[0] > WIDE;
    let x = if wide { x.logarithmic() } else { x };
    let y = Axis::new(result.name);
    let y = if result.unit.is_empty() { y } else { y.unit(result.unit) };
    let points = group.runs.iter().zip(&numbers).filter_map(|(run, number)| {
        let value = (result.of)(run);
        Some((((*number)?), value)).filter(|point| point.1.is_finite())
    });
    let title = format!("{} by {name}", crate::page::capitalised(result.name));
    let chart = Chart::new(&title, x, y).with(Series::points("runs", points).colour(0));
    Some(figure(title, chart.svg(), String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::{Final, Summary};

    fn runs(count: u32) -> Vec<RunView> {
        (0..count)
            .map(|at| RunView {
                summary: Summary {
                    examples_per_second: 100.0 + f64::from(at),
                    last: Final { test_accuracy: f64::from(at) / 10.0, ..Final::default() },
                    ..Summary::default()
                },
                ..RunView::default()
            })
            .collect()
    }

    fn group(runs: &[RunView]) -> Group<'_> {
        let rates = (0..runs.len()).map(|at| 10f64.powi(at as i32 % 3 - 3).to_string());
        let kinds = (0..runs.len()).map(|at| if at % 2 == 0 { "adam" } else { "sgd" }.to_owned());
        Group {
            title: String::new(),
            runs: runs.iter().collect(),
            labels: (0..runs.len()).map(|at| format!("run {at}")).collect(),
            common: Vec::new(),
            differing: vec![
                ("learning rate".to_owned(), rates.collect()),
                ("optimizer".to_owned(), kinds.collect()),
                ("seed".to_owned(), (0..runs.len()).map(|at| at.to_string()).collect()),
            ],
        }
    }

    #[test]
    fn many_runs_are_lines_across_settings_and_dots_against_numbers() {
        let all = runs(7);
        let found = figures(&group(&all));
        let titles: Vec<&str> = found.iter().map(|it| it.title.as_str()).collect();
        assert_eq!(
            titles,
            ["Which settings go with a good test accuracy?", "Test accuracy by learning rate"]
        );
        let svg = &found[0].svg;
        assert_eq!(svg.matches("class=\"line\"").count(), 3, "the best three: {svg}");
        assert_eq!(svg.matches("class=\"line faint\"").count(), 4);
        assert!(svg.contains(">adam<") && !svg.contains(">seed<"), "{svg}");
        assert!(found[1].svg.contains("&quot;log&quot;:true"), "a wide axis: {}", found[1].svg);
        assert!(figures(&group(&runs(4))).is_empty(), "four are read in the table");
    }
}
