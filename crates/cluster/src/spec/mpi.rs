//! Open MPI's variables: ranks without addresses.
//!
//! `mpirun` does not say where rank 0 is, so `PACELINE_COORDINATOR=host:port` does; on one machine
//! (local size equals size) the loopback interface and a port that follows from the job's own
//! identity are enough.

use super::{Cluster, Entry, Environment, SpecError, number, ranked};

const NAME: &str = "Open MPI";
const BECAUSE: &str = "`OMPI_COMM_WORLD_RANK` is";

/// Ports for jobs on one machine: the range the kernel hands out to nobody by default.
const LOCAL_PORTS: std::ops::Range<u32> = 20_000..30_000;

/// Registry entry.
pub(super) const ENTRY: Entry = Entry {
    name: NAME,
    present: |environment| environment("OMPI_COMM_WORLD_RANK").is_some(),
    read,
};

fn read(environment: Environment<'_>) -> Result<Cluster, SpecError> {
    let rank = number(environment, NAME, "OMPI_COMM_WORLD_RANK", BECAUSE)?;
    let workers = number(environment, NAME, "OMPI_COMM_WORLD_SIZE", BECAUSE)?;
    if let Some(coordinator) = environment("PACELINE_COORDINATOR") {
        return ranked(NAME, rank, workers, coordinator);
    }
    let local = number(environment, NAME, "OMPI_COMM_WORLD_LOCAL_SIZE", BECAUSE)?;
    if local != workers {
        return Err(SpecError::Missing {
            origin: NAME,
            variable: "PACELINE_COORDINATOR",
            because: "the job spans several machines, and Open MPI does not say where rank 0 is",
        });
    }
    // The same for all ranks of a job, different between jobs.
    let job = environment("PMIX_NAMESPACE")
        .or_else(|| environment("OMPI_MCA_ess_base_jobid"))
        .unwrap_or_default();
    let mixed =
        job.bytes().fold(17u32, |mixed, byte| mixed.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let port = LOCAL_PORTS.start + mixed % (LOCAL_PORTS.end - LOCAL_PORTS.start);
    ranked(NAME, rank, workers, format!("127.0.0.1:{port}"))
}
