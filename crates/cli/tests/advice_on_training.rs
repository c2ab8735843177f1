//! `advise parallel`, `advise batch`, `advise scale` over our own runs, and `simulate`, through the real binary.

#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use std::path::Path;

use support::{json_in, run_in, said};

#[track_caller]
fn asked(folder: &Path, words: &[&str]) -> Value {
    json_in(folder, &[words, &["--json"]].concat())
}

#[track_caller]
fn fails(folder: &Path, args: &[&str], exit: i32, parts: &[&str]) {
    let output = run_in(folder, args);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(exit), "{args:?}: {text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// A short run of softmax on digits made here.
fn trained(folder: &Path, batch: &str) -> String {
    if !folder.join("digits").exists() {
        asked(folder, &["data", "synth", "digits", "digits", "--train", "2000", "--test", "100"]);
    }
    let args =
        ["train", "--model", "softmax", "--data", "digits", "--out", "runs", "--steps", "200"];
    let summary = asked(folder, &[&args[..], &["--batch-size", batch, "--quiet"]].concat());
    format!("runs/{}", summary["run"].as_str().unwrap())
}

#[test]
fn oracle_ranks_every_strategy_and_says_what_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let cluster =
        "workers = [\"a:1\", \"a:2\", \"b:1\", \"b:2\", \"c:1\", \"c:2\", \"d:1\", \"d:2\"]\n";
    std::fs::write(at.join("cluster.toml"), cluster).unwrap();
    let pairs = r#"{"pairs": [{"round_trip_ms": 0.1, "mib_per_second": 1000.0}, {"round_trip_ms": 0.2, "mib_per_second": 500.0}]}"#;
    std::fs::write(at.join("check.json"), pairs).unwrap();
    let base = ["advise", "parallel", "--model", "lenet", "--batch", "64"];
    let flags = [
        "--cluster",
        "cluster.toml",
        "--check",
        "check.json",
        "--chart",
        "o.svg",
        "--save-layers",
        "l.json",
    ];
    let answer = asked(at, &[&base[..], &flags[..]].concat());
    let rows = answer["projections"].as_array().unwrap();
    for strategy in ["serial", "data", "spatial", "pipeline", "filter", "channel", "data+filter"] {
        assert!(rows.iter().any(|row| row["strategy"] == strategy), "{strategy} is missing");
    }
    // Two workers on each of four hosts; the worst pair of the report decides.
    assert_eq!(answer["machines"]["tasks_per_host"], serde_json::json!([2, 2, 2, 2]));
    assert_eq!(answer["machines"]["network"]["bandwidth"], 500.0 * f64::from(1u32 << 20));
    assert_eq!(answer["machines"]["network"]["latency"], 1e-4);
    let pipeline = rows.iter().find(|row| row["strategy"] == "pipeline" && row["workers"] == 8);
    assert!(pipeline.unwrap()["infeasible"].as_str().unwrap().contains("at most 5 workers"));
    let seconds = |row: &Value| row["epoch_seconds"].as_f64().unwrap();
    let ranking = answer["ranking"].as_array().unwrap();
    assert!(ranking.windows(2).all(|pair| seconds(&pair[0]) <= seconds(&pair[1])));
    assert!(std::fs::read_to_string(at.join("o.svg")).unwrap().starts_with("<svg"));
    // Measured layers serve again, and give the same answer to the digit.
    let again = asked(
        at,
        &[
            &base[..],
            &[
                "--cluster",
                "cluster.toml",
                "--check",
                "check.json",
                "--layers",
                "l.json",
                "--local-network",
                "1GB",
            ],
        ]
        .concat(),
    );
    assert_eq!(again["network"], answer["network"]);
    fails(
        at,
        &[&base[..], &["--layers", "check.json"]].concat(),
        1,
        &["holds no layer times", "hint:"],
    );
    fails(at, &[&base[..], &["--network", "fast"]].concat(), 2, &["10Gbit"]);
    fails(at, &["advise", "parallel", "--model", "lenett"], 2, &["lenet", "hint:"]);
}

