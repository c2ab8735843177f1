//! How the weights of a run were spread over time: a map for each of its largest tensors, and the numbers of the others, from
//! which the pages' script draws the one that a reader chooses.

use crate::chart::HeatMap;
use crate::page::{Figure, Page};
use crate::training::RunView;
use paceline_runs::{Event, Histograms, Tensor};
use serde_json::json;

/// Most maps that are drawn, of the largest tensors.
const MOST_MAPS: usize = 6;
/// Buckets of a map, the same for all its columns.
const ROWS: usize = 20;
/// Most columns; of more evaluations, evenly spread ones are drawn.
const MOST_COLUMNS: usize = 40;
/// Most bytes of the numbers that a page carries: what has no room is left out, the smallest tensors first.
const MOST_BYTES: usize = 160_000;
/// What a share is written with, two of them a share: whole numbers from 0 to 4095, of which the last is the tensor's greatest.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What was counted in some runs.
pub(crate) struct Maps<'a> {
    counted: Vec<(&'a String, Vec<&'a Histograms>)>,
    /// Names of the tensors and their sizes, the largest first.
    tensors: Vec<(&'a str, u64)>,
    /// Whether the page is about several runs.
    several: bool,
}

/// The maps of some runs, the largest tensor first and each tensor's beside each other, on the same scale of weights; none where
/// weights were counted only once, or where there are too many runs.
pub(crate) fn figures(runs: &[&RunView], names: &[String]) -> Vec<Figure> {
    Maps::of(runs, names).figures()
}

impl<'a> Maps<'a> {
    pub(crate) fn of(runs: &[&'a RunView], names: &'a [String]) -> Maps<'a> {
        let all = names.iter().zip(runs.iter().copied().map(counts));
        let counted: Vec<(&String, Vec<&Histograms>)> = all.filter(|it| it.1.len() > 1).collect();
        let last = counted.first().and_then(|(_, all)| all.last().copied());
        let tensors = last.into_iter().flat_map(|last| &last.tensors);
        let mut tensors: Vec<(&str, u64)> = tensors.map(|it| (&*it.name, size(it))).collect();
        tensors.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        Maps { counted, tensors, several: runs.len() > 1 }
    }

