//! The model against plain arithmetic, and against itself on several threads.

use super::*;
use crate::random::mix;

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f32 {
        self.0 += 1;
        (mix(self.0) >> 40) as f32 / (1_u32 << 24) as f32
    }
}

/// Rows over few features with a simple truth: feature 0 speaks for label 1, feature 1 against it.
fn rows(seed: u64, count: usize, values: bool) -> Batch {
    let mut random = Random(mix(seed));
    let mut batch = Batch::sparse();
    let Features::Sparse { offsets, indices, values: given } = &mut batch.features else {
        unreachable!()
    };
    for _ in 0..count {
        let label = u32::from(random.unit() < 0.4);
        let telling = if random.unit() < 0.9 { 1 - label } else { label };
        indices.push(telling);
        for _ in 0..(random.unit() * 8.0) as usize {
            indices.push(2 + (random.unit() * 60.0) as u32); // may come twice in a row
        }
        offsets.push(indices.len());
        batch.labels.push(label);
    }
    if values {
        *given = (0..indices.len()).map(|_| random.unit() + 0.5).collect();
    }
    batch
}

fn settings(rule: &str) -> RuleSettings {
    RuleSettings { rate: 0.1, ..rules::find(rule).unwrap().defaults }
}

/// The rules as their papers write them, in doubles.
fn reference(rule: &str, set: RuleSettings, batch: &Batch) -> (Vec<f64>, Vec<f64>) {
    let Features::Sparse { offsets, indices, values } = &batch.features else { unreachable!() };
    let (rate, l1, l2, beta) =
        (f64::from(set.rate), f64::from(set.l1), f64::from(set.l2), f64::from(set.beta));
    let mut state = vec![[0.0_f64; 2]; 65];
    let mut sizes = [Size::default(); 65];
    let weight = |[a, n]: [f64; 2]| {
        if rule != "ftrl" {
            a
        } else if a.abs() <= l1 {
            0.0
        } else {
            -(a - a.signum() * l1) / ((beta + n.sqrt()) / rate + l2)
        }
    };
    let mut logits = Vec::new();
    for row in 0..batch.len() {
        let mut features: Vec<(usize, f64)> = (offsets[row]..offsets[row + 1])
            .map(|at| (indices[at] as usize, values.get(at).map_or(1.0, |v| f64::from(*v))))
            .collect();
        features.insert(0, (64, 1.0));
        let logit: f64 = features.iter().map(|&(at, x)| x * weight(state[at])).sum();
        logits.push(logit);
        let slope = 1.0 / (1.0 + (-logit).exp()) - f64::from(batch.labels[row]);
        for (at, x) in features {
            let [a, n] = state[at];
            let grad = slope * x;
            state[at] = match rule {
                "sgd" => [a - rate * (grad + l2 * a), 0.0],
                "adagrad" => {
                    let grad = grad + l2 * a;
                    let sum = n + grad * grad;
                    [a - rate * grad / (beta + sum.sqrt()), sum]
                }
                "scaled-adagrad" => {
                    let before = sizes[at];
                    sizes[at] = before.join(Size::of(x as f32));
                    let size = f64::from(sizes[at].mean());
                    let a =
                        if before.count() > 0 { a * f64::from(before.mean()) / size } else { a };
                    let grad = grad + l2 * a;
                    let sum = n + grad * grad;
                    [a - rate * grad / size / (beta * size + sum.sqrt()), sum]
                }
                _ => {
                    let sum = n + grad * grad;
                    let sigma = (sum.sqrt() - n.sqrt()) / rate;
                    [a + grad - sigma * weight([a, n]), sum]
                }
            };
        }
    }
    (logits, state.into_iter().map(weight).collect())
}

#[test]
fn every_rule_follows_its_paper() {
    for entry in rules::ALL {
        for values in [false, true] {
            let set = RuleSettings {
                l1: if entry.name == "ftrl" { 0.5 } else { 0.0 },
                l2: 0.01,
                ..settings(entry.name)
            };
            let batch = rows(1, 2000, values);
            let model = SparseLogistic::new(6, entry.name, set).unwrap();
            let mut logits = Vec::new();
            model.learn(&batch, &mut logits);
            let (wanted, weights) = reference(entry.name, set, &batch);
            for (row, (found, wanted)) in logits.iter().zip(&wanted).enumerate() {
                let off = (f64::from(*found) - wanted).abs();
                assert!(off < 2e-3, "{} row {row}: {found} {wanted}", entry.name);
            }
            for (index, wanted) in weights.iter().enumerate() {
                let off = (f64::from(model.weight(index)) - wanted).abs();
                assert!(off < 2e-3, "{} weight {index}", entry.name);
            }
        }
    }
}

