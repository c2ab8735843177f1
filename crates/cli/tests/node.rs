//! `paceline node` as real processes on loopback: every way of describing a
//! cluster ends in the same run, and a wrong one in words.

#![allow(clippy::unwrap_used)]

mod cluster_support;
#[path = "cluster_support/places.rs"]
mod places;
mod support;

use cluster_support::*;
use places::*;

use support::paceline;
use tempfile::TempDir;

const FLAGS: &[&str] = &[
    "--model",
    "softmax",
    "--data",
    DIGITS,
    "--batch-size",
    "20",
    "--lr",
    "0.1",
    "--threads",
    "1",
    "--no-tensorboard",
    "--json",
];

fn node(flags: &[&str], environment: &[(&str, String)]) -> Run {
    node_in(tempfile::tempdir().unwrap(), &[FLAGS, flags].concat(), environment)
}

fn node_in(out: TempDir, flags: &[&str], environment: &[(&str, String)]) -> Run {
    let mut command = paceline();
    command.arg("node").args(flags).arg("--out").arg(out.path());
    if !flags.contains(&"--join-timeout") {
        command.args(["--join-timeout", JOINS]);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    spawn(command, out)
}

/// Waits until a task says whom it waits for: from then on it asks several times a second.
fn waits_for(run: &mut Run, task: &str) {
    wait_for(&format!("it to wait for {task}"), || {
        assert!(run.child.try_wait().unwrap().is_none(), "ended early: {}", run.talk());
        run.talk().contains(&format!("waiting for {task}"))
    });
}

fn tf_config(ports: &[u16], role: &str, index: usize) -> String {
    format!(
        r#"{{"cluster":{{"chief":["127.0.0.1:{}"],"worker":["127.0.0.1:{}"],"ps":["127.0.0.1:{}"]}},"task":{{"type":"{role}","index":{index}}}}}"#,
        ports[0], ports[1], ports[2]
    )
}

#[test]
fn tf_config_describes_a_cluster_with_a_chief_and_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(3), key(&folder, "key"));
    let flags = ["--strategy", "ps-async", "--epochs", "3"];
    let runs: Vec<Run> = [("chief", 0), ("worker", 0), ("ps", 0)]
        .iter()
        .map(|(role, index)| {
            let config = tf_config(&ports, role, *index);
            node(&flags, &[("TF_CONFIG", config), ("PACELINE_KEY_FILE", key.clone())])
        })
        .collect();
    let ended: Vec<Ended> = runs.into_iter().map(Run::end).collect();
    for task in &ended {
        assert_eq!(task.code(), 0, "{}", task.talk);
    }
    assert!(ended[0].talk.contains("chief/0 of 3 tasks, as TF_CONFIG says"), "{}", ended[0].talk);
    let summary = ended[0].json();
    assert_eq!(summary["global_steps"], 90, "{summary}");
    let names: Vec<&str> = summary["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| worker["task"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["chief/0", "worker/0"]);
    assert_eq!(ended[1].json()["task"], "worker/0");
    assert_eq!(ended[2].json()["task"], "ps/0");
    // Without a shared disk, every host has its own records under the name the chief gave.
    let run = summary["run"].as_str().unwrap();
    assert!(ended[1].out.path().join(run).join("events-worker-0.jsonl").exists());
    assert!(!ended[1].out.path().join(run).join("summary.json").exists());
}

#[test]
fn torchrun_ranks_meet_at_one_address() {
    let folder = tempfile::tempdir().unwrap();
    let (port, key) = (ports(1)[0], key(&folder, "key"));
    let flags = ["--strategy", "multi-worker", "--epochs", "2"];
    let runs: Vec<Run> = (0..2)
        .map(|rank: u32| {
            node(
                &flags,
                &[
                    ("RANK", rank.to_string()),
                    ("WORLD_SIZE", "2".to_owned()),
                    ("MASTER_ADDR", "127.0.0.1".to_owned()),
                    ("MASTER_PORT", port.to_string()),
                    ("PACELINE_KEY_FILE", key.clone()),
                ],
            )
        })
        .collect();
    let ended: Vec<Ended> = runs.into_iter().map(Run::end).collect();
    assert_eq!((ended[0].code(), ended[1].code()), (0, 0), "{}\n{}", ended[0].talk, ended[1].talk);
    assert_eq!(ended[0].json()["examples"], 1200);
}

