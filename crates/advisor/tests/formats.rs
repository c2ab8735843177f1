//! The files of `examples/which-machine`, one for each documented format, are what the documents say they are.

#![allow(clippy::unwrap_used)] // a test may

use paceline_advisor::{Catalogue, ExtraColumns, Measurements};
use paceline_forecast::measure::LayerTimes;
use paceline_forecast::scaling::ScalingRun;
use std::path::PathBuf;

fn example(name: &str) -> PathBuf {
    paceline_testing::workspace().join("examples/which-machine").join(name)
}

#[test]
fn both_catalogues_say_the_same_and_have_a_dimension_of_their_own() {
    let [csv, toml] =
        ["machines.csv", "machines.toml"].map(|name| Catalogue::read(&example(name)).unwrap());
    assert_eq!(csv, toml);
    assert_eq!(csv.len(), 15);
    let used = vec!["disk".to_owned()];
    assert_eq!(csv.extra_columns(), ExtraColumns { used, left_out: Vec::new() });
}

#[test]
fn both_histories_say_the_same_and_one_run_was_elsewhere() {
    let catalogue = Catalogue::read(&example("machines.csv")).unwrap();
    let read = |name: &str| Measurements::read(&example(name), &catalogue).unwrap();
    let (csv, json) = (read("runs.csv"), read("runs.json"));
    assert_eq!(csv, json);
    assert_eq!(csv.metric_names(), ["cpu", "network"]);
    assert_eq!((csv.workloads().len(), csv.rows().len()), (5, 50));
    assert!(csv.rows().iter().all(|row| row.metrics.len() == 2));
    assert_eq!((csv.outside().kept, csv.outside().skipped), (1, 0));
}

#[test]
fn a_curve_and_a_network_are_read() {
    let runs = ScalingRun::read(&example("scaling.csv")).unwrap();
    assert_eq!(runs.len(), 4);
    let layers = LayerTimes::read(&example("layers.json"), "").unwrap();
    assert_eq!(layers.network.layers.len(), 3);
}