    /// Puts the maps on a page.
    pub(crate) fn place(&self, page: &mut Page, folded: bool) {
        let figures = self.figures();
        if !figures.is_empty() {
            page.maps("Weights over time", &figures, &self.numbers(), folded);
        }
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for (tensor, _) in self.tensors.iter().take(MOST_MAPS / self.counted.len().max(1)) {
            let range = self.range(tensor);
            for (name, all) in &self.counted {
                let Some(map) = map(tensor, all, range) else { continue };
                let beside = if self.several { format!(" {name}") } else { String::new() };
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

    /// The shares of all tensors that there is room for, by bucket and evaluation.
    fn numbers(&self) -> String {
        let columns: usize = self.counted.iter().map(|(_, all)| all.len()).sum();
        let room = MOST_BYTES / (2 * ROWS * columns).max(1);
        let tensors = self.tensors.iter().take(room).filter_map(|(name, size)| {
            let (low, high) = self.range(name);
            let width = width(low, high)?;
            let columns = |all: &Vec<&Histograms>| -> Vec<Vec<f64>> {
                all.iter().map(|found| shared(&of(found, name), low, width)).collect()
            };
            let maps: Vec<Vec<Vec<f64>>> = self.counted.iter().map(|it| columns(&it.1)).collect();
            let most = maps.iter().flatten().flatten().copied().fold(0.0, f64::max);
            let maps: Vec<String> = maps.iter().map(|map| letters(map, most)).collect();
            Some(json!({ "name": name, "size": size, "low": low, "high": high, "most": most, "maps": maps }))
        });
        let tensors: Vec<_> = tensors.collect();
        let steps = |all: &[&Histograms]| all.iter().map(|found| found.step).collect::<Vec<_>>();
        let runs =
            self.counted.iter().map(|(name, all)| json!({ "name": name, "steps": steps(all) }));
        json!({ "rows": ROWS, "runs": runs.collect::<Vec<_>>(), "tensors": tensors }).to_string()
    }

    /// The smallest and the greatest weight that a tensor ever had.
    fn range(&self, name: &str) -> (f64, f64) {
        let found = self.counted.iter().flat_map(|(_, all)| all).flat_map(|found| &found.tensors);
        let found = found.filter(|tensor| tensor.name == name && size(tensor) > 0);
        found.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), tensor| {
            (low.min(tensor.min), high.max(tensor.max))
        })
    }
}

/// The shares of a map, row by row from the top.
fn letters(columns: &[Vec<f64>], most: f64) -> String {
    let mut text = String::with_capacity(2 * ROWS * columns.len());
    for row in (0..ROWS).rev() {
        for column in columns {
            let share = (4095.0 * column[row] / most).clamp(0.0, 4095.0);
            // What is there at all is not nothing.
            let share = if column[row] > 0.0 { share.round().max(1.0) as usize } else { 0 };
            text.push(char::from(LETTERS[share / 64]));
            text.push(char::from(LETTERS[share % 64]));
        }
    }
    text
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

fn size(tensor: &Tensor) -> u64 {
    tensor.counts.iter().sum()
}

/// A tensor as it was counted once; without weights where it was not.
fn of(found: &Histograms, name: &str) -> Tensor {
    let known = found.tensors.iter().find(|tensor| tensor.name == name);
    known.filter(|tensor| size(tensor) > 0).cloned().unwrap_or_default()
}

/// The width of a bucket; nothing where all weights are one, or none is finite.
fn width(low: f64, high: f64) -> Option<f64> {
    let spread = high - low;
    (spread.is_finite() && spread > 0.0).then_some(spread / ROWS as f64)
}

/// One tensor over time; nothing where it has no finite weights.
fn map(name: &str, all: &[&Histograms], (low, high): (f64, f64)) -> Option<HeatMap> {
    let columns: Vec<Tensor> = all.iter().map(|found| of(found, name)).collect();
    let width = width(low, high)?;
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
        ticks: ticks.map(|(at, found)| (at as f64 + 0.5, found.step.to_string())).collect(),
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

    /// Only the six largest could be looked at.
    #[test]
    fn the_page_carries_every_tensor_as_far_as_there_is_room() {
        let all = |step| {
            let tensors =
                (1..=60).map(|size| tensor(&format!("t<{size}>"), -1.0, 1.0, &[size, 3 * size]));
            record(step, tensors.collect())
        };
        let run = RunView { records: vec![all(0), all(100)], ..RunView::default() };
        let names = ["a".to_owned()];
        let mut page = Page::new("", "");
        Maps::of(&[&run], &names).place(&mut page, true);
        let text = page.body().split("<div class=\"tensors\" hidden>").nth(1).unwrap();
        let text = text
            .split('<')
            .next()
            .unwrap()
            .replace("&quot;", "\"")
            .replace("&lt;", "<")
            .replace("&gt;", ">");
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["tensors"].as_array().unwrap().len(), 60);
        let last = &found["tensors"][59];
        assert_eq!((last["name"].as_str(), last["size"].as_u64()), (Some("t<1>"), Some(4)));
        // The upper half has three quarters of the weights, in ten buckets of each of two evaluations.
        assert!((last["most"].as_f64().unwrap() - 7.5).abs() < 1e-9, "{last}");
        let map = last["maps"][0].as_str().unwrap();
        assert_eq!((map.len(), &map[..4], &map[76..]), (80, "____", "VVVV"), "{map}");
        // Many long runs have room for fewer tensors.
        let records = (0..90).map(all).collect();
        let long = RunView { records, ..RunView::default() };
        let runs = vec![&long; 4];
        let names: Vec<String> = (0..4).map(|at| at.to_string()).collect();
        let numbers = Maps::of(&runs, &names).numbers();
        assert!((100_000..200_000).contains(&numbers.len()), "{}", numbers.len());
        assert!(numbers.contains("t<60>") && !numbers.contains("t<1>"));
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