/// What describes one of two tasks: flags and environment.
type Description = (Vec<String>, Vec<(&'static str, String)>);
/// Describes a job on these ports to one of its tasks.
type Describe<'a> = &'a dyn Fn(&[u16], usize) -> Description;

#[test]
fn every_other_launcher_starts_the_same_job() {
    let folder = tempfile::tempdir().unwrap();
    let key = key(&folder, "key");
    let file = folder.path().join("cluster.toml");
    let pool = |ports: &[u16], index: usize| -> Description {
        let spec = format!(
            r#"{{"cluster":{{"workerpool0":["127.0.0.1:{}"],"workerpool1":["127.0.0.1:{}"]}},"task":{{"type":"workerpool{index}","index":0}}}}"#,
            ports[0], ports[1]
        );
        (Vec::new(), vec![("CLUSTER_SPEC", spec)])
    };
    let slurm = |ports: &[u16], index: usize| -> Description {
        let variables = vec![
            ("SLURM_PROCID", index.to_string()),
            ("SLURM_NTASKS", "2".to_owned()),
            ("SLURM_JOB_NODELIST", "127.0.0.1".to_owned()),
            ("SLURM_JOB_ID", "7".to_owned()),
            ("PACELINE_PORT", ports[0].to_string()),
        ];
        (Vec::new(), variables)
    };
    let mpich = |ports: &[u16], index: usize| -> Description {
        let variables = vec![
            ("PMI_RANK", index.to_string()),
            ("PMI_SIZE", "2".to_owned()),
            ("MPI_LOCALNRANKS", "2".to_owned()),
            ("PACELINE_COORDINATOR", format!("127.0.0.1:{}", ports[0])),
        ];
        (Vec::new(), variables)
    };
    let open_mpi = |ports: &[u16], index: usize| -> Description {
        let variables = vec![
            ("OMPI_COMM_WORLD_RANK", index.to_string()),
            ("OMPI_COMM_WORLD_SIZE", "2".to_owned()),
            ("PACELINE_COORDINATOR", format!("127.0.0.1:{}", ports[0])),
        ];
        (Vec::new(), variables)
    };
    let own_file = |ports: &[u16], index: usize| -> Description {
        let text =
            format!("chief = \"127.0.0.1:{}\"\nworkers = [\"127.0.0.1:{}\"]\n", ports[0], ports[1]);
        std::fs::write(&file, text).unwrap();
        let task = ["chief/0", "worker/0"][index];
        let flags = ["--cluster", file.to_str().unwrap(), "--task", task];
        (flags.map(str::to_owned).to_vec(), Vec::new())
    };
    let all: [(&str, Describe<'_>); 5] = [
        ("CLUSTER_SPEC", &pool),
        ("Slurm", &slurm),
        ("MPICH", &mpich),
        ("Open MPI", &open_mpi),
        ("cluster file", &own_file),
    ];
    for (name, describe) in all {
        let ports = ports(2);
        let runs: Vec<Run> = [0, 1]
            .iter()
            .map(|index| {
                let (flags, mut environment) = describe(&ports, *index);
                environment.push(("PACELINE_KEY_FILE", key.clone()));
                let mut words = vec!["--strategy", "multi-worker", "--steps", "6"];
                words.extend(flags.iter().map(String::as_str));
                node(&words, &environment)
            })
            .collect();
        let ended: Vec<Ended> = runs.into_iter().map(Run::end).collect();
        for task in &ended {
            assert_eq!(task.code(), 0, "{name}: {}", task.talk);
            let words = format!("of 2 tasks, as {name} says");
            assert!(task.talk.contains(&words), "{words}: {}", task.talk);
        }
        assert_eq!(ended[0].json()["global_steps"], 6, "{name}");
        assert_eq!(ended[0].json()["workers"].as_array().unwrap().len(), 2, "{name}");
    }
}

#[test]
fn descriptions_that_contradict_each_other_are_an_error_that_says_both() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.toml");
    std::fs::write(&file, "workers = [\"127.0.0.1:7001\", \"127.0.0.1:7002\"]\n").unwrap();
    let base = ["--strategy", "multi-worker", "--epochs", "1"];
    let place = ["--cluster", file.to_str().unwrap(), "--task", "worker/1"];
    let given = [&base[..], &place].concat();
    let config = |ports: &[u16]| ("TF_CONFIG", workers(ports, "worker", 1));
    let rank = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
        .into_iter()
        .zip(["0", "2", "127.0.0.1", "7001"].map(str::to_owned));
    for (flags, environment, words) in [
        (
            &given[..],
            vec![config(&[7001, 7003])],
            "cluster file and TF_CONFIG contradict each other: worker/1 is at 127.0.0.1:7002 and at 127.0.0.1:7003",
        ),
        (
            &given[..4],
            std::iter::once(config(&[7001, 7002])).chain(rank).collect(),
            "TF_CONFIG and torchrun contradict each other: this process is worker/1 and rank 0",
        ),
    ] {
        let ended = node(flags, &environment).end();
        assert_eq!(ended.code(), 1, "{}", ended.talk);
        assert!(ended.talk.contains(words), "{words}: {}", ended.talk);
        assert!(ended.talk.contains("hint: the first would win"), "{}", ended.talk);
    }
}

/// It ends, and no task waits for it: TensorFlow's `TF_CONFIG` does not list evaluators.
#[test]
fn an_evaluator_that_is_not_listed_may_come_while_the_others_train() {
    let folder = tempfile::tempdir().unwrap();
    let key = key(&folder, "key");
    for strategy in ["multi-worker", "ps-async"] {
        let ports = ports(3);
        let servers = format!("\"ps\":[\"127.0.0.1:{}\"],\"worker\"", ports[2]);
        let start = |role: &str, index: usize| {
            let mut config = workers(&ports[..2], role, index);
            if strategy == "ps-async" {
                config = config.replacen("\"worker\"", &servers, 1);
            }
            let more = ["--strategy", strategy, "--steps", "1000000", "--eval-every", "100"];
            let flags = [FLAGS, &more].concat();
            let environment = [("TF_CONFIG", config), ("PACELINE_KEY_FILE", key.clone())];
            node_in(tempfile::tempdir().unwrap(), &flags, &environment)
        };
        let chief = start("worker", 0);
        let mut others = vec![start("worker", 1)];
        if strategy == "ps-async" {
            others.push(start("ps", 0));
        }
        let run = chief.folder();
        let scored = |by: serde_json::Value| {
            let all = events(&run, "evaluation");
            all.iter().any(|event| event["data"]["scored_by"] == by)
        };
        wait_for("the workers to score", || scored(serde_json::Value::Null));
        others.push(start("evaluator", 0));
        wait_for("the evaluator to score", || scored("evaluator/0".into()));
        signal(chief.child.id(), "-INT");
        let chief = chief.end();
        assert!(chief.talk.contains("evaluator/0 joined at 127.0.0.1:"), "{}", chief.talk);
        let ended: Vec<Ended> = others.into_iter().map(Run::end).collect();
        for task in &ended {
            assert_eq!(task.code(), 0, "{strategy}: {}", task.talk);
        }
        assert_eq!(ended.last().unwrap().json()["task"], "evaluator/0", "{strategy}");
        let summary: serde_json::Value = chief.json();
        assert_eq!(summary["status"], "cancelled", "{strategy}: {summary}");
    }
}

#[test]
fn a_flag_makes_the_run_wait_for_an_evaluator_that_is_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(2), key(&folder, "key"));
    let start = |role: &str, index: usize| {
        let config = workers(&ports, role, index);
        let flags =
            ["--strategy", "multi-worker", "--evaluator", "--steps", "60", "--eval-every", "20"];
        node(&flags, &[("TF_CONFIG", config), ("PACELINE_KEY_FILE", key.clone())])
    };
    let (mut chief, other) = (start("worker", 0), start("worker", 1));
    waits_for(&mut chief, "evaluator/0");
    let ended = [chief, other, start("evaluator", 0)].map(Run::end);
    for task in &ended {
        assert_eq!(task.code(), 0, "{}", task.talk);
        assert!(task.talk.contains("of 3 tasks, as TF_CONFIG says"), "{}", task.talk);
    }
    let summary = ended[0].json();
    assert!(summary["final"]["test_loss"].as_f64().is_some(), "{summary}");
}

