//! Checks, tests and benchmarks of this workspace: `cargo xtask <task>`.
//!
//! Written in Rust so that a fresh machine needs nothing but cargo to run them.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a developer's tool talks to its developer
#![allow(unreachable_pub)] // a binary exports nothing

mod check;
mod environment;
mod faults;
mod function_length;
mod intrinsics;
mod item_docs;
mod suite;
mod test;
mod typos;
mod verdicts;
mod versus;
mod words;

use anyhow::bail;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <task>

tasks:
  check               house rules a compiler does not know: file sizes, names, edges, paths in documents, words, spelling
  intrinsics [BINARY] fail where a binary (target/release/paceline) calls vector instructions as functions
  test [FILTER…]      install what the tests need beyond cargo, then run them all
  faults [RUNS] [STRATEGY…]
                      kill a random task in many runs of every strategy; every run must end as its policy says
  versus [AREA…]      alternating benchmarks against peers; writes BENCHMARKS.md
                      (areas: data, models, sparse, shaped, matmul, cluster, advisor, predictions, probes, spark; `area/part` is one part)
  verdicts [KIND…]    short runs with an injected bottleneck: are they judged correctly?
                      (--runs N each; --append adds to earlier results; writes BENCHMARKS.md)
  docs                rewrite docs/commands.md from the program itself
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> anyhow::Result<()> {
    match words {
        ["check"] => check::run(&root()),
        ["intrinsics", words @ ..] => intrinsics::run(&root(), words),
        ["test", filter @ ..] => test::run(&root(), filter),
        ["versus", areas @ ..] => versus::run(&root(), areas),
        ["faults", words @ ..] => faults::run(&root(), words),
        ["verdicts", kinds @ ..] => verdicts::run(&root(), kinds),
        ["docs"] => test::write_docs(&root()),
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        other => bail!("no such task: {}\n\n{USAGE}", other.join(" ")),
    }
}

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies below the root").to_owned()
}
