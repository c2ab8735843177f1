//! torchrun's variables: ranks that meet at one address. Kubeflow's `PET_` names are for torchrun
//! itself, which sets these for its children.

use super::{Cluster, Environment, LauncherConvention, Members, SpecError, number, ranked};

const NAME: &str = "torchrun";
const BECAUSE: &str = "`RANK` and `MASTER_ADDR` are";

/// Registry entry.
pub(super) const ENTRY: LauncherConvention = LauncherConvention {
    name: NAME,
    present: |environment| environment("RANK").is_some() && environment("MASTER_ADDR").is_some(),
    read,
};

fn read(environment: Environment<'_>) -> Result<Cluster, SpecError> {
    let rank = number(environment, NAME, "RANK", BECAUSE)?;
    let workers = number(environment, NAME, "WORLD_SIZE", BECAUSE)?;
    let port = number(environment, NAME, "MASTER_PORT", BECAUSE)?;
    let host = environment("MASTER_ADDR").unwrap_or_default();
    ranked(NAME, rank, workers, format!("{}:{port}", bracketed(&host)))
}

/// Whether the ranks of another launcher are the agents of torchrun, one per host as a rule: how many ranks those start, and in
/// which order, is theirs to say.
pub(super) fn was_started_by(other: &Cluster, environment: Environment<'_>) -> bool {
    let Members::Rendezvous { workers, .. } = other.members else { return false };
    let agents = environment("GROUP_WORLD_SIZE").and_then(|text| text.trim().parse().ok());
    other.origin != NAME && (ENTRY.present)(environment) && agents == Some(workers)
}

/// An IPv6 address needs brackets before a port.
pub(super) fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}
