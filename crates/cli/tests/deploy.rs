//! The files in `deploy/`, as far as they can be checked without the services: they parse, have the fields their service requires,
//! the variables it sets become the cluster that is meant, and every `paceline` in them is a command line of this program.
#![allow(clippy::unwrap_used)] // also in functions that tests share

use paceline_cluster::spec::{Cluster, from_environment, from_toml};
use paceline_wire::{Role, TaskId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use yaml_rust2::{Yaml, YamlLoader};

fn deploy() -> PathBuf {
    paceline_testing::workspace().join("deploy")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(deploy().join(name)).unwrap()
}

fn yaml(name: &str) -> Yaml {
    let mut documents = YamlLoader::load_from_str(&read(name)).unwrap();
    assert_eq!(documents.len(), 1, "{name}");
    documents.remove(0)
}

/// Follows a path of keys and numbers such as `spec.replicatedJobs.0.name`.
fn at<'a>(document: &'a Yaml, path: &str) -> &'a Yaml {
    path.split('.').fold(document, |value, key| {
        let next = match key.parse::<usize>() {
            Ok(index) => &value[index],
            Err(_) => &value[key],
        };
        assert!(!next.is_badvalue(), "`{path}`: nothing at `{key}`");
        next
    })
}

fn text<'a>(document: &'a Yaml, path: &str) -> &'a str {
    at(document, path).as_str().unwrap_or_else(|| panic!("`{path}` is not a string"))
}

fn words(document: &Yaml, path: &str) -> Vec<String> {
    let words = at(document, path).as_vec().unwrap();
    words.iter().map(|word| word.as_str().expect("arguments are text").to_owned()).collect()
}

/// The program's own parser takes it.
fn parses(arguments: &[String]) {
    let line = ["paceline".to_owned()].into_iter().chain(arguments.iter().cloned());
    if let Err(error) = paceline_cli::command().try_get_matches_from(line) {
        panic!("{arguments:?}: {error}");
    }
}

fn split(line: &str) -> Vec<String> {
    line.split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect()
}

fn cluster(variables: &[(&str, String)]) -> Cluster {
    let map: HashMap<&str, &String> =
        variables.iter().map(|(name, value)| (*name, value)).collect();
    from_environment(&|name| map.get(name).map(|value| (*value).clone())).unwrap().unwrap()
}

fn scripts() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![deploy()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if std::fs::read_to_string(&path).unwrap().starts_with("#!") {
                found.push(path);
            }
        }
    }
    found
}

#[test]
fn every_script_is_bash_that_stops_at_the_first_failure() {
    let scripts = scripts();
    assert_eq!(scripts.len(), 4, "{scripts:?}");
    for script in scripts {
        let checked = Command::new("bash").arg("-n").arg(&script).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        let source = std::fs::read_to_string(&script).unwrap();
        assert!(source.contains("set -euo pipefail"), "{}", script.display());
    }
}

#[test]
fn every_file_is_in_the_table() {
    let readme = read("README.md");
    let listed = |path: &Path| {
        let name = path.strip_prefix(deploy()).unwrap().to_str().unwrap().to_owned();
        assert!(readme.contains(&name), "README.md does not name {name}");
    };
    scripts().iter().for_each(|script| listed(script));
    for name in ["kubernetes/jobset.yaml", "kubernetes/trainjob.yaml", "kubernetes/tfjob.yaml"] {
        listed(&deploy().join(name));
    }
}

