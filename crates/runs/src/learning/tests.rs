//! The rules on recorded losses of runs that learned, spiked, stayed at chance and exploded, and on made-up ones.

use super::*;

/// Loss and accuracy of each update of a run on generated digits, 64 examples each.
fn recorded(name: &str) -> Vec<Observed> {
    let path = format!("{}/testdata/curves/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let (loss, accuracy) = line.split_once(' ').unwrap();
            let (loss, accuracy): (f64, f64) = (loss.parse().unwrap(), accuracy.parse().unwrap());
            seen(loss, accuracy)
        })
        .collect()
}

fn seen(loss: f64, accuracy: f64) -> Observed {
    let correct = (64.0 * accuracy).round() as u64;
    Observed { loss_sum: 64.0 * loss, correct, examples: 64 }
}

/// The update at which a run was found to have diverged, and whether it had at its end.
fn watch(curve: &[Observed]) -> (Option<usize>, bool) {
    let mut guard = LossGuard::of_updates(10);
    let stopped = curve.iter().position(|update| guard.observe(update).is_some());
    (stopped, guard.at_end().is_some())
}

const TRIED: Tried<'static> =
    Tried { optimizer: "sgd", rate: 0.1, sturdier: Some("adam"), schedules: true };

fn judge(loss: f64, accuracy: f64, auc: Option<f64>, labels: Labels<'_>) -> Learning {
    Learning::judge(&Ending { loss, accuracy, auc, labels, updates: 500 }, &TRIED).unwrap()
}

#[test]
fn runs_that_learn_or_spike_are_not_stopped() {
    for name in [
        "lenet-momentum-0.02", // a plateau, then down
        "softmax-sgd-20", // a rate at the edge: forty times its start at first, 90 % at the end
        "lenet-adam-1",   // a spike of almost two million, then chance level
        "lenet-adagrad-0.3", // a spike of five thousand, then chance level
    ] {
        assert_eq!(watch(&recorded(name)), (None, false), "{name}");
    }
}

#[test]
fn a_loss_of_millions_is_noticed_before_the_run_ends() {
    let curve = recorded("softmax-sgd-1e8");
    let (stopped, _) = watch(&curve);
    let stopped =
        stopped.expect("a loss of ten million is divergence, however many hits there are");
    assert!(stopped < curve.len() / 2, "{stopped}");
}

#[test]
fn a_late_explosion_is_noticed_and_weights_are_suspect_at_once() {
    let mut guard = LossGuard::of_updates(10);
    for _ in 0..2000 {
        assert!(guard.observe(&seen(0.3, 0.9)).is_none());
    }
    assert!(!guard.is_suspect());
    let mut noticed = None;
    for update in 0..2000 {
        if guard.observe(&seen(400.0, 0.1)).is_some() {
            noticed = Some(update);
            break;
        }
        assert!(guard.is_suspect(), "nothing is saved from the first bad update on");
    }
    // A quarter of a hundred blocks before it.
    assert_eq!(noticed, Some(25 * 20 - 1));
}

#[test]
fn a_long_spike_on_its_way_down_is_given_time() {
    let mut guard = LossGuard::of_updates(10);
    (0..100).for_each(|_| assert!(guard.observe(&seen(1.0, 0.6)).is_none()));
    for update in 0..600 {
        let loss = 5000.0 * 0.985_f64.powi(update);
        assert!(guard.observe(&seen(loss.max(0.8), 0.1)).is_none(), "{update}: {loss}");
    }
    assert!(guard.at_end().is_none() && !guard.is_suspect());
}

#[test]
fn a_run_that_ends_in_an_explosion_has_diverged_however_short_it_was() {
    let mut guard = LossGuard::of_updates(10);
    assert!(guard.observe(&seen(2.3, 0.1)).is_none());
    for _ in 0..6 {
        assert!(guard.observe(&seen(6e9, 0.1)).is_none());
    }
    let found = guard.at_end().unwrap().to_string();
    assert!(found.contains("e9") && found.contains("2.303 of an untrained model"), "{found}");
    let mut block = LossGuard::of_blocks();
    assert!(block.observe(&seen(f64::INFINITY, 0.5)).is_none());
    assert!(block.at_end().is_some());
    // A pretrained or badly scaled start is compared with itself.
    let mut start = LossGuard::of_updates(10);
    (0..200).for_each(|_| assert!(start.observe(&seen(60.0, 0.1)).is_none()));
    assert!(start.at_end().is_none());
}

#[test]
fn chance_level_is_said_and_real_learning_is_not_doubted() {
    let even = Labels::Counts(&[200; 10]);
    for (loss, accuracy) in [(2.2999, 0.138), (2.3071, 0.0955), (2.4405, 0.0995), (7.0, 0.11)] {
        let found = judge(loss, accuracy, None, even);
        assert_eq!(found.outcome, LearningOutcome::DidNotLearn, "{found:?}");
        assert!(found.warning().unwrap().starts_with("the model did not learn: "), "{found:?}");
        assert!(found.words.contains("10.0 %") && !found.advice.is_empty(), "{found:?}");
    }
    let worse = judge(7.0, 0.11, None, even);
    assert!(worse.words.starts_with("worse than a constant"), "{worse:?}");
    assert_eq!(worse.advice[0], "a lower learning rate: `--lr 0.01`");
    for learned in [
        judge(0.5, 0.84, None, even),
        judge(2.1, 0.2, None, even),
        judge(8.0, 0.6, None, even), // overfitted, and useful
        judge(6.2, 0.02, None, Labels::Classes(1000)), // the first epoch of many
        judge(0.449, 0.7999, Some(0.74), Labels::Positive(0.21)), // rare clicks
        judge(0.52, 0.789, Some(0.6), Labels::Positive(0.211)),
    ] {
        assert_eq!(
            (learned.outcome, learned.warning()),
            (LearningOutcome::Learned, None),
            "{learned:?}"
        );
    }
    let mean = judge(0.53, 0.789, Some(0.5), Labels::Positive(0.211));
    assert_eq!(mean.outcome, LearningOutcome::DidNotLearn, "{mean:?}");
    let few = Ending { loss: 2.3, accuracy: 0.1, auc: None, labels: even, updates: 5 };
    assert_eq!(Learning::judge(&few, &TRIED), None);
}

/// A linear model at an absurd rate learns some hundred examples by heart, like a perceptron.
#[test]
fn training_examples_known_by_heart_do_not_excuse_an_exploded_test_loss() {
    let labels = Labels::Counts(&[60; 10]);
    let ending = |loss| Ending { loss, accuracy: 0.83, auc: None, labels, updates: 300 };
    assert_eq!(ending(1.5e7).divergence().unwrap().reference, 10_f64.ln());
    assert!(ending(f64::NAN).divergence().is_some());
    assert_eq!(ending(8.0).divergence(), None);
}

#[test]
fn advice_names_flags_that_can_be_typed() {
    let found = Learning::diverged("the loss is 6e9", &TRIED);
    let text = found.warning().unwrap();
    for flag in ["--lr 0.01", "--schedule warmup:1+constant", "--optimizer adam"] {
        assert!(text.contains(flag), "{text}");
    }
    let text = serde_json::to_string(&found).unwrap();
    assert!(text.contains("\"outcome\":\"diverged\""), "{text}");
}
