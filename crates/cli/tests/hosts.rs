//! `--hosts`: cells whose tasks have hosts of their own, network namespaces of this machine. What they exchange must go over the network
//! of these hosts, and must be recorded there.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{command, said};

/// Runs a sweep in the current folder `here`; `None`, aloud, where no hosts can be made.
fn on_hosts(sweep: &mut Command, here: &Path) -> Option<Output> {
    let output = sweep.current_dir(here).output().unwrap();
    if said(&output).contains("no hosts of their own for the workers") {
        return paceline_testing::missing("network namespaces need root and `ip`");
    }
    assert!(output.status.success(), "{}", said(&output));
    Some(output)
}

fn rows(out: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join("sweep.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Files below a folder whose names begin and end so.
fn files(folder: &Path, begin: &str, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            found.extend(files(&path, begin, end));
        } else if name.starts_with(begin) && name.ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Bytes that a host received while it was recorded.
fn received(recording: &Path) -> f64 {
    let text = std::fs::read_to_string(recording).unwrap();
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap().split(',').collect();
    let at = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let (elapsed, rate) = (at("elapsed_seconds"), at("network_received_bytes_per_second"));
    let (mut before, mut bytes) = (0.0, 0.0);
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        if let (Ok(now), Ok(rate)) = (cells[elapsed].parse::<f64>(), cells[rate].parse::<f64>()) {
            bytes += rate * (now - before);
            before = now;
        }
    }
    bytes
}

/// Each worker of a product has a host; what `rows` moves goes over their network, and `diagonal` moves nothing.
#[test]
fn blocks_of_a_product_go_from_host_to_host() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let words = "sweep matmul --hosts --scale 0.2 --repeats 1 --vary workers=3 --out apart --json";
    let Some(_) = on_hosts(&mut command(&words.split(' ').collect::<Vec<_>>()), here) else {
        return;
    };
    let done = rows(&here.join("apart"));
    assert_eq!(done.len(), 2);
    assert_eq!(done[0]["output"]["trace"], done[1]["output"]["trace"]);
    for row in &done {
        let found = &row["output"];
        let nodes = found["nodes"].as_array().unwrap();
        let hosts: Vec<&str> = nodes.iter().map(|node| node["host"].as_str().unwrap()).collect();
        assert_eq!(hosts, ["host-1", "host-2", "host-3"]);
        let moved = found["moved_bytes"].as_f64().unwrap();
        assert_eq!(moved > 0.0, found["placement"] == "rows", "{found}");
        let cell = here.join("apart/cells").join(row["cell"].as_str().unwrap_or_default());
        let recordings = files(&cell.join("nodes"), "resources-worker-", ".csv");
        assert_eq!(recordings.len(), 3, "{recordings:?}");
        let bytes: f64 = recordings.iter().map(|recording| received(recording)).sum();
        assert!(bytes > 0.9 * moved, "{bytes} of {moved} bytes: {found}");
        let all = &row["tasks"]["all hosts"]["network_received_bytes_per_second"];
        assert!(all["mean"].as_f64().unwrap() > 0.0, "{row}");
    }
    // The columns of the recipe find them.
    let table = std::fs::read_to_string(here.join("apart/sweep.csv")).unwrap();
    for cells in ["blocks moved between hosts,MB", "received by host 3,MB/s", "CPU of host 1,cores"]
    {
        let known = format!("{cells},1,");
        assert!(table.lines().any(|line| line.contains(&known)), "{cells}: {table}");
    }
}

