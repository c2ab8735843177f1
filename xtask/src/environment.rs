//! Python environments under `target/`, created once and kept until their package list changes.

use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A named set of packages.
pub struct Environment {
    /// Folder below `target/`.
    pub folder: &'static str,
    /// What pip installs, with versions, so that a figure can be repeated.
    pub packages: &'static [&'static str],
}

/// Spark, and what the usual PySpark job on photos needs: for tests and benchmarks alike, because it is large.
pub const SPARK: Environment = Environment {
    folder: "test-spark",
    packages: &["pyspark==4.3.0", "pillow==13.0.0", "google-crc32c==1.9.0"],
};

impl Environment {
    /// Creates the environment if needed and returns its interpreter.
    pub fn ensure(&self, root: &Path) -> anyhow::Result<PathBuf> {
        let folder = root.join("target").join(self.folder);
        let python = folder.join("bin/python");
        let stamp = folder.join("paceline-packages.txt");
        let wanted = self.packages.join("\n");
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) && python.exists() {
            return Ok(python);
        }
        eprintln!("installing {} into {}", self.packages.join(" "), folder.display());
        ensure_python()?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(self.packages))?;
        fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(python)
    }
}

/// One package of Node's registry.
pub struct NodeEnvironment {
    /// Folder below `target/`.
    pub folder: &'static str,
    pub package: &'static str,
    pub version: &'static str,
}

impl NodeEnvironment {
    /// Installs the package if needed.
    pub fn ensure(&self, root: &Path) -> anyhow::Result<()> {
        let folder = root.join("target").join(self.folder);
        let described = folder.join("node_modules").join(self.package).join("package.json");
        let wanted = format!("\"version\": \"{}\"", self.version);
        if fs::read_to_string(&described).is_ok_and(|found| found.contains(&wanted)) {
            return Ok(());
        }
        eprintln!("installing {}@{} into {}", self.package, self.version, folder.display());
        let works = |tool: &str| {
            Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
        };
        if !works("npm") {
            apt_install(&["nodejs", "npm"])?;
        }
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        run(Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
            .arg(&folder)
            .arg(format!("{}@{}", self.package, self.version)))
    }
}

/// Python with `venv`; Debian ships the module apart from the interpreter.
fn ensure_python() -> anyhow::Result<()> {
    let works = |module: &str| {
        Command::new("python3")
            .args(["-c", &format!("import {module}")])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if works("venv, ensurepip") {
        return Ok(());
    }
    apt_install(&["python3", "python3-venv"])
}

/// A Java for Spark.
pub fn ensure_java() -> anyhow::Result<()> {
    let java = Command::new("java").arg("-version").output();
    if java.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    apt_install(&["default-jre-headless"])
}

/// A browser for the tests of pages: Debian's own, at the places where `paceline_testing::browser::chromium` looks.
pub fn ensure_browser() -> anyhow::Result<()> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    if names.iter().any(|name| Path::new("/usr/bin").join(name).exists()) {
        return Ok(());
    }
    apt_install(&["chromium"])
}

/// `ip` and `tc`, with which tests simulate hosts and links.
pub fn ensure_network_tools() -> anyhow::Result<()> {
    let runs = |program: &str| Command::new(program).arg("-V").output().is_ok();
    if runs("ip") && runs("tc") {
        return Ok(());
    }
    apt_install(&["iproute2"])
}

/// What a site has that jobs are submitted to: OpenSSH's server and Slurm, both started by tests on loopback.
pub fn ensure_sites() -> anyhow::Result<()> {
    let programs = ["sshd", "slurmctld", "slurmd", "munged"];
    if programs.iter().all(|name| Path::new("/usr/sbin").join(name).exists()) {
        return Ok(());
    }
    apt_install(&[
        "openssh-client",
        "openssh-server",
        "slurmctld",
        "slurmd",
        "slurm-client",
        "munge",
    ])
}

/// Kubernetes' own client, for tests with a stand-in for its server.
pub fn ensure_kubectl() -> anyhow::Result<()> {
    let runs = Command::new("kubectl").args(["version", "--client"]).output();
    if runs.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    apt_install(&["kubernetes-client"])
}

/// Open MPI, and what building the feature `mpi` needs: its headers, and libclang for the bindings to them.
pub fn ensure_mpi() -> anyhow::Result<()> {
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if has_libclang() && runs("mpicc") && runs("mpirun") {
        return Ok(());
    }
    apt_install(&["openmpi-bin", "libopenmpi-dev", "libclang1"])
}

/// Whether there is a libclang where the bindings' generator looks for it.
fn has_libclang() -> bool {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    files.flatten().any(|file| {
        let name = file.file_name();
        // `libclang.so…` or `libclang-14.so…`; libclang-cpp is another library.
        let rest = name.to_string_lossy().strip_prefix("libclang").map(str::to_owned);
        rest.is_some_and(|rest| {
            rest.trim_start_matches(|c: char| c == '-' || c.is_ascii_digit()).starts_with(".so")
        })
    })
}

/// For a build with the feature `mpi`: libclang alone comes without the headers of a compiler, so it gets those of gcc.
pub fn with_mpi(command: &mut Command) -> &mut Command {
    let found = Command::new("gcc").arg("-print-file-name=include").output();
    let folder = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match folder {
        Ok(folder) if !folder.is_empty() => {
            command.env("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{folder}"))
        }
        _ => command,
    }
}

/// This machine's target, as rustc names it.
pub fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_owned())
}

/// This workspace's cargo, as if it were called by hand. `cargo xtask` describes its own package in the environment, and build
/// scripts that ask for such variables (ring's does) would run again whenever one calls now the one, now the other, and everything
/// that rests on them would be compiled again.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(root);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Where cargo puts what it builds.
pub fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// Installs Debian packages; a machine without apt or root rights gets a clear error.
pub fn apt_install(packages: &[&str]) -> anyhow::Result<()> {
    if Command::new("apt-get").arg("--version").output().is_err() {
        bail!("{} needed, and there is no apt-get to install them", packages.join(", "));
    }
    run(Command::new("apt-get").args(["update", "-qq"]))?;
    run(Command::new("apt-get")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Runs a command, its output on the terminal; failure names it.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}
