//! `paceline cloud` against the real thing, all on this machine: hosts that are reached by OpenSSH's own server, and a Slurm of
//! Debian's packages with two nodes.
//!
//! Needs root: every host has a home folder of its own, through a mount namespace, and every node a name that only it knows.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod cluster_support;
mod support;

use cluster_support::wait_for;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use support::{command_in, document, program, run_in, said};
use tempfile::TempDir;

/// A process that ends with the test, and all that it started.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its own group, so that nothing else is hit.
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-TERM", "--", &group]).status();
        let _ = self.0.wait();
    }
}

/// Starts a shell line in a mount namespace, as the leader of a group of processes.
fn daemon(folder: &Path, log: &str, script: &str) -> Daemon {
    use std::os::unix::process::CommandExt;
    let log = fs::File::create(folder.join(log)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", script]).current_dir(folder).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log).process_group(0);
    Daemon(command.spawn().unwrap())
}

fn installed(programs: &[&str]) -> bool {
    let there = |name: &&str| {
        ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
            .iter()
            .any(|dir| Path::new(dir).join(name).exists())
    };
    programs.iter().all(there)
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n")
}

fn job(name: &str, epochs: &str, out: &str) -> String {
    format!(
        r#"name = "{name}"
command = ["train", "--model", "softmax", "--data", "generated:digits?examples=600", "--strategy", "multi-worker", "--epochs", "{epochs}", "--batch-size", "60", "--out", "{out}"]
[data]
gb = 1
examples = 600
[measured]
examples_per_second = 4000
cores = 2
"#
    )
}

fn free_port(host: &str) -> u16 {
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().port()
}

/// Three hosts with OpenSSH.
struct Hosts {
    folder: TempDir,
    _servers: Vec<Daemon>,
}

const HOSTS: &str = "127.0.0.1,127.0.0.2,127.0.0.3";

impl Hosts {
    fn start() -> Option<Self> {
        if !is_root() || !installed(&["sshd", "ssh", "scp", "ssh-keygen", "unshare"]) {
            return paceline_testing::missing("hosts to reach need root and OpenSSH's server");
        }
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display().to_string();
        for name in ["host", "user"] {
            let key = folder.path().join(name);
            let mut made = Command::new("ssh-keygen");
            made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key);
            assert!(made.status().unwrap().success());
        }
        fs::create_dir_all("/run/sshd").unwrap(); // where it wants to be alone; Debian's unit makes it otherwise
        let port = free_port("127.0.0.1");
        let client = format!(
            "Host *\n Port {port}\n IdentityFile {here}/user\n IdentitiesOnly yes\n BatchMode yes\n StrictHostKeyChecking no\n \
             UserKnownHostsFile {here}/known\n LogLevel ERROR\n"
        );
        fs::write(folder.path().join("client"), client).unwrap();
        let server = |number: usize| {
            fs::create_dir(folder.path().join(format!("home-{number}"))).unwrap();
            let config = format!(
                "Port {port}\nListenAddress 127.0.0.{number}\nHostKey {here}/host\nPidFile none\nAuthorizedKeysFile {here}/user.pub\n\
                 PasswordAuthentication no\nStrictModes no\nUsePAM no\nSubsystem sftp internal-sftp\n"
            );
            fs::write(folder.path().join(format!("server-{number}")), config).unwrap();
            let script = format!(
                "mount --bind {here}/home-{number} ~root && exec /usr/sbin/sshd -D -e -f {here}/server-{number}"
            );
            daemon(folder.path(), &format!("sshd-{number}.log"), &script)
        };
        let servers = (1..=3).map(server).collect();
        wait_for("three servers", || {
            (1..=3).all(|number| TcpStream::connect((format!("127.0.0.{number}"), port)).is_ok())
        });
        Some(Self { folder, _servers: servers })
    }

    fn cloud(&self, words: &[&str]) -> Output {
        let options = format!("-F {}/client", self.folder.path().display());
        let words: Vec<&str> = ["cloud"].iter().chain(words).copied().collect();
        command_in(self.folder.path(), &words).env("SSH_OPTIONS", options).output().unwrap()
    }

    fn submit(&self, job: &str) {
        fs::write(self.folder.path().join("job.toml"), job).unwrap();
        let port = free_port("127.0.0.1").to_string();
        let words = ["submit", "job.toml", "--target", "ssh", "--hosts", HOSTS, "--port", &port];
        let words: Vec<&str> =
            words.into_iter().chain(["--key", "cluster.key", "--binary", program()]).collect();
        let submitted = self.cloud(&words);
        assert!(submitted.status.success(), "{}", said(&submitted));
    }

    fn state(&self, name: &str) -> String {
        let found = self.cloud(&["status", name, "--json"]);
        document(&found)["state"].as_str().unwrap_or_else(|| panic!("{}", said(&found))).to_owned()
    }

    fn log(&self, number: usize, name: &str) -> String {
        let path = self.folder.path().join(format!("home-{number}/.paceline/{name}/log"));
        fs::read_to_string(path).unwrap_or_default()
    }
}