#[test]
fn batch_advice_comes_with_intervals_from_timings_or_from_runs() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    trained(at, "20");
    trained(at, "100");
    let base = [
        "advise",
        "batch",
        "--model",
        "softmax",
        "--data",
        "digits",
        "--gradients",
        "6",
        "--warm-up",
        "20",
    ];
    for extra in [&["--sizes", "8,256"][..], &["--runs", "runs"]] {
        let found = asked(at, &[&base[..], extra].concat());
        let batch = &found["advice"]["batch"];
        let (low, value, high) = (
            batch["low"].as_f64().unwrap(),
            batch["value"].as_f64().unwrap(),
            batch["high"].as_f64().unwrap(),
        );
        assert!(1.0 <= low && low <= value && value <= high && high <= 200.0, "{batch}");
        assert!(found["noise_scale"]["examples"]["value"].as_f64().unwrap() > 0.0);
        assert!(found["advice"]["rate"]["value"].as_f64().unwrap() > 0.0);
    }
    fails(at, &[&base[..], &["--sizes", "8"]].concat(), 2, &["at least two --sizes"]);
    // Steps of one run made forty times slower: no line, no answer.
    let run = trained(at, "20");
    let events = at.join(&run).join("events-worker-0.jsonl");
    let text = std::fs::read_to_string(&events).unwrap();
    let slower = text.lines().map(|line| {
        let mut event: Value = serde_json::from_str(line).unwrap();
        if let Some(seconds) = event["data"]["seconds"].as_f64() {
            event["data"]["seconds"] = (40.0 * seconds).into();
        }
        format!("{event}\n")
    });
    std::fs::write(&events, slower.collect::<String>()).unwrap();
    let words = ["no line fits", "% off", "batch 20", "hint:", "--runs"];
    fails(at, &[&base[..], &["--runs", "runs"]].concat(), 1, &words);
    fails(
        at,
        &["advise", "batch", "--model", "lenet", "--data", "digits", "--runs", "runs"],
        1,
        &["no run of `lenet`"],
    );
}

#[test]
fn simulation_starts_from_a_run_and_says_where_it_leaves_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let run = trained(at, "100");
    for strategy in ["multi-worker", "ps-sync", "ps-async"] {
        let found = asked(
            at,
            &[
                "simulate",
                &run,
                "--workers",
                "8",
                "--strategy",
                strategy,
                "--network",
                "10Gbit",
                "--latency",
                "50us",
                "--steps",
                "50",
            ],
        );
        let outcomes = found["outcomes"].as_array().unwrap();
        let workers: Vec<u64> =
            outcomes.iter().map(|row| row["workers"].as_u64().unwrap()).collect();
        assert_eq!(workers, [1, 2, 4, 8]);
        assert!(outcomes.iter().all(|row| row["examples_per_second"].as_f64().unwrap() > 0.0));
        assert_eq!(outcomes[3]["staleness"].is_object(), strategy == "ps-async");
        let tasks = found["tasks"].as_array().unwrap();
        assert!(tasks.len() == 8 && tasks.iter().all(|task| task["wait"].as_f64().is_some()));
        let doubts = found["extrapolates"].as_array().unwrap();
        assert!(
            doubts
                .iter()
                .any(|doubt| doubt.as_str().unwrap().contains("8 workers from a run of 1"))
        );
    }
    fails(at, &["simulate", "digits"], 1, &["digits", "hint:"]);
    fails(at, &["simulate", &run, "--workers", "0"], 2, &["out of range"]);
    fails(
        at,
        &["simulate", &run, "--workers", "300", "--strategy", "ps-sync"],
        2,
        &["cannot share a batch of 100"],
    );
}

#[test]
fn bare_number_of_a_latency_was_taken_for_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let parallel = ["advise", "parallel", "--model", "lenet"];
    let batch = ["advise", "batch", "--model", "softmax", "--data", "digits"];
    let ask = ["advise", "ask", "--state", "s.json", "--catalog", "m.csv"];
    let cloud = ["advise", "cloud", "--catalog", "m.csv", "--exec", "{machine} {count}"];
    for (command, flag, number, spelled) in [
        (&["simulate", "run"][..], "--latency", "50", "50us, 50ms, 50s or 50min"),
        (&["simulate", "run"], "--local-latency", "5", "5us"),
        (&["simulate", "run"], "--network", "10", "10Gbit"),
        (&["simulate", "run"], "--local-network", "10", "10Gbit"),
        (&parallel, "--latency", "50", "50us"),
        (&parallel, "--memory", "16", "16GiB"),
        (&batch, "--memory", "16", "16GiB"),
        (&ask, "--deadline", "600", "600s"),
        (&["advise", "scale", "runs.csv"], "--deadline", "600", "600s"),
        (&cloud, "--timeout", "0.5", "0.5s"),
    ] {
        let words = ["the unit is missing", flag, spelled];
        fails(at, &[command, &[flag, number]].concat(), 2, &words);
    }
}

