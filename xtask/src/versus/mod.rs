//! `cargo xtask versus`: Paceline and its peers on the same work, in turns, on the same machine.
//!
//! A machine drifts by a quarter within minutes, so figures of different runs cannot be compared. Here every
//! round measures each side once, in rotating order, and the ratio of the rounds is reported with its spread.
//! Peers run with the settings that work best for them (`xtask/peers`).

mod advisor;
mod advisor_history;
mod advisor_live;
mod advisor_peers;
mod allocators;
pub mod before;
pub mod benchmarks;
mod cable;
mod cluster;
mod contest;
mod data;
mod efficiency;
mod matmul;
mod memory;
mod mnist;
mod models;
mod namespaces;
mod paceline;
mod pages;
mod paused_run;
mod photos;
mod predictions;
mod probes;
mod quiet;
mod shaped;
mod spark;
mod sparse;
mod sparse_files;
mod training;

use crate::environment::Environment;
use anyhow::bail;
use std::path::Path;

/// TensorFlow.
const TENSORFLOW: Environment =
    Environment { folder: "peers/tf", packages: &["tensorflow-cpu==2.21.0", "pillow==13.0.0"] };

/// PyTorch.
pub const TORCH: Environment =
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
        "opencv-python-headless==5.0.0.93",
        "pyvips-binary==8.18.7",
        "pyvips==3.2.0",
        "simplejpeg==1.9.0",
    ],
};

/// NVIDIA's data loader, by itself because it is large; it runs without a GPU.
const DALI: Environment =
    Environment { folder: "peers/dali", packages: &["nvidia-dali-cuda120==2.4.0"] };

/// A comparison that can be run by itself; it writes the section of its name.
type Area = (&'static str, fn(&Path) -> anyhow::Result<()>);

/// Every comparison. `area/part` is one part of an area: `versus area` runs all its parts.
const ALL: &[Area] = &[
    ("data", data::run),
    ("models/softmax", models::softmax),
    ("models/lenet", models::lenet),
    ("models/alexnet", models::alexnet),
    ("models/mobilenet-v2", models::mobilenet_v2),
    ("models/mnist", mnist::run),
    ("models/memory", memory::run),
    ("sparse/text", sparse::text),
    ("sparse/threads", sparse::threads),
    ("sparse/learning", sparse::learning),
    ("sparse/a9a", sparse_files::a9a),
    ("sparse/servers", sparse::servers),
    ("shaped", shaped::run),
    ("matmul", matmul::run),
    ("cluster/all-reduce", cluster::all_reduce::shared),
    ("cluster/tcp", cluster::all_reduce::tcp),
    ("cluster/servers", cluster::servers::run),
    ("cluster/transfer", cluster::transfer::run),
    ("cluster/training", training::run),
    ("cluster/efficiency", efficiency::run),
    ("cluster/mpi", cluster::mpi::run),
    ("probes", probes::run),
    ("advisor/multi", advisor::multi),
    ("advisor/single-cost", advisor::single_cost),
    ("advisor/single-time", advisor::single_time),
    ("advisor/nested", advisor::nested),
    ("advisor/speed", advisor::speed),
    ("advisor/history", advisor_history::run),
    ("advisor/live", advisor_live::run),
    ("advisor/peers", advisor_peers::run),
    ("predictions/softmax", predictions::softmax),
    ("predictions/lenet", predictions::lenet),
    ("predictions/lenet-512", predictions::lenet_large),
    ("predictions/alexnet", predictions::alexnet),
    ("predictions/links-100", predictions::slow_links),
    ("predictions/links-400", predictions::fast_links),
    ("spark", spark::run),
    ("pages", pages::run),
];

/// Runs the comparisons of the named areas or parts, or all.
pub fn run(root: &Path, wanted: &[&str]) -> anyhow::Result<()> {
    let of = |wanted: &str, name: &str| {
        name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    for word in wanted {
        if !ALL.iter().any(|(name, _)| of(word, name)) {
            let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
            bail!("no such area: {word}; there are: {}", names.join(", "));
        }
    }
    for (name, compare) in ALL {
        if wanted.is_empty() || wanted.iter().any(|word| of(word, name)) {
            compare(root)?;
        }
    }
    Ok(())
}
