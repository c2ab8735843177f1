//! `paceline advise` through the real binary: by hand, by itself, interrupted, with bad input.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use support::paceline;

const CATALOGUE: &str =
    "machine,count,cores,memory_gib,usd_per_hour\nsmall,1;2;4,2,4,0.1\nlarge,1;2;4,8,32,0.4\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.file("machines.csv", CATALOGUE);
        folder
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = paceline();
        command.current_dir(self.0.path()).arg("advise").args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        support::json(&self.run(&[args, &["--json"]].concat()))
    }
}

#[test]
fn asking_and_telling_finds_the_cheapest_and_counts_what_it_cost() {
    let folder = Folder::new();
    let question = ["--state", "s.json", "--catalog", "machines.csv"];
    let first = folder.json(&[&["ask"], &question[..]].concat());
    assert!(first["recommendation"].is_null());
    // Without a history it used to claim that other jobs did best here.
    let reason = first["next"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("no past jobs"), "{reason}");
    for _ in 0..6 {
        let asked = folder.json(&[&["ask"], &question[..]].concat());
        let next = &asked["next"];
        let (machine, count) = (next["machine"].as_str().unwrap(), next["count"].to_string());
        let told = if machine == "small" {
            // Too little memory: the run breaks off.
            folder.json(
                &[
                    &["tell"],
                    &question[..],
                    &["--machine", machine, "--count", &count, "--failed", "--seconds", "30"],
                ]
                .concat(),
            )
        } else {
            folder.json(
                &[
                    &["tell"],
                    &question[..],
                    &["--machine", machine, "--count", &count, "--seconds", "360"],
                ]
                .concat(),
            )
        };
        assert!(told["state"].is_string());
    }
    let asked = folder.json(&[&["ask"], &question[..]].concat());
    assert!(asked["next"].is_null(), "everything was tried");
    let found = &asked["recommendation"];
    assert_eq!((found["machine"].as_str(), found["count"].as_u64()), (Some("large"), Some(1)));
    assert_eq!(found["failed_runs"], 3);
    // 360 s on 1 + 2 + 4 large ones, 30 s on 1 + 2 + 4 small ones.
    let spent = 7.0 * 0.4 * 0.1 + 7.0 * 0.1 / 120.0;
    assert!((found["search_usd"].as_f64().unwrap() - spent).abs() < 1e-9, "{found}");
    assert_eq!(found["runner_up"]["count"], 2);
}

