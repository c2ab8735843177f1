//! Simulated hosts: network namespaces of this machine with links of a chosen speed.
//!
//! Needs root. All traffic stays within the namespaces created here. Every link ends in a hub and limits both
//! directions, so a server with many workers is limited by its own link.

use anyhow::bail;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Some hosts around a hub.
pub struct Lab {
    hosts: Vec<String>,
    hub: String,
    key: PathBuf,
    program: PathBuf,
}

/// Whether namespaces can be created here.
pub fn available() -> bool {
    let name = format!("plx{}", std::process::id());
    let made = ip(&["netns", "add", &name]);
    ip(&["netns", "del", &name]);
    made
}

fn ip(words: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Lab {
    /// `count` hosts, each with a cable of `megabits` per second to the hub.
    pub fn new(count: usize, megabits: u32, program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let id = std::process::id();
        let hub = format!("plx{id}-hub");
        let hosts = (0..count).map(|host| format!("plx{id}-{host}")).collect();
        let (key, program) = (folder.join("key"), program.to_path_buf());
        let lab = Self { hosts, hub, key, program };
        lab.wire(megabits)?;
        if !lab.key.is_file() {
            let mut command = Command::new(&lab.program);
            command.args(["key", "new", "--quiet"]).arg(&lab.key).stdout(Stdio::null());
            if !command.status()?.success() {
                bail!("no cluster key at {}", lab.key.display());
            }
        }
        Ok(lab)
    }

    fn wire(&self, megabits: u32) -> anyhow::Result<()> {
        let hub = &self.hub;
        let mut made = ip(&["netns", "add", hub])
            && ip(&["-n", hub, "link", "add", "hub", "type", "bridge"])
            && ip(&["-n", hub, "link", "set", "hub", "up"]);
        for (at, host) in self.hosts.iter().enumerate() {
            let plug = format!("plug{at}");
            let address = format!("10.78.0.{}/24", at + 1);
            made = made
                && ip(&["netns", "add", host])
                && ip(&[
                    "-n", host, "link", "add", "cable", "type", "veth", "peer", "name", &plug,
                    "netns", hub,
                ])
                && ip(&["-n", host, "addr", "add", &address, "dev", "cable"])
                && ip(&["-n", host, "link", "set", "lo", "up"])
                && ip(&["-n", hub, "link", "set", &plug, "master", "hub"])
                && shape(host, "cable", megabits)
                && shape(hub, &plug, megabits);
        }
        if !made {
            bail!("cannot make network namespaces: that needs root, `ip` and `tc`");
        }
        Ok(())
    }

    /// Runs `paceline WORDS` on every host, `workers` workers and the rest servers; what worker 0 printed.
    pub fn run(&self, workers: usize, words: &[&str]) -> anyhow::Result<Value> {
        let addresses: Vec<String> =
            (1..=self.hosts.len()).map(|host| format!("\"10.78.0.{host}:7000\"")).collect();
        let (first, rest) = addresses.split_at(workers);
        let mut cluster = format!("\"worker\":[{}]", first.join(","));
        if !rest.is_empty() {
            cluster.push_str(&format!(",\"ps\":[{}]", rest.join(",")));
        }
        let mut others: Vec<Child> = Vec::new();
        let mut chief = None;
        for (at, host) in self.hosts.iter().enumerate().rev() {
            let (role, index) = if at < workers { ("worker", at) } else { ("ps", at - workers) };
            let config = format!(
                "{{\"cluster\":{{{cluster}}},\"task\":{{\"type\":\"{role}\",\"index\":{index}}}}}"
            );
            let mut command = Command::new("ip");
            command
                .args(["netns", "exec", host])
                .arg(&self.program)
                .args(words)
                .args(["--json", "--quiet", "--no-shared-memory"])
                .env("TF_CONFIG", config)
                .env("PACELINE_KEY_FILE", &self.key)
                .stdin(Stdio::null());
            if at == 0 {
                chief = Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?);
            } else {
                others.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
            }
        }
        let Some(chief) = chief else { bail!("a lab without hosts") };
        let output = chief.wait_with_output()?;
        for mut other in others {
            other.wait()?;
        }
        if !output.status.success() {
            bail!("worker 0 failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Limits the rate of one end of a cable. Packets of at most three frames and a bucket that
/// holds two of them: with a larger bucket the start of every message would be free.
fn shape(host: &str, end: &str, megabits: u32) -> bool {
    let rate = format!("{megabits}mbit");
    ip(&["-n", host, "link", "set", end, "gso_max_size", "4500", "gso_max_segs", "3"])
        && ip(&["-n", host, "link", "set", end, "up"])
        && ip(&[
            "netns", "exec", host, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", &rate,
            "burst", "10kb", "limit", "2mb",
        ])
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain([&self.hub]) {
            ip(&["netns", "del", name]);
        }
    }
}
