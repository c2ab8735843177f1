//! The table over all pairs of a flag and a model, a strategy, an optimiser.

use super::{
    super::{rows_flags, rows_tasks},
    *,
};
use clap::{Args as _, FromArgMatches as _};
use std::{collections::BTreeSet, fmt::Write as _};

/// A value for each flag that is not its default; nothing for switches.
const VALUES: &[(&str, &str)] = &[
    ("init", "weights.safetensors"),
    ("freeze", ""),
    ("unfreeze-after", "2"),
    ("pixels", "imagenet"),
    ("augment", "flip"),
    ("validation-split", "0.2"),
    ("width", "0.5"),
    ("dropout", "0.3"),
    ("lrn", ""),
    ("activation", "tanh"),
    ("pad", "0"),
    ("epochs", "3"),
    ("steps", "7"),
    ("until-loss", "0.5"),
    ("stop-after-no-gain", "3"),
    ("steps-per-epoch", "9"),
    ("batch-size", "48"),
    ("lr", "0.5"),
    ("momentum", "0.5"),
    ("weight-decay", "0.1"),
    ("schedule", "cosine"),
    ("loss", "hinge"),
    ("label-smoothing", "0.1"),
    ("class-weights", "balanced"),
    ("grow-batch", ""),
    ("accumulate", "2"),
    ("seed", "5"),
    ("threads", "3"),
    ("replicas", "2"),
    ("workers", "3"),
    ("ps", "2"),
    ("evaluator", ""),
    ("evaluate-workers", ""),
    ("on-loss", "stop"),
    ("split-dense", "off"),
    ("compress", "int8"),
    ("join-timeout", "61"),
    ("patience", "9s"),
    ("verify", ""),
    ("max-pixels", "1000"),
    ("combine", "sum"),
    ("backup-workers", "1"),
    ("max-staleness", "4"),
    ("transfer", "dense"),
    ("eval-every", "9"),
    ("checkpoint-every", "9"),
    ("keep", "5"),
    ("no-tensorboard", ""),
    ("out", "elsewhere"),
    ("follow", "log.tsv"),
    ("test", "held-out.tsv"),
    ("format", "clicks"),
    ("bits", "10"),
    ("integers", "values"),
    ("l1", "0.5"),
    ("window", "50"),
    ("deterministic", ""),
    ("max-rejects", "0.5"),
];

/// What the pairs are made with, and how a run begins: not flags that could have no effect.
const AXES: [&str; 5] = ["model", "data", "strategy", "optimizer", "resume"];

/// Flags that say where a run is and how long it waits, not what it is.
const NO_SETTING: [&str; 3] = ["out", "join-timeout", "patience"];

fn parse(words: &[String]) -> Flags {
    let command = Flags::augment_args(clap::Command::new("train").no_binary_name(true));
    Flags::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
}

/// A command line with a model, a strategy, an optimiser and perhaps a flag.
fn line(
    model: &str,
    strategy: &str,
    optimizer: Option<&str>,
    flag: Option<(&str, &str)>,
) -> Vec<String> {
    let mut words = vec!["--model", model, "--strategy", strategy];
    words.extend(optimizer.iter().flat_map(|name| ["--optimizer", *name]));
    let flag_name = flag.map_or("", |(name, _)| name);
    if flag_name != "follow" {
        words.extend(["--data", "rows.tsv"]);
    }
    // What some flags need beside them, so that they are judged by model, strategy and optimiser alone.
    match flag_name {
        "freeze" => words.extend(["--init", "weights.safetensors", "--pixels", "unit"]),
        "unfreeze-after" => {
            words.extend(["--init", "w.safetensors", "--pixels", "unit", "--freeze"]);
        }
        "init" => words.extend(["--pixels", "unit"]),
        "grow-batch" => words.extend(["--schedule", "step:1:0.1"]),
        "until-loss" | "eval-every" | "evaluator" if model == sparse_logistic::NAME => {
            words.extend(["--test", "held-out.tsv"]);
        }
        _ => {}
    }
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    if let Some((name, value)) = flag {
        // Its default depends on the model.
        let is_mean = name == "combine" && model == sparse_logistic::NAME;
        let value = if is_mean { "mean" } else { value };
        words.push(format!("--{name}"));
        words.extend((!value.is_empty()).then(|| value.to_owned()));
    }
    words
}

