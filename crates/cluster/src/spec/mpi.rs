//! Variables of Open MPI and MPICH: ranks without addresses.
//!
//! `mpirun` does not say where rank 0 is, so `PACELINE_COORDINATOR=host:port` does. On one machine (local size equals
//! size) Open MPI needs none: the loopback interface and a port that follows from the job's own identity are enough. MPICH
//! gives ranks nothing that tells one job from another.

use super::{Cluster, Environment, LauncherConvention, SpecError, number, ranked};

const NAME: &str = "MPI";

/// Ports for jobs on one machine: below the range from which the kernel assigns ports by default.
const LOCAL_PORTS: std::ops::Range<u32> = 20_000..30_000;

/// Registry entry.
pub(super) const ENTRY: LauncherConvention = LauncherConvention {
    name: NAME,
    present: |environment| is_open_mpi(environment) || is_mpich(environment),
    read,
};

fn is_open_mpi(environment: Environment<'_>) -> bool {
    environment("OMPI_COMM_WORLD_RANK").is_some()
}

/// The first variable alone could be Slurm's, which says more by its own.
fn is_mpich(environment: Environment<'_>) -> bool {
    environment("PMI_RANK").is_some() && environment("MPI_LOCALNRANKS").is_some()
}

fn read(environment: Environment<'_>) -> Result<Cluster, SpecError> {
    if is_open_mpi(environment) { open_mpi(environment) } else { mpich(environment) }
}

fn mpich(environment: Environment<'_>) -> Result<Cluster, SpecError> {
    let (origin, because) = ("MPICH", "`PMI_RANK` is");
    let rank = number(environment, origin, "PMI_RANK", because)?;
    let workers = number(environment, origin, "PMI_SIZE", because)?;
    let coordinator = environment("PACELINE_COORDINATOR").ok_or(SpecError::Missing {
        origin,
        variable: "PACELINE_COORDINATOR",
        because: "MPICH does not say where rank 0 is; give host:port of its machine, 127.0.0.1:7000 on a single one",
    })?;
    ranked(origin, rank, workers, coordinator)
}

fn open_mpi(environment: Environment<'_>) -> Result<Cluster, SpecError> {
    let (origin, because) = ("Open MPI", "`OMPI_COMM_WORLD_RANK` is");
    let rank = number(environment, origin, "OMPI_COMM_WORLD_RANK", because)?;
    let workers = number(environment, origin, "OMPI_COMM_WORLD_SIZE", because)?;
    if let Some(coordinator) = environment("PACELINE_COORDINATOR") {
        return ranked(origin, rank, workers, coordinator);
    }
    let local = number(environment, origin, "OMPI_COMM_WORLD_LOCAL_SIZE", because)?;
    if local != workers {
        return Err(SpecError::Missing {
            origin,
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
    ranked(origin, rank, workers, format!("127.0.0.1:{port}"))
}