/// What is listened on is not what the others dial.
#[test]
fn the_address_that_the_cluster_names_stays_whatever_a_task_listens_on() {
    let folder = tempfile::tempdir().unwrap();
    let key = key(&folder, "key");
    for listed in [true, false] {
        let ports = ports(2);
        let runs: Vec<Run> = [0, 1]
            .iter()
            .map(|index| {
                let bind = format!("0.0.0.0:{}", ports[*index]);
                let mut environment = rank(*index as u32, ports[0], &key);
                if listed {
                    environment = vec![environment.pop().unwrap()];
                    environment.push(("TF_CONFIG", workers(&ports, "worker", *index)));
                }
                node(
                    &["--strategy", "multi-worker", "--steps", "6", "--listen", &bind],
                    &environment,
                )
            })
            .collect();
        let ended: Vec<Ended> = runs.into_iter().map(Run::end).collect();
        for task in &ended {
            assert_eq!(task.code(), 0, "listed {listed}: {}", task.talk);
        }
        let words = format!("worker/1 joined at 127.0.0.1:{}", ports[1]);
        assert!(ended[0].talk.contains(&words), "listed {listed}, {words}: {}", ended[0].talk);
    }
}

#[test]
fn a_task_that_never_starts_is_named_with_its_address_and_worth_retrying() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(3), key(&folder, "key"));
    let environment = [("TF_CONFIG", tf_config(&ports, "chief", 0)), ("PACELINE_KEY_FILE", key)];
    let play = |patience: &str| {
        let flags = ["--strategy", "ps-async", "--epochs", "3", "--join-timeout", patience];
        node(&flags, &environment).end()
    };
    // Where this machine stops the chief for all of its patience, it has not looked who is there.
    let looked = |ended: &Ended| {
        ["waiting for worker/0", "connection refused"].iter().all(|it| ended.talk.contains(it))
    };
    let ended = with_patience(play, looked);
    assert_eq!(ended.code(), 75, "{}", ended.talk);
    for (task, port) in [("worker/0", ports[1]), ("ps/0", ports[2])] {
        let missing = format!("{task} at 127.0.0.1:{port} is missing");
        assert!(ended.talk.contains(&missing), "{missing}: {}", ended.talk);
    }
    assert!(ended.talk.contains("connection refused"), "{}", ended.talk);
    assert!(ended.talk.contains("waiting for worker/0"), "a table while it waits: {}", ended.talk);
    let left = std::fs::read_dir(ended.out.path()).unwrap().count();
    assert_eq!(left, 0, "no empty run folder stays behind");
}

