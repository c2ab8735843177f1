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
fn nothing_set_means_no_cluster() {
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
    assert!(error(&TF_CONFIG.replace("\"ps\"", "\"pss\"")).contains("`pss` is not a role"));
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

const CLUSTER_SPEC: &str = r#"{"cluster": {"workerpool0": ["a:1"], "workerpool1": ["b:1", "c:1"], "workerpool2": ["a:2"]},
    "task": {"type": "workerpool1", "index": 1}}"#;

#[test]
fn two_lists_of_the_same_tasks_must_name_the_same_addresses_and_the_same_own_task() {
    let both = |spec: &str| read(&[("TF_CONFIG", TF_CONFIG), ("CLUSTER_SPEC", spec)]);
    assert_eq!(both(CLUSTER_SPEC).unwrap().unwrap().origin, "TF_CONFIG");
    for (change, words) in [
        (("c:1", "d:1"), "worker/1 is at c:1 and at d:1"),
        (("\"index\": 1", "\"index\": 0"), "this process is worker/1 and worker/0"),
        ((", \"workerpool2\": [\"a:2\"]", ""), "ps/0 is at a:2 and not listed"),
        (("workerpool2", "workerpool3"), "ps/0 is at a:2 and not listed"),
    ] {
        let changed = CLUSTER_SPEC.replace(change.0, change.1);
        assert_ne!(changed, CLUSTER_SPEC);
        let error = both(&changed).unwrap_err().to_string();
        assert!(error.contains("TF_CONFIG and CLUSTER_SPEC contradict"), "{error}");
        assert!(error.contains(words), "{words}: {error}");
    }
    // One of the two leaves the evaluator out, as TensorFlow does.
    let scored = CLUSTER_SPEC.replace("\"a:2\"]", "\"a:2\"], \"workerpool3\": [\"e:1\"]");
    assert!(both(&scored).is_ok());
}

#[test]
fn a_rank_that_is_another_task_of_the_list_is_a_contradiction() {
    let list = |workers: &str, own: &str| {
        format!(r#"{{"cluster": {{{workers}}}, "task": {{"type": "worker", "index": {own}}}}}"#)
    };
    let with = |config: &str, rank: &str, ranks: &str| {
        let mut all = TORCHRUN.to_vec();
        (all[0].1, all[1].1) = (rank, ranks);
        all.push(("TF_CONFIG", config));
        read(&all).map(|cluster| cluster.unwrap().origin)
    };
    let workers = list(r#""worker": ["a:1", "b:1"]"#, "1");
    assert_eq!(with(&workers, "1", "2").unwrap(), "TF_CONFIG");
    let error = with(&workers, "0", "2").unwrap_err().to_string();
    assert!(error.contains("this process is worker/1 and rank 0"), "{error}");
    // The chief is the first of all.
    let chief = list(r#""chief": ["a:1"], "worker": ["b:1", "c:1"]"#, "0");
    assert!(with(&chief, "1", "3").is_ok());
    assert!(with(&chief, "0", "3").is_err());
    // Some number servers first, and some last.
    let servers = list(r#""ps": ["a:1"], "worker": ["b:1", "c:1"]"#, "0");
    assert!(with(&servers, "0", "3").is_ok() && with(&servers, "1", "3").is_ok());
    assert!(with(&servers, "1", "4").is_err());
}

#[test]
fn a_file_is_held_against_the_environment() {
    let file = || {
        let text = "chief = \"a:1\"\nworkers = [\"b:1\", \"c:1\"]\nps = [\"a:2\"]\n";
        from_toml(text, task("worker/1")).unwrap()
    };
    let beside = |variables: &[(&str, &str)]| {
        strongest(Some(file()), &|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    };
    assert_eq!(beside(&[]).unwrap(), Some(file()));
    assert_eq!(beside(&[("TF_CONFIG", TF_CONFIG)]).unwrap(), Some(file()));
    let moved = TF_CONFIG.replace("\"c:1\"", "\"x:1\"");
    let error = beside(&[("TF_CONFIG", &moved)]).unwrap_err().to_string();
    assert!(error.contains("cluster file and TF_CONFIG contradict"), "{error}");
    assert!(error.contains("worker/1 is at c:1 and at x:1"), "{error}");
    let mut ranks = TORCHRUN.to_vec();
    assert!(beside(&ranks).is_ok(), "four tasks and four ranks");
    ranks[1].1 = "5";
    assert!(beside(&ranks).unwrap_err().to_string().contains("4 tasks and 5 tasks"));
    assert!(beside(&[("TF_CONFIG", "{oops")]).is_err(), "broken is not the same as absent");
}

#[test]
fn what_is_only_around_a_job_does_not_contradict_it() {
    // `srun torchrun --nproc-per-node 2` on two hosts: Slurm counts hosts.
    let mut nested = TORCHRUN.to_vec();
    nested.extend([
        ("SLURM_PROCID", "0"),
        ("SLURM_NTASKS", "2"),
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURM_JOB_ID", "1"),
    ]);
    assert!(read(&nested).unwrap_err().to_string().contains("4 tasks and 2 tasks"));
    nested.push(("GROUP_WORLD_SIZE", "2"));
    assert_eq!(read(&nested).unwrap().unwrap().origin, "torchrun");
    // MPI does not say where the first rank is, and it need not be asked.
    let mpi = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "4")];
    let spread = [("OMPI_COMM_WORLD_LOCAL_SIZE", "1"), ("TF_CONFIG", TF_CONFIG)];
    assert!(read(&mpi).is_err());
    assert_eq!(read(&[mpi, spread].concat()).unwrap().unwrap().origin, "TF_CONFIG");
}

#[test]
fn workers_are_counted_host_by_host_and_servers_are_not_workers() {
    let text = "chief = \"a:1\"\nworkers = [\"b:1\", \"a:2\", \"b:2\"]\nps = [\"c:1\"]\n";
    assert_eq!(workers_per_host(text).unwrap(), [2, 2]);
    assert_eq!(workers_per_host("chief = \"a:1\"\n").unwrap(), [1]);
    assert!(workers_per_host("ps = [\"c:1\"]\n").is_err());
    assert!(matches!(workers_per_host("worker = []\n"), Err(SpecError::Toml(_))));
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
