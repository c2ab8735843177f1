//! `paceline run` and `paceline monitor` on programs that know nothing of Paceline. PyTorch is too large to install for every test: a stand-in
//! with the parts of it that scripts call and the recorder listens to takes its place.

#![allow(clippy::unwrap_used)]

#[path = "support/stand_ins.rs"]
mod stand_ins;
mod support;

use serde_json::Value;
use stand_ins::*;
use std::{fs, process::Command};
use support::said;
use tempfile::TempDir;

/// A compiled step that is a method, and a compiled function beside it that trains nothing.
const JAX_SCRIPT: &str = "
import functools, time, jax
class Trainer:
    @functools.partial(jax.jit, static_argnums=0)
    def step(self, weights, batch):
        time.sleep(0.001)
        return {'w': jax.Array((3, 3))}, jax.Array((), 0.25)
@jax.jit
def evaluate(weights, batch): return jax.Array(())
@jax.jit()
def other(): return jax.Array(())
weights, trainer = {'w': jax.Array((3, 3))}, Trainer()
assert evaluate.lower() == 'lowered' and evaluate.__name__ == 'evaluate' and other().shape == ()
for number in range(150):
    time.sleep(0.02)
    batch = jax.Array((16, 8))
    weights, loss = trainer.step(weights, batch)
    evaluate(weights, batch)
print('trained')
";

