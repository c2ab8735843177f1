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

#[test]
fn frozen_layers_stay_with_their_statistics_and_others_follow() {
    let layout = layout();
    let all_but_head = Mask::freezing(&layout, |name| !name.starts_with("head"));
    let body = Mask::freezing(&layout, |name| name.starts_with("body"));
    for (entry, (mask, frozen)) in
        ALL.iter().flat_map(|entry| [(*entry, (&all_but_head, 22)), (*entry, (&body, 18))])
    {
        assert_eq!(mask.trained(), 6);
        let optimizer = Optimizer::with_mask(entry, entry.defaults, mask.clone()).unwrap();
        let mut state = optimizer.state();
        let before = wave(layout.len(), 0.0);
        let grad = wave(layout.len(), 1.0);
        let mut params = before.clone();
        optimizer.update(0..layout.len(), &mut params, &grad, &mut state, 0.1, 0);
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
        let thawing = Optimizer::with_mask(entry, entry.defaults, mask.clone()).unwrap();
        let thawing = thawing.unfreezing(&layout, 2);
        let whole = Optimizer::new(entry, entry.defaults, &layout).unwrap();
        let run = |optimizer: &Optimizer, steps: u64| {
            let (mut params, mut state) = (wave(layout.len(), 0.0), optimizer.state());
            for step in 0..steps {
                let grad = wave(layout.len(), 1.0);
                optimizer.update(0..layout.len(), &mut params, &grad, &mut state, 0.1, step);
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
            optimizer.update(0..28, &mut whole, &grad, &mut whole_state, 0.05, step);
            for pair in cuts.windows(2).rev() {
                let range = pair[0]..pair[1];
                optimizer.update(
                    range.clone(), &mut pieces[range.clone()], &grad[range], &mut piece_state, 0.05, step,
                );
            }
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
    let range = 5..layout.len() - 3;
    for entry in ALL {
        let optimizer = Optimizer::new(entry, entry.defaults, &layout).unwrap();
        let (mut alone, mut shared) = (wave(layout.len(), 0.1), wave(layout.len(), 0.1));
        let (mut alone_state, mut shared_state) = (optimizer.state(), optimizer.state());
        for step in 0..2 {
            let grad = wave(layout.len(), step as f32);
            let grad = &grad[range.clone()];
            let params = &mut alone[range.clone()];
            optimizer.update(range.clone(), params, grad, &mut alone_state, 0.1, step);
            let params = &mut shared[range.clone()];
            optimizer.update_on(&pool, range.clone(), params, grad, &mut shared_state, 0.1, step);
        }
        assert_eq!(alone, shared, "{}", entry.name);
        assert_eq!(alone_state, shared_state, "{}", entry.name);
    }
}