/// What the models and the strict schemas of Kubernetes object to in files.
fn objections(python: &Path, files: &[PathBuf]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/kubernetes_schema.py");
    let output = Command::new(python).arg(script).args(files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const KUBERNETES: &str = "kubeflow_trainer_api, kubernetes_validate, yaml";

/// Fields change their names between releases, and a service may silently drop one that it does not know.
#[test]
fn kubernetes_own_models_and_strict_schemas_accept_every_file() {
    let Some(python) = paceline_testing::python(KUBERNETES) else { return };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(deploy().join("kubernetes")).unwrap() {
        files.push(entry.unwrap().path());
    }
    assert_eq!(files.len(), 3, "{files:?}");
    assert_eq!(objections(&python, &files), "");
}

/// Each with what it says; without this the test above could not fail.
#[test]
fn a_file_that_an_api_server_would_refuse_is_refused_here() {
    let Some(python) = paceline_testing::python(KUBERNETES) else { return };
    let folder = tempfile::tempdir().unwrap();
    let good = read("kubernetes/jobset.yaml");
    let faults = [
        ("- name: paceline\n                  image", "- image", "'name' is a required property"),
        ("claimName", "claim", "claim: no such field"),
        ("completions: 4", "completion: 4", "('completion' was unexpected)"),
        ("{name: data, mountPath", "{name: date, mountPath", "no volume date"),
        ("name: WORLD_SIZE", "name: RANK", "env has a name twice"),
        ("parallelism: 4", "parallelism: \"4\"", "'4' is not of type 'integer'"),
    ];
    let files: Vec<PathBuf> =
        (0..faults.len()).map(|fault| folder.path().join(format!("{fault}.yaml"))).collect();
    for (file, (from, to, _)) in files.iter().zip(faults) {
        assert!(good.contains(from), "{from}");
        std::fs::write(file, good.replacen(from, to, 1)).unwrap();
    }
    let said = objections(&python, &files);
    for (file, (_, to, words)) in files.iter().zip(faults) {
        let name = file.display().to_string();
        let own = said.lines().filter(|line| line.starts_with(&name)).collect::<String>();
        assert!(own.contains(words), "{to}: {own}");
    }
}

#[test]
fn jobset_gives_every_pod_its_rank_and_the_first_ones_name() {
    let job = yaml("kubernetes/jobset.yaml");
    assert_eq!(text(&job, "apiVersion"), "jobset.x-k8s.io/v1alpha2");
    assert_eq!(text(&job, "kind"), "JobSet");
    let name = text(&job, "metadata.name");
    let set = at(&job, "spec.replicatedJobs.0");
    let pods = at(set, "template.spec.completions").as_i64().unwrap();
    assert_eq!(
        at(set, "template.spec.parallelism").as_i64(),
        Some(pods),
        "all at once or not at all"
    );
    assert_eq!(text(set, "template.spec.completionMode"), "Indexed");
    let pod = at(set, "template.spec.template.spec");
    assert_eq!(text(pod, "restartPolicy"), "Never");
    let container = at(pod, "containers.0");
    parses(&words(container, "args"));
    let mut variables = HashMap::new();
    for variable in at(container, "env").as_vec().unwrap() {
        let value = variable["value"].as_str().map_or_else(
            || {
                let field = text(variable, "valueFrom.fieldRef.fieldPath");
                assert_eq!(
                    field,
                    "metadata.annotations['batch.kubernetes.io/job-completion-index']"
                );
                "1".to_owned()
            },
            str::to_owned,
        );
        variables.insert(text(variable, "name").to_owned(), value);
    }
    // Pods are reached as JOBSET-REPLICATEDJOB-JOB-POD.SUBDOMAIN, the subdomain being the JobSet's name.
    let first = format!("{name}-{}-0-0.{name}", text(set, "name"));
    assert_eq!(variables["MASTER_ADDR"], first);
    let port = at(container, "ports.0.containerPort").as_i64().unwrap().to_string();
    assert_eq!(variables["MASTER_PORT"], port);
    let found = from_environment(&|name| variables.get(name).cloned()).unwrap().unwrap();
    assert_eq!((found.own, found.tasks().len() as i64), (TaskId::new(Role::Worker, 1), pods));
    volumes_are_mounted(pod);
}

#[test]
fn trainjob_renames_what_the_trainer_sets() {
    let job = yaml("kubernetes/trainjob.yaml");
    assert_eq!(text(&job, "apiVersion"), "trainer.kubeflow.org/v1alpha1");
    assert_eq!(text(&job, "kind"), "TrainJob");
    assert_eq!(text(&job, "spec.runtimeRef.name"), "torch-distributed");
    let nodes = at(&job, "spec.trainer.numNodes").as_i64().unwrap();
    assert_eq!(words(&job, "spec.trainer.command"), ["/bin/sh", "-c"]);
    let script = words(&job, "spec.trainer.args").remove(0);
    let (before, line) = script.split_once("exec paceline ").unwrap();
    parses(&split(line));
    // The shell itself renames the variables that the runtime sets.
    let shown = Command::new("sh")
        .args(["-c", &format!("export {before}; env")])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("PET_NODE_RANK", "2")
        .env("PET_NNODES", nodes.to_string())
        .env("PET_MASTER_ADDR", "paceline-node-0-0.paceline")
        .env("PET_MASTER_PORT", "29400")
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let variables: HashMap<&str, &str> =
        shown.lines().filter_map(|line| line.split_once('=')).collect();
    let found = from_environment(&|name| variables.get(name).map(|value| (*value).to_owned()));
    let found = found.unwrap().unwrap();
    assert_eq!((found.own, found.tasks().len() as i64), (TaskId::new(Role::Worker, 2), nodes));
    let patch = at(&job, "spec.runtimePatches.0.trainingRuntimeSpec.template.spec");
    assert_eq!(text(patch, "replicatedJobs.0.name"), "node");
    volumes_are_mounted(at(patch, "replicatedJobs.0.template.spec.template.spec"));
}

#[test]
fn tfjob_lets_the_operator_describe_workers_and_servers() {
    let job = yaml("kubernetes/tfjob.yaml");
    assert_eq!((text(&job, "apiVersion"), text(&job, "kind")), ("kubeflow.org/v1", "TFJob"));
    let mut groups = Vec::new();
    for role in ["Worker", "PS"] {
        let replicas = at(&job, &format!("spec.tfReplicaSpecs.{role}"));
        let pod = at(replicas, "template.spec");
        let container = at(pod, "containers.0");
        assert_eq!(text(container, "name"), "tensorflow", "the operator looks for this name");
        assert_eq!(text(container, "ports.0.name"), "tfjob-port");
        parses(&words(container, "args"));
        volumes_are_mounted(pod);
        // NAME-role-INDEX.NAMESPACE.svc:PORT
        let role = role.to_lowercase();
        let port = at(container, "ports.0.containerPort").as_i64().unwrap();
        let addresses: Vec<String> = (0..at(replicas, "replicas").as_i64().unwrap())
            .map(|index| format!("paceline-{role}-{index}.default.svc:{port}"))
            .collect();
        groups.push((role, addresses));
    }
    let cluster_json: HashMap<_, _> = groups.into_iter().collect();
    let config = serde_json::json!({
        "cluster": cluster_json, "task": {"type": "ps", "index": 0}, "environment": "cloud",
    });
    let found = cluster(&[("TF_CONFIG", config.to_string())]);
    assert_eq!((found.own, found.tasks().len()), (TaskId::new(Role::Ps, 0), 4));
}

#[test]
fn vertex_pools_become_chief_workers_and_servers() {
    let job = yaml("vertex/job.yaml");
    let pools = at(&job, "workerPoolSpecs").as_vec().unwrap();
    let mut described = serde_json::Map::new();
    for (number, pool) in pools.iter().enumerate() {
        text(pool, "machineSpec.machineType");
        text(pool, "containerSpec.imageUri");
        parses(&words(pool, "containerSpec.args"));
        let replicas = at(pool, "replicaCount").as_i64().unwrap();
        let name = format!("workerpool{number}");
        let addresses =
            (0..replicas).map(|index| format!("cmle-training-{name}-0a1b-{index}:2222"));
        described.insert(name.clone(), addresses.collect());
    }
    assert_eq!(at(&pools[0], "replicaCount").as_i64(), Some(1), "pool 0 has one replica");
    let spec = serde_json::json!({
        "cluster": described, "environment": "cloud", "task": {"type": "workerpool1", "index": 1},
    });
    let found = cluster(&[("CLUSTER_SPEC", spec.to_string())]);
    assert_eq!(found.own, TaskId::new(Role::Worker, 1));
    let names: Vec<String> = found.tasks().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["chief/0", "worker/0", "worker/1", "ps/0"]);
}

/// Runs the batch script with a `srun` that shows what it was given.
#[test]
fn slurm_script_starts_one_node_per_task_and_goes_back_to_the_queue_when_one_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let tool = |name: &str, body: &str| {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    tool("srun", "echo \"$@\"; exit 75");
    tool("scontrol", "echo \"scontrol $@\"");
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .arg(deploy().join("slurm/train.sbatch"))
        .env("PATH", path)
        .envs([("USER", "me"), ("HOME", "/home/me"), ("SLURM_JOB_ID", "4711")])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(75));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("scontrol requeue 4711"), "{said}");
    let line = said.lines().next().unwrap();
    let (_, command) = line.split_once("/home/me/bin/paceline ").unwrap();
    parses(&split(command));
    let variables = [
        ("SLURM_PROCID", "3".to_owned()),
        ("SLURM_NTASKS", "4".to_owned()),
        ("SLURM_JOB_NODELIST", "node[07-10]".to_owned()),
        ("SLURM_JOB_ID", "4711".to_owned()),
    ];
    let found = cluster(&variables);
    assert_eq!((found.own, found.tasks().len()), (TaskId::new(Role::Worker, 3), 4));
}

