//! A real Spark for tests: a standalone master with two workers on loopback addresses of their own, because Spark starts
//! a task twice only on another host.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Hosts of the workers.
pub(crate) const HOSTS: [&str; 2] = ["127.0.0.1", "127.0.0.2"];

pub(crate) struct Cluster {
    environment: PathBuf,
    master: u16,
    workers: Vec<u16>,
    processes: Vec<Child>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts master and workers, one core each; `None` where there is no Spark.
    pub(crate) fn start() -> Option<Self> {
        let environment = paceline_testing::spark()?;
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = Self {
            environment,
            master: free_port(HOSTS[0]),
            workers: HOSTS.iter().map(|host| free_port(host)).collect(),
            processes: Vec::new(),
            _folder: folder,
        };
        let port = cluster.master.to_string();
        let master = ["--host", HOSTS[0], "--port", &port, "--webui-port", "0"];
        cluster.daemon("master.Master", HOSTS[0], &master);
        await_port(HOSTS[0], cluster.master);
        for (host, port) in HOSTS.into_iter().zip(cluster.workers.clone()) {
            let work = cluster._folder.path().join(host);
            let (port, url) = (port.to_string(), cluster.url());
            let worker = ["--host", host, "--port", &port, "--webui-port", "0", "-c", "1"];
            let rest = ["-m", "1024M", "-d", work.to_str().unwrap(), &url];
            cluster.daemon("worker.Worker", host, &[&worker[..], &rest[..]].concat());
        }
        Some(cluster)
    }

    pub(crate) fn url(&self) -> String {
        format!("spark://{}:{}", HOSTS[0], self.master)
    }

    fn daemon(&mut self, class: &str, host: &str, args: &[&str]) {
        let home = home(&self.environment);
        let child = Command::new(home.join("bin/spark-class"))
            .arg(format!("org.apache.spark.deploy.{class}"))
            .args(args)
            .env("SPARK_HOME", &home)
            .env("SPARK_LOCAL_IP", host)
            .env("SPARK_DAEMON_MEMORY", "256m")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        self.processes.push(child);
    }

    /// `paceline` with the flags for this cluster.
    pub(crate) fn paceline(&self, args: &[&str]) -> Command {
        let mut command = paceline(&self.environment, args);
        command.args(["--spark-master", &self.url()]);
        command
    }

    /// Process ids of the executors on a host.
    pub(crate) fn executors(&self, host: &str) -> Vec<u32> {
        let place = HOSTS.iter().position(|known| *known == host).unwrap();
        let worker = format!("spark://Worker@{host}:{}", self.workers[place]);
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.contains("CoarseGrainedExecutorBackend") && line.contains(&worker) {
                found.push(pid);
            }
        }
        found
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Workers first: they end their executors.
        for child in self.processes.iter_mut().rev() {
            signal(child.id(), "TERM");
        }
        for child in &mut self.processes {
            let since = Instant::now();
            while child.try_wait().unwrap().is_none() && since.elapsed() < Duration::from_secs(10) {
                sleep(Duration::from_millis(50));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Where pip put Spark.
fn home(environment: &Path) -> PathBuf {
    let libraries = std::fs::read_dir(environment.join("lib")).unwrap();
    let homes = libraries.map(|library| library.unwrap().path().join("site-packages/pyspark"));
    homes.into_iter().find(|home| home.join("bin/spark-class").exists()).unwrap()
}

/// `paceline` with the flags and variables for this Spark, small enough for a test.
pub(crate) fn paceline(environment: &Path, args: &[&str]) -> Command {
    let mut command = crate::support::paceline();
    command
        .args(args)
        .args(["--engine", "spark", "--spark-submit"])
        .arg(environment.join("bin/spark-submit"))
        .env("PYSPARK_PYTHON", environment.join("bin/python"))
        .env("SPARK_LOCAL_IP", HOSTS[0])
        .env_remove("SPARK_HOME");
    for conf in [
        "spark.ui.enabled=false",
        "spark.driver.memory=512m",
        "spark.executor.memory=512m",
        "spark.driver.host=127.0.0.1",
    ] {
        command.args(["--spark-conf", conf]);
    }
    command
}

pub(crate) fn signal(pid: u32, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
}

fn free_port(host: &str) -> u16 {
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().port()
}

fn await_port(host: &str, port: u16) {
    let since = Instant::now();
    while std::net::TcpStream::connect((host, port)).is_err() {
        assert!(since.elapsed() < paceline_testing::HANG, "no master at {host}:{port}");
        sleep(Duration::from_millis(100));
    }
}
