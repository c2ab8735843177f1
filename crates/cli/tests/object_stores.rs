//! Data, shards and run folders in an object store, through the real program.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod support;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Command, Output, Stdio},
    sync::Arc,
};
use support::paceline;

use paceline_data::store::{self, RemoteSettings, Store};
use paceline_testing::{
    emulators::Emulator,
    faults::{Fault, FaultyProxy, Rule},
};
use serde_json::Value;

type Variables = Vec<(&'static str, String)>;

struct Site {
    _emulator: Emulator,
    proxy: FaultyProxy,
    variables: Variables,
    root: &'static str,
    /// Where the program keeps its stand-ins.
    staging: tempfile::TempDir,
}

impl Site {
    fn new(emulator: Emulator, variables: fn(SocketAddr) -> Variables, root: &'static str) -> Self {
        let proxy = FaultyProxy::start(emulator.address);
        let staging = tempfile::tempdir().unwrap();
        let mut variables = variables(proxy.address);
        variables.push(("TMPDIR", staging.path().display().to_string()));
        Self { _emulator: emulator, proxy, variables, root, staging }
    }

    fn at(&self, key: &str) -> String {
        format!("{}/{key}", self.root).trim_end_matches('/').to_owned()
    }

    fn open(&self, key: &str) -> Arc<dyn Store> {
        let variables =
            self.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let settings =
            RemoteSettings { variables: variables.collect(), ..RemoteSettings::default() };
        store::open_with(self.at(key), &settings).unwrap()
    }

    fn run(&self, args: &[&str]) -> Output {
        paceline()
            .args(args)
            .envs(self.variables.iter().map(|(name, value)| (*name, value)))
            .output()
            .unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(&[&["--json"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("stdout holds one JSON document")
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const PREPARE: [&str; 6] = ["--size", "24", "--shards", "3", "--split", "validation=0.3"];

/// The same bytes as a folder of this machine has, whatever the service does on the way.
fn prepares(site: &Site) {
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name).into_os_string().into_string().unwrap();
    let (photos, shards) = (site.at("photos"), site.at("shards"));
    let draw = ["--per-class", "8", "--most-side", "200", "--bad", "2"];
    site.json(&[&["data", "synth", "photos", &photos][..], &draw].concat());
    site.json(&[&["data", "synth", "photos", &path("photos")][..], &draw].concat());
    site.json(&[&["prepare", &path("photos"), &path("shards")][..], &PREPARE].concat());

    // The source fails for good in the middle: no photo may be lost to that, and nothing be promised.
    let gone = "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>";
    site.proxy.rules(&[Rule {
        method: "GET",
        contains: "photos/daisy/",
        after: 1,
        times: usize::MAX,
        fault: Fault::Status(403, gone),
    }]);
    let call = [&["prepare", &photos, &shards][..], &PREPARE].concat();
    let failed = site.run(&call);
    let said = stderr(&failed);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{photos}/daisy/")) && said.contains("has expired"), "{said}");
    assert!(said.contains("hint: "), "{said}");
    let target = site.open("shards");
    assert_eq!(target.size("manifest.json").unwrap(), None);

    // Again, with a service that fails now and then.
    let now_and_then = |method, after| Rule {
        method,
        contains: "",
        after,
        times: 2,
        fault: Fault::Status(500, "<Error><Code>InternalError</Code></Error>"),
    };
    site.proxy.rules(&[now_and_then("GET", 7), now_and_then("PUT", 3), now_and_then("HEAD", 5)]);
    let summary = site.json(&call);
    site.proxy.rules(&[]);
    assert_eq!(summary["photos"], 42);
    assert_eq!((&summary["records"], &summary["rejects"]), (&40.into(), &2.into()));
    let listing = target.list("").unwrap();
    assert!(listing.folders.is_empty(), "{listing:?}");
    for file in &listing.files {
        let same = std::fs::read(here.path().join("shards").join(&file.name)).unwrap();
        assert!(target.read(&file.name, u64::MAX).unwrap() == same, "{} differs", file.name);
    }
    // Beside the files of the set lies a folder with what this machine did; a store has none.
    let local = std::fs::read_dir(here.path().join("shards")).unwrap().flatten();
    let local: Vec<_> = local.filter(|entry| entry.file_name() != "resources").collect();
    assert_eq!(listing.files.len(), local.len());
    assert_eq!(site.json(&call)["converted"], 0, "all done already");

    let info = site.json(&["data", "info", &shards]);
    assert_eq!((&info["kind"], &info["examples"]), (&"records".into(), &40.into()));
    let verified = site.json(&["data", "verify", &shards]);
    assert_eq!(verified["problems"], Value::Array(Vec::new()));
    let good = site.at("good");
    site.json(&["data", "synth", "photos", &good, "--per-class", "3", "--most-side", "200"]);
    let info = site.json(&["data", "info", &good, "--size", "20"]);
    assert_eq!(info["kind"], "photos");
}

/// A run whose data and folder are in the store, which goes on from there on any machine.
fn trains(site: &Site) {
    let (digits, runs) = (site.at("digits"), site.at("runs"));
    site.json(&["data", "synth", "digits", &digits, "--train", "600", "--test", "100", "--gzip"]);
    let train = ["--batch-size", "20", "--out", &runs, "--no-tensorboard", "--seed", "3"];
    let whole = ["train", "--model", "softmax", "--data", &digits, "--steps", "40"];
    let whole = site.json(&[&whole[..], &train].concat());
    let half = ["train", "--model", "softmax", "--data", &digits, "--steps", "15"];
    let half = site.json(&[&half[..], &train].concat());
    let name = half["run"].as_str().unwrap();
    let run = site.at(&format!("runs/{name}"));
    let folder = site.open("runs");
    for file in ["plan.json", "summary.json", "events-worker-0.jsonl"] {
        assert!(folder.size(&format!("{name}/{file}")).unwrap().is_some(), "{file}");
    }
    let resumed = site.run(&["--json", "train", "--resume", &run, "--steps", "40"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", stderr(&resumed));
    let staging = site.staging.path().to_string_lossy();
    assert!(!stderr(&resumed).contains(&*staging), "it is not there: {}", stderr(&resumed));
    let resumed: Value = serde_json::from_slice(&resumed.stdout).unwrap();
    assert_eq!(resumed["run"].as_str(), Some(name));
    assert_eq!(resumed["global_steps"], 40);
    assert_eq!(resumed["final"]["test_loss"], whole["final"]["test_loss"], "the same run, resumed");

    let listed = site.json(&["runs", "--runs", &runs]);
    assert_eq!(listed.as_array().unwrap().len(), 2);
    let report = site.run(&["report", &runs, "--format", "csv", "--out", "-"]);
    assert!(String::from_utf8_lossy(&report.stdout).contains(name), "{}", stderr(&report));
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("weights.safetensors");
    site.json(&["export", &run, file.to_str().unwrap()]);
    assert!(file.exists());

    // A store that takes nothing is found out before the first step.
    site.proxy.rules(&[Rule {
        method: "PUT",
        contains: "",
        after: 0,
        times: usize::MAX,
        fault: Fault::Status(403, "<Error><Code>AccessDenied</Code><Message>No.</Message></Error>"),
    }]);
    let refused = ["train", "--model", "softmax", "--data", &digits, "--steps", "5"];
    let refused = site.run(&[&refused[..], &train].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains(&runs) && stderr(&refused).contains("hint: "),
        "{}",
        stderr(&refused)
    );
    site.proxy.rules(&[]);
}

/// A run in the store has one owner, wherever its processes are: a lease that the owner renews says who.
fn has_one_owner(site: &Site) {
    let (digits, runs) = (site.at("digits"), site.at("owned"));
    let train = ["train", "--model", "softmax", "--data", &digits, "--steps", "100000000"];
    let owner = paceline()
        .args(train)
        .args(["--out", &runs, "--no-tensorboard", "--checkpoint-every", "50"])
        .envs(site.variables.iter().map(|(name, value)| (*name, value)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let folder = site.open("owned");
    let mut name = String::new();
    wait_for("the run and its lease in the store", || {
        name =
            folder.list("").ok().and_then(|list| list.folders.first().cloned()).unwrap_or_default();
        let there = |file: &str| {
            !name.is_empty()
                && folder.size(&format!("{name}/{file}")).is_ok_and(|size| size.is_some())
        };
        let saved = || {
            folder.list(&format!("{name}/checkpoints")).is_ok_and(|list| !list.folders.is_empty())
        };
        there("owner.json") && there("plan.json") && saved()
    });
    let run = site.at(&format!("owned/{name}"));
    let second = site.run(&["train", "--resume", &run]);
    assert_eq!(second.status.code(), Some(75), "{}", stderr(&second));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let named = format!("`{run}` is in use by process {} on {}", owner.id(), host.trim());
    assert!(stderr(&second).contains(&named), "{}", stderr(&second));
    Command::new("kill").args(["-INT", &owner.id().to_string()]).status().unwrap();
    let ended = owner.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
    assert_eq!(folder.size(&format!("{name}/owner.json")).unwrap(), None, "it is given up");
    let summary = folder.read(&format!("{name}/summary.json"), u64::MAX).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    let step = summary["global_steps"].as_u64().unwrap();
    let longer = site.json(&["train", "--resume", &run, "--steps", &(step + 10).to_string()]);
    assert_eq!(
        (&longer["global_steps"], longer["legs"].as_array().unwrap().len()),
        (&(step + 10).into(), 2)
    );
    assert_eq!(folder.size(&format!("{name}/owner.json")).unwrap(), None);
    let again = site.run(&["train", "--resume", &run]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert!(stderr(&again).contains(&format!("`{run}` is finished")), "{}", stderr(&again));
}

fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !ready() {
        assert!(begun.elapsed() < paceline_testing::HANG, "waited too long for {what}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Records trained on by two processes, and rows of sparse features.
fn trains_on_records_and_rows(site: &Site) {
    let (shards, runs) = (site.at("shards"), site.at("runs"));
    let two = site.json(&[
        "train",
        "--model",
        "softmax",
        "--data",
        &shards,
        "--strategy",
        "multi-worker",
        "--workers",
        "2",
        "--batch-size",
        "8",
        "--steps",
        "6",
        "--out",
        &runs,
    ]);
    let log = format!("{}/events-worker-1.jsonl", two["run"].as_str().unwrap());
    assert!(site.open("runs").size(&log).unwrap().is_some());

    let (clicks, rows) = (site.at("clicks/day.tsv"), site.at("rows"));
    site.json(&["data", "synth", "clicks", &clicks, "--rows", "3000"]);
    let prepared = site
        .json(&["prepare", &clicks, &rows, "--format", "clicks", "--shards", "2", "--bits", "16"]);
    assert_eq!(prepared["rows"], 3000);
    let learned = site.json(&[
        "train",
        "--model",
        "sparse-logistic",
        "--data",
        &rows,
        "--epochs",
        "1",
        "--out",
        &runs,
    ]);
    let run = site.at(&format!("runs/{}", learned["run"].as_str().unwrap()));
    let scores = site.at("scores.txt");
    let predicted = site.json(&["predict", &run, &clicks, "--out", &scores]);
    assert_eq!(predicted["rows"], 3000);
    let scores = site.open("").read("scores.txt", u64::MAX).unwrap();
    assert_eq!(scores.iter().filter(|&&byte| byte == b'\n').count(), 3000);
    let described = site.run(&["prepare", &clicks, &rows, "--format", "clicks"]);
    assert_eq!(described.status.code(), Some(2), "already there: {}", stderr(&described));
}

/// Results that go on where they were, a page of runs, and a word where no URL may stand.
fn measures_and_shows(site: &Site) {
    let (photos, shards, speed) = (site.at("good"), site.at("shards"), site.at("speed"));
    let sources = ["speedtest", "--images", &photos, "--records", &shards, "--size", "24"];
    let grid = ["--batch-size", "2", "--batches", "2,3", "--repeats", "1", "--cold"];
    let call = [&sources[..], &grid, &["--out", &speed]].concat();
    let first = site.json(&call);
    assert_eq!((&first["complete"], &first["resumed"]), (&true.into(), &0.into()));
    let results = site.open("speed");
    for name in ["speedtest.jsonl", "speedtest.html", "speedtest.csv", "speedtest.json"] {
        assert!(results.size(name).unwrap().is_some_and(|size| size > 0), "{name}");
    }
    assert_eq!(first["files"][0], format!("{speed}/speedtest.jsonl"));
    let again = site.json(&call);
    assert_eq!(again["resumed"].as_u64(), first["samples"].as_array().map(|all| all.len() as u64));

    let (sweep, digits, runs) = (site.at("sweep"), site.at("digits"), site.at("runs"));
    let grid = ["sweep", "--vary", "batch-size=10,20", "--out", &sweep, "--", "train", "--model"];
    let call = [&grid[..], &["softmax", "--data", &digits, "--steps", "3"]].concat();
    assert_eq!(site.json(&call)["complete"], true);
    assert!(site.open("sweep").size("sweep.html").unwrap().is_some());
    let again = site.run(&call);
    assert!(stderr(&again).contains("2 of 2 cells were there already"), "{}", stderr(&again));

    let mut page = paceline()
        .args(["serve", &runs, "--listen", "127.0.0.1:0"])
        .envs(site.variables.iter().map(|(name, value)| (*name, value)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(page.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).unwrap().trim().trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /api/runs HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    Command::new("kill").args(["-INT", &page.id().to_string()]).status().unwrap();
    assert_eq!(page.wait().unwrap().code(), Some(130));
    assert!(answer.contains("softmax") && answer.contains("\"state\":\"done\""), "{answer}");

    let refused = site.run(&["matmul", "--a", &site.at("a.npy")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("name a path of this machine"), "{}", stderr(&refused));
    let missing = site.run(&["train", "--model", "softmax", "--data", &site.at("nothing")]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains(&site.at("nothing")), "{}", stderr(&missing));
    let unknown = site.run(&["data", "info", "ftp://host/x"]);
    assert!(stderr(&unknown).contains("no service is called `ftp`"), "{}", stderr(&unknown));
}

#[test]
fn everything_that_is_a_path_may_be_a_url_of_s3() {
    let Some(emulator) = Emulator::s3("bucket") else { return };
    let site = Site::new(emulator, Emulator::s3_variables, "s3://bucket/lab");
    prepares(&site);
    trains(&site);
    has_one_owner(&site);
    trains_on_records_and_rows(&site);
    measures_and_shows(&site);
    let left: Vec<_> = std::fs::read_dir(site.staging.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "stand-ins stay behind: {left:?}");
}

#[test]
fn everything_that_is_a_path_may_be_a_url_of_azure() {
    let Some(emulator) = Emulator::azure("container") else { return };
    let site = Site::new(emulator, Emulator::azure_variables, "az://container/lab");
    prepares(&site);
    trains(&site);
}
