//! Descriptions as launchers really write them, and the ways they go wrong.

use super::*;
use std::collections::HashMap;

fn read(variables: &[(&str, &str)]) -> Result<Option<Cluster>, SpecError> {
    let map: HashMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    from_environment(&|name| map.get(name).cloned())
}

fn task(name: &str) -> TaskId {
    name.parse().unwrap()
}

const TF_CONFIG: &str = r#"{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["a:2"]},
    "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"}"#;

#[test]
fn nothing_set_is_no_cluster() {
    assert_eq!(read(&[]).unwrap(), None);
    assert_eq!(read(&[("TF_CONFIG", "{}"), ("RANK", "0")]).unwrap(), None);
}

#[test]
fn tf_config_lists_every_task() {
    let cluster = read(&[("TF_CONFIG", TF_CONFIG)]).unwrap().unwrap();
    assert_eq!(cluster.own, task("worker/1"));
    let names: Vec<String> = cluster.tasks().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["chief/0", "worker/0", "worker/1", "ps/0"]);
}

#[test]
fn tf_config_knows_master_and_text_indices_and_unlisted_evaluators() {
    let cluster = read(&[(
        "TF_CONFIG",
        r#"{"cluster": {"master": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": "0"}}"#,
    )]);
    assert_eq!(cluster.unwrap().unwrap().tasks()[0], task("chief/0"));
    let cluster = read(&[(
        "TF_CONFIG",
        r#"{"cluster": {"chief": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}"#,
    )]);
    assert_eq!(cluster.unwrap().unwrap().own, task("evaluator/0"));
}

#[test]
fn mistakes_in_tf_config_are_named() {
    let error = |text: &str| read(&[("TF_CONFIG", text)]).unwrap_err().to_string();
    assert!(error("{oops").contains("TF_CONFIG is not valid JSON"));
    assert!(error(&TF_CONFIG.replace("\"index\": 1", "\"index\": 2")).contains("worker/2"));
    assert!(
        error(&TF_CONFIG.replace("c:1", "b:1"))
            .contains("worker/0 and worker/1 have the same address")
    );
    assert!(error(&TF_CONFIG.replace("\"ps\"", "\"pss\"")).contains("`pss` is no role"));
    for bad in ["a", "a:", "a:0", "a:70000", ":1", "::1:5"] {
        let text = error(&TF_CONFIG.replace("\"a:2\"", &format!("\"{bad}\"")));
        assert!(text.contains("ps/0") && text.contains("host:port"), "{bad}: {text}");
    }
    assert!(read(&[("TF_CONFIG", &TF_CONFIG.replace("\"a:2\"", "\"[::1]:5\""))]).is_ok());
}

#[test]
fn vertex_pools_are_roles() {
    let spec = r#"{"cluster": {"workerpool0": ["a:1"], "workerpool1": ["b:1"], "workerpool2": ["c:1"]},
        "task": {"type": "workerpool2", "index": 0, "trial": "x"}, "environment": "cloud"}"#;
    let cluster = read(&[("CLUSTER_SPEC", spec)]).unwrap().unwrap();
    assert_eq!(cluster.own, task("ps/0"));
    assert_eq!(cluster.tasks(), [task("chief/0"), task("worker/0"), task("ps/0")]);
}

const TORCHRUN: &[(&str, &str)] =
    &[("RANK", "2"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "fe80::1"), ("MASTER_PORT", "29500")];

#[test]
fn torchrun_ranks_meet_at_the_master() {
    let cluster = read(TORCHRUN).unwrap().unwrap();
    assert_eq!(cluster.own, task("worker/2"));
    let wanted = Members::Rendezvous { workers: 4, coordinator: "[fe80::1]:29500".to_owned() };
    assert_eq!(cluster.members, wanted);
    let error = read(&TORCHRUN[..3]).unwrap_err().to_string();
    assert!(error.contains("MASTER_PORT"), "{error}");
}