#[test]
fn network_is_called_assumed_only_where_it_was_not_given() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let run = trained(at, "100");
    let assumed = |flags: &[&str]| {
        let base = ["simulate", &run, "--workers", "4", "--strategy", "ps-sync", "--steps", "20"];
        let found = asked(at, &[&base[..], &["--no-measure"], flags].concat());
        let doubts = found["extrapolates"].as_array().unwrap().iter();
        let of_network = doubts.filter(|doubt| doubt.as_str().unwrap().contains("assumed"));
        of_network.map(|doubt| doubt.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (network, latency) = (["--network", "10Gbit"], ["--latency", "50us"]);
    assert!(assumed(&[network, latency].concat()).is_empty());
    assert!(assumed(&["--one-machine"]).is_empty(), "nothing travels");
    let [of_latency] = &assumed(&network)[..] else { panic!("one part is assumed") };
    assert!(of_latency.contains("latency") && !of_latency.contains("--network"), "{of_latency}");
    let [of_bandwidth] = &assumed(&latency)[..] else { panic!("one part is assumed") };
    assert!(
        of_bandwidth.contains("bandwidth") && !of_bandwidth.contains("--latency"),
        "{of_bandwidth}"
    );
    // Two tasks on each host still meet others through the network.
    assert_eq!(assumed(&["--per-host", "2"]).len(), 1);
}

#[test]
fn own_runs_are_points_of_a_curve_and_rows_of_a_history() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let run = trained(at, "100");
    // One size is not enough for a curve, and the error says what is needed.
    fails(at, &["advise", "scale", "runs"], 1, &["at least", "hint:"]);
    let machine: Value =
        serde_json::from_str(&std::fs::read_to_string(at.join(&run).join("machine.json")).unwrap())
            .unwrap();
    let gib = machine["memory_bytes"].as_f64().unwrap() / f64::from(1u32 << 30);
    let cores = machine["cores"].as_u64().unwrap();
    let head = "machine,count,cores,memory_gib,usd_per_hour\n";
    std::fs::write(
        at.join("m.csv"),
        format!("{head}here,1;2,{cores},{gib},0.1\nbig,1;2,{},{gib},0.9\n", 4 * cores),
    )
    .unwrap();
    let asked = asked(
        at,
        &["advise", "ask", "--state", "s.json", "--catalog", "m.csv", "--history", "runs"],
    );
    assert!(asked["next"]["machine"].is_string(), "{asked}");
    std::fs::write(at.join("other.csv"), format!("{head}big,1,{},{gib},0.9\n", 4 * cores)).unwrap();
    fails(
        at,
        &["advise", "ask", "--state", "t.json", "--catalog", "other.csv", "--history", "runs"],
        1,
        &[&run, "no 1 x machine"],
    );
}

/// The prediction from a small run stands beside a larger one while that goes on, and a run that is held up leaves the range.
#[test]
fn a_live_run_is_held_against_its_prediction() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let small = trained(at, "64");
    let words = [
        "train",
        "--model",
        "softmax",
        "--data",
        "digits",
        "--out",
        "live",
        "--steps",
        "100000000",
    ];
    let more = ["--strategy", "multi-worker", "--workers", "2", "--batch-size", "64", "--quiet"];
    let mut live = support::command_in(at, &[&words[..], &more].concat())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    let run = loop {
        let found = std::fs::read_dir(at.join("live")).into_iter().flatten().flatten().next();
        let run = found.map(|entry| format!("live/{}", entry.file_name().to_string_lossy()));
        let has_steps = |run: &String| {
            let log = std::fs::read_to_string(at.join(run).join("events-worker-0.jsonl"));
            log.is_ok_and(|log| log.contains("\"step\""))
        };
        if let Some(run) = run.filter(has_steps) {
            break run;
        }
        assert!(begun.elapsed() < paceline_testing::HANG, "no run began");
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    let words =
        ["simulate", &small, "--strategy", "multi-worker", "--one-machine", "--against", &run];
    let mut asked =
        support::command_in(at, &[&words[..], &["--no-measure", "--steps", "20"]].concat())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
    // It says the rate of a run that goes on, and goes on itself.
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(asked.stdout.take().unwrap()));
    let running = lines.find(|line| line.as_ref().unwrap().starts_with("running, step ")).unwrap();
    assert!(running.unwrap().contains(" examples/s ("));
    let stop = std::process::Command::new("kill").args(["-INT", &live.id().to_string()]).status();
    assert!(stop.unwrap().success());
    live.wait().unwrap();
    let last = lines.map(|line| line.unwrap()).last().unwrap();
    assert!(asked.wait().unwrap().success());
    assert!(!last.starts_with("running") && last.contains("measured"), "{last}");
    let answer = json_in(at, &[&words[..], &["--no-measure", "--steps", "20", "--json"]].concat());
    let against = &answer["against"];
    let number = |value: &Value| value.as_f64().unwrap();
    let (low, high) = (number(&against["expected"]["low"]), number(&against["expected"]["high"]));
    let measured = number(&against["measured"]);
    let wanted = if measured < low {
        "below"
    } else if measured > high {
        "above"
    } else {
        "inside"
    };
    assert_eq!(against["standing"], wanted, "{against}");
    assert!(low > 0.0 && measured > 0.0, "{against}");
    fails(at, &["simulate", &small, "--against", "nowhere"], 1, &["nowhere"]);
}

