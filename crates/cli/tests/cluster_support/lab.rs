//! Hosts for tests: network namespaces around a hub, cables that can be cut.
//!
//! Needs root. All traffic stays within the namespaces made here.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of it

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// What passes a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cable {
    /// Everything at once.
    Whole,
    /// Nothing. A bucket of ten bytes is smaller than any packet; that queue is in every kernel, unlike `netem`.
    Cut,
    /// Everything, but late: a queue in front of a slow line.
    Slow,
}

impl Cable {
    fn queue(self) -> &'static [&'static str] {
        match self {
            Self::Whole => &[],
            Self::Cut => &["tbf", "rate", "1kbit", "burst", "10b", "limit", "10b"],
            Self::Slow => &["tbf", "rate", "20mbit", "burst", "64kb", "limit", "4mb"],
        }
    }
}

/// Some hosts on a hub.
pub struct Lab {
    hosts: Vec<String>,
    hub: String,
    pub folder: tempfile::TempDir,
}

fn ip(words: &[&str]) -> bool {
    let mut command = Command::new("ip");
    command.args(words).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Sets the queue in front of an interface.
fn queue(namespace: &str, interface: &str, cable: Cable) -> bool {
    let tc = ["netns", "exec", namespace, "tc", "qdisc"];
    // There may be none.
    ip(&[&tc[..], &["del", "dev", interface, "root"]].concat());
    let wanted = cable.queue();
    wanted.is_empty() || ip(&[&tc[..], &["add", "dev", interface, "root"], wanted].concat())
}

impl Lab {
    /// Nothing where namespaces cannot be made, said aloud.
    pub fn new(count: usize) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |what: &str| format!("pl{}-{number}-{what}", std::process::id());
        let lab = Self {
            hosts: (0..count).map(|host| name(&host.to_string())).collect(),
            hub: name("hub"),
            folder: tempfile::tempdir().unwrap(),
        };
        if !lab.wire() {
            return paceline_testing::missing("network namespaces need root, `ip` and `tc`");
        }
        Some(lab)
    }

    fn wire(&self) -> bool {
        let hub = &self.hub;
        let plugged = |(number, host): (usize, &String)| {
            let (plug, address) = (plug(number), format!("{}/24", Self::address(number)));
            ip(&["netns", "add", host])
                && ip(&[
                    "-n", hub, "link", "add", &plug, "type", "veth", "peer", "name", "cable",
                    "netns", host,
                ])
                && ip(&["-n", hub, "link", "set", &plug, "master", "hub"])
                && ip(&["-n", hub, "link", "set", &plug, "up"])
                && ip(&["-n", host, "addr", "add", &address, "dev", "cable"])
                && ip(&["-n", host, "link", "set", "cable", "up"])
                && ip(&["-n", host, "link", "set", "lo", "up"])
        };
        ip(&["netns", "add", hub])
            && ip(&["-n", hub, "link", "add", "hub", "type", "bridge"])
            && ip(&["-n", hub, "link", "set", "hub", "up"])
            && self.hosts.iter().enumerate().all(plugged)
            && self.sends(0, Cable::Cut)
            && self.sends(0, Cable::Whole)
    }

    /// Where a host is reached.
    pub fn address(host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// What becomes of the packets that a host sends.
    pub fn sends(&self, host: usize, cable: Cable) -> bool {
        queue(&self.hosts[host], "cable", cable)
    }

    /// What becomes of all packets from and to a host.
    pub fn connect(&self, host: usize, cable: Cable) {
        let both = self.sends(host, cable) && queue(&self.hub, &plug(host), cable);
        assert!(both, "the cable of host {host}");
    }

    /// Cuts what these hosts send, or mends it.
    pub fn cut(&self, hosts: &[usize], cut: bool) {
        let cable = if cut { Cable::Cut } else { Cable::Whole };
        assert!(hosts.iter().all(|host| self.sends(*host, cable)), "the cables of {hosts:?}");
    }

    /// A cluster key that all hosts know.
    pub fn key(&self) -> PathBuf {
        let path = self.folder.path().join("key");
        if !path.exists() {
            paceline_wire::ClusterKey::generate().unwrap().save(&path).unwrap();
        }
        path
    }

    /// The program on a host.
    pub fn paceline(&self, host: usize) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.hosts[host], crate::support::program()]);
        command.env("NO_COLOR", "1").env("PACELINE_KEY_FILE", self.key());
        command
    }
}

/// The hub's end of a host's cable.
fn plug(host: usize) -> String {
    format!("plug{host}")
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in self.hosts.iter().chain([&self.hub]) {
            ip(&["netns", "del", name]);
        }
    }
}
