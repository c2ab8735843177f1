//! How the weights of a run were spread over time: a map for each of its largest tensors.

use crate::chart::HeatMap;
use crate::page::Figure;
use crate::training::RunView;
use paceline_runs::{Event, Histograms, Tensor};

/// Most maps that are drawn, of the largest tensors.
const MOST_MAPS: usize = 6;
/// Buckets of a map, the same for all its columns.
const ROWS: usize = 20;
/// Most columns; of more evaluations, evenly spread ones are drawn.
const MOST_COLUMNS: usize = 40;

/// The maps of some runs, the largest tensor first and each tensor's beside each other, on the same scale of weights; none where
/// weights were counted only once, or where there are too many runs.
pub(crate) fn figures(runs: &[&RunView], names: &[String]) -> Vec<Figure> {
    let counted: Vec<(&String, Vec<&Histograms>)> =
        names.iter().zip(runs.iter().map(|run| counts(run))).filter(|it| it.1.len() > 1).collect();
    let Some(last) = counted.first().and_then(|(_, all)| all.last()) else { return Vec::new() };
    let mut tensors: Vec<&Tensor> = last.tensors.iter().collect();
    tensors.sort_by_key(|tensor| std::cmp::Reverse(size(tensor)));
    let mut figures = Vec::new();
    for tensor in tensors.into_iter().take(MOST_MAPS / counted.len()) {
        let range = range(&tensor.name, counted.iter().flat_map(|(_, all)| all));
        for (name, all) in &counted {
            let Some(map) = map(&tensor.name, all, range) else { continue };
            let beside = if runs.len() > 1 { format!(" {name}") } else { String::new() };
            figures.push(Figure {
                title: format!("{}{beside}", map.title),
                colour: None,
                key: Vec::new(),
                svg: map.svg(),
                words: String::new(),
                notes: Vec::new(),
            });
        }
    }
    // Said once is enough.
    if let Some(first) = figures.first_mut() {
        "Counted at each evaluation. Stronger colour: a greater share of the tensor\u{2019}s weights."
            .clone_into(&mut first.words);
    }
    figures
}

/// What was counted in a run, in the order of its steps.
fn counts(run: &RunView) -> Vec<&Histograms> {
    let mut all: Vec<&Histograms> = run
        .records
        .iter()
        .filter_map(|record| match record.event.as_ref()? {
            Event::Histograms(found) => Some(found),
            _ => None,
        })
        .collect();
    // After a restore, steps come again: the later count holds.
    all.sort_by_key(|found| found.step);
    all.dedup_by(|later, earlier| {
        let same = later.step == earlier.step;
        if same {
            *earlier = *later;
        }
        same
    });
    match all.len() {
        few if few <= MOST_COLUMNS => all,
        many => (0..MOST_COLUMNS).map(|at| all[at * (many - 1) / (MOST_COLUMNS - 1)]).collect(),
    }
}

/// The smallest and the greatest weight that a tensor ever had.
fn range<'a>(name: &str, all: impl Iterator<Item = &'a &'a Histograms>) -> (f64, f64) {
    let found = all.flat_map(|found| &found.tensors);
    let found = found.filter(|tensor| tensor.name == name && size(tensor) > 0);
    found.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), tensor| {
        (low.min(tensor.min), high.max(tensor.max))
    })
}

fn size(tensor: &Tensor) -> u64 {
    tensor.counts.iter().sum()
}

/// One tensor over time; nothing where it has no finite weights.
fn map(name: &str, all: &[&Histograms], (low, high): (f64, f64)) -> Option<HeatMap> {
    let of = |found: &&Histograms| {
        let known = found.tensors.iter().find(|tensor| tensor.name == name);
        known.filter(|tensor| size(tensor) > 0).cloned().unwrap_or_default()
    };
    let columns: Vec<Tensor> = all.iter().map(of).collect();
    let spread = high - low;
    if !spread.is_finite() || spread <= 0.0 {
        return None;
    }
    let width = spread / ROWS as f64;
    let decimals = (-width.log10().floor()).clamp(0.0, 9.0) as usize;
    let shares: Vec<Vec<f64>> = columns.iter().map(|one| shared(one, low, width)).collect();
    let most = shares.iter().flatten().copied().fold(0.0, f64::max);
    // The greatest values stand at the top.
    let values = (0..ROWS).rev().map(|row| {
        let cell = |shares: &Vec<f64>| if shares[row] > 0.0 { shares[row] } else { f64::NAN };
        shares.iter().map(cell).collect()
    });
    let middle = |row: usize| {
        let text = format!("{:.decimals$}", low + width * (row as f64 + 0.5));
        let is_zero = text.chars().all(|c| !c.is_ascii_digit() || c == '0');
        if is_zero { text.replace('-', "") } else { text.replace('-', "\u{2212}") }
    };
    let each = all.len().div_ceil(5);
    let ticks = all.iter().enumerate().step_by(each);
    Some(HeatMap {
        title: format!("How is {name} spread?"),
        axes: ("weight".to_owned(), "step".to_owned()),
        rows: (0..ROWS).rev().map(middle).collect(),
        columns: all.iter().map(|found| format!("step {}", found.step)).collect(),
        ticks: ticks.map(|(at, found)| (at as f64, found.step.to_string())).collect(),
        values: values.collect(),
        range: (0.0, most),
        logarithmic: false,
        unit: "% of the weights".to_owned(),
        texts: Vec::new(),
        framed: None,
    })
}

