//! Every optimiser: ranges, masks, untrained entries.

use super::*;
use proptest::prelude::*;

fn layout() -> Layout {
    let mut layout = Layout::default();
    layout.push("body.weight", &[5, 3], true);
    layout.push("body.bias", &[3], true);
    layout.push("norm.running_mean", &[4], false);
    layout.push("head.weight", &[2, 3], true);
    layout
}

fn wave(len: usize, phase: f32) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * 0.7 + phase).sin()).collect()
}

/// One step of all parameters.
fn whole_step(
    optimizer: &Optimizer,
    params: &mut [f32],
    grad: &[f32],
    state: &mut OptimizerState,
    rate: f32,
    step: u64,
) {
    let all = 0..params.len();
    optimizer.update(all.clone(), params, grad, state, rate, step);
    optimizer.finish(&Pool::new(1), all, params, state, rate, step);
}

#[test]
fn frozen_layers_stay_with_their_statistics_and_others_follow() {
    let layout = layout();
    let all_but_head = Mask::freezing(&layout, |name| !name.starts_with("head"));
    let body = Mask::freezing(&layout, |name| name.starts_with("body"));
    for (entry, (mask, frozen)) in
        ALL.iter().flat_map(|entry| [(*entry, (&all_but_head, 22)), (*entry, (&body, 18))])
    {
        assert_eq!(mask.trained(), 6);
        let optimizer = Optimizer::with_mask(entry, entry.defaults, &layout, mask.clone()).unwrap();
        let mut state = optimizer.state();
        let before = wave(layout.len(), 0.0);
        let grad = wave(layout.len(), 1.0);
        let mut params = before.clone();
        whole_step(&optimizer, &mut params, &grad, &mut state, 0.1, 0);
        assert_eq!(params[..frozen], before[..frozen], "{}", entry.name);
        for i in frozen..22 {
            assert_eq!(params[i], before[i] + grad[i], "{}", entry.name);
        }
        assert!((22..28).all(|i| params[i] != before[i]), "{}", entry.name);
    }
}

