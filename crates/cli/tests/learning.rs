//! Whether a run learned is said, by exit code and in words; the defaults learn.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_testing::real_data;
use serde_json::Value;
use std::{fmt::Write as _, fs, path::Path, process::Command};
use support::{json_in, run_in};

const DIGITS: &str = "generated:digits?examples=600";

fn train(folder: &Path, words: &[&str]) -> Value {
    json_in(folder, &[&["train", "--json", "--no-tensorboard"], words].concat())
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {report}"))
}

/// The summary of the only run there is.
fn summary(folder: &Path) -> Value {
    let runs = fs::read_dir(folder.join("runs")).unwrap();
    let runs: Vec<_> = runs.map(|entry| entry.unwrap().path()).collect();
    let [run] = &runs[..] else { panic!("{runs:?}") };
    serde_json::from_slice(&fs::read(run.join("summary.json")).unwrap()).unwrap()
}

/// Rows that two features tell apart.
fn rows(count: usize) -> String {
    let mut text = String::new();
    for row in 0..count {
        let label = usize::from((row * 7919) % 10 < 2 + 6 * (row % 2));
        writeln!(text, "{label} {}:1 {}:0.5", row % 2, 2 + row % 37).unwrap();
    }
    text
}

#[test]
fn a_loss_of_millions_is_not_a_success() {
    let digits = ["--model", "softmax", "--data", DIGITS, "--lr", "1e8", "--epochs", "30"];
    let sparse = ["--model", "sparse-logistic", "--data", "a.svm,b.svm", "--format", "libsvm"];
    let sparse = [&sparse[..], &["--optimizer", "sgd", "--lr", "1e8", "--bits", "10"]].concat();
    for (words, strategy) in [
        (&digits[..], &["--strategy", "one-device"][..]),
        (&digits, &["--strategy", "mirrored", "--replicas", "2"]),
        (&digits, &["--strategy", "multi-worker"]),
        (&digits, &["--strategy", "ps-sync"]),
        (&digits, &["--strategy", "ps-async"]),
        (&sparse, &[]),
        (&sparse, &["--strategy", "ps-sync"]),
        (&sparse, &["--strategy", "ps-async"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.svm"), rows(3000)).unwrap();
        fs::write(folder.path().join("b.svm"), rows(3000)).unwrap();
        let words = [&["train", "--no-tensorboard"], words, strategy].concat();
        let output = run_in(folder.path(), &words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("training diverged by "), "{words:?}: {said}");
        assert!(said.contains("hint: ") && said.contains("lower learning rate"), "{said}");
        let summary = summary(folder.path());
        assert_eq!(summary["status"], "failed", "{words:?}");
        assert_eq!(summary["learning"]["outcome"], "diverged", "{words:?}: {summary}");
        // A run that failed said that it had made no step and seen no example.
        for figure in ["global_steps", "examples"] {
            assert!(summary[figure].as_u64() > Some(0), "{words:?}, {figure}: {summary}");
        }
    }
}

#[test]
fn chance_level_is_done_and_said() {
    for (words, strategy) in [
        (["--model", "lenet", "--data", DIGITS, "--lr", "1e-7"], &[][..]),
        (["--model", "lenet", "--data", DIGITS, "--lr", "1e-7"], &["--strategy", "ps-async"]),
        (["--model", "sparse-logistic", "--data", "a.svm,b.svm", "--lr", "1e-7"], &[]),
        (
            ["--model", "sparse-logistic", "--data", "a.svm,b.svm", "--lr", "1e-7"],
            &["--strategy", "ps-sync"],
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        // Labels that no feature tells of.
        let mut text = String::new();
        for row in 0..2000_usize {
            writeln!(text, "{} {}:1 {}:1", row * 7919 % 1009 % 2, row % 2, 2 + row % 3).unwrap();
        }
        fs::write(folder.path().join("a.svm"), &text).unwrap();
        fs::write(folder.path().join("b.svm"), &text).unwrap();
        let rest: &[&str] = &["train", "--no-tensorboard", "--epochs", "3"];
        let words = [rest, &words, strategy].concat();
        let output = run_in(folder.path(), &words);
        let (shown, said) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        assert!(shown.contains("done, but the model did not learn"), "{words:?}: {shown}");
        assert!(said.contains("warning: the model did not learn: "), "{words:?}: {said}");
        let summary = summary(folder.path());
        assert_eq!(
            (&summary["status"], &summary["learning"]["outcome"]),
            (&"done".into(), &"did-not-learn".into())
        );
    }
}

/// The command for several hosts named no rate, and ended at 13.8 %.
#[test]
fn lenet_learns_digits_without_being_told_how() {
    let folder = tempfile::tempdir().unwrap();
    json_in(
        folder.path(),
        &["data", "synth", "digits", "digits", "--train", "6000", "--test", "1000", "--json"],
    );
    let report = train(folder.path(), &["--model", "lenet", "--data", "digits", "--epochs", "2"]);
    assert!(number(&report, "/final/test_accuracy") > 0.9, "{report}");
    assert_eq!(report["learning"]["outcome"], "learned");
}

#[test]
fn models_are_listed_with_what_they_train_with() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &["list", "models"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for pair in ["adam at 0.003", "scaled-adagrad at 0.15"] {
        assert!(text.contains(pair), "{text}");
    }
    let listed = json_in(folder.path(), &["list", "models", "--json"]);
    for model in listed["models"].as_array().unwrap() {
        assert!(model["optimizer"].is_string() && model["learning_rate"].is_number(), "{model}");
    }
}

/// A data set and the best that a grid of optimisers and rates reached on it with seed 0 (`docs/defaults.md`).
struct Tuned {
    words: &'static [&'static str],
    accuracy: f64,
    loss: f64,
}

/// Within one point of accuracy or two per cent of loss of tuned settings.
fn close(report: &Value, tuned: &Tuned, accuracy: &str, loss: &str) {
    let found = (number(report, accuracy), number(report, loss));
    assert!(
        found.0 >= tuned.accuracy - 0.01 || found.1 <= 1.02 * tuned.loss,
        "{:?}: {found:?}, tuned {} and {}",
        tuned.words,
        tuned.accuracy,
        tuned.loss
    );
}

/// Seed 0, everything else left out.
#[test]
fn defaults_are_close_to_tuned_settings() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    json_in(
        here,
        &["data", "synth", "digits", "digits", "--train", "12000", "--test", "2000", "--json"],
    );
    let mut sets = vec![
        Tuned {
            words: &["softmax", "--data", "digits", "--epochs", "3"],
            accuracy: 0.9235,
            loss: 0.2887,
        },
        Tuned {
            words: &["lenet", "--data", "digits", "--epochs", "3"],
            accuracy: 0.982,
            loss: 0.0663,
        },
    ];
    if let Some(mnist) = real_data("mnist") {
        std::os::unix::fs::symlink(fs::canonicalize(mnist).unwrap(), here.join("mnist")).unwrap();
        sets.push(Tuned {
            words: &["softmax", "--data", "mnist", "--epochs", "0.5"],
            accuracy: 0.9171,
            loss: 0.2899,
        });
        sets.push(Tuned {
            words: &["lenet", "--data", "mnist", "--epochs", "0.5"],
            accuracy: 0.9757,
            loss: 0.0852,
        });
    }
    if let Some(flowers) = real_data("flowers-sample") {
        let words = ["--size", "32", "--shards", "2", "--split", "validation=0.2", "--json"];
        let from = flowers.to_str().unwrap();
        json_in(here, &[&["prepare", from, "shards"], &words[..]].concat());
        sets.push(Tuned {
            words: &["softmax", "--data", "shards", "--epochs", "10"],
            accuracy: 0.4956,
            loss: 1.3272,
        });
    }
    for tuned in &sets {
        let report = train(here, &[&["--model"], tuned.words].concat());
        close(&report, tuned, "/final/test_accuracy", "/final/test_loss");
    }
}

/// MobileNet-v2 and AlexNet had defaults that nothing held them to. Half of the epochs of the grid in `docs/defaults.md`, since all of
/// them take a minute: the loss must fall as it does with the setting that was best there. What MobileNet-v2 has by then depends on the
/// last bit of every sum (from 1.11 to 1.61 over 32 runs), so the mean of four seeds counts, as far as they can tell.
#[test]
fn defaults_of_the_large_models_lower_the_loss_as_tuned_settings_do() {
    let Some(flowers) = real_data("flowers-sample") else { return };
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let words = ["--size", "64", "--shards", "2", "--split", "validation=0.2", "--json"];
    json_in(here, &[&["prepare", flowers.to_str().unwrap(), "shards"], &words[..]].concat());
    let constant = 5.0_f64.ln();
    for (model, figure, seeds, tuned) in [
        ("mobilenet-v2", "/final/train_loss", &["0", "1", "2", "3"][..], 1.365),
        ("alexnet", "/final/test_loss", &["0"][..], 1.545),
    ] {
        let run = ["--data", "shards", "--batch-size", "32", "--epochs", "4", "--model", model];
        let loss =
            |seed: &&str| number(&train(here, &[&run[..], &["--seed", seed]].concat()), figure);
        let found: Vec<f64> = seeds.iter().map(loss).collect();
        let count = found.len() as f64;
        let mean = found.iter().sum::<f64>() / count;
        let squares = found.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>();
        let error = if count > 1.0 { (squares / (count - 1.0) / count).sqrt() } else { 0.0 };
        assert!(mean < 0.98 * constant, "{model}: {found:?} is no better than a guess");
        assert!(
            mean - 2.0 * error <= 1.02 * tuned,
            "{model}: {found:?}, with tuned settings {tuned}"
        );
    }
}

/// What one process learns from each row in turn, servers must learn in the same epoch.
#[test]
fn sparse_defaults_learn_as_much_on_servers_as_on_one_device() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let synth = ["data", "synth", "clicks"];
    json_in(
        here,
        &[&synth[..], &["clicks.tsv", "--rows", "30000", "--seed", "1", "--json"]].concat(),
    );
    json_in(here, &[&synth[..], &["clicks.t", "--rows", "8000", "--seed", "2", "--json"]].concat());
    let mut sets = vec![("clicks.tsv", "clicks.t".to_owned(), None)];
    if let (Some(train), Some(test)) = (real_data("libsvm/a9a.gz"), real_data("libsvm/a9a.t.gz")) {
        let unpacked = Command::new("gzip").arg("-dc").arg(train).output().unwrap();
        fs::write(here.join("a9a"), unpacked.stdout).unwrap();
        let tuned = Tuned { words: &["sparse-logistic", "a9a"], accuracy: 0.851, loss: 0.3242 };
        sets.push(("a9a", test.to_str().unwrap().to_owned(), Some(tuned)));
    }
    for (data, test, tuned) in sets {
        // Three files, since each worker has its own.
        let text = fs::read_to_string(here.join(data)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, part) in lines.chunks(lines.len().div_ceil(3)).enumerate() {
            fs::write(here.join(format!("{data}-{number}")), part.join("\n") + "\n").unwrap();
        }
        let parts = format!("{data}-0,{data}-1,{data}-2");
        let common = ["--model", "sparse-logistic", "--test", &test, "--bits", "20"];
        let alone = train(here, &[&common[..], &["--data", data]].concat());
        if let Some(tuned) = &tuned {
            close(&alone, tuned, "/held_out/accuracy", "/held_out/loss");
        }
        for (strategy, workers) in
            [("ps-sync", "1"), ("ps-sync", "3"), ("ps-async", "2"), ("ps-async", "3")]
        {
            let tasks = ["--strategy", strategy, "--workers", workers, "--data", &parts];
            let shared = train(here, &[&common[..], &tasks].concat());
            let what = format!("{data} {strategy} {workers}");
            let [one, many] = [&alone, &shared].map(|report| number(report, "/held_out/auc"));
            assert!(many > one - 0.005, "{what}: AUC {one} alone, {many} on servers");
            let [one, many] = [&alone, &shared].map(|report| number(report, "/held_out/loss"));
            assert!(many < 1.02 * one, "{what}: loss {one} alone, {many} on servers");
        }
    }
}

