//! `paceline sweep` as a real process: grids, failures as rows, kills and resumes, recipes without a run.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use support::{command, document};

const DATA: &str = "generated:digits?examples=300";

fn rows(out: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join("sweep.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn a_grid_is_run_once_and_failures_stay_as_rows() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("s");
    let out_text = out.to_str().unwrap();
    let call = [
        "sweep",
        "--json",
        "--out",
        out_text,
        "--repeats",
        "2",
        "--vary",
        "batch-size=10,50",
        "--vary",
        "strategy=one-device,nonsense",
        "--",
        "train",
        "--model",
        "softmax",
        "--data",
        DATA,
        "--steps",
        "3",
    ];
    let first = command(&call).output().unwrap();
    assert_eq!(first.status.code(), Some(1), "{}", String::from_utf8_lossy(&first.stderr));
    let document = document(&first);
    assert_eq!(document["complete"], true);
    let found = &document["findings"];
    assert_eq!((&found["cells"], &found["done"]), (&Value::from(8), &Value::from(8)));
    let failures = found["failures"].as_array().unwrap();
    assert_eq!(failures.len(), 4);
    assert!(failures[0][1]["reason"].as_str().unwrap().contains("nonsense"), "{failures:?}");
    let good = found["groups"].as_array().unwrap().iter();
    let good: Vec<_> = good.filter(|group| group["failed"] == 0).collect();
    assert_eq!(good.len(), 2);
    assert!(good.iter().all(|group| group["values"][2].as_array().unwrap().len() == 2));
    for ending in ["html", "md", "csv", "json"] {
        assert!(out.join(format!("sweep.{ending}")).is_file(), "{ending}");
    }
    // Nothing is run twice, and weights are not kept.
    let before = rows(&out).len();
    let again = command(&call).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("8 of 8 cells were there already"));
    assert_eq!(rows(&out).len(), before);
    let cells = std::fs::read_dir(out.join("cells")).unwrap();
    for run in cells.flat_map(|cell| paceline_runs::list(&cell.unwrap().path()).unwrap()) {
        assert!(!run.checkpoints_path().exists());
    }
}

#[test]
fn a_sweep_that_was_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("s");
    let call = [
        "sweep",
        "--json",
        "--out",
        out.to_str().unwrap(),
        "--vary",
        "batch-size=10,20,30,40,50",
        "--",
        "train",
        "--model",
        "softmax",
        "--data",
        DATA,
        "--steps",
        "40",
    ];
    let mut child = command(&call).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while rows(&out).is_empty() && begun.elapsed() < paceline_testing::HANG {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = rows(&out).len();
    assert!(done >= 1, "no cell was begun");
    let rest = command(&call).output().unwrap();
    assert!(rest.status.success(), "{}", String::from_utf8_lossy(&rest.stderr));
    assert_eq!(document(&rest)["findings"]["done"], 5);
    assert_eq!(rows(&out).len(), 5, "finished cells are not run again");
}

/// Processes whose command line names a path.
fn processes_with(path: &str) -> usize {
    let folders = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = folders.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(path)).count()
}