fn outcome(words: &[String]) -> Result<(), String> {
    let flags = parse(words);
    flags.check().map(|_| ()).map_err(|error| {
        let hint = error
            .downcast_ref::<crate::terminal::failure::Failure>()
            .and_then(|it| it.hint.clone());
        format!("{error}\n{}", hint.unwrap_or_default())
    })
}

/// Every model with every strategy and optimiser that it has at all.
fn triples() -> Vec<(&'static str, &'static str, &'static str)> {
    let optimizers: BTreeSet<&str> = optimizer::ALL
        .iter()
        .map(|entry| entry.name)
        .chain(sparse_logistic::rules::ALL.iter().map(|entry| entry.name))
        .collect();
    let mut found = Vec::new();
    for model in registry::names() {
        for strategy in &strategies::ALL {
            for optimizer in &optimizers {
                if outcome(&line(model, strategy.name, Some(optimizer), None)).is_ok() {
                    found.push((model, strategy.name, *optimizer));
                }
            }
        }
    }
    found
}

#[test]
fn every_flag_is_in_the_table_and_in_the_tests() {
    let command = Flags::augment_args(clap::Command::new("train"));
    let flags: BTreeSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    let table: BTreeSet<&str> = TABLE.iter().map(|rule| rule.0).collect();
    assert_eq!(table, flags);
    let tested: BTreeSet<&str> = VALUES.iter().map(|(flag, _)| *flag).chain(AXES).collect();
    assert_eq!(tested, flags);
}

#[test]
fn registries_name_settings_that_are_flags() {
    let needing = |wanted: fn(&Needs) -> bool| -> BTreeSet<&str> {
        TABLE.iter().filter(|rule| rule.2.iter().any(wanted)).map(|rule| rule.0).collect()
    };
    let models: BTreeSet<&str> =
        registry::ALL.iter().flat_map(|entry| entry.settings).copied().collect();
    assert_eq!(models, needing(|need| matches!(need, Needs::Model | Needs::DenseModel)));
    let optimizers: BTreeSet<&str> = optimizer::ALL
        .iter()
        .flat_map(|entry| entry.settings)
        .chain(sparse_logistic::rules::ALL.iter().flat_map(|entry| entry.settings))
        .copied()
        .collect();
    assert_eq!(optimizers, needing(|need| matches!(need, Needs::Optimizer)));
}