/// Rows of unit length have values of about 0.1: at the rate for categories 57 % were right, before each was learned.
#[test]
fn the_default_rate_suits_features_of_any_size() {
    let Some(data) = real_data("rcv1-vw/rcv1_small.dat") else { return };
    let folder = tempfile::tempdir().unwrap();
    let data = data.to_str().unwrap();
    let common = ["--model", "sparse-logistic", "--bits", "18", "--deterministic"];
    let report = train(folder.path(), &[&common[..], &["--data", data]].concat());
    assert!(number(&report, "/progressive/accuracy") > 0.82, "{report}");
    // The same rows with values a thousand times as large.
    let text = fs::read_to_string(data).unwrap();
    let large: String = text
        .split_inclusive([' ', '\n'])
        .map(|word| match word.trim_end().split_once(':') {
            Some((name, value)) => {
                let end = &word[word.trim_end().len()..];
                format!("{name}:{}{end}", 1000.0 * value.parse::<f64>().unwrap())
            }
            None => word.to_owned(),
        })
        .collect();
    fs::write(folder.path().join("large.vw"), large).unwrap();
    let report = train(folder.path(), &[&common[..], &["--data", "large.vw"]].concat());
    assert!(number(&report, "/progressive/accuracy") > 0.8, "{report}");
}