#[test]
fn three_hosts_behind_sshd_train_are_stopped_and_their_run_is_fetched() {
    let Some(hosts) = Hosts::start() else { return };
    let here = hosts.folder.path();
    assert!(run_in(here, &["key", "new", "cluster.key"]).status.success());
    hosts.submit(&job("flowers", "2", "runs"));
    wait_for("the run to end", || hosts.state("flowers") != "running");
    assert_eq!(hosts.state("flowers"), "done", "{}", hosts.log(1, "flowers"));
    for (number, words) in [(1, "status      done"), (2, "worker/1: done"), (3, "worker/2: done")] {
        assert!(hosts.log(number, "flowers").contains(words), "{}", hosts.log(number, "flowers"));
    }
    let key = here.join("home-3/.paceline/flowers/cluster.key");
    assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    let fetched = hosts.cloud(&["fetch", "flowers", ".paceline/flowers/runs", "--out", "here"]);
    assert!(fetched.status.success(), "{}", said(&fetched));
    let runs = support::json_in(here, &["runs", "--runs", "here", "--json"]);
    assert!(runs.to_string().contains("multi-worker"), "{runs}");
    let nothing = hosts.cloud(&["fetch", "flowers", "no-such-folder", "--out", "there"]);
    assert_eq!(nothing.status.code(), Some(1), "{}", said(&nothing));

    hosts.submit(&job("long", "1000000", "runs"));
    wait_for("the first epoch", || hosts.log(1, "long").contains("epoch 1"));
    assert_eq!(hosts.state("long"), "running");
    let stopped = hosts.cloud(&["stop", "long"]);
    assert!(stopped.status.success(), "{}", said(&stopped));
    wait_for("the run to stop", || hosts.state("long") == "stopped");
    assert!(hosts.log(1, "long").contains("stopped at step"), "{}", hosts.log(1, "long"));
}

/// A Slurm of two nodes on loopback.
struct Site {
    folder: TempDir,
    _daemons: Vec<Daemon>,
}

