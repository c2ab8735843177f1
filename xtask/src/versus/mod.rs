//! `cargo xtask versus`: Paceline and its peers on the same work, in turns, on the same machine.
//!
//! A machine drifts by a quarter within minutes, so figures of different runs cannot be compared.
//! Here every round measures each side once, in rotating order, and what is reported is the ratio
//! of the rounds with its spread. Peers run at the settings that serve them best (`xtask/peers`).

mod advisor;
mod benchmarks;
mod cluster;
mod contest;
mod data;
mod matmul;
mod models;
mod paceline;
mod predictions;
mod sparse;

use crate::environment::Environment;
use anyhow::bail;
use std::path::Path;

/// TensorFlow.
const TENSORFLOW: Environment =
    Environment { folder: "peers/tf", packages: &["tensorflow-cpu==2.21.0", "pillow==13.0.0"] };

/// PyTorch.
const TORCH: Environment =
    Environment { folder: "peers/torch", packages: &["torch==2.15.0", "numpy==2.4.6"] };

/// The smaller peers.
const MISC: Environment = Environment {
    folder: "peers/misc",
    packages: &[
        "scikit-learn==1.9.1",
        "pillow==13.0.0",
        "google-crc32c==1.9.0",
        "numpy==2.4.6",
        "vowpalwabbit==9.11.9",
    ],
};

/// Runs the comparisons of one area, or of all.
pub fn run(root: &Path, areas: &[&str]) -> anyhow::Result<()> {
    const ALL: &[&str] =
        &["data", "models", "sparse", "matmul", "cluster", "advisor", "predictions"];
    let areas = if areas.is_empty() { ALL } else { areas };
    for area in areas {
        match *area {
            "data" => data::run(root)?,
            "models" => models::run(root)?,
            "sparse" => sparse::run(root)?,
            "matmul" => matmul::run(root)?,
            "cluster" => cluster::run(root)?,
            "advisor" => advisor::run(root)?,
            "predictions" => predictions::run(root)?,
            other => bail!(
                "no such area: {other}; there are: data, models, sparse, matmul, cluster, advisor, predictions"
            ),
        }
    }
    Ok(())
}