/// `pairs.txt` says which flag goes with what; `PACELINE_BLESS=1` writes it again.
#[test]
fn all_pairs_are_as_written_down() {
    let triples = triples();
    let mut text = String::new();
    for (flag, value) in VALUES {
        let accepted: Vec<_> = triples
            .iter()
            .filter(|(model, strategy, optimizer)| {
                outcome(&line(model, strategy, Some(optimizer), Some((flag, value)))).is_ok()
            })
            .collect();
        assert!(!accepted.is_empty(), "--{flag} goes with nothing");
        let mut rest: Vec<&str> = registry::names().collect();
        while let Some(first) = rest.first().copied() {
            let of = |name: &str| -> (BTreeSet<&str>, BTreeSet<&str>) {
                let own = accepted.iter().filter(|(model, ..)| *model == name);
                own.map(|(_, strategy, optimizer)| (*strategy, *optimizer)).unzip()
            };
            let (strategies, optimizers) = of(first);
            let alike: Vec<&str> = rest
                .iter()
                .copied()
                .filter(|name| of(name) == (strategies.clone(), optimizers.clone()))
                .collect();
            rest.retain(|name| !alike.contains(name));
            if strategies.is_empty() {
                continue;
            }
            let count = accepted.iter().filter(|(model, ..)| *model == first).count();
            assert_eq!(
                count,
                strategies.len() * optimizers.len(),
                "--{flag}: axes depend on each other"
            );
            let words = |set: BTreeSet<&str>| set.into_iter().collect::<Vec<_>>().join(" ");
            writeln!(
                text,
                "--{flag}: {} | {} | {}",
                alike.join(" "),
                words(strategies),
                words(optimizers)
            )
            .unwrap();
        }
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/arguments/train_rules/pairs.txt");
    if std::env::var_os("PACELINE_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap());
}

/// A refusal says what would give the flag an effect: doing so must help.
#[test]
fn every_hint_is_true() {
    let mut refused = 0;
    for (model, strategy, optimizer) in triples() {
        for (flag, value) in VALUES {
            let (mut model, mut strategy) = (model.to_owned(), strategy.to_owned());
            let mut optimizer = Some(optimizer.to_owned());
            let mut attempts = 0;
            loop {
                let words = line(&model, &strategy, optimizer.as_deref(), Some((flag, value)));
                let Err(error) = outcome(&words) else { break };
                refused += 1;
                attempts += 1;
                assert!(attempts <= 4, "--{flag} {words:?}: {error}");
                let before = (model.clone(), strategy.clone(), optimizer.clone());
                for words in error.lines().nth(1).unwrap().split('`') {
                    match words.split_once(' ') {
                        Some(("--model", name)) => name.clone_into(&mut model),
                        Some(("--strategy", name)) => name.clone_into(&mut strategy),
                        Some(("--optimizer", name)) => optimizer = Some(name.to_owned()),
                        _ => {}
                    }
                }
                // Another kind of model has other optimisers: leave the choice to it.
                if model != before.0
                    && (model == sparse_logistic::NAME) != (before.0 == sparse_logistic::NAME)
                {
                    optimizer = None;
                }
                assert_ne!((model.clone(), strategy.clone(), optimizer.clone()), before, "{error}");
            }
        }
    }
    assert!(refused > 500, "{refused}");
}

/// What is accepted reaches the specification.
#[test]
fn no_accepted_flag_is_dropped_on_the_way() {
    let spec = |words: &[String]| {
        let flags = parse(words);
        if flags.check().unwrap().choice.is_sparse() {
            let mut spec = rows_flags::specification(&flags).unwrap();
            rows_tasks::share_out(&flags, None, &mut spec).unwrap();
            serde_json::to_value(spec).unwrap()
        } else {
            serde_json::to_value(flags.fresh().unwrap()).unwrap()
        }
    };
    for (model, strategy, optimizer) in triples() {
        for (flag, value) in VALUES.iter().filter(|(flag, _)| !NO_SETTING.contains(flag)) {
            let with = line(model, strategy, Some(optimizer), Some((flag, value)));
            if outcome(&with).is_err() {
                continue;
            }
            // The same without the flag itself, which comes last.
            let mut without = with.clone();
            without.truncate(with.len() - 1 - usize::from(!value.is_empty()));
            if *flag == "follow" {
                without.extend(["--data", "rows.tsv"].map(str::to_owned));
            }
            assert_ne!(
                spec(&with),
                spec(&without),
                "--{flag} with {model}, {strategy}, {optimizer}"
            );
        }
    }
}

/// `--window 5s` on files and `--integers` on libsvm text used to be accepted silently, without any effect.
#[test]
fn a_span_of_time_on_files_and_integers_of_other_formats_are_refused() {
    let words = |text: &str| -> Vec<String> {
        let all = format!("--model sparse-logistic {text}");
        all.split(' ').map(str::to_owned).collect()
    };
    for (refused, instead) in [
        ("--data rows.tsv --window 5s", "--data rows.tsv --window 50"),
        ("--data rows.tsv --window 5m", "--follow log.tsv --window 5m"),
        ("--data rows.tsv --window 500ms", "--data - --window 500ms"),
        ("--data r --integers bins --format vw", "--data r --integers bins --format clicks"),
        ("--data r --integers values --format libsvm", "--data r --integers values"),
    ] {
        let error = outcome(&words(refused)).unwrap_err();
        assert!(error.contains("has no effect "), "{error}");
        outcome(&words(instead)).unwrap();
    }
}

#[test]
fn a_resumed_run_refuses_what_it_keeps_for_life() {
    for rule in TABLE.iter().filter(|rule| rule.1 == OnResume::Stays) {
        let error = check_resumed(&Typed::only(rule.0)).unwrap_err().to_string();
        assert!(error.contains(&format!("`--{}`", rule.0)), "{error}");
    }
    for rule in TABLE.iter().filter(|rule| rule.1 == OnResume::Changes) {
        check_resumed(&Typed::only(rule.0)).unwrap();
    }
}
