//! `paceline compare --prove`: a recorded script repeated without what its verdict blames.

#![allow(clippy::unwrap_used)]

#[path = "support/stand_ins.rs"]
mod stand_ins;
mod support;

use serde_json::Value;
use stand_ins::*;
use std::{fs, process::Stdio};
use support::said;

/// A run that waits for its data, repeated in turns as it is and with one batch again and again.
#[test]
fn the_gain_that_a_verdict_speaks_of_is_measured() {
    let Some(place) = place(&SCRIPT.replace("time.sleep(0.01)", "time.sleep(0.05)")) else {
        return;
    };
    let here = place.folder.path();
    let run = document(&place.run(&["run", "--json"]))["run"].as_str().unwrap().to_owned();
    let prove = |more: &[&str]| {
        let mut command = support::paceline();
        command.current_dir(here).env("PYTHONPATH", here.join("lib")).stdin(Stdio::null());
        command.args(["compare", "--prove", &run, "--json"]).args(more).output().unwrap()
    };
    let output = prove(&["--pairs", "8", "--warm-up", "0", "--steps", "10"]);
    assert!(output.status.success(), "{}", said(&output));
    let found = document(&output);
    assert_eq!(found["proof"]["change"], "cached-batches", "{found}");
    assert!(found["proof"]["verdict"].as_str().unwrap().starts_with("input-bound"), "{found}");
    let median = |side: &str| found[side]["median"].as_f64().unwrap();
    // Each step of A sleeps for as long as 16 examples at 320 a second take.
    assert!(median("a") <= 320.0 && median("b") > median("a"), "{found}");
    assert_eq!(found["pairs"].as_array().unwrap().len(), 8);
    // A run of our own has no script to repeat.
    let own = "train --model softmax --data generated:digits?examples=200 --epochs 1 --out own";
    let words: Vec<&str> = own.split(' ').collect();
    assert!(support::run_in(here, &words).status.success());
    let own = format!("own/{}", files(&here.join("own"))[0]);
    let refused = support::run_in(here, &["compare", "--prove", &own]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("which script"), "{}", said(&refused));
}

/// `compare --prove` of a run, with its JSON.
fn proof(place: &Place, run: &str, pairs: &str) -> Value {
    let here = place.folder.path();
    let mut command = support::paceline();
    command.current_dir(here).env("PYTHONPATH", here.join("lib")).stdin(Stdio::null());
    command.args(["compare", "--prove", run, "--json", "--warm-up", "0", "--steps", "10"]);
    let output = command.args(["--pairs", pairs]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    document(&output)
}

/// Only the removal of the input had been tried with a script.
#[test]
fn a_run_bound_by_its_exchange_is_repeated_without_one() {
    let script = "
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
model, optimizer = DistributedDataParallel(lambda batch: batch), torch.optim.SGD()
for batch in DataLoader([torch.Tensor([0.0] * 16)] * 40):
    model(batch).backward()
    optimizer.step()
";
    let Some(place) = place(script) else { return };
    let here = place.folder.path();
    fs::remove_file(here.join("lib/torch/distributed.py")).unwrap();
    for (name, text) in DISTRIBUTED {
        let path = here.join("lib").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let sums = || fs::read(here.join("sums")).unwrap().len();
    let recorded = document(&place.run(&["run", "--json"]));
    let shares = &recorded["summary"]["phases"];
    assert!(shares["exchange"].as_f64().unwrap() > 0.5, "{recorded}");
    assert_eq!(sums(), 40);
    let found = proof(&place, recorded["run"].as_str().unwrap(), "8");
    assert_eq!(found["proof"]["change"], "no-exchange", "{found}");
    assert!(found["proof"]["verdict"].as_str().unwrap().contains("exchange"), "{found}");
    // The run begins with the first of eleven updates. Those of the other side summed nothing up.
    assert_eq!(sums() - 40, 8 * 11, "{found}");
}

/// A recorded run of a script that computes with more threads than there are cores, as its machine's readings say.
fn crowded(place: &Place) -> String {
    let run = place.folder.path().join("runs/crowded");
    fs::create_dir_all(&run).unwrap();
    let machine = serde_json::json!({
        "host": "here", "cores": 2, "host_cpus": 2,
        "command": format!("{} train.py", place.python.display()),
    });
    fs::write(run.join("machine.json"), machine.to_string()).unwrap();
    let columns = "time_seconds,elapsed_seconds,process_cpu_percent,process_threads,process_waiting_percent,cpu_idle_percent";
    let mut readings = format!("{columns}\n");
    let mut log = String::new();
    let mut add = |time: u32, kind: &str, data: Value| {
        let event = serde_json::json!({
            "v": 1, "time": time, "task": "worker/0", "kind": kind, "data": data,
        });
        log += &format!("{event}\n");
    };
    add(1000, "run_started", serde_json::json!({ "model": "train", "framework": "torch" }));
    for second in 1..=40 {
        let phases = serde_json::json!({ "compute": 1.0 });
        let data =
            serde_json::json!({ "step": second, "seconds": 1.0, "examples": 16, "phases": phases });
        add(1000 + second, "step", data);
        readings += &format!("{},{second},200,8,600,0\n", 1000 + second);
    }
    add(1040, "run_ended", serde_json::json!({ "status": "done", "step": 40, "seconds": 40.0 }));
    fs::write(run.join("events-worker-0.jsonl"), log).unwrap();
    fs::write(run.join("resources-worker-0.csv"), readings).unwrap();
    "runs/crowded".to_owned()
}

#[test]
fn a_run_with_too_many_threads_is_repeated_with_as_many_as_there_are_cores() {
    let script = "
import torch
torch.set_num_threads(8)
with open('threads', 'a') as file: file.write(f'{torch.get_num_threads()} ')
from torch.utils.data import DataLoader
optimizer = torch.optim.SGD()
for batch in DataLoader([torch.Tensor([0.0] * 16)] * 40):
    batch.backward()
    optimizer.step()
";
    let Some(place) = place(script) else { return };
    let torch = place.folder.path().join("lib/torch/__init__.py");
    let threads = "
_threads = [4]
def set_num_threads(number): _threads[0] = number
def get_num_threads(): return _threads[0]
";
    let text = fs::read_to_string(&torch).unwrap();
    fs::write(&torch, text.replace("def get_num_threads(): return 1\n", threads)).unwrap();
    let run = crowded(&place);
    let found = proof(&place, &run, "8");
    assert_eq!(found["proof"]["change"], "threads=2", "{found}");
    let verdict = found["proof"]["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("more threads than cores"), "{found}");
    // Whatever the script asks for.
    let told = fs::read_to_string(place.folder.path().join("threads")).unwrap();
    let with = |number: &str| told.split_whitespace().filter(|used| *used == number).count();
    assert_eq!((with("8"), with("2")), (8, 8), "{told}");
}
