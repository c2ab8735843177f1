//! Slurm's variables: ranks, and a compressed list of hosts whose first is the meeting place.

use super::{Cluster, Environment, LauncherConvention, SpecError, number, ranked};

const NAME: &str = "Slurm";
const BECAUSE: &str = "`SLURM_PROCID` is";

/// Where rank 0 listens unless `PACELINE_PORT` says otherwise; derived from the job's number, so that
/// two jobs on one host do not meet.
const FIRST_PORT: u32 = 20_000;
const PORTS: u32 = 10_000;

/// Registry entry.
pub(super) const ENTRY: LauncherConvention = LauncherConvention {
    name: NAME,
    present: |environment| {
        environment("SLURM_PROCID").is_some() && environment("SLURM_NTASKS").is_some()
    },
    read,
};

fn read(environment: Environment<'_>) -> Result<Cluster, SpecError> {
    let rank = number(environment, NAME, "SLURM_PROCID", BECAUSE)?;
    let workers = number(environment, NAME, "SLURM_NTASKS", BECAUSE)?;
    if let Some(coordinator) = environment("PACELINE_COORDINATOR") {
        return ranked(NAME, rank, workers, coordinator);
    }
    let list = environment("SLURM_JOB_NODELIST").ok_or(SpecError::Missing {
        origin: NAME,
        variable: "SLURM_JOB_NODELIST",
        because: BECAUSE,
    })?;
    let host = first_host(&list).ok_or_else(|| SpecError::Value {
        origin: NAME,
        variable: "SLURM_JOB_NODELIST".to_owned(),
        found: list.clone(),
        wanted: "a list of hosts such as node[01-04,7]",
    })?;
    let port = match environment("PACELINE_PORT") {
        Some(_) => number(environment, NAME, "PACELINE_PORT", BECAUSE)?,
        None => FIRST_PORT + number(environment, NAME, "SLURM_JOB_ID", BECAUSE)? % PORTS,
    };
    ranked(NAME, rank, workers, format!("{host}:{port}"))
}

/// The first host of `node[01-04,7],login` is `node01`.
pub(super) fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let host = match rest.strip_prefix('[') {
        None => name.to_owned(),
        Some(ranges) => {
            let (inside, after) = ranges.split_once(']')?;
            let first: String = inside.chars().take_while(char::is_ascii_digit).collect();
            let suffix: String = after.chars().take_while(|c| *c != ',').collect();
            // A second bracket (`rack[1-2]node[1-4]`) starts with its own first number.
            let suffix = if suffix.contains('[') { first_host(&suffix)? } else { suffix };
            if first.is_empty() {
                return None;
            }
            format!("{name}{first}{suffix}")
        }
    };
    (!host.is_empty()).then_some(host)
}
