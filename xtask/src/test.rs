//! `cargo xtask test`: install what the tests need beyond cargo, then run them all.

use crate::environment::{self, Environment, SPARK};
use std::path::Path;
use std::process::Command;

/// What tests compare with. TensorFlow itself is not here: it is large, and `versus` shows what it reads.
const TEST_ENVIRONMENT: Environment = Environment {
    folder: "test-env",
    packages: &[
        "tensorboard==2.21.0",
        "numpy==2.4.6",
        // Kubernetes' own description of the files in deploy/kubernetes.
        "kubeflow-trainer-api==2.3.0",
        "pyyaml==6.0.3",
    ],
};

/// Runs the whole suite, or what matches the filter.
pub fn run(root: &Path, filter: &[&str]) -> anyhow::Result<()> {
    let installed = [
        TEST_ENVIRONMENT.ensure(root),
        environment::ensure_java().and_then(|()| SPARK.ensure(root)),
    ];
    for error in installed.into_iter().filter_map(Result::err) {
        // A part that cannot be had is skipped aloud by the tests themselves; in CI that fails.
        if std::env::var("CI").as_deref() == Ok("true") {
            return Err(error);
        }
        eprintln!("warning: {error:#}; tests that need it will be skipped");
    }
    environment::run(
        Command::new(env!("CARGO")).current_dir(root).args(["test", "--workspace"]).args(filter),
    )
}

/// Rewrites the generated reference by running its own test in writing mode.
pub fn write_docs(root: &Path) -> anyhow::Result<()> {
    environment::run(
        Command::new(env!("CARGO"))
            .current_dir(root)
            .args(["test", "-p", "paceline", "--test", "docs"])
            .env("PACELINE_WRITE_DOCS", "1"),
    )
}
