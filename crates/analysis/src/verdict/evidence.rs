//! What is known about a run and what happened around it.

/// What the steps of a run tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Evidence {
    /// Steps measured.
    pub steps: u64,
    /// Seconds spent in them.
    pub seconds: f64,
    /// Share of the time spent waiting for the next batch.
    pub input: f64,
    /// Share spent in forward pass, backward pass and update.
    pub compute: f64,
    /// Share spent moving gradients and weights.
    pub exchange: f64,
    /// Share spent waiting for other workers.
    pub wait: f64,
    /// Threads the kernels could use.
    pub threads: usize,
    /// Cores that the run's processes kept busy on average, where it was measured.
    pub busy_cores: Option<f64>,
}

/// What probes and other tasks tell. Whatever was not measured is absent, and no rule leans on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Surroundings {
    /// Cores of the machine.
    pub cores: Option<f64>,
    /// Cores that anybody kept busy on average.
    pub machine_busy: Option<f64>,
    /// Share of the time that the cgroup's quota stopped the processes.
    pub throttled: Option<f64>,
    /// Share of the time that the busiest disk was busy.
    pub disk_busy: Option<f64>,
    /// Share of the time that somebody waited for a disk.
    pub disk_pressure: Option<f64>,
    /// Share of the time that somebody waited for memory.
    pub memory_pressure: Option<f64>,
    /// The workers, where there are several.
    pub workers: Vec<WorkerLoad>,
    /// The parameter servers.
    pub servers: Vec<ServerLoad>,
    /// What the tasks send and receive.
    pub links: Vec<Link>,
}

/// What one worker does in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerLoad {
    /// Its name, such as `worker/1`.
    pub task: String,
    /// Seconds of its own work in a step: input and compute, without exchange and waiting.
    pub own_seconds_per_step: f64,
}

/// How busy a parameter server is.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerLoad {
    /// Its name, such as `ps/0`.
    pub task: String,
    /// Cores that it kept busy on average.
    pub busy_cores: f64,
    /// Threads that it serves with.
    pub threads: usize,
}

impl ServerLoad {
    /// Share of its threads that it kept busy.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.busy_cores / self.threads.max(1) as f64
    }
}

/// What a task sends and receives.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Its name.
    pub task: String,
    /// Bytes a second, in the busier direction.
    pub bytes_per_second: f64,
    /// Bytes a second that the link can carry, where it was measured.
    pub capacity: Option<f64>,
}