#[test]
fn scoring_changes_nothing_and_learning_scores_first() {
    let batch = rows(2, 500, true);
    let model = SparseLogistic::new(6, "adagrad", settings("adagrad")).unwrap();
    let (mut scored, mut learned) = (Vec::new(), Vec::new());
    model.score(&batch, &mut scored);
    assert!(scored.iter().all(|&logit| logit == 0.0));
    model.learn(&batch, &mut learned);
    assert_eq!(learned[0], 0.0, "the first row is predicted by untouched weights");
    let before = loss(&learned, &batch.labels);
    model.score(&batch, &mut scored);
    let after = loss(&scored, &batch.labels);
    assert!(after.loss_sum < before.loss_sum, "{after:?} {before:?}");
    let again = scored.clone();
    model.score(&batch, &mut scored);
    assert_eq!(again, scored);
}

#[test]
fn an_l1_penalty_leaves_chance_features_at_exactly_zero() {
    let batch = rows(3, 4000, false);
    let set = RuleSettings { l1: 60.0, ..settings("ftrl") };
    let model = SparseLogistic::new(6, "ftrl", set).unwrap();
    model.learn(&batch, &mut Vec::new());
    let zeros = (2..62).filter(|&index| model.weight(index) == 0.0).count();
    assert!(zeros > 50, "{zeros} of 60");
    assert!(model.weight(0) > 0.1 && model.weight(1) < -0.1);
}

#[test]
fn threads_that_share_the_weights_learn_what_one_learns() {
    let model = SparseLogistic::new(6, "adagrad", settings("adagrad")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let model = model.clone();
            scope.spawn(move || model.learn(&rows(10 + thread, 5000, false), &mut Vec::new()));
        }
    });
    let test = rows(99, 5000, false);
    let mut logits = Vec::new();
    model.score(&test, &mut logits);
    let score = loss(&logits, &test.labels);
    assert!(score.correct as f64 > 0.88 * 5000.0, "{score:?}");
}

#[test]
fn a_minibatch_of_one_is_learning_one_at_a_time() {
    for rule in ["sgd", "adagrad", "scaled-adagrad", "ftrl"] {
        let batch = rows(4, 300, true);
        let online = SparseLogistic::new(6, rule, settings(rule)).unwrap();
        let mut wanted = Vec::new();
        online.learn(&batch, &mut wanted);
        let model = SparseLogistic::new(6, rule, settings(rule)).unwrap();
        let (mut mini, mut weights, mut logits) = (Minibatch::default(), Vec::new(), Vec::new());
        let mut found = Vec::new();
        for row in 0..batch.len() {
            mini.learn(&model, &batch, row..row + 1, 1.0, &mut weights, &mut logits);
            found.extend_from_slice(&logits);
        }
        for (row, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            // A feature that comes twice in a row is one gradient here and two updates there.
            assert!((found - wanted).abs() < 0.1, "{rule} row {row}: {found} {wanted}");
        }
    }
}

#[test]
fn touched_weights_are_sorted_unique_and_all_there() {
    let mut mini = Minibatch::default();
    for (seed, count) in [(1, 3), (2, 1000), (3, 10), (4, 5000)] {
        let batch = rows(seed, count, false);
        let Features::Sparse { indices, .. } = &batch.features else { unreachable!() };
        mini.prepare(&batch, 0..count, 64);
        let mut wanted = indices.clone();
        wanted.push(64);
        wanted.sort_unstable();
        wanted.dedup();
        assert_eq!(mini.touched, wanted);
    }
}

#[test]
fn the_gradient_is_the_slope_of_the_loss() {
    let batch = rows(5, 40, true);
    let mut mini = Minibatch::default();
    mini.prepare(&batch, 10..40, 64);
    let mut random = Random(7);
    let weights: Vec<f32> = mini.touched.iter().map(|_| random.unit() - 0.5).collect();
    let mut logits = Vec::new();
    mini.gradient(&batch, 10..40, &weights, (RowLoss::Logistic, 0.25), &mut logits);
    let grads = mini.grads.clone();
    for at in 0..weights.len() {
        let mut at_offset = |offset: f32| {
            let mut moved = weights.clone();
            moved[at] += offset;
            mini.gradient(&batch, 10..40, &moved, (RowLoss::Logistic, 0.25), &mut logits);
            0.25 * loss(&logits, &batch.labels[10..40]).loss_sum
        };
        let slope = (at_offset(0.01) - at_offset(-0.01)) / 0.02;
        assert!((slope - f64::from(grads[at])).abs() < 2e-3, "{at}: {slope} {}", grads[at]);
    }
}

