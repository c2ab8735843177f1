//! Where the tasks of a test listen, the key they share, and how to know that they are there.

#![allow(dead_code, unreachable_pub)] // every test file uses a part of it

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    sync::atomic::{AtomicU16, Ordering},
};
use tempfile::TempDir;

/// Ports for this test process alone: a hundred each, below the range of ports the kernel assigns by itself.
pub fn ports(count: usize) -> Vec<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 100) as u16 * 100;
    let mut candidates =
        std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 100);
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (0..count).map(|_| candidates.by_ref().take(100).find(free).unwrap()).collect()
}

/// A new cluster key in a folder.
pub fn key(folder: &TempDir, name: &str) -> String {
    let path: PathBuf = folder.path().join(name);
    paceline_wire::ClusterKey::generate().unwrap().save(&path).unwrap();
    path.display().to_string()
}

/// `TF_CONFIG` of one of several workers on loopback, or of a task beside them.
pub fn workers(ports: &[u16], role: &str, index: usize) -> String {
    let addresses: Vec<String> = ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    format!(
        r#"{{"cluster":{{"worker":[{}]}},"task":{{"type":"{role}","index":{index}}}}}"#,
        addresses.join(",")
    )
}

/// Whether a process listens on this port.
pub fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}