/// The share of a tensor's weights in each bucket of the map, in per cent: a bucket of its own is shared out by its width.
fn shared(tensor: &Tensor, low: f64, width: f64) -> Vec<f64> {
    let mut shares = vec![0.0; ROWS];
    let (all, own) = (size(tensor) as f64, (tensor.max - tensor.min) / tensor.counts.len() as f64);
    for (at, count) in tensor.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (begin, end) = (tensor.min + own * at as f64, tensor.min + own * (at + 1) as f64);
        for (row, share) in shares.iter_mut().enumerate() {
            let (from, to) = (low + width * row as f64, low + width * (row + 1) as f64);
            let inside = (end.min(to) - begin.max(from)).max(0.0) / own;
            *share += 100.0 * inside * *count as f64 / all;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_runs::Record;

    fn record(step: u64, tensors: Vec<Tensor>) -> Record {
        let event = Some(Event::Histograms(Histograms { step, tensors }));
        Record { time: step as f64, task: "worker/0".to_owned(), kind: String::new(), event }
    }

    fn tensor(name: &str, min: f64, max: f64, counts: &[u64]) -> Tensor {
        Tensor { name: name.to_owned(), min, max, counts: counts.to_vec() }
    }

    #[test]
    fn every_weight_is_in_one_bucket_and_buckets_are_those_of_all_evaluations() {
        let first = shared(&tensor("w", -1.0, 1.0, &[1, 2, 1]), -2.0, 0.2);
        assert!((first.iter().sum::<f64>() - 100.0).abs() < 1e-9, "{first:?}");
        assert_eq!(first[..5], [0.0; 5]);
        assert!((first[9] - first[10]).abs() < 1e-9, "the middle is even: {first:?}");
    }

    #[test]
    fn the_largest_tensors_are_drawn_once_there_are_two_evaluations() {
        let all = |step| {
            let tensors = (1..=8).map(|size| tensor(&format!("t<{size}>"), -1.0, 1.0, &[size, 1]));
            record(step, tensors.chain([tensor("none", 0.0, 0.0, &[])]).collect())
        };
        let mut run = RunView { records: vec![all(0)], ..RunView::default() };
        let names = ["a", "b"].map(str::to_owned);
        let of = |run: &RunView| figures(&[run], &names[..1]);
        assert!(of(&run).is_empty(), "one evaluation shows no change");
        // The step after a restore counts, the one before does not.
        run.records.extend([all(100), record(100, vec![tensor("t<8>", -3.0, 3.0, &[5, 5])])]);
        let found = of(&run);
        assert_eq!(found.len(), 1, "{found:?}");
        run.records.push(all(200));
        let found = of(&run);
        assert_eq!(found.len(), MOST_MAPS);
        assert_eq!(found[0].title, "How is t<8> spread?");
        assert!(found[0].svg.contains("t&lt;8&gt;") && found[0].svg.contains("step 200"));
    }

    #[test]
    fn the_same_tensor_of_several_runs_is_side_by_side_on_one_scale() {
        let run = |most: f64| {
            let all = |step| record(step, vec![tensor("w", -1.0, most, &[3, 1])]);
            RunView { records: vec![all(0), all(100)], ..RunView::default() }
        };
        let (one, two) = (run(1.0), run(9.0));
        let names = ["lr 0.1", "lr 0.2"].map(str::to_owned);
        let found = figures(&[&one, &two], &names);
        let titles: Vec<&str> = found.iter().map(|figure| figure.title.as_str()).collect();
        let title = "How is w spread?";
        assert_eq!(titles, [format!("{title} lr 0.1"), format!("{title} lr 0.2")]);
        // Both reach up to the greatest weight of either.
        assert!(found.iter().all(|figure| figure.svg.contains("8.8")), "{found:?}");
        let many = vec![&one; 7];
        let names: Vec<String> = (0..7).map(|at| at.to_string()).collect();
        assert!(figures(&many, &names).is_empty(), "seven have no room beside each other");
    }
}