#[test]
fn a_chief_that_never_starts_is_named_with_its_address_and_worth_retrying() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(2), key(&folder, "key"));
    let flags = ["--strategy", "multi-worker", "--epochs", "3", "--join-timeout", "2"];
    let config = workers(&ports, "worker", 1);
    let ended = node(&flags, &[("TF_CONFIG", config), ("PACELINE_KEY_FILE", key)]).end();
    assert_eq!(ended.code(), 75, "{}", ended.talk);
    let missing = format!("worker/0 at 127.0.0.1:{} could not be joined within 2 s", ports[0]);
    assert!(ended.talk.contains(&missing), "{missing}: {}", ended.talk);
}

#[test]
fn different_settings_are_refused_and_both_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (ports, key) = (ports(2), key(&folder, "key"));
    let start = |index: usize, epochs: &str, patience: &str| {
        let config = workers(&ports, "worker", index);
        let flags = ["--strategy", "multi-worker", "--join-timeout", patience, "--epochs", epochs];
        node(&flags, &[("TF_CONFIG", config), ("PACELINE_KEY_FILE", key.clone())])
    };
    // The chief's patience decides how long this takes, so the other is there before it.
    let play = |patience: &str| {
        let mut other = start(1, "5", JOINS);
        waits_for(&mut other, "worker/0");
        (start(0, "3", patience).end(), other.end())
    };
    let (chief, other) = with_patience(play, |(chief, _)| chief.talk.contains("refused"));
    assert_eq!(other.code(), 1, "{}", other.talk);
    assert!(other.talk.contains("stop.epochs is 3.0 and 5.0"), "{}", other.talk);
    assert_eq!(chief.code(), 75, "{}", chief.talk);
    assert!(chief.talk.contains("worker/1") && chief.talk.contains("refused"), "{}", chief.talk);
}

/// Environment of one of two torchrun ranks that meet at a port.
fn rank(rank: u32, port: u16, key: &str) -> Vec<(&'static str, String)> {
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", "2".to_owned()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
        ("PACELINE_KEY_FILE", key.to_owned()),
    ]
}

#[test]
#[cfg(debug_assertions)] // a program that was built for use cannot pretend
fn another_version_of_the_program_is_refused_and_both_are_named() {
    refuses_a_version("99.1.7");
}

/// Builds of one version that said other things to each other trained without each other: exit 0, and one had only lost the rest.
#[test]
#[cfg(debug_assertions)]
fn a_build_of_the_same_version_that_names_no_wire_format_is_refused() {
    // As builds of 0.1.0 before 2026-11-19 called themselves.
    refuses_a_version("0.1.0");
}