/// The example calls in the script itself, with the cluster file that each names.
#[test]
fn ssh_script_starts_every_task_of_the_cluster_file_that_its_examples_name() {
    let script = read("ssh/run.sh");
    let examples: Vec<_> =
        script.lines().filter_map(|line| line.strip_prefix("#   deploy/ssh/run.sh ")).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        let output = Command::new("bash")
            .arg(deploy().join("ssh/run.sh"))
            .args(example.split_whitespace())
            .current_dir(paceline_testing::workspace())
            .envs([("DRY_RUN", "1"), ("PACELINE", "/bin/true")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).unwrap();
        let file = example.split_whitespace().next().unwrap();
        let description = std::fs::read_to_string(paceline_testing::workspace().join(file));
        let tasks = from_toml(&description.unwrap(), TaskId::new(Role::Worker, 0)).unwrap().tasks();
        let servers = tasks.iter().any(|task| task.role == Role::Ps);
        assert_eq!(servers, example.contains("--strategy ps-"), "{example}");
        assert_eq!(said.lines().count(), tasks.len());
        for (line, task) in said.lines().zip(tasks) {
            let (_, command) = line.split_once(": paceline ").unwrap();
            assert!(command.contains(&format!("--task {task} ")), "{line}");
            parses(&split(command));
        }
    }
}

