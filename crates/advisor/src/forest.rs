//! Regression trees by the dozen: extra-trees (random cuts) and random forests (bootstrap, best cuts).
//!
//! Written here because both need so little: seeded, small data, no missing values.

use paceline_stats::random::Random;

/// How to grow a forest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) trees: usize,
    /// A node with fewer rows is not cut.
    pub(crate) smallest: usize,
    /// Features tried per cut.
    pub(crate) tries: usize,
    pub(crate) kind: Kind,
}

/// Where the randomness comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All rows, cuts at random places (Geurts, Ernst and Wehenkel, 2006).
    ExtraTrees,
    /// Rows drawn with replacement, best cuts (Breiman, 2001).
    RandomForest,
}

/// Rows of equal width with a value each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rows {
    width: usize,
    cells: Vec<f64>,
    values: Vec<f64>,
}

impl Rows {
    pub(crate) fn push(&mut self, cells: &[f64], value: f64) {
        debug_assert!(self.values.is_empty() || cells.len() == self.width);
        self.width = cells.len();
        self.cells.extend_from_slice(cells);
        self.values.push(value);
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    fn cell(&self, row: u32, feature: usize) -> f64 {
        self.cells[row as usize * self.width + feature]
    }

    fn value(&self, row: u32) -> f64 {
        self.values[row as usize]
    }
}

/// A cut (`left` above zero; the right child follows the left one) or a leaf with its mean.
#[derive(Debug, Clone, Copy)]
struct Node {
    feature: u32,
    left: u32,
    /// Threshold of a cut, mean of a leaf.
    number: f64,
}

/// A grown forest.
#[derive(Debug, Clone)]
pub(crate) struct Forest {
    trees: Vec<Vec<Node>>,
}

impl Forest {
    pub(crate) fn grow(rows: &Rows, growth: Growth, seed: u64) -> Self {
        let trees = (0..growth.trees)
            .map(|tree| grow_tree(rows, growth, &mut Random::new(seed, tree as u64 + 1)))
            .collect();
        Self { trees }
    }

    /// The mean over the trees.
    pub(crate) fn predict(&self, cells: &[f64]) -> f64 {
        self.each(cells).sum::<f64>() / self.trees.len() as f64
    }

    /// What each tree says.
    pub(crate) fn each<'a>(&'a self, cells: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        self.trees.iter().map(move |tree| {
            let mut node = tree[0];
            while node.left > 0 {
                let right = cells[node.feature as usize] > node.number;
                node = tree[(node.left + u32::from(right)) as usize];
            }
            node.number
        })
    }
}

fn grow_tree(rows: &Rows, growth: Growth, random: &mut Random) -> Vec<Node> {
    let count = rows.len();
    let mut order: Vec<u32> = match growth.kind {
        Kind::ExtraTrees => (0..count as u32).collect(),
        Kind::RandomForest => (0..count).map(|_| random.below(count) as u32).collect(),
    };
    let mut features: Vec<usize> = (0..rows.width).collect();
    let mut nodes = vec![Node { feature: 0, left: 0, number: 0.0 }];
    let mut open = vec![(0usize, 0usize, count)];
    while let Some((node, from, to)) = open.pop() {
        let part = &mut order[from..to];
        let mean = part.iter().map(|&row| rows.value(row)).sum::<f64>() / part.len().max(1) as f64;
        nodes[node].number = mean;
        let same = part.iter().all(|&row| rows.value(row) == rows.value(part[0]));
        if part.len() < growth.smallest || same {
            continue;
        }
        random.shuffle(&mut features);
        // Features that do not vary here do not count as tried.
        let mut best: Option<(f64, usize, f64)> = None;
        let mut tried = 0;
        for &feature in &features {
            let cut = match growth.kind {
                Kind::ExtraTrees => random_cut(rows, part, feature, random),
                Kind::RandomForest => best_cut(rows, part, feature),
            };
            if let Some((score, threshold)) = cut {
                if best.is_none_or(|(known, ..)| score > known) {
                    best = Some((score, feature, threshold));
                }
                tried += 1;
                if tried >= growth.tries {
                    break;
                }
            }
        }
        let Some((_, feature, threshold)) = best else { continue };
        let middle = partition(part, |row| rows.cell(row, feature) <= threshold);
        let left = nodes.len();
        nodes[node] = Node { feature: feature as u32, left: left as u32, number: threshold };
        nodes.extend([Node { feature: 0, left: 0, number: 0.0 }; 2]);
        open.push((left, from, from + middle));
        open.push((left + 1, from + middle, to));
    }
    nodes
}