/// From its first step on a layer that was frozen is trained as one that begins, and the head as if nothing had happened.
#[test]
fn an_unfrozen_layer_begins_where_it_is_unfrozen() {
    let layout = layout();
    let mask = Mask::freezing(&layout, |name| !name.starts_with("head"));
    for entry in ALL {
        let thawing = Optimizer::with_mask(entry, entry.defaults, &layout, mask.clone()).unwrap();
        let thawing = thawing.unfreezing(&layout, 2);
        let whole = Optimizer::new(entry, entry.defaults, &layout).unwrap();
        let run = |optimizer: &Optimizer, steps: u64| {
            let (mut params, mut state) = (wave(layout.len(), 0.0), optimizer.state());
            for step in 0..steps {
                let grad = wave(layout.len(), 1.0);
                whole_step(optimizer, &mut params, &grad, &mut state, 0.1, step);
            }
            params
        };
        assert_eq!(run(&thawing, 2)[..22], wave(layout.len(), 0.0)[..22], "{}", entry.name);
        assert_eq!(run(&thawing, 5)[..22], run(&whole, 3)[..22], "{}", entry.name);
        assert_eq!(run(&thawing, 5)[22..], run(&whole, 5)[22..], "{}", entry.name);
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let layout = layout();
    for (settings, name) in [
        (OptimizerSettings { rate: f32::NAN, ..OptimizerSettings::PLAIN }, "learning rate"),
        (OptimizerSettings { momentum: 1.0, ..OptimizerSettings::PLAIN }, "momentum"),
        (OptimizerSettings { beta2: -0.1, ..OptimizerSettings::PLAIN }, "beta2"),
        (OptimizerSettings { epsilon: 0.0, ..OptimizerSettings::PLAIN }, "epsilon"),
        (OptimizerSettings { weight_decay: -1.0, ..OptimizerSettings::PLAIN }, "weight decay"),
    ] {
        let error = Optimizer::new(find("adam").unwrap(), settings, &layout).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    let error = find("adamw").unwrap_err().to_string();
    assert!(error.contains("`adamw`") && error.contains("nesterov"), "{error}");
}

#[test]
fn registry_names_are_unique_and_slots_fit() {
    for (i, entry) in ALL.iter().enumerate() {
        assert!(entry.slots.len() <= MAX_SLOTS);
        assert!(ALL[..i].iter().all(|other| other.name != entry.name));
        check(entry.name, &entry.defaults).unwrap();
    }
}

proptest! {
    /// The ready callback hands over the buffer in pieces: the pieces must add up to the whole.
    #[test]
    fn updating_by_ranges_equals_updating_at_once(
        which in 0..ALL.len(),
        mut cuts in prop::collection::vec(0usize..29, 0..4),
        decay in prop::sample::select(vec![0.0f32, 0.1]),
    ) {
        let layout = layout();
        let settings = OptimizerSettings { weight_decay: decay, ..ALL[which].defaults };
        let optimizer = Optimizer::new(ALL[which], settings, &layout).unwrap();
        let (mut whole, mut pieces) = (wave(28, 0.3), wave(28, 0.3));
        let (mut whole_state, mut piece_state) = (optimizer.state(), optimizer.state());
        cuts.extend([0, 28]);
        cuts.iter_mut().for_each(|cut| *cut = (*cut).min(28));
        cuts.sort_unstable();
        for step in 0..3 {
            let grad = wave(28, step as f32);
            whole_step(&optimizer, &mut whole, &grad, &mut whole_state, 0.05, step);
            for pair in cuts.windows(2).rev() {
                let range = pair[0]..pair[1];
                optimizer.update(
                    range.clone(), &mut pieces[range.clone()], &grad[range], &mut piece_state, 0.05, step,
                );
            }
            optimizer.finish(&Pool::new(1), 0..28, &mut pieces, &mut piece_state, 0.05, step);
        }
        prop_assert_eq!(whole, pieces);
        prop_assert_eq!(whole_state, piece_state);
    }
}

#[test]
fn several_threads_give_the_same_bits() {
    let mut layout = Layout::default();
    layout.push("a", &[100_003], true);
    layout.push("statistics", &[70_001], false);
    layout.push("b", &[90_007], true);
    let pool = Pool::new(3);
    for entry in ALL {
        // Whole tensors are not to be cut.
        let uncut = entry.whole_tensors();
        let range = if uncut { 0..layout.len() } else { 5..layout.len() - 3 };
        let optimizer = Optimizer::new(entry, entry.defaults, &layout).unwrap();
        let (mut alone, mut shared) = (wave(layout.len(), 0.1), wave(layout.len(), 0.1));
        let (mut alone_state, mut shared_state) = (optimizer.state(), optimizer.state());
        for step in 0..2 {
            let grad = wave(layout.len(), step as f32);
            let grad = &grad[range.clone()];
            let params = &mut alone[range.clone()];
            optimizer.update(range.clone(), params, grad, &mut alone_state, 0.1, step);
            optimizer.finish(&Pool::new(1), range.clone(), params, &mut alone_state, 0.1, step);
            let params = &mut shared[range.clone()];
            optimizer.update_on(&pool, range.clone(), params, grad, &mut shared_state, 0.1, step);
            optimizer.finish(&pool, range.clone(), params, &mut shared_state, 0.1, step);
        }
        assert_eq!(alone, shared, "{}", entry.name);
        assert_eq!(alone_state, shared_state, "{}", entry.name);
    }
}

/// As the papers write them, in f64.
#[test]
fn lars_and_lamb_follow_their_papers() {
    let layout = layout();
    let tensors = [(0..15, false), (15..18, true), (22..28, false)];
    for name in ["lars", "lamb"] {
        let entry = find(name).unwrap();
        let settings = OptimizerSettings { weight_decay: 0.05, ..entry.defaults };
        let optimizer = Optimizer::new(entry, settings, &layout).unwrap();
        let mut state = optimizer.state();
        let mut params = wave(28, 0.3);
        let wide = |values: &[f32]| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>();
        let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
        let (mut w, mut first, mut second) = (wide(&params), vec![0.0; 28], vec![0.0; 28]);
        for step in 0..4 {
            let grad = wave(28, step as f32);
            whole_step(&optimizer, &mut params, &grad, &mut state, 0.7, step);
            let g = wide(&grad);
            let mut ratio = 1.0;
            for (range, is_vector) in &tensors {
                let decay = if *is_vector { 0.0 } else { 0.05 };
                let own = range.clone();
                if name == "lars" {
                    if !is_vector {
                        let (up, down) = (norm(&w[own.clone()]), norm(&g[own.clone()]));
                        ratio = 0.001 * up / (down + decay * up);
                    }
                    for at in own {
                        first[at] = 0.9 * first[at] + 0.7 * ratio * (g[at] + decay * w[at]);
                        w[at] -= first[at];
                    }
                    continue;
                }
                let count = step as i32 + 1;
                let direction: Vec<f64> = own
                    .clone()
                    .map(|at| {
                        first[at] = 0.9 * first[at] + 0.1 * g[at];
                        second[at] = 0.999 * second[at] + 0.001 * g[at] * g[at];
                        let mean = first[at] / (1.0 - 0.9f64.powi(count));
                        let root = (second[at] / (1.0 - 0.999f64.powi(count))).sqrt();
                        mean / (root + 1e-6) + decay * w[at]
                    })
                    .collect();
                let ratio = if *is_vector { 1.0 } else { norm(&w[own.clone()]) / norm(&direction) };
                for (at, step) in own.zip(direction) {
                    w[at] -= 0.7 * ratio * step;
                }
            }
            for at in (0..18).chain(22..28) {
                let found = f64::from(params[at]);
                assert!(
                    (found - w[at]).abs() < 2e-4,
                    "{name} step {step} at {at}: {found}, {}",
                    w[at]
                );
            }
        }
    }
}

/// Replicas that share out the update begin their parts where tensors do, only where it matters.
#[test]
fn parts_are_cut_between_tensors_for_those_that_need_them_whole() {
    let layout = layout();
    for entry in ALL {
        let optimizer = Optimizer::new(entry, entry.defaults, &layout).unwrap();
        let cuts = [0, 9, 14, 26, 28].map(|at| optimizer.cut(at));
        // The running mean belongs to the group of the weights before it.
        let wanted = if entry.whole_tensors() { [0, 0, 22, 28, 28] } else { [0, 9, 14, 26, 28] };
        assert_eq!(cuts, wanted, "{}", entry.name);
    }
}