/// Layers and profiles that Python writes are what the program reads; the script's own torch is a stand-in with the calls that are used.
const WRITTEN: &str = r#"
import time, paceline
paceline.write_profile(
    "profile.json", "resnet50", {64: [0.2, 0.21], 32: 0.1}, parameters=25e6, value_bytes=2,
    messages=[(0.5, 15e6), (1.0, 10e6)], input_share=0.1,
)
class Values:
    def numel(self):
        return 100000000
class Tensor:
    is_cuda = False
    def __init__(self, *shape):
        self.shape = shape
    def __getitem__(self, part):
        return Tensor(part.stop, *self.shape[1:])
    def float(self):
        return self
    def sum(self):
        return self
    def backward(self):
        for layer in (second, first):
            layer.fire("full_backward_pre")
            time.sleep(2e-4 * self.shape[0])
            layer.fire("full_backward", None, None)
class Handle:
    def __init__(self, hooks, hook):
        self.hooks, self.hook = hooks, hook
        hooks.append(hook)
    def remove(self):
        self.hooks.remove(self.hook)
class Layer:
    kernel_size = (3, 3)
    def __init__(self):
        self.hooks = {}
    def children(self):
        return iter(())
    def parameters(self):
        return iter([Values()])
    def fire(self, when, *rest):
        for hook in self.hooks.get(when, []):
            hook(self, *rest)
    def __getattr__(self, name):
        if not name.startswith("register_"):
            raise AttributeError(name)
        when = name[len("register_"):-len("_hook")]
        return lambda hook: Handle(self.hooks.setdefault(when, []), hook)
    def __call__(self, given):
        self.fire("forward_pre", given)
        time.sleep(1e-4 * given.shape[0])
        made = Tensor(given.shape[0], 8, 4, 4)
        self.fire("forward", (given,), made)
        return made
first, second = Layer(), Layer()
class Model:
    def named_modules(self):
        return [("", self), ("first", first), ("second", second)]
    def children(self):
        return iter((first, second))
    def zero_grad(self):
        pass
    def __call__(self, given):
        return second(first(given))
layers = paceline.torch_layers(Model(), Tensor(64, 3, 4, 4), update_seconds=0.01)
assert [layer["name"] for layer in layers] == ["first", "second"], layers
assert layers[0]["input"] == [4, 4, 3] and layers[0]["output"] == [4, 4, 8], layers
assert layers[0]["kernel"] == 3 and layers[0]["parameters"] == 100000000 and layers[0]["update"] == 0.005, layers
assert all(layer["forward"] >= 1e-5 and layer["backward"] >= 2e-5 for layer in layers), layers
paceline.write_layers("layers.json", "two", layers)
for wrong in ({}, {32: 0.0}):
    try:
        paceline.write_profile("bad.json", "x", wrong, parameters=1)
        raise AssertionError("written")
    except ValueError:
        pass
"#;