#[test]
fn mpi_on_one_machine_needs_no_address_and_on_several_it_does() {
    let local = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PMIX_NAMESPACE", "prterun-host-7@1"),
    ];
    let cluster = read(&local).unwrap().unwrap();
    assert!(matches!(cluster.members, Members::Rendezvous { workers: 2, ref coordinator }
        if coordinator.starts_with("127.0.0.1:")));
    let mut spread = local.to_vec();
    spread[2].1 = "1";
    assert!(read(&spread).unwrap_err().to_string().contains("PACELINE_COORDINATOR"));
    spread.push(("PACELINE_COORDINATOR", "10.0.0.1:7000"));
    assert!(read(&spread).is_ok());
}

#[test]
fn mpich_needs_an_address_and_is_not_taken_for_slurm() {
    let job = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")];
    let error = read(&job).unwrap_err().to_string();
    assert!(error.contains("MPICH") && error.contains("PACELINE_COORDINATOR"), "{error}");
    let told = [&job[..], &[("PACELINE_COORDINATOR", "127.0.0.1:7000")]].concat();
    let cluster = read(&told).unwrap().unwrap();
    assert_eq!((cluster.origin.as_str(), cluster.own.index), ("MPICH", 1));
    // `srun --mpi=pmi2` sets the first two beside its own.
    assert!(read(&job[..2]).unwrap().is_none());
}

#[test]
fn slurm_lists_of_hosts_are_unfolded() {
    for (list, first) in [
        ("node7", "node7"),
        ("a,b", "a"),
        ("node[01-04,7],login", "node01"),
        ("r[2-3]n[10-12]", "r2n10"),
        ("n[3]-ib", "n3-ib"),
    ] {
        assert_eq!(slurm::first_host(list).as_deref(), Some(first), "{list}");
    }
    for bad in ["", "n[", "n[]", "[x]"] {
        assert_eq!(slurm::first_host(bad), None, "{bad}");
    }
    let cluster = read(&[
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_JOB_NODELIST", "n[1-4]"),
        ("SLURM_JOB_ID", "123456"),
    ]);
    let wanted = Members::Rendezvous { workers: 4, coordinator: "n1:23456".to_owned() };
    assert_eq!(cluster.unwrap().unwrap().members, wanted);
}

#[test]
fn the_stronger_source_wins_and_contradictions_are_errors() {
    let mut both = TORCHRUN.to_vec();
    both.extend([
        ("SLURM_PROCID", "2"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_JOB_NODELIST", "n1"),
        ("SLURM_JOB_ID", "1"),
    ]);
    assert_eq!(read(&both).unwrap().unwrap().origin, "torchrun");
    let with = |name: &'static str, value: &'static str| {
        let mut changed = both.clone();
        changed.iter_mut().filter(|pair| pair.0 == name).for_each(|pair| pair.1 = value);
        read(&changed)
    };
    let error = with("SLURM_NTASKS", "8").unwrap_err().to_string();
    assert!(
        error.contains("torchrun and Slurm contradict") && error.contains("4 tasks and 8 tasks")
    );
    assert!(with("SLURM_PROCID", "1").is_err());
    // A job of one task is only the shell that torchrun was started from.
    let mut shell = both.clone();
    shell.iter_mut().filter(|pair| pair.0 == "SLURM_NTASKS").for_each(|pair| pair.1 = "1");
    shell.iter_mut().filter(|pair| pair.0 == "SLURM_PROCID").for_each(|pair| pair.1 = "0");
    assert!(read(&shell).is_ok());
}

#[test]
fn our_own_file_refuses_typos() {
    let text = "chief = \"a:1\"\nworkers = [\"b:1\"]\n";
    assert_eq!(from_toml(text, task("worker/0")).unwrap().tasks().len(), 2);
    assert!(from_toml(text, task("ps/0")).is_err());
    assert!(matches!(from_toml("worker = [\"b:1\"]\n", task("worker/0")), Err(SpecError::Toml(_))));
}

proptest::proptest! {
    #[test]
    fn arbitrary_text_is_an_error_not_a_panic(text in ".{0,200}") {
        for name in ["TF_CONFIG", "CLUSTER_SPEC"] {
            let _ = read(&[(name, &text)]);
        }
        let _ = slurm::first_host(&text);
        let _ = from_toml(&text, task("worker/0"));
    }
}