#[test]
fn an_unchanged_script_leaves_a_run_with_a_verdict() {
    let Some(place) = place(SCRIPT) else { return };
    let output = place.run(&["run", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("trained"), "{output:?}");
    let found = document(&output);
    let summary = &found["summary"];
    // The first step begins the run; scoring is not part of it.
    assert_eq!(
        (&summary["global_steps"], &summary["examples"], &summary["status"]),
        (&119.into(), &(119 * 16).into(), &"done".into()),
        "{found}"
    );
    assert_eq!((&summary["model"], &summary["data"]), (&"train".into(), &"Photos".into()));
    let shares = &summary["phases"];
    assert!(shares["input"].as_f64().unwrap() > 0.5, "{found}");
    let run = place.folder.path().join(found["run"].as_str().unwrap());
    assert_eq!(files(&run), ["events-worker-0.jsonl", "machine.json", "resources-worker-0.csv"]);
    let log = run.join("events-worker-0.jsonl");
    let errors = paceline_testing::schema_errors("run-folder.schema.json", &log);
    assert_eq!(errors.unwrap_or_default(), "");
    // 120 scored batches took as long to come as those trained on.
    let (all, steps) = (&summary["seconds"], &summary["step_seconds"]);
    assert!(all.as_f64().unwrap() > 1.4 * steps.as_f64().unwrap(), "{summary}");
}

#[test]
fn the_exit_code_is_the_scripts_and_its_exception_the_reason() {
    let script = SCRIPT.replace("print('trained')", "raise ValueError('shapes differ')");
    let Some(place) = place(&script) else { return };
    let output = place.run(&["run", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let found = document(&output);
    assert_eq!(found["summary"]["status"], "failed", "{found}");
    assert_eq!(found["verdict"], "ValueError: shapes differ", "{found}");
    assert!(said(&output).contains("ValueError: shapes differ"), "the script's own traceback");
}

#[test]
fn a_framework_that_is_not_as_expected_trains_on_without_a_record() {
    let Some(place) = place(SCRIPT) else { return };
    let optimizer = place.folder.path().join("lib/torch/optim/optimizer.py");
    let text = fs::read_to_string(&optimizer).unwrap();
    fs::write(&optimizer, text.replace("register_optimizer_step_post_hook", "other")).unwrap();
    let output = place.run(&["run"]);
    assert!(output.status.success(), "{}", said(&output));
    let talk = said(&output);
    assert!(talk.contains("paceline stops recording: ImportError"), "{talk}");
    assert!(talk.contains("no training step was seen"), "{talk}");
    assert!(!place.folder.path().join("runs").exists(), "no phantom run, and no folder for it");
}

#[test]
fn a_command_that_trains_nothing_is_judged_by_its_resources() {
    let Some(place) = place("import time\ntime.sleep(1)") else { return };
    let output = place.run(&["run", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let found = document(&output);
    assert_eq!((&found["run"], &found["exit"]), (&Value::Null, &0.into()));
    assert!(!found["verdict"].as_str().unwrap().is_empty(), "{found}");
    assert!(!place.folder.path().join("runs").exists(), "nothing was recorded");
    let output = support::paceline()
        .current_dir(place.folder.path())
        .args(["run", "--", "/no/such/program"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("/no/such/program"), "{}", said(&output));
    assert!(!place.folder.path().join("runs").exists(), "nothing was recorded");
}

/// It was told to end other programs, and that its training loop is of an unknown kind.
#[test]
fn a_script_that_is_not_there_is_not_judged() {
    let Some(place) = place("import sys\nsys.exit(2)") else { return };
    let output = place.run(&["run"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let talk = said(&output);
    assert!(talk.contains("ended with exit code 2 before any training step was seen"), "{talk}");
    assert!(!talk.contains("Keras") && !talk.contains("next "), "{talk}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "no verdict");
    assert!(!place.folder.path().join("runs").exists(), "nothing was recorded");
}

/// An empty folder of runs that the user made is the user's.
#[test]
fn a_folder_of_runs_that_was_there_before_stays() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("runs")).unwrap();
    let output =
        support::paceline().current_dir(&folder).args(["run", "--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(files(&folder.path().join("runs")), [""; 0]);
}

/// The script's own site customisation still happens, and workers that it starts record nothing.
#[test]
fn what_the_interpreter_would_have_loaded_is_loaded_still() {
    let script = "
import multiprocessing, sys
def child(): import torch; torch.optim.SGD().step
if __name__ == '__main__':
    worker = multiprocessing.get_context('spawn').Process(target=child); worker.start(); worker.join()
    print('customised:', sys.customised, worker.exitcode)
";
    let Some(place) = place(script) else { return };
    let own = place.folder.path().join("lib/sitecustomize.py");
    fs::write(own, "import sys\nsys.customised = True\n").unwrap();
    let output = place.run(&["run"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("customised: True 0"), "{text}{}", said(&output));
}

/// Two spinning children once read as 0.00 %.
#[test]
fn monitor_counts_the_whole_process_tree_and_ends_in_a_verdict() {
    let spin = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let script = format!("({spin}) & ({spin}) & wait");
    let output = support::paceline()
        .args(["monitor", "--every", "0.1", "--json", "--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let column = |name: &str| found["columns"][name]["peak"].as_f64().unwrap();
    assert!(column("process_cpu_percent") > 0.0, "{found}");
    assert!(column("process_count") >= 3.0, "{found}");
    let hold = found["verdict"]["hold"].as_str().unwrap();
    assert!(
        ["busy", "short-of-cores", "too-many-threads", "stolen", "throttled"].contains(&hold),
        "{found}"
    );
}

#[test]
fn monitor_watches_a_process_that_already_runs() {
    let monitor = |process: u32| {
        support::paceline()
            .args(["monitor", "--every", "0.1", "--json", "--pid", &process.to_string()])
            .output()
            .unwrap()
    };
    let mut child = Command::new("sleep").arg("1").spawn().unwrap();
    let process = child.id();
    // It ends by itself; a zombie has ended too.
    let output = monitor(process);
    assert!(output.status.success(), "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["verdict"]["hold"], "idle", "{found}");
    child.wait().unwrap();
    let output = monitor(process);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("no such process"), "{}", said(&output));
}

#[test]
fn a_compiled_step_of_jax_is_found_by_being_fed_its_own_results() {
    let Some(place) = place(JAX_SCRIPT) else { return };
    let output = place.run(&["run", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let document = document(&output);
    let summary = &document["summary"];
    // The first two calls show that it trains, and the run begins with the second.
    assert_eq!((&summary["global_steps"], &summary["global_batch"]), (&148.into(), &16.into()));
    assert_eq!(summary["final"]["train_loss"], 0.25, "{document}");
    assert!(summary["phases"]["input"].as_f64().unwrap() > 0.0, "{document}");
}

/// A rate that was there to be read and was not passed on.
#[test]
fn the_learning_rate_of_an_unchanged_keras_script_is_recorded() {
    let script = "
import time, keras
class Adam:
    learning_rate = 0.125
model = keras.Model()
model.optimizer = Adam()
model.fit([0] * 160, batch_size=4)
";
    let Some(place) = place(script) else { return };
    let lib = place.folder.path().join("lib");
    for (name, text) in FRAMEWORKS {
        fs::create_dir_all(lib.join(name).parent().unwrap()).unwrap();
        fs::write(lib.join(name), text).unwrap();
    }
    let fit = "
from . import callbacks as kinds
class Model:
    def fit(self, x=None, batch_size=None, callbacks=None):
        for each in callbacks or []:
            each.model = self
            each.on_epoch_begin(0)
            for batch in range(len(x) // batch_size):
                each.on_train_batch_begin(batch)
                each.on_train_batch_end(batch, {'loss': 0.5})
";
    fs::write(lib.join("keras/__init__.py"), format!("from . import callbacks\n{fit}")).unwrap();
    let found = document(&place.run(&["run", "--json"]));
    assert_eq!(found["summary"]["global_steps"], 39, "{found}");
    let run = place.folder.path().join(found["run"].as_str().unwrap());
    let log = fs::read_to_string(run.join("events-worker-0.jsonl")).unwrap();
    let steps: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["kind"] == "step")
        .collect();
    assert!(!steps.is_empty());
    assert!(steps.iter().all(|step| step["data"]["learning_rate"] == 0.125), "{log}");
}

/// The parts of Keras, Lightning and Hugging Face's Trainer that callbacks meet.
const FRAMEWORKS: &[(&str, &str)] = &[
    (
        "keras/__init__.py",
        "from . import callbacks\nclass Model:\n    def fit(self, x=None, callbacks=None): pass\n",
    ),
    (
        "keras/callbacks.py",
        "class Callback:\n    params = {'batch_size': 8}\nclass CallbackList: pass\n",
    ),
    ("lightning/__init__.py", ""),
    ("lightning/pytorch/__init__.py", ""),
    ("lightning/pytorch/callbacks.py", "class Callback: pass\n"),
    ("transformers/__init__.py", "class TrainerCallback: pass\n"),
];

const CALLBACKS: &str = "
import time, types, paceline
loss = types.SimpleNamespace(detach=lambda: 0.5)
keras = paceline.keras_callback()
keras.model = types.SimpleNamespace(name='net', optimizer=types.SimpleNamespace(learning_rate=0.5))
keras.on_train_begin()
for batch in range(5):
    keras.on_train_batch_begin(batch)
    keras.on_train_batch_end(batch, {'loss': 0.25})
keras.on_test_end({'loss': 0.125, 'accuracy': 0.75})
keras.on_train_end()
trainer = types.SimpleNamespace(train_dataloader=types.SimpleNamespace(batch_size=4), world_size=2, sanity_checking=False, callback_metrics={'val_loss': 0.125})
lightning = paceline.lightning_callback('by name', data='numbers')
lightning.on_train_start(trainer, None)
for batch in range(6):
    lightning.on_train_batch_start(trainer, None, None, batch)
    lightning.on_train_batch_end(trainer, None, {'loss': loss}, None, batch)
lightning.on_validation_end(trainer, None)
lightning.on_exception(trainer, None, ValueError('shapes differ'))
args = types.SimpleNamespace(train_batch_size=2, gradient_accumulation_steps=2, world_size=1)
hugging = paceline.trainer_callback()
hugging.on_train_begin(args, None, None, model=object())
for step in range(7):
    hugging.on_step_begin(args, None, None)
    hugging.on_log(args, None, None, {'loss': 0.5, 'learning_rate': 0.1})
    hugging.on_step_end(args, None, None)
hugging.on_train_end(args, None, None)
";

#[test]
fn callbacks_of_keras_lightning_and_hugging_face_record_their_runs() {
    let Some(place) = place(CALLBACKS) else { return };
    let lib = place.folder.path().join("lib");
    for (name, text) in FRAMEWORKS {
        fs::create_dir_all(lib.join(name).parent().unwrap()).unwrap();
        fs::write(lib.join(name), text).unwrap();
    }
    let package = paceline_testing::workspace().join("crates/cli/python");
    let path = std::env::join_paths([&lib, &package]).unwrap();
    let mut command = Command::new(&place.python);
    command.arg("train.py").current_dir(place.folder.path()).env("PYTHONPATH", path);
    let output = command.output().unwrap();
    assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
    let mut found = support::json_in(place.folder.path(), &["runs", "--json"]);
    let runs = found.as_array_mut().unwrap();
    runs.sort_by_key(|run| run["summary"]["global_steps"].as_u64());
    let figure = |at: usize, name: &str| runs[at]["summary"][name].clone();
    assert_eq!(figure(0, "model"), "net");
    assert_eq!((figure(0, "global_steps"), figure(0, "examples")), (5.into(), 40.into()));
    assert_eq!(figure(0, "final")["test_accuracy"], 0.75);
    assert_eq!((figure(1, "model"), figure(1, "examples")), ("by name".into(), 48.into()));
    assert_eq!(
        (&runs[1]["status"], &runs[1]["verdict"]),
        (&"failed".into(), &"ValueError: shapes differ".into())
    );
    assert_eq!((figure(2, "global_steps"), figure(2, "examples")), (7.into(), 28.into()));
}

/// A full disk left an empty run folder behind for every attempt.
#[test]
fn a_run_that_cannot_begin_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let Some(_disk) = paceline_testing::SmallDisk::mount(&disk, "16k") else { return };
    let output = support::command_in(&disk, &["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("No space left on device"), "{}", said(&output));
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
}
