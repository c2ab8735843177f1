//! A network's layers as they were timed: kept in a file, so that one measurement answers many questions.

use super::local_sums;
use super::stepping::{self, Stepper, Subject};
use crate::error::ForecastError;
use crate::oracle::{Link, Network};
use paceline_models::names::spelling;
use paceline_runs::write_atomically;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Workers that are timed at once at most: each needs memory for a network.
const MOST_AT_ONCE: usize = 8;
/// How long each measurement lasts.
const SPAN: Duration = Duration::from_millis(1500);

/// What a network takes on machines such as this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerTimes {
    pub network: Network,
    /// How much longer a step takes when so many tasks share a host; without it each has its own accelerator, and none waits.
    #[serde(default = "alone")]
    pub sharing: Vec<(usize, f64)>,
    /// Adding up between tasks of one host.
    #[serde(default)]
    pub local: Option<Link>,
}

fn alone() -> Vec<(usize, f64)> {
    vec![(1, 1.0)]
}

impl LayerTimes {
    /// Times layers with the threads one worker alone on a host has, then common steps of two to `fullest` workers
    /// there with what each has then; `threads` is that of each worker, else the cores are divided among them.
    pub fn measure(
        subject: &Subject,
        examples: usize,
        threads: Option<usize>,
        fullest: usize,
    ) -> Result<Self, ForecastError> {
        let cores = paceline_batch::cores().count;
        let threads = |tasks: usize| threads.unwrap_or_else(|| (cores / tasks).max(1));
        let network = stepping::network(subject, examples, threads(1), SPAN)?;
        let mut sharing = vec![(1, 1.0)];
        // Beyond twice the cores nothing new is learned: the time grows with the number of tasks.
        for tasks in 2..=fullest.min(2 * cores).min(MOST_AT_ONCE) {
            let examples = (examples / tasks).max(1);
            let own = threads(tasks);
            let common = stepping::sharing(subject, examples, tasks, own, SPAN)?;
            // The layers were timed with the threads of one worker alone.
            let alone = if own == threads(1) {
                1.0
            } else {
                let time = |threads| Stepper::new(subject, examples, threads)?.time(SPAN);
                time(own)?.whole / time(threads(1))?.whole
            };
            sharing.push((tasks, (common * alone).max(1.0)));
        }
        let local = (fullest > 1)
            .then(|| local_sums::measure(network.parameters() as usize, SPAN / 4))
            .transpose()?;
        Ok(Self { network, sharing, local })
    }

    /// Reads what [`LayerTimes::write`], or another program, wrote. It must be of that model, where one is named; layers of any other
    /// network are as good without.
    pub fn read(path: &Path, model: &str) -> Result<Self, ForecastError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ForecastError::Read { path: path.to_path_buf(), source })?;
        let found: Self = serde_json::from_str(&text)
            .map_err(|source| ForecastError::NoLayerTimes { path: path.to_path_buf(), source })?;
        found.check(path)?;
        if !model.is_empty() && found.network.name != spelling(model) {
            let (path, asked) = (path.to_path_buf(), model.to_owned());
            return Err(ForecastError::OtherModel { path, found: found.network.name, asked });
        }
        Ok(found)
    }

    /// Refuses layers that no formula can work with, naming the layer.
    fn check(&self, path: &Path) -> Result<(), ForecastError> {
        let refuse =
            |what: String| Err(ForecastError::BadProfile { path: path.to_path_buf(), what });
        for (at, layer) in self.network.layers.iter().enumerate() {
            let name = format!("layer {} `{}`", at + 1, layer.name);
            if layer.inputs() == 0.0 || layer.outputs() == 0.0 || layer.kernel == 0 {
                return refuse(format!("{name} has a size of 0"));
            }
            let numbers = layer.times().into_iter().chain([("parameters", layer.parameters)]);
            for (column, value) in numbers {
                if !(value.is_finite() && value >= 0.0) {
                    return refuse(format!("{name}: `{column}` is {value}, expected 0 or more"));
                }
            }
        }
        Ok(())
    }

    /// Keeps them in a file.
    pub fn write(&self, path: &Path) -> Result<(), ForecastError> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|source| ForecastError::NoLayerTimes { path: path.to_path_buf(), source })?;
        Ok(write_atomically(path, text.as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_another_model_or_of_none_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layers.json");
        let network = Network { name: "mobilenet-v2".to_owned(), layers: Vec::new() };
        let times = LayerTimes { network, sharing: vec![(1, 1.0)], local: None };
        times.write(&path).unwrap();
        // Older names say it with an underscore.
        assert_eq!(LayerTimes::read(&path, "mobilenet_v2").unwrap(), times);
        let error = LayerTimes::read(&path, "lenet").unwrap_err();
        assert!(
            error.is_usage() && error.to_string().contains("of `mobilenet-v2`, not of `lenet`")
        );
        std::fs::write(&path, "{}").unwrap();
        let error = LayerTimes::read(&path, "lenet").unwrap_err();
        assert!(error.to_string().contains("layers.json` holds no layer times"), "{error}");
    }

    #[test]
    fn layers_of_a_network_that_is_not_ours_need_no_model_and_bad_ones_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("layers.json");
        let layer = |forward: &str| {
            format!(
                r#"{{"network": {{"name": "bert", "layers": [{{"name": "encoder.0", "input": [128, 1, 768],
                "output": [128, 1, 768], "kernel": 1, "parameters": 7.1e6, "forward": {forward},
                "backward": 2e-3, "fixed": 0, "update": 1e-4}}]}}}}"#
            )
        };
        std::fs::write(&path, layer("1e-3")).unwrap();
        let found = LayerTimes::read(&path, "").unwrap();
        assert_eq!((found.network.name.as_str(), found.sharing), ("bert", vec![(1, 1.0)]));
        std::fs::write(&path, layer("-1e-3")).unwrap();
        let error = LayerTimes::read(&path, "").unwrap_err().to_string();
        assert!(error.contains("layer 1 `encoder.0`: `forward` is -0.001"), "{error}");
    }
}