#[test]
fn mpi_script_tells_mpirun_from_our_own_flags() {
    let dir = tempfile::tempdir().unwrap();
    let mpirun = dir.path().join("mpirun");
    std::fs::write(&mpirun, "#!/bin/sh\nprintf '%s\\n' \"$*\"\n").unwrap();
    Command::new("chmod").arg("+x").arg(&mpirun).status().unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let run = |args: &[&str]| {
        let mut command = Command::new("bash");
        command.arg(deploy().join("mpi/run.sh")).args(args).env("PATH", &path);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let own = ["--model", "lenet", "--data", "digits", "--insecure"];
    let one = run(&[&["4"], &own[..]].concat());
    assert!(one.starts_with("-n 4 ") && !one.contains("--hostfile"), "{one}");
    let (_, command) = one.split_once("paceline ").unwrap();
    parses(&split(command));
    let several = run(&[&["8", "--hostfile", "hosts.txt", "--"], &own[..]].concat());
    let (mpi, command) = several.split_once(" paceline ").unwrap();
    assert!(mpi.ends_with("--hostfile hosts.txt"), "{several}");
    parses(&split(command));
}

#[test]
fn dataproc_script_calls_prepare_as_it_is() {
    let script = read("dataproc/prepare.sh").replace("\\\n", " ");
    let (_, rest) = script.split_once("./paceline prepare ").unwrap();
    let (line, _) = rest.split_once('"').unwrap();
    parses(&split(&format!("prepare {line}")));
    assert!(script.contains("deploy/dataproc/prepare.sh gs://"), "buckets by their own addresses");
}

/// Every mount has its volume, and the key is not world-readable.
fn volumes_are_mounted(pod: &Yaml) {
    let volumes = at(pod, "volumes").as_vec().unwrap();
    let names: Vec<&str> = volumes.iter().map(|volume| text(volume, "name")).collect();
    for mount in at(pod, "containers.0.volumeMounts").as_vec().unwrap() {
        assert!(names.contains(&text(mount, "name")), "{names:?}");
    }
    let key = volumes.iter().find(|volume| text(volume, "name") == "key").unwrap();
    // YAML 1.2 reads 0400 as four hundred; the services read it by YAML 1.1, as octal.
    assert_eq!(at(key, "secret.defaultMode").as_i64(), Some(400));
}