/// Columns in units of their own, from a thousandth to a thousand: one rate for all of them left most unlearned, 64 % right where
/// 88 % can be. Alone and on servers.
#[test]
fn columns_in_any_unit_are_learned_alike_alone_and_on_servers() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let mut state = 1_u64;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1_u32 << 31)
    };
    // Rows, and the loss on them of a model that knows the odds they were drawn with.
    let mut rows = |count: usize| {
        let (mut text, mut least) = (String::new(), 0.0);
        for _ in 0..count {
            let (mut logit, mut features) = (0.0, String::new());
            for column in 0..13_i32 {
                // About normal, of deviation 1.
                let value = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
                logit += value * if column % 2 == 0 { 0.9 } else { -0.7 };
                let unit = 10_f64.powi(column % 7 - 3);
                write!(features, " {}:{:.6e}", column + 1, value * unit).unwrap();
            }
            let odds = 1.0 / (1.0 + f64::exp(-logit));
            let label = i32::from(uniform() < odds);
            least -= if label == 1 { odds.ln() } else { (1.0 - odds).ln() };
            writeln!(text, "{label}{features}").unwrap();
        }
        (text, least / count as f64)
    };
    fs::write(here.join("a.svm"), rows(4000).0).unwrap();
    fs::write(here.join("b.svm"), rows(4000).0).unwrap();
    let (test, least) = rows(2000);
    fs::write(here.join("test.svm"), test).unwrap();
    let common = ["--model", "sparse-logistic", "--bits", "10", "--format", "libsvm"];
    let data = ["--data", "a.svm,b.svm", "--test", "test.svm"];
    let alone = train(here, &[&common[..], &data, &["--deterministic"]].concat());
    let batches = train(here, &[&common[..], &data, &["--batch-size", "32"]].concat());
    let [one, many] = [&alone, &batches].map(|report| number(report, "/held_out/loss"));
    assert!(one < 1.03 * least, "{one}, {least} for one who knows the odds");
    assert!(number(&alone, "/held_out/accuracy") > 0.83, "{alone}");
    assert!(many < 1.02 * one, "{one} row by row, {many} in batches");
    for strategy in ["ps-sync", "ps-async"] {
        for transfer in ["sparse", "dense"] {
            let tasks = ["--strategy", strategy, "--workers", "2", "--transfer", transfer];
            let shared = train(here, &[&common[..], &data, &tasks].concat());
            let found = number(&shared, "/held_out/loss");
            assert!(found < 1.02 * one, "{strategy} {transfer}: {one} alone, {found} on servers");
        }
    }
}
