//! What training minimises, from the words of a specification to the figures a model is given.

use crate::{RunSpec, TrainError};
use paceline_data::{Scratch, Source};
use paceline_models::Objective;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The loss of an example.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// How surprising the label is: a probability for each class.
    #[default]
    CrossEntropy,
    /// By how much other classes come closer than a margin of 1: a linear support vector machine.
    Hinge,
}

impl FromStr for Loss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cross-entropy" => Ok(Self::CrossEntropy),
            "hinge" => Ok(Self::Hinge),
            _ => Err("expected cross-entropy or hinge".to_owned()),
        }
    }
}

/// What an example of each class counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ClassWeights {
    /// All classes together alike: those with few examples count more.
    Balanced,
    /// As listed, in the order of the classes.
    Listed(Vec<f32>),
}

impl FromStr for ClassWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "balanced" {
            return Ok(Self::Balanced);
        }
        let weights: Result<Vec<f32>, _> =
            text.split(',').map(|part| part.trim().parse()).collect();
        match weights {
            Ok(weights) if weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0) => {
                Ok(Self::Listed(weights))
            }
            _ => Err("expected `balanced`, or a number for each class such as 1,2,0.5".to_owned()),
        }
    }
}

impl fmt::Display for ClassWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balanced => f.write_str("balanced"),
            Self::Listed(weights) => {
                let weights: Vec<String> = weights.iter().map(ToString::to_string).collect();
                f.write_str(&weights.join(","))
            }
        }
    }
}

impl TryFrom<String> for ClassWeights {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ClassWeights> for String {
    fn from(weights: ClassWeights) -> Self {
        weights.to_string()
    }
}

/// What training on these examples minimises.
pub(crate) fn of(spec: &RunSpec, train: &dyn Source) -> Result<Objective, TrainError> {
    let wrong = |setting, found: String, wanted: String| {
        Err(TrainError::Setting { setting, found, wanted })
    };
    let smoothing = spec.label_smoothing.unwrap_or(0.0);
    if !(0.0..1.0).contains(&smoothing) {
        let wanted = "at least 0 and below 1".to_owned();
        return wrong("label smoothing", smoothing.to_string(), wanted);
    }
    let hinge = spec.loss == Some(Loss::Hinge);
    if hinge && smoothing > 0.0 {
        let wanted = "left out with the hinge loss, which has no probabilities".to_owned();
        return wrong("label smoothing", smoothing.to_string(), wanted);
    }
    let classes = train.schema().labels.classes();
    let class_weights = match &spec.class_weights {
        None => Vec::new(),
        Some(ClassWeights::Balanced) => balanced(train, classes)?,
        Some(ClassWeights::Listed(weights)) if weights.len() != classes => {
            let found = format!("a list of {}", weights.len());
            let wanted = format!("as many as the {classes} classes");
            return wrong("the list of class weights", found, wanted);
        }
        Some(ClassWeights::Listed(weights)) if weights.iter().all(|weight| *weight == 0.0) => {
            let wanted = "above 0 for at least one class".to_owned();
            return wrong("the list of class weights", "0 for all".to_owned(), wanted);
        }
        Some(ClassWeights::Listed(weights)) => weights.clone(),
    };
    Ok(Objective { smoothing, class_weights, hinge })
}

/// Examples over the number of classes and the examples of each: 1 where all classes have equally many, and 1 in the mean
/// of all examples. A class without examples counts 1.
fn balanced(train: &dyn Source, classes: usize) -> Result<Vec<f32>, TrainError> {
    let mut counts = vec![0u64; classes];
    let mut scratch = Scratch::default();
    for index in 0..train.len() {
        // An example whose label cannot be read is one of those that are left out.
        let Ok(label) = train.label(index, &mut scratch) else { continue };
        if let Some(count) = counts.get_mut(label as usize) {
            *count += 1;
        }
    }
    let present = counts.iter().filter(|count| **count > 0).count().max(1) as f64;
    let all = counts.iter().sum::<u64>() as f64;
    let weight = |count: &u64| if *count == 0 { 1.0 } else { all / (present * *count as f64) };
    Ok(counts.iter().map(|count| weight(count) as f32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_data::{OpenOptions, open};

    #[test]
    fn balanced_weights_make_all_classes_count_alike() {
        let data = "generated:digits?examples=500";
        let source = open(data, &OpenOptions::default()).unwrap();
        let spec = RunSpec {
            class_weights: Some("balanced".parse().unwrap()),
            label_smoothing: Some(0.1),
            ..RunSpec::new("softmax", data)
        };
        let objective = of(&spec, &*source).unwrap();
        let mut sums = vec![0.0; 10];
        for index in 0..source.len() {
            let label = source.label(index, &mut Scratch::default()).unwrap() as usize;
            sums[label] += f64::from(objective.class_weights[label]);
        }
        assert!(sums.iter().all(|sum| (sum - 50.0).abs() < 1e-3), "{sums:?}");
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<RunSpec>(&text).unwrap(), spec);
    }

    #[test]
    fn settings_that_make_no_sense_are_named() {
        let data = "generated:digits?examples=50";
        let source = open(data, &OpenOptions::default()).unwrap();
        let plain = RunSpec::new("softmax", data);
        let listed = |text: &str| Some(text.parse::<ClassWeights>().unwrap());
        for (spec, needle) in [
            (RunSpec { label_smoothing: Some(1.0), ..plain.clone() }, "below 1"),
            (RunSpec { class_weights: listed("1,2"), ..plain.clone() }, "the 10 classes"),
            (RunSpec { class_weights: listed("0,0,0,0,0,0,0,0,0,0"), ..plain.clone() }, "above 0"),
            (
                RunSpec { label_smoothing: Some(0.1), loss: Some(Loss::Hinge), ..plain.clone() },
                "hinge",
            ),
        ] {
            let error = of(&spec, &*source).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(needle), "{error}");
        }
        assert!("1,x".parse::<ClassWeights>().is_err() && "-1".parse::<ClassWeights>().is_err());
        assert!("square".parse::<Loss>().is_err());
    }
}