#[test]
fn profiles_and_layers_that_python_writes_are_simulated_and_projected() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let Some(python) = paceline_testing::python("json") else { return };
    let package = paceline_testing::workspace().join("crates/cli/python");
    let mut command = std::process::Command::new(python);
    let output =
        command.current_dir(at).args(["-c", WRITTEN]).env("PYTHONPATH", package).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let base = ["simulate", "--profile", "profile.json", "--workers", "8", "--per-host", "4"];
    let links = ["--network", "10Gbit", "--latency", "50us"];
    let found = asked(at, &[&base[..], &links[..]].concat());
    // Each of eight workers has 64 examples: the slowest takes 0.21 s, and the last message 2*7*(20 MB/8)/1.25 GB/s = 28 ms.
    assert_eq!(found["batch_size"], 512, "{found}");
    let rate = |found: &Value| found["outcomes"][3]["updates_per_second"].as_f64().unwrap();
    assert!((1.0 / rate(&found) - 0.239).abs() < 0.005, "{found}");
    // A step that was timed says what the network gives, and is then what comes out.
    let slower = asked(at, &[&base[..], &links[..], &["--measured-step", "8=400ms"]].concat());
    let share = slower["network_share"].as_f64().unwrap();
    assert!((0.01..1.0).contains(&share), "{slower}");
    assert!((rate(&slower) * 0.4 - 1.0).abs() < 0.02, "{slower}");
    let base =
        ["advise", "parallel", "--layers", "layers.json", "--workers", "8", "--per-host", "4"];
    let base = [&base[..], &links[..], &["--local-network", "10GB", "--batch-size", "64"]].concat();
    let found = asked(at, &base);
    assert_eq!((&found["network"]["name"], &found["calibration"]), (&"two".into(), &Value::Null));
    let data = |found: &Value, workers: u64| {
        let rows = found["projections"].as_array().unwrap();
        let row = rows.iter().find(|row| row["strategy"] == "data" && row["workers"] == workers);
        row.unwrap()["epoch_seconds"].as_f64().unwrap() / (60_000.0 / 64.0)
    };
    let (within, across) = (2.0 * data(&found, 4), 3.0 * data(&found, 8));
    let steps = [format!("4={}ms", 1e3 * within), format!("8={}ms", 1e3 * across)];
    let timed = asked(
        at,
        &[&base[..], &["--measured-step", &steps[0], "--measured-step", &steps[1]]].concat(),
    );
    assert!((data(&timed, 4) / within - 1.0).abs() < 1e-3, "{}", timed["calibration"]);
    assert!((data(&timed, 8) / across - 1.0).abs() < 1e-3, "{}", timed["calibration"]);
    for (wrong, part) in [
        ("8", "8=120ms"),
        ("8=400", "the unit is missing"),
        ("0=1s", "8=120ms"),
        ("8=1s@none", "8=120ms@512"),
    ] {
        fails(at, &["simulate", "--profile", "profile.json", "--measured-step", wrong], 2, &[part]);
    }
    std::fs::write(at.join("bad.json"), r#"{"name": "x", "steps": [], "parameters": 1}"#).unwrap();
    fails(at, &["simulate", "--profile", "bad.json"], 1, &["bad.json", "`steps` is empty"]);
}

#[test]
fn a_profilers_trace_becomes_a_profile_of_each_batch_size() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (batch, long) in [("32", 1e5), ("64", 2e5)] {
        let steps: Vec<Value> = (0..12)
            .map(|step| {
                let name = format!("ProfilerStep#{step}");
                serde_json::json!({"ph": "X", "name": name, "ts": long * f64::from(step), "dur": long, "pid": 1, "tid": 1})
            })
            .collect();
        let trace = serde_json::json!({ "traceEvents": steps });
        std::fs::write(at.join(format!("{batch}.json")), trace.to_string()).unwrap();
        let (file, run) = (format!("{batch}.json"), format!("runs/of-{batch}"));
        let words = ["import", &file, "--out", &run, "--parameters", "1000000"];
        asked(at, &[&words[..], &["--batch-size", batch, "--profile", "profile.json"]].concat());
    }
    let profile: Value =
        serde_json::from_str(&std::fs::read_to_string(at.join("profile.json")).unwrap()).unwrap();
    let sizes: Vec<&Value> =
        profile["steps"].as_array().unwrap().iter().map(|steps| &steps["batch_size"]).collect();
    assert_eq!((sizes, &profile["parameters"]), (vec![&32.into(), &64.into()], &1e6.into()));
    let found = asked(at, &["simulate", "--profile", "profile.json", "--workers", "1"]);
    let rate = found["outcomes"][0]["examples_per_second"].as_f64().unwrap();
    assert!((rate / 320.0 - 1.0).abs() < 1e-6, "{found}");
    // The runs themselves can be simulated, too.
    let found = asked(at, &["simulate", "runs/of-32", "--workers", "2", "--no-measure"]);
    assert_eq!(
        (&found["batch_size"], found["outcomes"].as_array().unwrap().len()),
        (&32.into(), 2)
    );
    // Of another model: nothing is mixed.
    let words =
        ["import", "64.json", "--out", "runs/other", "--parameters", "5", "--batch-size", "8"];
    fails(
        at,
        &[&words[..], &["--profile", "profile.json"]].concat(),
        1,
        &["of a model of 1000000"],
    );
}
