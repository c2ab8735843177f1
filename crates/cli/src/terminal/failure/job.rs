//! What is said about a job that failed, and what could be done about it.

use super::{Exit, rows, run_hints, spark, training, usage, with_advice};
use crate::terminal::Terminal;
use paceline_cluster::SpecError;
use paceline_jobs::{JobError, TasksFailed};
use paceline_runs::RunFolder;
use paceline_wire::Role;

/// Adds what the user could do about an error of a job; its run's folder may be known.
pub(crate) fn explain(
    error: JobError,
    run: Option<&RunFolder>,
    terminal: &Terminal,
) -> anyhow::Error {
    match error {
        JobError::Train(error) => training::explain_in(*error, run),
        JobError::Rows(error) => rows::explain_in(*error, run),
        JobError::Session(error) => {
            let (hint, exit) = run_hints::of_session(&error, run);
            with_advice(error, hint, exit)
        }
        JobError::Runs(error) => match run_hints::of_records(&error) {
            Some((hint, exit)) => with_advice(error, hint, exit),
            None => error.into(),
        },
        JobError::Tasks(failed) => of_tasks(&failed, terminal),
        JobError::Spark(error) => spark::explain(error),
        error => of_placement(error),
    }
}

/// Errors of finding the cluster and a place in it.
pub(crate) fn of_placement(error: JobError) -> anyhow::Error {
    match error {
        JobError::NotDescribed => usage(
            error,
            "set TF_CONFIG or CLUSTER_SPEC, start through torchrun, mpirun or srun, or give --cluster FILE --task TASK; `paceline train` needs none of it on one machine",
        ),
        JobError::NoKey => usage(
            error,
            "make one with `paceline key new cluster.key`, copy it to every host, and give --key FILE or PACELINE_KEY_FILE",
        ),
        JobError::NoRankLeft { origin, ranks, taken, evaluator } => {
            let scored = if evaluator { " and --evaluator" } else { "" };
            usage(
                format!("{origin} has {ranks} tasks, and --ps{scored} takes {taken} of them"),
                "at least one task must be left to train",
            )
        }
        JobError::OtherSize { role, given, found, origin } => {
            let flag = if role == Role::Ps { "--ps" } else { "--workers" };
            usage(
                format!("{flag} is {given}, but {origin} has {found}"),
                format!("leave {flag} out: the cluster decides"),
            )
        }
        JobError::Description(error @ SpecError::Contradiction { .. }) => with_advice(
            error,
            "the first would win: unset the variables of the one that is wrong, or leave out --cluster".to_owned(),
            None,
        ),
        error @ (JobError::ClusterFile { .. } | JobError::ClusterFileContent { .. }) => with_advice(
            error,
            "a cluster file lists addresses: `chief = \"HOST:PORT\"`, `workers = [\"HOST:PORT\", …]` and, where there are such tasks, `ps` and `evaluator`".to_owned(),
            None,
        ),
        JobError::KeyFile(error) => with_advice(
            error,
            "`paceline key new FILE` makes a key; copy it to every host, readable by you alone".to_owned(),
            None,
        ),
        JobError::Listen(error) => {
            with_advice(error, "--listen HOST:PORT listens elsewhere".to_owned(), None)
        }
        error => error.into(),
    }
}

/// The first failure on top, with what its task said last.
fn of_tasks(failed: &TasksFailed, terminal: &Terminal) -> anyhow::Error {
    let exit = match failed.exit() {
        TasksFailed::RETRY => Exit::Retry,
        129 => Exit::HungUp,
        130 => Exit::Interrupted,
        143 => Exit::Terminated,
        code => Exit::Of(code),
    };
    let (run, said) = (&failed.run, failed.last_words().and_then(|words| words.hint.clone()));
    // A hint must be true: there may be no checkpoint, and the folder itself may be gone.
    let resume = || {
        let folder = RunFolder::at(&terminal.place(run.path()));
        run.is_resumable().then(|| run_hints::resume(&folder))
    };
    let logs = run.path().join("logs");
    let shown =
        || logs.is_dir().then(|| format!("the logs of all tasks are in `{}`", logs.display()));
    let hint = match exit {
        Exit::Retry => resume().or(said),
        _ => said.or_else(resume),
    };
    let error = anyhow::anyhow!(failed.to_string());
    match hint.or_else(shown) {
        Some(hint) => with_advice(error, hint, Some(exit)),
        None => super::with_exit(error, exit),
    }
}