/// Hosts of one machine have the same shared memory: what a worker and its server exchange once went through it, and networks stood still.
#[test]
fn gradients_go_from_host_to_host() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let words = "sweep --hosts --out apart --json --vary strategy=ps-sync -- train --model softmax --data generated:digits?examples=400 \
                 --workers 2 --steps 100 --batch-size 20 --no-tensorboard";
    let words: Vec<&str> = words.split_whitespace().collect();
    let Some(_) = on_hosts(&mut command(&words), here) else { return };
    let done = rows(&here.join("apart"));
    let worker = &done[0]["output"]["workers"][1];
    assert_eq!(worker["task"], "worker/1", "{worker}");
    let exchanged = worker["traffic"]["received_bytes"].as_f64().unwrap();
    assert!(exchanged > 1e6, "{worker}");
    let recordings = files(&here.join("apart/cells"), "resources-worker-1", ".csv");
    let bytes = received(&recordings[0]);
    assert!(bytes > 0.5 * exchanged, "{bytes} of {exchanged} bytes went over the network");
}

/// The half of `cluster-shapes` that needs no recipe: a Spark cluster of two hosts makes the shards that one process makes.
#[test]
fn photos_become_shards_on_a_spark_cluster_of_hosts() {
    let Some(environment) = paceline_testing::spark() else { return };
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let photos = here.join("photos");
    let photos = photos.to_str().unwrap();
    let made = command(&["data", "synth", "photos", photos, "--per-class", "3"]).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let prepare = ["prepare", photos, "{cell}/shards", "--size", "48", "--seed", "7"];
    let local = here.join("local");
    let alone =
        [&prepare[..2], &[local.to_str().unwrap(), "--shards", "2"], &prepare[3..]].concat();
    let made = command(&alone).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));

    let spark = "--engine spark --spark-master local-cluster[2,1,1024] --partitions 2 --spark-conf spark.executor.memory=512m \
                 --spark-conf spark.driver.memory=512m --spark-conf spark.ui.enabled=false \
                 --spark-conf spark.cores.max=2 --spark-conf spark.scheduler.minRegisteredResourcesRatio=1.0 \
                 --spark-conf spark.scheduler.maxRegisteredResourcesWaitingTime=10m";
    // Spark hands out work when both hosts are there: otherwise the first may do all of it.
    let homes = files(&environment.join("lib"), "spark-class", "spark-class");
    let home = homes[0].parent().unwrap().parent().unwrap();
    let mut sweep = command(&["sweep", "--hosts", "--out", "apart", "--vary", "shards=2"]);
    // A minute where there is nothing else to do; a Spark that has no executors would wait for ever.
    sweep.args(["--timeout", "10m", "--"]).args(prepare).args(spark.split_whitespace());
    sweep.env("SPARK_HOME", home).env("SPARK_DAEMON_MEMORY", "256m");
    sweep.env("PYSPARK_PYTHON", environment.join("bin/python"));
    if on_hosts(&mut sweep, here).is_none() {
        return;
    }
    let done = rows(&here.join("apart"));
    assert_eq!(done.len(), 1);
    // Each host recorded itself, and the first sent the others what to do.
    let recordings = files(&here.join("apart/cells"), "resources-node@host-", ".csv");
    assert_eq!(recordings.len(), 2, "{recordings:?}");
    assert!(recordings.iter().all(|recording| received(recording) > 1e4), "{recordings:?}");
    for host in ["host-1", "host-2"] {
        let cpu = &done[0]["tasks"][host]["process_cpu_percent"]["peak"];
        assert!(cpu.as_f64().is_some_and(|percent| percent > 0.0), "{host}: {}", done[0]);
    }
    let tasks = files(&here.join("apart/cells"), "resources-task-", ".csv");
    let at_hosts = tasks.iter().filter(|task| task.to_str().unwrap().contains("@host-"));
    assert_eq!(at_hosts.count(), 2, "{tasks:?}");
    let contents = |folder: &Path| -> Vec<Vec<u8>> {
        let shards = files(folder, "train-", ".tfrecord");
        shards.iter().map(|shard| std::fs::read(shard).unwrap()).collect()
    };
    let wanted = contents(&local);
    assert_eq!(wanted.len(), 2);
    assert!(wanted == contents(&here.join("apart/cells")), "shards differ");
}