#[test]
fn another_objective_for_a_begun_search_is_refused() {
    let folder = Folder::new();
    let question = ["ask", "--state", "s.json", "--catalog", "machines.csv"];
    folder.json(&question);
    let output = folder.run(&[&question[..], &["--objective", "time"]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("another objective"));
}

#[test]
fn searching_by_itself_takes_failures_and_timeouts_as_information() {
    let folder = Folder::new();
    // Small machines fail, four large ones hang, the others are quick.
    folder.file(
        "job.sh",
        "case $1-$2 in small-*) exit 3;; large-4) sleep 600;; *) sleep 0.05; echo words;; esac\n",
    );
    // One that hangs is ended at any limit; a quick one only where the machine is too slow for that limit.
    let found = ["2s", "20s", "200s"].into_iter().find_map(|limit| {
        let _ = std::fs::remove_file(folder.0.path().join("advise.json"));
        let question =
            ["cloud", "--catalog", "machines.csv", "--objective", "time", "--method", "exhaustive"];
        let job = ["--timeout", limit, "--exec", "sh job.sh {machine} {count}"];
        let found = folder.json(&[&question[..], &job].concat());
        (found["recommendation"]["failed_runs"] == 4).then_some(found)
    });
    let found = found.expect("three small machines that fail and one that hangs");
    let answer = &found["recommendation"];
    assert_eq!(answer["machine"], "large");
    assert_eq!((answer["runs"].as_u64(), answer["failed_runs"].as_u64()), (Some(6), Some(4)));
    let state: Value =
        serde_json::from_slice(&std::fs::read(folder.0.path().join("advise.json")).unwrap())
            .unwrap();
    let outcomes = state["runs"].to_string();
    assert!(outcomes.contains("timed_out") && outcomes.contains("failed"), "{outcomes}");
}

#[test]
fn interrupted_search_goes_on_where_it_was() {
    let folder = Folder::new();
    // The first two runs are quick, the third hangs until a file says otherwise.
    folder.file("job.sh", "echo run >> log; [ -e go ] || [ $(wc -l < log) -le 2 ] || sleep 60\n");
    let args = [
        "cloud",
        "--catalog",
        "machines.csv",
        "--method",
        "exhaustive",
        "--exec",
        "sh job.sh {machine} {count}",
        "--json",
    ];
    let mut child = folder.command(&args).stdout(std::process::Stdio::null()).spawn().unwrap();
    let log = folder.0.path().join("log");
    let begin = Instant::now();
    while std::fs::read_to_string(&log).unwrap_or_default().lines().count() < 3 {
        assert!(begin.elapsed() < paceline_testing::HANG, "the third run never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    folder.file("go", "");
    let found = folder.json(&args[..args.len() - 1]);
    assert_eq!(found["recommendation"]["runs"], 6);
    let runs = std::fs::read_to_string(&log).unwrap().lines().count();
    assert_eq!(runs, 7, "two kept, one interrupted, four more");
}

#[test]
fn bad_files_are_named_with_their_rows() {
    let folder = Folder::new();
    folder.file(
        "h.csv",
        "workload,machine,count,seconds,completed\nw,small,1,10,true\nw,tiny,1,9,true\n",
    );
    let output = folder.run(&[
        "ask",
        "--state",
        "s.json",
        "--catalog",
        "machines.csv",
        "--history",
        "h.csv",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("`h.csv`, line 3: machine `tiny`"), "{words}");
    assert!(!folder.0.path().join("s.json").exists(), "nothing is begun on bad input");
    let output =
        folder.run(&["ask", "--state", "s.json", "--catalog", "machines.csv", "--method", "scout"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("learns from past jobs") && words.contains("--history"), "{words}");
    let told = [
        "tell",
        "--state",
        "s.json",
        "--catalog",
        "machines.csv",
        "--machine",
        "small",
        "--count",
        "1",
    ];
    let output = folder.run(&[&told[..], &["--seconds=-4"]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot take -4 s"));
    assert!(!folder.0.path().join("s.json").exists());
}

#[test]
fn scaling_curve_names_the_number_of_machines() {
    let folder = Folder::new();
    // 10 s fixed, 1000 machine-seconds, half a second per machine: fastest at about 45 machines.
    let time = |m: f64| 10.0 + 1000.0 / m + 0.5 * m;
    let write = |sizes: &[f64]| {
        let rows: Vec<String> = sizes.iter().map(|&m| format!("{m},{}\n", time(m))).collect();
        folder.file("runs.csv", &format!("machines,seconds\n{}", rows.concat()));
    };
    write(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
    let found = folder.json(&["scale", "runs.csv", "--up-to", "100"]);
    let machines = found["recommended"]["machines"].as_u64().unwrap();
    assert!((43..=47).contains(&machines), "{found}");
    assert!(found["recommended"]["settled_by"].is_null(), "{found}");
    // Runs up to 16 machines do not show where the curve turns: a step outside, and what to measure next.
    write(&[1.0, 2.0, 4.0, 8.0, 16.0]);
    let found = folder.json(&["scale", "runs.csv", "--up-to", "100"]);
    let recommended = &found["recommended"];
    assert!(recommended["machines"].as_u64().unwrap() <= 32, "{found}");
    assert!(recommended["settled_by"]["machines"].as_u64().unwrap() > 16, "{found}");
    for row in found["predictions"].as_array().unwrap() {
        let [machines, low, high] =
            ["machines", "low", "high"].map(|name| row[name].as_f64().unwrap());
        assert!(low <= time(machines) && time(machines) <= high, "{row}");
        assert_eq!(row["extrapolated"], machines > 16.0, "{row}");
    }
    let cheapest = folder.json(&["scale", "runs.csv", "--usd-per-hour", "1", "--deadline", "100s"]);
    assert!(cheapest["recommended"]["machines"].as_u64().unwrap() < 20, "{cheapest}");
    let plan = folder.json(&["scale", "--plan", "--up-to", "16"]);
    assert!(plan["runs"].as_array().unwrap().len() >= 4);
    folder.file("runs.csv", "machines,seconds\n1,10\n2,0\n");
    let output = folder.run(&["scale", "runs.csv"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 3"));
}

#[test]
fn recorded_runs_of_ones_own_are_replayed_and_drawn() {
    let folder = Folder::new();
    let mut rows = String::from("workload,machine,count,seconds,completed\n");
    for (job, work) in [("sort", 4000.0), ("join", 9000.0)] {
        for (machine, cores) in [("small", 2.0), ("large", 8.0)] {
            for count in [1.0, 2.0, 4.0] {
                let seconds = 20.0 + work / (cores * count);
                rows += &format!("{job},{machine},{count},{seconds},true\n");
            }
        }
    }
    folder.file("runs.csv", &rows);
    let own = ["evaluate", "--catalog", "machines.csv", "--history", "runs.csv"];
    let few = ["--methods", "paceline,random,lhs,exhaustive", "--seeds", "2", "--out", "page.html"];
    let found = folder.json(&[&own[..], &few].concat());
    let methods = found["methods"].as_array().unwrap();
    assert_eq!((methods.len(), &methods[0]["jobs"]), (4, &Value::from(2)));
    assert!(methods[0]["by_money"][7][1].as_f64().unwrap() < 1.001, "{}", methods[0]);
    assert!(methods[0]["standard_error"][0][1].is_number(), "{}", methods[0]);
    let page = std::fs::read_to_string(folder.0.path().join("page.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("By money"), "a page with curves");
    let output = folder.run(&["evaluate", "--catalog", "machines.csv"]);
    assert_eq!(output.status.code(), Some(2), "a catalogue alone is not a recorded set");
}

#[test]
fn evaluation_meets_published_figures_first() {
    let Some(data) = paceline_testing::real_data("scout") else { return };
    let folder = Folder::new();
    let data = data.to_str().unwrap();
    let found = folder.json(&[
        "evaluate",
        "--data",
        data,
        "--methods",
        "random",
        "--seeds",
        "3",
        "--steps",
        "6",
    ]);
    for check in found["acceptance"].as_array().unwrap() {
        let gap = check["published"].as_f64().unwrap() - check["found"].as_f64().unwrap();
        assert!(gap.abs() < 5e-7, "{check}");
    }
    assert_eq!(found["methods"][0]["method"], "random");
}
