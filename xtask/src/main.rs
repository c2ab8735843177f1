//! Checks, tests and benchmarks of this workspace: `cargo xtask <task>`.
//!
//! Written in Rust so that a fresh machine needs nothing but cargo to run them.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a developer's tool talks to its developer
#![allow(unreachable_pub)] // a binary exports nothing

mod book;
mod check;
mod count;
mod cross;
mod dependencies;
mod dist;
mod environment;
mod faults;
mod function_length;
mod fuzz;
mod intrinsics;
mod item_docs;
mod markup;
mod names;
mod packages;
mod release;
mod sanitize;
mod sbom;
mod suite;
mod test;
mod typos;
mod verdicts;
mod versus;
mod wheel;
mod words;

use anyhow::bail;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask <task>

tasks:
  check               house rules a compiler does not know: file sizes, names, edges, paths in documents, words, spelling,
                      licences and sources of dependencies (deny.toml)
  count [REVISION]    lines, public items, unsafe code, long functions and words that are out, per crate; of the
                      working tree, or of a revision of git
  intrinsics [BINARY] fail where a binary (target/release/paceline) calls vector instructions as functions
  test [FILTER…]      install what the tests need beyond cargo, then run them all
  faults [RUNS] [STRATEGY…]
                      kill a random task in many runs of every strategy; every run must end as its policy says
  faults random [SCHEDULES] [SEED]
                      random schedules of kills, stops, cuts, delays, full disks, set clocks, other data and second owners on real
                      processes, here and on hosts (20 unless told); a seed replays one
  fuzz [SECONDS]      every parser on random changes of stored inputs, so long each (30)
  sanitize [address|miri]
                      tests of unsafe code under AddressSanitizer, and of the kernels' portable path under Miri (nightly)
  versus [AREA…]      alternating benchmarks against peers; writes BENCHMARKS.md
                      (areas: data, models, sparse, shaped, matmul, cluster, advisor, predictions, probes, spark; `area/part` is one part)
  versus before BINARY [WORK…]
                      this program against an earlier build of itself, in turns (PACELINE_BIN: a build to use, PACELINE_ROUNDS)
  verdicts [KIND…]    short runs with an injected bottleneck: are they judged correctly?
  verdicts foreign    the same of scripts of PyTorch, Keras and JAX, TraceML beside it
  verdicts curve      from which strength on is a bottleneck named?
  verdicts overhead   what recording a script of PyTorch costs
                      (--runs N each; --append adds to earlier results; writes BENCHMARKS.md)
  wheel [BINARY]      build the Python wheel into target/wheels, with a release build or the program named
  docs                rewrite docs/commands.md from the program itself
  book                build docs/book as HTML into target/book, with mdBook, which it installs under target/
  dist [--target T] [--profile P]
                      what a release needs, in target/dist: stripped binary, completions, man pages, wheel, SBOM, checksums
  release VERSION     set the version in every place that names it and date the changelog, on a clean tree
  release check [TAG] fail where a place names another version, or the tag has no section in the changelog
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
        ["count"] => count::run(&root(), None),
        ["count", revision] => count::run(&root(), Some(revision)),
        ["intrinsics", words @ ..] => intrinsics::run(&root(), words),
        ["test", filter @ ..] => test::run(&root(), filter),
        ["versus", "before", binary, works @ ..] => versus::before::run(&root(), binary, works),
        ["versus", areas @ ..] => versus::run(&root(), areas),
        ["faults", "random", words @ ..] => fuzz::random_faults(&root(), words),
        ["faults", words @ ..] => faults::run(&root(), words),
        ["fuzz", words @ ..] => fuzz::run(&root(), words),
        ["sanitize", words @ ..] => sanitize::run(&root(), words),
        ["verdicts", kinds @ ..] => verdicts::run(&root(), kinds),
        ["wheel", words @ ..] => wheel::run(&root(), words),
        ["docs"] => test::write_docs(&root()),
        ["book"] => book::run(&root()),
        ["dist", words @ ..] => dist::run(&root(), words),
        ["release", words @ ..] => release::run(&root(), words),
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
