//! `versus sparse/a9a`: one pass over a published file of rows with named features, against Vowpal Wabbit. Other than a
//! click log it is small and its features are few: what an update costs shows, and what defaults are worth.

use super::contest::{self, Side};
use super::sparse::train;
use super::{MISC, benchmarks, paceline};
use anyhow::{Context, bail};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

const ROUNDS: usize = 9;
/// Weights: 2^18 on both sides, Vowpal Wabbit's default.
const BITS: &str = "18";
/// Passes of ours per measurement; one takes some hundredths of a second.
const PASSES: u32 = 5;

const CAVEATS: &[&str] = &[
    "a9a: 32,561 rows of 123 features that are there or not, a quarter of the labels positive; 2^18 weights, one thread, defaults of both sides. Losses are progressive: every row is predicted before it is trained on. A loss of 0.55 is that of the mean.",
    "Ours reads libsvm, Vowpal Wabbit the same rows in its own format. Both are timed without start-up and without writing the model; each measurement is several passes, each from scratch.",
];

/// Runs the comparison and writes its section.
pub fn a9a(root: &Path) -> anyhow::Result<()> {
    let program = paceline::Paceline::build(root)?;
    let work = root.join("target/versus");
    let (rows, vw, runs) = (work.join("a9a"), work.join("a9a.vw"), work.join("a9a-runs"));
    let text = unpack(&paceline::shared_data(root).join("libsvm/a9a.gz"))?;
    fs::create_dir_all(&work)?;
    fs::write(&rows, &text)?;
    fs::write(&vw, of_vowpal_wabbit(&text))?;

    let words = ["--format", "libsvm", "--threads", "1", "--bits", BITS];
    let binary = program.program().to_owned();
    let (_, loss) = train(&binary, &rows, &runs, &words)?;
    let own = Side::own(format!("Paceline, defaults, loss {loss:.4}"), move || {
        let mut seconds = 0.0;
        for _ in 0..PASSES {
            seconds += 1.0 / train(&binary, &rows, &runs, &words)?.0;
        }
        Ok(f64::from(PASSES) / seconds)
    });
    let mut peer = Command::new(MISC.ensure(root)?);
    peer.arg(root.join("xtask/peers/sparse_vw.py")).arg(&vw).args(["default", BITS]);
    let sides = vec![own, Side::peer(&mut peer)?];
    let outcome = contest::run("a9a, one pass over text, one thread", "rows/s", ROUNDS, sides)?;
    benchmarks::write(root, "sparse/a9a", CAVEATS, &[outcome])
}

/// The text of a gzip file.
fn unpack(path: &Path) -> anyhow::Result<String> {
    let output = Command::new("gzip").arg("-dc").arg(path).output().context("cannot start gzip")?;
    if !output.status.success() {
        bail!("{}: {}", path.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} is not text", path.display()))
}

/// Rows of libsvm as Vowpal Wabbit reads them: a bar between label and features.
fn of_vowpal_wabbit(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.lines() {
        let (label, features) = line.split_once(' ').unwrap_or((line, ""));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{label} | {features}");
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_bar_comes_between_label_and_features() {
        assert_eq!(super::of_vowpal_wabbit("-1 3:1 11:1 \n+1\n"), "-1 | 3:1 11:1 \n+1 | \n");
    }
}