#[test]
fn a_sweep_that_was_killed_leaves_no_cell_behind() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("s").to_str().unwrap().to_owned();
    let call = ["sweep", "--out", &out, "--vary", "strategy=multi-worker", "--", "train"];
    let cell = ["--model", "softmax", "--data", DATA, "--steps", "1000000000", "--no-tensorboard"];
    let mut command = command(&call);
    command.args(cell).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    // The sweep itself and its cell name the folder.
    while processes_with(&out) < 2 && begun.elapsed() < paceline_testing::HANG {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(processes_with(&out) >= 2, "no cell was begun");
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while processes_with(&out) > 0 {
        assert!(begun.elapsed() < paceline_testing::HANG, "a cell goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_recipe_says_what_it_would_run() {
    let listed = command(&["list", "recipes", "--json"]).output().unwrap();
    let recipes = document(&listed)["recipes"].as_array().unwrap().clone();
    assert!(recipes.len() >= 19);
    for recipe in recipes {
        let name = recipe["name"].as_str().unwrap();
        let output =
            command(&["sweep", name, "--scale", "0.05", "--dry-run", "--json"]).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!document(&output)["cells"].as_array().unwrap().is_empty(), "{name}");
    }
}

/// `--vary mode=single` once became `train --mode single`.
#[test]
fn settings_of_a_recipe_are_selected_by_name() {
    let dry = |vary: &str| {
        command(&["sweep", "until-loss", "--dry-run", "--json", "--repeats", "1"])
            .args(["--vary", "batch-size=100", "--vary", vary])
            .output()
            .unwrap()
    };
    let output = dry("mode=single,sync 3 workers");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cells = document(&output)["cells"].as_array().unwrap().clone();
    let mut commands: Vec<String> =
        cells.iter().map(|cell| cell["arguments"].to_string()).collect();
    commands.sort_unstable();
    assert_eq!(commands.len(), 2);
    assert!(commands[0].contains(r#""--batch-size","100""#), "{commands:?}");
    assert!(commands[1].contains(r#""--batch-size","300""#), "{commands:?}");
    assert!(commands.iter().all(|command| !command.contains(r#""--mode""#)), "{commands:?}");
    let wrong = dry("mode=double");
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("`mode` has no setting `double`") && said.contains("hint"), "{said}");
}

/// A cell whose verdict says that others took its cores is run again when asked for, the others are not.
#[test]
fn only_disturbed_cells_are_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("s");
    let flags = ["--out", out.to_str().unwrap(), "--vary", "batch-size=10,50"];
    let first = sweep_in(folder.path(), &flags);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    // The verdicts of this machine are not known beforehand: they are written instead.
    let verdicts = [("taken-cores", "other programs"), ("compute", "")];
    let mut journal = String::new();
    for (mut row, (limit, culprit)) in rows(&out).into_iter().zip(verdicts) {
        row["output"]["diagnosis"] = serde_json::json!({ "limit": limit, "culprit": culprit });
        row["started"] = 0.0.into();
        journal.push_str(&format!("{row}\n"));
    }
    std::fs::write(out.join("sweep.jsonl"), journal).unwrap();
    let marked = sweep_in(folder.path(), &flags);
    assert_eq!(document(&marked)["findings"]["disturbed"], 1);
    let page = std::fs::read_to_string(out.join("sweep.md")).unwrap();
    assert!(page.contains("other programs took cores") && page.contains("1 disturbed"), "{page}");
    let again = sweep_in(folder.path(), &[&flags[..], &["--retry-disturbed"]].concat());
    assert!(String::from_utf8_lossy(&again.stderr).contains("1 of 2 cells were there already"));
    let kept = rows(&out).iter().filter(|row| row["started"] == 0.0).count();
    assert_eq!((rows(&out).len(), kept), (3, 2), "one row more, of the disturbed cell");
}

/// A flag that is refused would fail in every cell. The data are nowhere, so that nothing is trained.
#[test]
fn no_recipe_trains_with_a_flag_that_has_no_effect() {
    let listed = command(&["list", "recipes", "--json"]).output().unwrap();
    let mut tried = std::collections::BTreeSet::new();
    for recipe in document(&listed)["recipes"].as_array().unwrap() {
        let name = recipe["name"].as_str().unwrap();
        let output = command(&["sweep", name, "--dry-run", "--repeats", "1", "--json"]);
        for cell in document(&{ output }.output().unwrap())["cells"].as_array().unwrap() {
            let words = cell["arguments"].as_array().unwrap().iter();
            let mut words: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
            let data = words.iter().position(|word| *word == "--data");
            let (Some(data), "train") = (data, words[0]) else { continue };
            words[data + 1] = "/nowhere";
            // Cells that differ in numbers alone have the same flags.
            let names = words.iter().filter(|word| word.parse::<f64>().is_err());
            if tried.insert(names.map(ToString::to_string).collect::<Vec<_>>()) {
                let output = command(&words).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{name}: {words:?}: {said}");
            }
        }
    }
    assert!(tried.len() > 10, "{}", tried.len());
}

#[test]
fn wrong_calls_are_usage_errors_with_a_hint() {
    for call in [
        &["sweep"][..],
        &["sweep", "no-such-recipe"],
        &["sweep", "--vary", "lr", "--", "train"],
        &["sweep", "softmax-batch", "--scale", "7"],
    ] {
        let output = command(call).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{call:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("hint"), "{call:?}");
    }
}

/// `DATA` swept over `vary`, in the current folder `here`.
fn sweep_in(here: &Path, flags: &[&str]) -> Output {
    let train = ["--", "train", "--model", "softmax", "--data", DATA, "--steps", "3"];
    command(&["sweep", "--json"]).args(flags).args(train).current_dir(here).output().unwrap()
}

/// Every sweep of `train` once went to `sweeps/train`, and its page replaced the last one's.
#[test]
fn a_second_sweep_does_not_replace_the_page_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let first = sweep_in(here, &["--vary", "batch-size=10,50"]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let page = here.join(document(&first)["files"][0].as_str().unwrap());
    let before = std::fs::read(&page).unwrap();
    let second = sweep_in(here, &["--vary", "lr=0.1,0.2"]);
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
    assert_ne!(document(&second)["files"][0], document(&first)["files"][0]);
    assert_eq!(std::fs::read(&page).unwrap(), before, "the first page is as it was");
    assert_eq!(std::fs::read_dir(here.join("sweeps")).unwrap().count(), 2);
    // The same sweep again finds its own folder.
    let again = sweep_in(here, &["--vary", "batch-size=10,50"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("2 of 2 cells were there already"));
    assert_eq!(std::fs::read_dir(here.join("sweeps")).unwrap().count(), 2);
}

#[test]
fn a_folder_that_holds_another_sweep_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let first = sweep_in(here, &["--out", "s", "--vary", "batch-size=10,50"]);
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let before = std::fs::read(here.join("s/sweep.html")).unwrap();
    for vary in ["lr=0.1,0.2", "batch-size=10"] {
        let other = sweep_in(here, &["--out", "s", "--vary", vary]);
        let said = String::from_utf8_lossy(&other.stderr).into_owned();
        assert_eq!(other.status.code(), Some(2), "{said}");
        assert!(said.contains("`s` holds another sweep") && said.contains("hint:"), "{said}");
        assert_eq!(std::fs::read(here.join("s/sweep.html")).unwrap(), before);
    }
    // With further settings it is the same one, continued.
    let more = sweep_in(here, &["--out", "s", "--vary", "batch-size=10,50,20"]);
    assert!(String::from_utf8_lossy(&more.stderr).contains("2 of 3 cells were there already"));
}

/// Repeats once ran the same seed: "95 % interval 71.0 to 71.0".
#[test]
fn repeats_differ_in_their_seed_unless_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let dry = |flags: &[&str], command: &str| {
        let mut call = support::command(&["sweep", "--json", "--dry-run", "--repeats", "3"]);
        call.args(flags).arg("--").args(command.split(' ')).current_dir(folder.path());
        let output = call.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let cells = document(&output)["cells"].as_array().unwrap().clone();
        let seeds = cells.iter().map(|cell| {
            let words: Vec<&str> = cell["arguments"]
                .as_array()
                .unwrap()
                .iter()
                .map(|word| word.as_str().unwrap())
                .collect();
            words.iter().position(|word| *word == "--seed").map(|at| words[at + 1].to_owned())
        });
        seeds.collect::<std::collections::BTreeSet<_>>()
    };
    let some = |seed: &str| Some(seed.to_owned());
    let train = "train --model softmax --data d";
    assert_eq!(dry(&["--vary", "lr=0.1"], train), [some("1"), some("2"), some("3")].into());
    assert_eq!(dry(&["--vary", "lr=0.1"], &format!("{train} --seed 7")), [some("7")].into());
    assert_eq!(dry(&["--vary", "seed=8,9"], train), [some("8"), some("9")].into());
    // A model that draws nothing has no seed, nor has a command without one.
    let sparse = "train --model sparse-logistic --data d";
    assert_eq!(dry(&["--vary", "lr=0.1"], sparse), [None].into());
    // `models` is the former name of `list models`.
    for command in ["list models --profile lenet", "models --profile lenet"] {
        assert_eq!(dry(&["--vary", "batch-size=8,16"], command), [None].into());
    }
}

#[test]
fn no_interval_of_a_sweep_is_negative_or_without_width() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("s");
    let flags = ["--out", out.to_str().unwrap(), "--vary", "batch-size=10", "--repeats"];
    for repeats in ["2", "4"] {
        let output = sweep_in(folder.path(), &[&flags[..], &[repeats]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let csv = std::fs::read_to_string(out.join("sweep.csv")).unwrap();
        let mut lines =
            csv.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let head = lines.next().unwrap();
        let at = |name: &str| head.iter().position(|column| column == name).unwrap();
        for row in lines {
            let (low, high) = (&row[at("low")], &row[at("high")]);
            assert_eq!(row[at("n")], repeats);
            if repeats == "2" {
                assert!(low.is_empty() && high.is_empty(), "{row:?}");
            } else if !low.is_empty() {
                let (low, high): (f64, f64) = (low.parse().unwrap(), high.parse().unwrap());
                assert!(low >= 0.0 && low < high, "{row:?}");
                assert!(row[at("unit")] != "%" || high <= 100.0, "{row:?}");
            }
        }
        let page = std::fs::read_to_string(out.join("sweep.md")).unwrap();
        assert_eq!(page.contains("(range)"), repeats == "2", "{page}");
    }
}

/// Workers on hosts of their own, which are named in what the run recorded; where no hosts can be made, that is said before any cell.
#[test]
fn workers_get_hosts_of_their_own_or_it_is_said_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let flags = ["--hosts", "--out", "apart", "--vary", "strategy=ps-async,one-device"];
    let output = sweep_in(here, &flags);
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert!(said.contains("no hosts of their own for the workers"), "{said}");
        assert!(said.contains("hint: run it as root"), "{said}");
        assert!(!here.join("apart/cells").exists());
        let _: Option<()> = paceline_testing::missing("network namespaces need root and `ip`");
        return;
    }
    let done = rows(&here.join("apart"));
    assert_eq!(done.len(), 2);
    let apart = done.iter().find(|row| row["output"]["strategy"] == "ps-async").unwrap();
    assert_eq!(apart["output"]["workers"].as_array().unwrap().len(), 2);
    let hosts: Vec<&str> = apart["output"]["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|task| task["host"].as_str())
        .collect();
    assert!(hosts.contains(&"host-1") && hosts.contains(&"host-2"), "{hosts:?}");
    let page = std::fs::read_to_string(here.join("apart/sweep.md")).unwrap();
    assert!(page.contains("Every worker had a host of its own"), "{page}");
    // The same without hosts is another measurement.
    let near = sweep_in(here, &["--out", "apart", "--vary", "strategy=ps-async,one-device"]);
    assert_eq!(near.status.code(), Some(2));
}

/// `--json` behind `--` made every cell fail, one after the other; a value that no command takes failed in its cells only.
#[test]
fn what_every_cell_would_refuse_is_said_before_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let train = ["--", "train", "--model", "softmax", "--data", DATA, "--steps", "2"];
    for (vary, more, needle) in [
        ("batch-size=10,20", &["--json"][..], "`--json` behind `--` has no effect"),
        ("lr=0.1,fast", &[][..], "expected a number such as 0.1"),
        ("lr=0.1,0.2", &["--thread", "1"][..], "--thread"),
    ] {
        let call = [&["sweep", "--vary", vary][..], &train, more].concat();
        let output = command(&call).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(needle) && said.contains("hint:"), "{said}");
        assert!(!folder.path().join("sweeps").exists(), "{vary}: a cell was begun");
    }
}

/// A command that is shown is one that a shell takes: `&` in a data set's name put the rest into the background.
#[test]
fn a_dry_run_shows_commands_that_can_be_copied() {
    let data = "generated:images?size=8&classes=2&examples=20";
    let call = ["sweep", "--dry-run", "--vary", "lr=0.1", "--", "train", "--model", "softmax"];
    let output = command(&[&call[..], &["--data", data]].concat()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains(&format!("--data '{data}'")), "{shown}");
}
