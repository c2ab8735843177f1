//! `paceline report` as a real process: where it writes, and what it does not overwrite.

#![allow(clippy::unwrap_used)]

mod support;

use support::{run_in, said};

/// A folder with two short runs.
fn runs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let data = "generated:digits?examples=300";
        let args =
            ["train", "--model", "softmax", "--data", data, "--steps", "3", "--no-tensorboard"];
        let output = run_in(folder.path(), &args);
        assert!(output.status.success(), "{}", said(&output));
    }
    folder
}

/// `report runs/*` once wrote `report.html` into the folder of the first run.
#[test]
fn a_report_is_written_beside_the_runs_and_not_into_one() {
    let folder = runs();
    let here = folder.path();
    let runs: Vec<String> = std::fs::read_dir(here.join("runs"))
        .unwrap()
        .map(|run| format!("runs/{}", run.unwrap().file_name().to_str().unwrap()))
        .collect();
    let before: Vec<usize> =
        runs.iter().map(|run| std::fs::read_dir(here.join(run)).unwrap().count()).collect();
    for (format, file) in
        [("html", "report.html"), ("markdown", "report.md"), ("csv", "report.csv")]
    {
        let args: Vec<&str> = ["report", "--format", format]
            .into_iter()
            .chain(runs.iter().map(String::as_str))
            .collect();
        // Twice: a report may be written again.
        for _ in 0..2 {
            let output = run_in(here, &args);
            assert!(output.status.success(), "{format}: {}", said(&output));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains(&format!("2 runs in `{file}`")), "{text}");
        }
        assert!(here.join(file).is_file(), "{file}");
    }
    let after: Vec<usize> =
        runs.iter().map(|run| std::fs::read_dir(here.join(run)).unwrap().count()).collect();
    assert_eq!(before, after, "the runs' own folders are as they were");
}

#[test]
fn a_file_that_is_not_a_report_is_not_replaced_silently() {
    let folder = runs();
    let here = folder.path();
    for (format, file) in
        [("html", "report.html"), ("markdown", "report.md"), ("csv", "report.csv")]
    {
        std::fs::write(here.join(file), "my thesis").unwrap();
        let output = run_in(here, &["report", "runs", "--format", format]);
        assert_eq!(output.status.code(), Some(2), "{format}");
        assert!(
            said(&output).contains(file) && said(&output).contains("hint:"),
            "{}",
            said(&output)
        );
        assert_eq!(std::fs::read_to_string(here.join(file)).unwrap(), "my thesis");
        // Named by the user, it is replaced, and that is said.
        let output = run_in(here, &["report", "runs", "--format", format, "--out", file]);
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("replacing"), "{}", said(&output));
    }
}

/// For papers: one file for each chart, which needs neither the page's style nor custom properties.
#[test]
fn charts_are_written_as_drawings_of_their_own() {
    let folder = runs();
    let here = folder.path();
    // Twice: charts may be written again.
    for _ in 0..2 {
        let output = run_in(here, &["report", "runs", "--format", "svg", "--out", "figures"]);
        assert!(output.status.success(), "{}", said(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains("charts of 2 runs in `figures`"));
    }
    let files: Vec<_> =
        std::fs::read_dir(here.join("figures")).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.starts_with("<svg xmlns=") && !text.contains("var(--"), "{}", file.display());
    }
    std::fs::write(&files[0], "my thesis").unwrap();
    let output = run_in(here, &["report", "runs", "--format", "svg", "--out", "figures"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&files[0]).unwrap(), "my thesis");
    let output = run_in(here, &["report", "runs", "--format", "svg", "--out", "-"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("hint:"), "{}", said(&output));
}

/// Files that dstat and sar wrote, and one of ours: each a node by its name, on one page.
#[test]
fn recordings_of_any_monitor_are_reported_node_by_node() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let samples =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../runs/testdata/recordings");
    for name in ["dstat.csv", "sadf.csv"] {
        std::fs::copy(samples.join(name), here.join(name)).unwrap();
    }
    let output =
        run_in(here, &["monitor", "--every", "50ms", "--duration", "1s", "--csv", "ours.csv"]);
    assert!(output.status.success(), "{}", said(&output));
    let files = ["dstat.csv", "sadf.csv", "ours.csv"];
    let output = run_in(here, &[&["report"][..], &files[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("3 nodes in `report.html`"));
    let page = std::fs::read_to_string(here.join("report.html")).unwrap();
    for wanted in ["CPU, whole node", "Memory free", "CPU by core: sadf", ">dstat<", ">ours<"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("CPU, own processes"), "no process was watched");
    let output = run_in(here, &[&["report", "--format", "csv"][..], &files[..]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let table = std::fs::read_to_string(here.join("report.csv")).unwrap();
    assert_eq!(table.lines().count(), 4, "{table}");

    std::fs::write(here.join("half.csv"), "time_seconds,elapsed_seconds,a\n1,1,2\n2,2\n3,3,4\n")
        .unwrap();
    let output = run_in(here, &["report", "half.csv"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("`half.csv`, line 3: 2 values for 3 columns"),
        "{}",
        said(&output)
    );
    std::fs::write(here.join("thesis.txt"), "my thesis\n").unwrap();
    let output = run_in(here, &["report", "thesis.txt"]);
    assert!(said(&output).contains("`thesis.txt`, line 1: not a recording"), "{}", said(&output));
    assert!(said(&output).contains("hint:"), "{}", said(&output));
}

/// Preparing, measuring and multiplying record the machine; a data set stays as valid as it was.
#[test]
fn folders_of_other_commands_are_reported_too() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let works = |call: &str| {
        let output = run_in(here, &call.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{call}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    works("data synth photos photos --per-class 2");
    works("prepare photos shards --size 16 --shards 2");
    works("data verify shards");
    works("speedtest --records shards --batch-size 2 --batches 2 --repeats 2");
    works("matmul --size 400 --block 100 --workers 2 --record product");
    for (made, mark) in
        [("shards", "converting"), ("speedtest", "measured"), ("product", "half of the blocks")]
    {
        let text = works(&format!("report {made} --format markdown --out -"));
        assert!(text.contains(mark) && text.contains("CPU idle"), "{made}: {text}");
    }
    // Before and after: two of them beside each other.
    let text = works("report shards product --format markdown --out -");
    assert!(text.contains("| shards ") && text.contains("| product "), "{text}");
    let output = run_in(here, &["report", "shards", "photos"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("`photos` is not a recording"), "{}", said(&output));
}

/// A run whose name was mistyped was missing from the page, and nothing said so.
#[test]
fn a_run_that_is_not_there_is_not_left_out_in_silence() {
    let folder = runs();
    let here = folder.path();
    let call = |more: &str| run_in(here, &["report", "runs", more, "--out", "page.html"]);
    let missing = call("runs/nowhere");
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).contains("there is no run at `runs/nowhere`"), "{}", said(&missing));
    assert!(!here.join("page.html").exists());
    std::fs::create_dir(here.join("notes")).unwrap();
    let other = call("notes");
    assert!(other.status.success(), "{}", said(&other));
    assert!(said(&other).contains("`notes` holds no run and is left out"), "{}", said(&other));
    // What cannot be written is said once.
    let taken = run_in(here, &["report", "runs", "--out", "notes"]);
    assert_eq!(said(&taken).matches("cannot write").count(), 1, "{}", said(&taken));
    let around = run_in(here, &["train", "--resume", "runs", "--steps", "4"]);
    assert!(said(&around).contains("`runs` is a folder of runs: name one"), "{}", said(&around));
}
