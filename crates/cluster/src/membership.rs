//! A task's membership in a running job: who else takes part, and how to reach them.
//!
//! Strategies know nothing of hosts, launchers or heartbeats. They see the tasks of the present
//! *generation* (the tasks regroup, as the next generation, whenever the job continues without a lost
//! one), may open links to them, and are alarmed when the generation cannot continue, so that no task
//! waits for an answer that will never come.

use paceline_wire::{Channel, Link, LinkError, Role, TaskId, Wait};
use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// A task's membership in a running job.
pub trait JobMembership: Send + Sync + fmt::Debug {
    /// This task.
    fn me(&self) -> TaskId;

    /// The tasks that train, in the order of their ranks, the chief first.
    fn workers(&self) -> Vec<TaskId>;

    /// The tasks that hold weights, in order; the first one counts the steps.
    fn servers(&self) -> Vec<TaskId>;

    /// How often the tasks have regrouped. All of the above belong to this generation.
    fn generation(&self) -> u32;

    /// Opens a link to a task, which must accept it. Like those it accepts, it [heeds](Link::heed) the alarm.
    ///
    /// # Errors
    /// Names the task that could not be reached.
    fn connect(&self, to: TaskId, channel: Channel, wait: &Wait<'_>) -> Result<Link, LinkError>;

    /// Waits for a task to open a link in the present generation.
    ///
    /// # Errors
    /// Names the task that did not come.
    fn accept(&self, from: TaskId, channel: Channel, wait: &Wait<'_>) -> Result<Link, LinkError>;

    /// Raised when the present generation cannot continue: a task that the others need was lost, or the
    /// job ends. Every wait of a strategy ends then. It is lowered before the tasks regroup.
    fn alarm(&self) -> &AtomicBool;

    /// Tasks lost so far, in the order they were missed.
    fn lost(&self) -> Vec<TaskId>;

    /// Whether a task is expected to come, perhaps again: it is a member and not lost.
    fn expects(&self, task: TaskId) -> bool {
        !self.lost().contains(&task)
    }
}

/// A job whose tasks are threads of this process: for tests of everything above links.
#[derive(Debug)]
pub struct ThreadedJob {
    inner: Mutex<Seated>,
    arrived: Condvar,
    carrier: Carrier,
}

/// Makes the two ends of a link between two tasks.
pub struct Carrier(Box<dyn Fn(TaskId, TaskId) -> (Link, Link) + Send + Sync>);

impl Carrier {
    /// Links that `make` makes.
    pub fn new(make: impl Fn(TaskId, TaskId) -> (Link, Link) + Send + Sync + 'static) -> Self {
        Self(Box::new(make))
    }

    /// A link between two tasks: the end of the first and the end of the second.
    #[must_use]
    pub fn link(&self, a: TaskId, b: TaskId) -> (Link, Link) {
        (self.0)(a, b)
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Carrier")
    }
}

#[derive(Debug, Default)]
struct Seated {
    workers: Vec<TaskId>,
    servers: Vec<TaskId>,
    generation: u32,
    lost: Vec<TaskId>,
    /// Links opened and not accepted yet, by (from, to, channel, generation).
    offered: HashMap<(TaskId, TaskId, Channel, u32), VecDeque<Link>>,
    alarms: Vec<(TaskId, Arc<AtomicBool>)>,
}

/// A membership at a [`ThreadedJob`].
#[derive(Debug, Clone)]
pub struct ThreadMembership {
    table: Arc<ThreadedJob>,
    me: TaskId,
    alarm: Arc<AtomicBool>,
}

impl ThreadedJob {
    /// A job of so many workers and servers; worker 0 is the chief's equal.
    #[must_use]
    pub fn new(workers: u32, servers: u32) -> Arc<Self> {
        Self::over(Carrier::new(paceline_wire::pair), workers, servers)
    }

    /// The same over links of another kind.
    #[must_use]
    pub fn over(carrier: Carrier, workers: u32, servers: u32) -> Arc<Self> {
        let seated = Seated {
            workers: (0..workers).map(|index| TaskId::new(Role::Worker, index)).collect(),
            servers: (0..servers).map(|index| TaskId::new(Role::Ps, index)).collect(),
            ..Seated::default()
        };
        Arc::new(Self { inner: Mutex::new(seated), arrived: Condvar::new(), carrier })
    }

    /// The membership of a task.
    #[must_use]
    pub fn membership(self: &Arc<Self>, me: TaskId) -> Arc<ThreadMembership> {
        let alarm = Arc::new(AtomicBool::new(false));
        self.locked().alarms.push((me, Arc::clone(&alarm)));
        Arc::new(ThreadMembership { table: Arc::clone(self), me, alarm })
    }

    /// Takes a task away, as if its process had died; the others are alarmed and a new generation
    /// begins.
    pub fn lose(&self, task: TaskId) {
        let mut seated = self.locked();
        seated.lost.push(task);
        seated.workers.retain(|worker| *worker != task);
        seated.servers.retain(|server| *server != task);
        seated.generation += 1;
        seated.offered.clear();
        for (_, alarm) in seated.alarms.iter().filter(|(of, _)| *of != task) {
            alarm.store(true, Ordering::Release);
        }
    }

    /// Notes that a task is gone while the others go on in the same generation.
    pub fn miss(&self, task: TaskId) {
        self.locked().lost.push(task);
    }

    /// A task that was missed is back.
    pub fn welcome(&self, task: TaskId) {
        self.locked().lost.retain(|lost| *lost != task);
    }

    fn locked(&self) -> MutexGuard<'_, Seated> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JobMembership for ThreadMembership {
    fn me(&self) -> TaskId {
        self.me
    }

    fn workers(&self) -> Vec<TaskId> {
        self.table.locked().workers.clone()
    }

    fn servers(&self) -> Vec<TaskId> {
        self.table.locked().servers.clone()
    }

    fn generation(&self) -> u32 {
        self.table.locked().generation
    }

    fn connect(&self, to: TaskId, channel: Channel, wait: &Wait<'_>) -> Result<Link, LinkError> {
        let mut seated = self.table.locked();
        if seated.lost.contains(&to) {
            let cause = io::Error::from(io::ErrorKind::ConnectionRefused);
            return Err(LinkError::Lost {
                task: to,
                address: "this process".into(),
                phase: wait.phase.into(),
                cause,
            });
        }
        let (mut near, far) = self.table.carrier.link(self.me, to);
        near.heed(&self.alarm);
        let generation = seated.generation;
        seated.offered.entry((self.me, to, channel, generation)).or_default().push_back(far);
        drop(seated);
        self.table.arrived.notify_all();
        Ok(near)
    }

    fn accept(&self, from: TaskId, channel: Channel, wait: &Wait<'_>) -> Result<Link, LinkError> {
        let begun = Instant::now();
        let mut seated = self.table.locked();
        loop {
            let key = (from, self.me, channel, seated.generation);
            // A task that has not reacted to the alarm yet does not belong to this generation.
            if !self.alarm.load(Ordering::Acquire)
                && let Some(mut link) = seated.offered.get_mut(&key).and_then(VecDeque::pop_front)
            {
                link.heed(&self.alarm);
                return Ok(link);
            }
            let (task, address, phase) = (from, "this process".to_owned(), wait.phase.to_owned());
            if wait.cancelled() {
                return Err(LinkError::Cancelled { task, address, phase });
            }
            if wait.left().is_zero() {
                return Err(LinkError::TimedOut { task, address, phase, waited: begun.elapsed() });
            }
            let nap = wait.left().min(Duration::from_millis(5));
            let woken = self.table.arrived.wait_timeout(seated, nap);
            seated = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn alarm(&self) -> &AtomicBool {
        &self.alarm
    }

    fn lost(&self) -> Vec<TaskId> {
        self.table.locked().lost.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_meet_by_task_and_channel() {
        let table = ThreadedJob::new(2, 1);
        let [worker, server] = [(Role::Worker, 1), (Role::Ps, 0)]
            .map(|(role, index)| table.membership(TaskId::new(role, index)));
        assert_eq!(worker.workers().len(), 2);
        let wait = Wait::within(Duration::from_secs(900), "meeting");
        let mut far = worker.connect(server.me(), Channel::ParameterServer, &wait).unwrap();
        let mut near = server.accept(worker.me(), Channel::ParameterServer, &wait).unwrap();
        far.sender.send(3, 7, &[b"hello"]).unwrap();
        assert_eq!(near.receiver.receive(&wait).unwrap().number, 7);
        let short = Wait::within(Duration::from_millis(20), "waiting for no task");
        let error = server.accept(worker.me(), Channel::AllReduce, &short).unwrap_err();
        assert!(error.is_timeout() && error.to_string().contains("worker/1"), "{error}");
    }

    #[test]
    fn a_loss_alarms_the_others_and_begins_a_generation() {
        let table = ThreadedJob::new(3, 0);
        let memberships: Vec<_> = table.membership(TaskId::new(Role::Worker, 0)).workers();
        let first = table.membership(memberships[0]);
        table.lose(memberships[1]);
        assert!(first.alarm().load(Ordering::Acquire));
        assert_eq!(
            (first.generation(), first.workers()),
            (1, vec![memberships[0], memberships[2]])
        );
        assert_eq!(first.lost(), [memberships[1]]);
        let wait = Wait::within(Duration::from_secs(900), "looking for the lost");
        let error = first.connect(memberships[1], Channel::AllReduce, &wait).unwrap_err();
        assert!(error.is_lost() && error.to_string().contains("worker/1"), "{error}");
    }
}