#[cfg(debug_assertions)]
fn refuses_a_version(pretended: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (port, key) = (ports(1)[0], key(&folder, "key"));
    fn flags(patience: &str) -> [&str; 6] {
        ["--strategy", "multi-worker", "--epochs", "2", "--join-timeout", patience]
    }
    let mut pretender = rank(1, port, &key);
    pretender.push(("PACELINE_PRETEND_VERSION", pretended.to_owned()));
    let play = |patience: &str| {
        let mut other = node(&flags(JOINS), &pretender);
        waits_for(&mut other, "worker/0");
        (node(&flags(patience), &rank(0, port, &key)).end(), other.end())
    };
    let own = paceline_wire::version(env!("CARGO_PKG_VERSION"));
    let words = [
        format!("this is version {own}, that is version {pretended}"),
        format!("this is version {pretended}, that is version {own}"),
    ];
    let says = |talk: &str| words.iter().any(|words| talk.contains(words));
    let (chief, other) = with_patience(play, |(chief, _)| says(&chief.talk));
    assert_eq!(other.code(), 1, "{}", other.talk);
    assert!(says(&other.talk), "{}", other.talk);
    // The chief says it too, and that this task is still missing.
    assert_eq!(chief.code(), 75, "{}", chief.talk);
    assert!(says(&chief.talk), "{}", chief.talk);
    assert!(chief.talk.contains("worker/1"), "{}", chief.talk);
}

#[test]
fn tasks_of_a_cluster_resume_where_their_checkpoint_was() {
    let folder = tempfile::tempdir().unwrap();
    let key = key(&folder, "key");
    for strategy in ["multi-worker", "ps-async"] {
        let servers = if strategy == "ps-async" { &["--ps", "1"][..] } else { &[] };
        let world = if strategy == "ps-async" { "3" } else { "2" };
        let start = |outs: Vec<TempDir>, flags: &[&str]| -> Vec<Ended> {
            let port = ports(1)[0];
            let runs = outs.into_iter().enumerate().map(|(number, out)| {
                let mut environment = rank(number as u32, port, &key);
                environment[1].1 = world.to_owned();
                node_in(out, flags, &environment)
            });
            runs.collect::<Vec<Run>>().into_iter().map(Run::end).collect()
        };
        let count: usize = world.parse().unwrap();
        let outs = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        let first = ["--strategy", strategy, "--steps", "60"];
        let ended = start(outs, &[FLAGS, &first, servers].concat());
        for task in &ended {
            assert_eq!(task.code(), 0, "{strategy}: {}", task.talk);
        }
        let name = ended[0].json()["run"].as_str().unwrap().to_owned();
        let outs: Vec<TempDir> = ended.into_iter().map(|task| task.out).collect();
        let again = ["--resume", &name, "--steps", "90", "--json", "--no-tensorboard"];
        let ended = start(outs, &again);
        for task in &ended {
            assert_eq!(task.code(), 0, "{strategy}: {}", task.talk);
        }
        assert!(ended[0].talk.contains("continuing at step 60"), "{strategy}: {}", ended[0].talk);
        assert_eq!(ended[0].json()["global_steps"], 90, "{strategy}");
    }
}

#[test]
fn without_key_or_cluster_the_hint_says_what_to_do() {
    let flags = ["--strategy", "multi-worker", "--epochs", "1"];
    let nothing = node(&flags, &[]).end();
    assert_eq!(nothing.code(), 2, "{}", nothing.talk);
    assert!(nothing.talk.contains("hint: set TF_CONFIG"), "{}", nothing.talk);
    let config = tf_config(&ports(3), "chief", 0);
    let keyless = node(&flags, &[("TF_CONFIG", config)]).end();
    assert_eq!(keyless.code(), 2, "{}", keyless.talk);
    assert!(keyless.talk.contains("paceline key new"), "{}", keyless.talk);
    // It can be done without, and is said aloud.
    let config = workers(&ports(1), "worker", 0);
    let flags = ["--strategy", "multi-worker", "--steps", "2", "--insecure"];
    let open = node(&flags, &[("TF_CONFIG", config)]).end();
    assert_eq!(open.code(), 0, "{}", open.talk);
    assert!(open.talk.contains("warning: --insecure: anyone on the network"), "{}", open.talk);
}

#[test]
fn a_socket_that_was_promised_and_does_not_listen_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let key = key(&folder, "key");
    for promised in ["nonsense", "0", "987654"] {
        let mut environment = rank(0, ports(1)[0], &key);
        environment.push(("PACELINE_LISTEN_FD", promised.to_owned()));
        let flags = ["--strategy", "multi-worker", "--epochs", "1"];
        let ended = node(&flags, &environment).end();
        assert_eq!(ended.code(), 1, "{promised}: {}", ended.talk);
        assert!(ended.talk.contains(&format!("PACELINE_LISTEN_FD={promised}")), "{}", ended.talk);
    }
}
