//! The same seed gives the same bits, whatever the strategy: ten runs whose weights are known. A change that moves a
//! single rounding, or the order of a sum over workers, shows here, where comparisons with a tolerance pass.
//!
//! Kernels round differently on each instruction set (`crates/models/tests/checksums.rs` has those), so runs are made on
//! the portable one. A figure that changes on purpose is replaced by what the failing test prints, and the change
//! explained.

#![allow(clippy::unwrap_used)]

use paceline_conformance::{
    Job, TRANSPORTS,
    rows::{RowsJob, alone},
};
use paceline_models::{registry, sparse_logistic::SparseLogistic};
use paceline_strategies::{self as strategies, Transfer};
use std::process::Command;

/// Set in the process that computes.
const CHILD: &str = "CHECKSUMS_CHILD";

/// A run, how it is made, and what it ends at.
type StoredRun = (&'static str, fn() -> u64, &'static str);

const STORED: &[StoredRun] = &[
    ("softmax, one device", || examples("softmax", "one-device"), "17d3ed7010068769"),
    ("lenet, one device", || examples("lenet", "one-device"), "48d04b005a9c8d8a"),
    ("mobilenet-v2, one device", || examples("mobilenet-v2", "one-device"), "e6e2189d7456759e"),
    ("lenet, mirrored", || examples("lenet", "mirrored"), "a84fe6bf8c36e0c3"),
    ("lenet, all-reduce", || examples("lenet", "multi-worker"), "a84fe6bf8c36e0c3"),
    (
        "mobilenet-v2, synchronous servers",
        || examples("mobilenet-v2", "ps-sync"),
        "484861d516c0ea8e",
    ),
    ("softmax, asynchronous servers", || examples("softmax", "ps-async"), "6682e2fd2bc8d24d"),
    ("rows, one process, ftrl", || weights(&alone("ftrl")), "d382352740839bbb"),
    ("rows, synchronous servers, adagrad", || rows("ps-sync", "adagrad"), "e38d4a48bb6e0f5a"),
    ("rows, asynchronous servers, sgd", || rows("ps-async", "sgd"), "907c54500e561095"),
];

/// The weights of a run on batches of examples. One worker where updates come in no fixed order.
fn examples(model: &str, strategy: &str) -> u64 {
    let strategy = strategies::find(strategy).unwrap();
    let mut job = Job::new(registry::find(model).unwrap()).under(strategy).over(&TRANSPORTS[0]);
    if !strategy.synchronous {
        job.workers = 1;
    }
    hash(job.run().params[0].iter().copied())
}

/// The same for rows.
fn rows(strategy: &str, rule: &'static str) -> u64 {
    let strategy = strategies::find(strategy).unwrap();
    let workers = if strategy.synchronous { 3 } else { 1 };
    let job = RowsJob { workers, ..RowsJob::under(strategy, rule, Transfer::Sparse) };
    weights(&job.run().model)
}

fn weights(model: &SparseLogistic) -> u64 {
    hash((0..model.table().len()).map(|at| model.weight(at)))
}

/// FNV-1a over words.
fn hash(values: impl Iterator<Item = f32>) -> u64 {
    values.fold(0xcbf2_9ce4_8422_2325, |hash: u64, value| {
        (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[test]
fn ten_runs_end_at_the_stored_bits() {
    if std::env::var_os(CHILD).is_some() {
        for (name, run, _) in STORED {
            // On lines of their own: the harness writes before the first.
            println!("\nchecksum {name}: {:016x}", run());
        }
        return;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ten_runs_end_at_the_stored_bits", "--nocapture"])
        .env("PACELINE_ISA", "portable")
        .env(CHILD, "yes")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stdout);
    let found: Vec<&str> =
        printed.lines().filter_map(|line| line.strip_prefix("checksum ")).collect();
    let stored: Vec<String> =
        STORED.iter().map(|(name, _, stored)| format!("{name}: {stored}")).collect();
    assert_eq!(found, stored, "{}", String::from_utf8_lossy(&child.stderr));
}
