//! How the weights of a run were spread over time: a map for each of its largest tensors.

use crate::chart::HeatMap;
use crate::page::Figure;
use crate::training::RunView;
use paceline_runs::{Event, Histograms, Tensor};

/// Most tensors that are drawn, the largest.
const MOST_TENSORS: usize = 6;
/// Buckets of a map, the same for all its columns.
const ROWS: usize = 20;
/// Most columns; of more evaluations, evenly spread ones are drawn.
const MOST_COLUMNS: usize = 40;

/// The maps of a run, the largest tensor first; none where its weights were counted only once.
pub(crate) fn figures(run: &RunView) -> Vec<Figure> {
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
    let drawn: Vec<&Histograms> = match all.len() {
        0 | 1 => return Vec::new(),
        few if few <= MOST_COLUMNS => all,
        many => (0..MOST_COLUMNS).map(|at| all[at * (many - 1) / (MOST_COLUMNS - 1)]).collect(),
    };
    let Some(last) = drawn.last() else { return Vec::new() };
    let mut tensors: Vec<&Tensor> = last.tensors.iter().collect();
    tensors.sort_by_key(|tensor| std::cmp::Reverse(size(tensor)));
    let maps =
        tensors.into_iter().take(MOST_TENSORS).filter_map(|tensor| map(&tensor.name, &drawn));
    let mut figures: Vec<Figure> = maps
        .map(|map| Figure {
            title: map.title.clone(),
            colour: None,
            key: Vec::new(),
            svg: map.svg(),
            words: String::new(),
            notes: Vec::new(),
        })
        .collect();
    // Said once is enough.
    if let Some(first) = figures.first_mut() {
        "Counted at each evaluation. Darker: a greater share of the tensor\u{2019}s weights."
            .clone_into(&mut first.words);
    }
    figures
}

fn size(tensor: &Tensor) -> u64 {
    tensor.counts.iter().sum()
}

/// One tensor over time; nothing where it has no finite weights.
fn map(name: &str, all: &[&Histograms]) -> Option<HeatMap> {
    let of = |found: &&Histograms| {
        let known = found.tensors.iter().find(|tensor| tensor.name == name);
        known.filter(|tensor| size(tensor) > 0).cloned().unwrap_or_default()
    };
    let columns: Vec<Tensor> = all.iter().map(of).collect();
    let known = || columns.iter().filter(|tensor| !tensor.counts.is_empty());
    let low = known().map(|tensor| tensor.min).fold(f64::INFINITY, f64::min);
    let high = known().map(|tensor| tensor.max).fold(f64::NEG_INFINITY, f64::max);
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
    let middle = |row: usize| format!("{:.decimals$}", low + width * (row as f64 + 0.5));
    let each = all.len().div_ceil(5);
    let ticks = all.iter().enumerate().step_by(each);
    Some(HeatMap {
        title: format!("How are the weights of {name} spread?"),
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
        assert!(figures(&run).is_empty(), "one evaluation shows no change");
        // The step after a restore counts, the one before does not.
        run.records.extend([all(100), record(100, vec![tensor("t<8>", -3.0, 3.0, &[5, 5])])]);
        let found = figures(&run);
        assert_eq!(found.len(), 1, "{found:?}");
        run.records.push(all(200));
        let found = figures(&run);
        assert_eq!(found.len(), MOST_TENSORS);
        assert_eq!(found[0].title, "How are the weights of t<8> spread?");
        assert!(found[0].svg.contains("t&lt;8&gt;") && found[0].svg.contains("step 200"));
    }
}