#[test]
fn losses_do_not_overflow() {
    let score = loss(&[1000.0, -1000.0, 0.0], &[0, 0, 1]);
    assert!((score.loss_sum - 1000.693).abs() < 0.01, "{score:?}");
    assert_eq!(score.correct, 1);
}

#[test]
fn settings_out_of_range_are_named() {
    let bad = RuleSettings { rate: -1.0, ..settings("sgd") };
    let error = SparseLogistic::new(6, "sgd", bad).unwrap_err().to_string();
    assert!(error.contains("the learning rate is -1"), "{error}");
    assert!(SparseLogistic::new(32, "sgd", settings("sgd")).is_err());
    assert!(
        SparseLogistic::new(6, "adam", settings("sgd")).unwrap_err().to_string().contains("ftrl")
    );
}

/// Tenfold or tiny features with the settings for their scale give the same predictions: a power of two changes no digit.
#[test]
fn defaults_for_a_scale_learn_the_same_from_scaled_features() {
    for entry in rules::ALL {
        let batch = rows(8, 3000, true);
        let plain = SparseLogistic::new(6, entry.name, entry.defaults).unwrap();
        let mut wanted = Vec::new();
        plain.learn(&batch, &mut wanted);
        for scale in [0.125_f32, 64.0] {
            let mut scaled = rows(8, 3000, true);
            let Features::Sparse { values, .. } = &mut scaled.features else { unreachable!() };
            values.iter_mut().for_each(|value| *value *= scale);
            let model = SparseLogistic::new(6, entry.name, entry.defaults_for(scale)).unwrap();
            let mut found = Vec::new();
            model.learn(&scaled, &mut found);
            // The bias has a value of 1 whatever the scale, so it alone learns at another speed.
            let [plain, scaled] = [&wanted, &found].map(|logits| loss(logits, &batch.labels));
            let off = (plain.loss_sum - scaled.loss_sum).abs() / plain.loss_sum;
            assert!(off < 0.1, "{} {scale}: {plain:?} {scaled:?}", entry.name);
        }
    }
}

/// Every feature in another unit, from a thousandth to a thousand: the weights alone change.
#[test]
fn a_features_unit_does_not_matter_to_the_default_rule() {
    let set = rules::scaled_adagrad::ENTRY.defaults;
    let [plain, scaled] = [0, 1].map(|_| SparseLogistic::new(6, DEFAULTS.optimizer, set).unwrap());
    let unit = |index: u32| 2_f32.powi((index as i32 * 7) % 21 - 10);
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    for seed in 0..4 {
        let batch = rows(20 + seed, 3000, true);
        plain.learn(&batch, &mut wanted);
        let mut other = rows(20 + seed, 3000, true);
        let Features::Sparse { indices, values, .. } = &mut other.features else { unreachable!() };
        for (index, value) in indices.iter().zip(values) {
            *value *= unit(*index);
        }
        scaled.learn(&other, &mut found);
        let [one, two] = [&wanted, &found].map(|logits| loss(logits, &batch.labels).loss_sum);
        assert!((one - two).abs() < 2e-3 * one, "{one} {two}");
    }
    for index in 0..62 {
        let (one, two) = (plain.weight(index), scaled.weight(index) * unit(index as u32));
        assert!((one - two).abs() < 0.02, "{index}: {one} {two}");
    }
}

/// A value that is small by chance comes first, and the usual size, 1,000 times as large, afterwards.
#[test]
fn a_first_value_that_is_tiny_does_not_throw_the_default_rule_off() {
    let mut batch = rows(30, 4000, true);
    let Features::Sparse { indices, values, .. } = &mut batch.features else { unreachable!() };
    let mut met = [false; 64];
    for (index, value) in indices.iter().zip(values) {
        let first = !std::mem::replace(&mut met[*index as usize], true);
        *value *= if first { 1.0 } else { 1000.0 };
    }
    let set = rules::scaled_adagrad::ENTRY.defaults;
    let model = SparseLogistic::new(6, DEFAULTS.optimizer, set).unwrap();
    let mut logits = Vec::new();
    model.learn(&batch, &mut logits);
    let late = loss(&logits[2000..], &batch.labels[2000..]);
    assert!(late.loss_sum < 0.4 * 2000.0, "{late:?}");
}