impl Site {
    fn start() -> Option<Self> {
        let programs =
            ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "unshare"];
        if !is_root() || !installed(&programs) {
            return paceline_testing::missing(
                "a Slurm needs root and Debian's packages slurmctld, slurmd and munge",
            );
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["munge", "state", "spool"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self::configure(folder.path());
        let here = folder.path().display().to_string();
        let names =
            format!("mount --bind {here}/hosts /etc/hosts && export SLURM_CONF={here}/slurm.conf");
        let munged = daemon(
            folder.path(),
            "munged.log",
            &format!(
                "exec munged -F --key-file={here}/munge/key --socket={here}/munge/socket --pid-file={here}/munge/pid --log-file={here}/munge/log --seed-file={here}/munge/seed"
            ),
        );
        wait_for("munged", || folder.path().join("munge/socket").exists());
        let start = |log: &str, command: &str| {
            daemon(folder.path(), log, &format!("{names} && exec {command}"))
        };
        let daemons = vec![
            munged,
            start("controller.log", &format!("slurmctld -D -f {here}/slurm.conf")),
            start("node-1.log", &format!("slurmd -D -N node1 -f {here}/slurm.conf")),
            start("node-2.log", &format!("slurmd -D -N node2 -f {here}/slurm.conf")),
        ];
        let site = Self { folder, _daemons: daemons };
        wait_for("two idle nodes", || {
            let nodes = site.tool("sinfo", &["-h", "-N", "-o", "%T"]);
            String::from_utf8_lossy(&nodes.stdout).lines().filter(|state| *state == "idle").count()
                == 2
        });
        Some(site)
    }

    fn configure(folder: &Path) {
        let here = folder.display();
        let key = folder.join("munge/key");
        let random: Vec<u8> = (0..4)
            .flat_map(|_| paceline_wire::ClusterKey::generate().unwrap().to_text().into_bytes())
            .collect();
        fs::write(&key, random).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
        let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
        fs::write(folder.join("hosts"), format!("{hosts}\n127.0.0.1 node1\n127.0.0.2 node2\n"))
            .unwrap();
        let name = Command::new("hostname").arg("-s").output().unwrap().stdout;
        let name = String::from_utf8(name).unwrap();
        let (name, ports) = (name.trim(), [(); 3].map(|()| free_port("127.0.0.1")));
        let [controller, first, second] = ports;
        let config = format!(
            "ClusterName=loopback\nSlurmctldHost={name}(127.0.0.1)\nSlurmUser=root\nSlurmctldPort={controller}\nAuthType=auth/munge\n\
             AuthInfo=socket={here}/munge/socket\nStateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool/%n\n\
             SlurmctldPidFile={here}/controller.pid\nSlurmdPidFile={here}/%n.pid\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nMpiDefault=none\nReturnToService=2\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             AccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\nMinJobAge=2\n\
             NodeName=node[1-2] NodeHostname={name} NodeAddr=127.0.0.[1-2] Port={first},{second} CPUs=2 RealMemory=1500 State=UNKNOWN\n\
             PartitionName=all Nodes=node[1-2] Default=YES MaxTime=INFINITE State=UP\n"
        );
        fs::write(folder.join("slurm.conf"), config).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tool(&self, name: &str, words: &[&str]) -> Output {
        Command::new(name).args(words).env("SLURM_CONF", self.path("slurm.conf")).output().unwrap()
    }

    fn cloud(&self, words: &[&str]) -> Output {
        let words: Vec<&str> = ["cloud"].iter().chain(words).copied().collect();
        let mut command = command_in(self.folder.path(), &words);
        command.env("SLURM_CONF", self.path("slurm.conf")).output().unwrap()
    }

    fn submit(&self, job: &str) {
        fs::write(self.path("job.toml"), job).unwrap();
        let key = self.path("cluster.key").display().to_string();
        let words = ["submit", "job.toml", "--target", "slurm", "--nodes", "2", "--cores", "1"];
        let more =
            ["--memory", "1GiB", "--time-limit", "10m", "--key", &key, "--binary", program()];
        let words: Vec<&str> = words.into_iter().chain(more).collect();
        let submitted = self.cloud(&words);
        assert!(submitted.status.success(), "{}", said(&submitted));
    }

    fn state(&self, name: &str) -> String {
        let found = self.cloud(&["status", name, "--json"]);
        document(&found)["state"].as_str().unwrap_or_else(|| panic!("{}", said(&found))).to_owned()
    }

    /// What all tasks of a job printed.
    fn log(&self, name: &str) -> String {
        let files = fs::read_dir(self.path("cloud").join(name)).into_iter().flatten().flatten();
        let logs = files
            .map(|file| file.path())
            .filter(|path| path.extension().is_some_and(|end| end == "log"));
        logs.map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
    }
}

#[test]
fn a_real_slurm_runs_follows_stops_and_remembers_jobs() {
    let Some(site) = Site::start() else { return };
    assert!(run_in(site.folder.path(), &["key", "new", "cluster.key"]).status.success());
    let out = site.path("runs").display().to_string();
    site.submit(&job("flowers", "2", &out));
    wait_for("the run to end", || {
        !["waiting", "running"].contains(&site.state("flowers").as_str())
    });
    let log = site.log("flowers");
    assert_eq!(site.state("flowers"), "done", "{log}");
    assert!(log.contains("worker/1 of 2 tasks, as Slurm says; meeting at node1:"), "{log}");
    assert!(log.contains("status      done"), "{log}");
    let fetched = site.cloud(&["fetch", "flowers", &out, "--out", "here"]);
    assert!(fetched.status.success(), "{}", said(&fetched));
    let runs = support::json_in(site.folder.path(), &["runs", "--runs", "here", "--json"]);
    assert!(runs.to_string().contains("multi-worker"), "{runs}");

    site.submit(&job("wrong", "2", "/proc/nowhere"));
    wait_for("the job to fail", || !["waiting", "running"].contains(&site.state("wrong").as_str()));
    assert_eq!(site.state("wrong"), "failed", "{}", site.log("wrong"));

    site.submit(&job("long", "1000000", &out));
    wait_for("the first epoch", || site.log("long").contains("epoch 1"));
    assert_eq!(site.state("long"), "running");
    let stopped = site.cloud(&["stop", "long"]);
    assert!(stopped.status.success(), "{}", said(&stopped));
    wait_for("the job to stop", || site.state("long") == "stopped");
    // The queue has forgotten the first job by now, and there are no accounts; its script left the exit code.
    assert_eq!(site.state("flowers"), "done");

    // As if paceline had been killed while sbatch ran: the number is not known, and the job is found by its comment.
    site.submit(&job("cut", "1000000", &out));
    wait_for("the first epoch", || site.log("cut").contains("epoch 1"));
    let record = site.path("cloud/cut/job.json");
    let mut kept: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    kept["id"] = "cut".into();
    kept["unfinished"] = 0.into();
    fs::write(&record, kept.to_string()).unwrap();
    assert_eq!(site.state("cut"), "submitting");
    let stopped = site.cloud(&["stop", "cut"]);
    assert!(stopped.status.success(), "{}", said(&stopped));
    let shown = String::from_utf8_lossy(&stopped.stdout).into_owned();
    assert!(shown.contains("had begun was ended") && !record.exists(), "{shown}");
    wait_for("the job to leave the queue", || {
        let queue = site.tool("squeue", &["-h", "-n", "cut", "-t", "running,pending"]);
        queue.status.success() && queue.stdout.is_empty()
    });

    let product = format!(
        "name = \"product\"\ncommand = [\"matmul\", \"--size\", \"600\", \"--block\", \"100\", \"--state\", \"{}\"]\n[data]\ngb = 1\n\
         examples = 1\n[measured]\nexamples_per_second = 1\ncores = 2\n",
        site.path("product.json").display()
    );
    site.submit(&product);
    wait_for("the product", || !["waiting", "running"].contains(&site.state("product").as_str()));
    let log = site.log("product");
    assert_eq!(site.state("product"), "done", "{log}");
    assert!(log.contains("trace(A B)") && log.contains("worker/1: done, 18 blocks"), "{log}");
}