/// Score (the larger, the more variance it removes) and threshold of a cut at a random place.
fn random_cut(
    rows: &Rows,
    part: &[u32],
    feature: usize,
    random: &mut Random,
) -> Option<(f64, f64)> {
    let (low, high) = part.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &row| {
        let cell = rows.cell(row, feature);
        (low.min(cell), high.max(cell))
    });
    if high <= low {
        return None;
    }
    // Below `high`, so that both sides hold something.
    let threshold = (low + (high - low) * random.uniform()).min(high.next_down());
    let (mut sums, mut counts) = ([0.0; 2], [0.0; 2]);
    for &row in part {
        let side = usize::from(rows.cell(row, feature) > threshold);
        sums[side] += rows.value(row);
        counts[side] += 1.0;
    }
    Some((sums[0] * sums[0] / counts[0] + sums[1] * sums[1] / counts[1], threshold))
}

fn best_cut(rows: &Rows, part: &[u32], feature: usize) -> Option<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> =
        part.iter().map(|&row| (rows.cell(row, feature), rows.value(row))).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = sorted.iter().map(|pair| pair.1).sum();
    let mut left = 0.0;
    let mut best = None;
    for at in 1..sorted.len() {
        left += sorted[at - 1].1;
        if sorted[at].0 > sorted[at - 1].0 {
            let (n, m) = (at as f64, (sorted.len() - at) as f64);
            let score = left * left / n + (total - left).powi(2) / m;
            if best.is_none_or(|(known, _)| score > known) {
                let middle = sorted[at - 1].0 + (sorted[at].0 - sorted[at - 1].0) / 2.0;
                best = Some((score, middle.min(sorted[at].0.next_down())));
            }
        }
    }
    best
}

/// Moves the rows that satisfy `first` to the front; how many there are.
fn partition(part: &mut [u32], first: impl Fn(u32) -> bool) -> usize {
    let mut front = 0;
    for at in 0..part.len() {
        if first(part[at]) {
            part.swap(front, at);
            front += 1;
        }
    }
    front
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staircase() -> Rows {
        let mut rows = Rows::default();
        for at in 0..200 {
            let x = f64::from(at) / 200.0;
            // The second feature is noise that must not matter.
            rows.push(&[x, f64::from(at * 37 % 101)], if x < 0.5 { 1.0 } else { 3.0 });
        }
        rows
    }

    #[test]
    fn step_is_learned_by_both_kinds() {
        for kind in [Kind::ExtraTrees, Kind::RandomForest] {
            let growth = Growth { trees: 30, smallest: 2, tries: 2, kind };
            let forest = Forest::grow(&staircase(), growth, 1);
            assert!((forest.predict(&[0.2, 50.0]) - 1.0).abs() < 0.15, "{kind:?}");
            assert!((forest.predict(&[0.8, 50.0]) - 3.0).abs() < 0.15, "{kind:?}");
            assert_eq!(forest.each(&[0.8, 50.0]).count(), 30);
        }
    }

    #[test]
    fn same_seed_grows_the_same_forest() {
        let growth = Growth { trees: 5, smallest: 2, tries: 1, kind: Kind::ExtraTrees };
        let at = [0.49, 3.0];
        let [a, b] = [1, 1].map(|seed| Forest::grow(&staircase(), growth, seed).predict(&at));
        assert_eq!(a, b);
    }

    #[test]
    fn constant_values_and_equal_rows_make_a_leaf() {
        let mut rows = Rows::default();
        rows.push(&[1.0], 2.0);
        rows.push(&[1.0], 4.0);
        let growth = Growth { trees: 3, smallest: 2, tries: 1, kind: Kind::ExtraTrees };
        assert_eq!(Forest::grow(&rows, growth, 0).predict(&[9.0]), 3.0);
    }
}
