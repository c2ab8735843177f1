//! Races and losses, written down one after the other.

use super::*;
use serde_json::json;

const WORKER: Role = Role::Worker;

struct Play {
    roster: Roster,
    now: Instant,
    orders: Vec<Order>,
}

fn hello(task: TaskId, incarnation: u64) -> Hello {
    Hello {
        task,
        address: format!("10.0.0.{}:7000", task.index + 1),
        host: format!("host{}", task.index),
        process: 100 + task.index,
        incarnation,
        plan: json!({"batch_size": 64, "lr": 0.1}),
    }
}

/// A run that all tasks have joined.
fn play(workers: u32, servers: u32, on_loss: OnLoss, regroup: bool) -> Play {
    let mut play = expecting(workers, servers, on_loss, regroup);
    let tasks: Vec<TaskId> = play.roster.entries.keys().copied().collect();
    for task in tasks.into_iter().skip(1) {
        assert_eq!(play.hello(task, 1), Admission::Joined);
    }
    play.orders.clear();
    play
}

/// A run in which only the chief is there.
fn expecting(workers: u32, servers: u32, on_loss: OnLoss, regroup: bool) -> Play {
    let tasks: BTreeMap<TaskId, String> = (0..workers)
        .map(|index| TaskId::new(WORKER, index))
        .chain((0..servers).map(|index| TaskId::new(Role::Ps, index)))
        .map(|task| (task, String::new()))
        .collect();
    let rules = Rules {
        on_loss,
        regroup,
        all_finish: false,
        join_timeout: Duration::from_secs(60),
        patience: SILENCE,
    };
    let now = Instant::now();
    let me = hello(TaskId::new(WORKER, 0), 1);
    let roster = Roster::new(&me, "run".to_owned(), rules, &tasks, now);
    Play { roster, now, orders: Vec::new() }
}

impl Play {
    fn hello(&mut self, task: TaskId, incarnation: u64) -> Admission {
        self.roster.hello(&hello(task, incarnation), None, self.now, &mut self.orders)
    }

    /// Lets time pass; all tasks but `silent` are heard.
    fn pass(&mut self, seconds: f64, silent: &[TaskId]) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            self.now += Duration::from_millis(100);
            let tasks: Vec<TaskId> = self.roster.entries.keys().copied().collect();
            for task in tasks.iter().filter(|task| !silent.contains(task)) {
                self.roster.heard(*task, self.now);
            }
            self.roster.tick(self.now, &mut self.orders);
        }
    }

    fn views_to(&self, task: TaskId) -> Vec<View> {
        self.orders
            .iter()
            .filter_map(|order| match order {
                Order::To(to, ToMember::View(view)) if *to == task => Some(view.clone()),
                _ => None,
            })
            .collect()
    }

    fn stop_to(&self, task: TaskId) -> Option<Stop> {
        self.orders.iter().find_map(|order| match order {
            Order::To(to, ToMember::Stop { cause }) if *to == task => Some(cause.clone()),
            _ => None,
        })
    }
}

fn worker(index: u32) -> TaskId {
    TaskId::new(WORKER, index)
}

#[test]
fn a_killed_worker_is_named_within_two_seconds_and_the_rest_form_again() {
    let mut play = play(3, 0, OnLoss::Continue, true);
    play.roster.broken(worker(2), 1, "connection reset", play.now);
    play.pass(2.0, &[]);
    let view = play.views_to(worker(1)).pop().unwrap();
    assert_eq!((view.generation, view.complete), (2, true));
    assert_eq!(view.members.len(), 2);
    assert_eq!(view.lost[0].to_string(), "worker/2 at 10.0.0.3:7000: connection reset");
    assert!(
        matches!(play.hello(worker(2), 2), Admission::Refused(reason) if reason.contains("continued without"))
    );
}

#[test]
fn a_cut_of_three_seconds_is_survived_and_one_of_thirty_is_a_death() {
    let mut play = play(2, 0, OnLoss::Continue, true);
    // Seven seconds of silence: three of cut and the wait for TCP's next attempt.
    play.pass(7.0, &[worker(1)]);
    play.pass(5.0, &[]);
    assert!(play.views_to(worker(0)).is_empty());
    play.pass(9.0, &[worker(1)]);
    assert_eq!(play.views_to(worker(0)).len(), 1);
    assert!(
        matches!(play.stop_to(worker(1)), Some(Stop::Expelled { reason }) if reason.contains("silent for 8 s")),
        "it must not train alone"
    );
}

#[test]
fn time_in_which_the_chief_stood_still_counts_for_nothing() {
    let mut play = play(2, 1, OnLoss::Continue, true);
    play.roster.broken(worker(1), 1, "reset", play.now);
    let still = Duration::from_secs(3600);
    play.now += still;
    play.roster.stood_still(still);
    play.pass(1.0, &[]);
    assert_eq!(play.hello(worker(1), 1), Admission::Resumed);
    play.pass(7.0, &[worker(1)]);
    assert!(play.views_to(worker(0)).is_empty() && play.stop_to(worker(1)).is_none());
    play.pass(2.0, &[worker(1)]);
    assert_eq!(play.views_to(worker(0)).len(), 1, "silence from then on counts");
}

#[test]
fn a_broken_connection_that_comes_back_is_not_a_loss() {
    let mut play = play(2, 0, OnLoss::Stop, true);
    play.roster.broken(worker(1), 1, "reset", play.now);
    play.pass(0.5, &[]);
    assert_eq!(play.hello(worker(1), 1), Admission::Resumed);
    play.pass(5.0, &[]);
    assert!(play.views_to(worker(0)).is_empty() && play.stop_to(worker(0)).is_none());
}

/// A view that was on its way when the connection broke never came, and the task waited for it to the end.
#[test]
fn a_task_that_connects_again_is_told_what_it_missed() {
    let mut play = play(3, 0, OnLoss::Continue, true);
    play.roster.broken(worker(2), 1, "killed", play.now);
    play.pass(2.0, &[]);
    play.orders.clear();
    assert_eq!(play.hello(worker(1), 1), Admission::Resumed);
    assert_eq!(play.views_to(worker(1)).last().map(|view| view.generation), Some(2));
    assert!(play.views_to(worker(0)).is_empty(), "the others missed nothing");
    play.roster.failed(worker(0), "no disk", play.now, &mut play.orders);
    play.orders.clear();
    assert_eq!(play.hello(worker(1), 1), Admission::Resumed);
    assert!(matches!(play.stop_to(worker(1)), Some(Stop::Failed { .. })));
}

/// It joined as a new member, the others regrouped for it, and the run waited for a second end of it.
#[test]
fn a_finished_task_that_connects_again_stays_finished() {
    let mut play = play(2, 0, OnLoss::Restart, true);
    play.roster.finished(worker(1), json!({"steps": 7}), 1, play.now);
    play.roster.broken(worker(1), 1, "reset", play.now);
    assert_eq!(play.hello(worker(1), 1), Admission::Resumed);
    assert_eq!(play.views_to(worker(0)).len(), 0, "no new generation");
    assert_eq!(play.roster.reports().len(), 1);
    play.roster.finished(worker(0), json!(null), 1, play.now);
    play.pass(0.5, &[]);
    play.orders.clear();
    assert_eq!(play.hello(worker(1), 1), Admission::Resumed);
    assert!(play.orders.contains(&Order::To(worker(1), ToMember::Release)));
}

#[test]
fn restart_waits_for_the_task_and_gives_up_at_the_deadline() {
    let mut play = play(2, 0, OnLoss::Restart, true);
    play.roster.broken(worker(1), 1, "killed", play.now);
    play.pass(2.0, &[]);
    assert_eq!(play.views_to(worker(0)).last().map(|view| view.complete), Some(false));
    assert_eq!(play.hello(worker(1), 2), Admission::Joined);
    let view = play.views_to(worker(1)).pop().unwrap();
    assert_eq!((view.generation, view.complete, view.members.len()), (3, true, 2));
    play.roster.broken(worker(1), 2, "killed", play.now);
    play.pass(70.0, &[]);
    let Some(Stop::Lost(loss)) = play.stop_to(worker(0)) else { panic!("no stop") };
    assert!(loss.to_string().contains("worker/1") && loss.reason.contains("within 60 s"));
}

#[test]
fn a_process_that_is_replaced_before_its_death_was_noticed_is_both_lost_and_joined() {
    let mut play = play(2, 0, OnLoss::Restart, true);
    assert!(
        matches!(play.hello(worker(1), 7), Admission::Taken(reason) if reason.contains("taken"))
    );
    play.roster.broken(worker(1), 1, "killed", play.now);
    assert_eq!(play.hello(worker(1), 7), Admission::Joined);
    let generations: Vec<u32> =
        play.views_to(worker(0)).iter().map(|view| view.generation).collect();
    assert_eq!(generations, [2, 3]);
    assert_eq!(play.stop_to(worker(1)), None, "the new process must not be told to go");
}

#[test]
fn workers_of_servers_are_not_disturbed_by_the_loss_of_another() {
    let mut play = play(3, 1, OnLoss::Continue, false);
    play.roster.broken(worker(2), 1, "killed", play.now);
    play.pass(2.0, &[]);
    let view = play.views_to(worker(1)).pop().unwrap();
    assert_eq!((view.generation, view.lost.len()), (1, 1), "the same generation goes on");
    assert_eq!(play.hello(worker(2), 2), Admission::Joined, "and it may come back");
    assert_eq!(play.views_to(worker(2)).pop().unwrap().generation, 1);
}

#[test]
fn a_server_that_comes_back_takes_all_tasks_to_the_checkpoint() {
    let server = TaskId::new(Role::Ps, 0);
    let mut play = play(2, 2, OnLoss::Continue, false);
    play.roster.broken(server, 1, "killed", play.now);
    play.pass(2.0, &[]);
    assert!(!play.views_to(worker(1)).pop().unwrap().complete);
    assert_eq!(play.hello(server, 2), Admission::Joined);
    let view = play.views_to(TaskId::new(Role::Ps, 1)).pop().unwrap();
    assert!(view.complete);
    assert_eq!(view.restored, view.generation, "the other server goes back too: no mixed versions");
}

#[test]
fn two_tasks_that_cannot_reach_each_other_try_again_and_then_one_goes() {
    let mut play = play(3, 0, OnLoss::Continue, true);
    play.roster.suspect(worker(1), worker(2), "timed out", play.now);
    play.pass(4.0, &[]);
    let view = play.views_to(worker(1)).pop().unwrap();
    assert_eq!((view.generation, view.members.len()), (2, 3), "new connections first");
    play.roster.suspect(worker(1), worker(2), "timed out", play.now);
    play.pass(4.0, &[]);
    let view = play.views_to(worker(1)).pop().unwrap();
    assert_eq!((view.generation, view.members.len()), (3, 2));
    assert!(play.stop_to(worker(2)).is_some());
    // The chief itself is never the one to go.
    play.roster.suspect(worker(1), worker(0), "timed out", play.now);
    play.pass(4.0, &[]);
    play.roster.suspect(worker(1), worker(0), "timed out", play.now);
    play.pass(4.0, &[]);
    assert!(play.stop_to(worker(1)).is_some() && play.stop_to(worker(0)).is_none());
}

#[test]
fn the_exit_barrier_opens_when_all_are_done_and_finished_is_not_failed() {
    let mut play = play(2, 1, OnLoss::Stop, true);
    play.roster.finished(worker(1), json!({"examples": 10}), 1, play.now);
    play.roster.broken(worker(1), 1, "closed", play.now);
    play.pass(20.0, &[worker(1)]);
    assert_eq!(play.stop_to(worker(0)), None, "it had finished");
    let released = |play: &Play| {
        play.orders.iter().filter(|order| matches!(order, Order::To(_, ToMember::Release))).count()
    };
    assert_eq!(released(&play), 0);
    play.roster.finished(worker(0), json!({}), 1, play.now);
    play.pass(0.2, &[]);
    assert_eq!(released(&play), 3, "the server too");
    assert_eq!(play.roster.reports().len(), 2);
}

#[test]
fn different_settings_are_refused_and_both_named() {
    let mut play = play(2, 0, OnLoss::Restart, true);
    play.roster.broken(worker(1), 1, "killed", play.now);
    play.pass(2.0, &[]);
    let mut other = hello(worker(1), 2);
    other.plan = json!({"batch_size": 128, "lr": 0.1});
    let admission = play.roster.hello(&other, None, play.now, &mut play.orders);
    let Admission::Refused(reason) = admission else { panic!("let in") };
    assert!(reason.contains("batch_size is 64 and 128"), "{reason}");
    let row = play.roster.rows(play.now).into_iter().find(|row| row.task == worker(1)).unwrap();
    assert!(row.error.unwrap().contains("batch_size"));
    assert!(
        matches!(play.hello(worker(9), 1), Admission::Refused(reason) if reason.contains("worker/9 is not a task"))
    );
}

#[test]
fn a_finished_worker_does_not_regroup() {
    let mut play = play(3, 0, OnLoss::Continue, true);
    play.roster.finished(worker(1), json!({}), 1, play.now);
    play.roster.broken(worker(2), 1, "killed", play.now);
    play.pass(2.0, &[]);
    let view = play.views_to(worker(0)).pop().unwrap();
    assert_eq!(view.circle, [worker(0)], "the one that is left finishes alone");
}

/// The connection of two workers broke in their last step: one was done with what it had, the other waited until its time to join again
/// was over.
#[test]
fn a_task_that_cannot_reach_a_finished_one_goes_on_without_it() {
    let mut play = play(2, 0, OnLoss::Stop, true);
    play.roster.suspect(worker(0), worker(1), "reset", play.now);
    play.roster.finished(worker(1), json!({}), 1, play.now);
    play.pass(4.0, &[]);
    let view = play.views_to(worker(0)).pop().unwrap();
    assert_eq!((view.generation, view.complete), (2, true));
    assert_eq!((view.circle, view.lost.len()), (vec![worker(0)], 0));
}

/// Servers of such a generation waited up to five minutes for weights from a chief that was done.
#[test]
fn no_generation_begins_after_the_chief_has_done_its_part() {
    let server = TaskId::new(Role::Ps, 0);
    for (on_loss, lost) in [
        (OnLoss::Continue, worker(2)),
        (OnLoss::Restart, worker(2)),
        (OnLoss::Stop, worker(2)),
        (OnLoss::Continue, server),
    ] {
        let mut play = play(3, 2, on_loss, true);
        play.roster.suspect(worker(1), server, "reset", play.now);
        play.roster.finished(worker(0), json!({}), 1, play.now);
        play.roster.suspect(worker(1), server, "reset", play.now);
        play.roster.broken(lost, 1, "killed", play.now);
        play.pass(5.0, &[]);
        let view = play.views_to(worker(1)).pop().unwrap();
        assert_eq!((view.generation, view.concluded, view.complete), (1, Some(1), true));
        assert_eq!(view.lost.len(), 1, "{lost} is named all the same: {view:?}");
        assert_eq!(play.stop_to(worker(1)), None, "{on_loss:?}");
        assert!(matches!(play.hello(lost, 2), Admission::Refused(why) if why.contains("ending")));
        play.roster.finished(worker(1), json!({}), 1, play.now);
        play.roster.finished(worker(2), json!({}), 1, play.now);
        play.pass(0.2, &[]);
        let released = Order::To(worker(1), ToMember::Release);
        assert!(play.orders.contains(&released), "no task waits for {lost}");
    }
}

/// A server that had died was waited for, though all its work was saved.
#[test]
fn who_is_gone_when_the_chief_has_done_its_part_is_not_waited_for() {
    let mut play = play(2, 1, OnLoss::Continue, false);
    let server = TaskId::new(Role::Ps, 0);
    play.roster.broken(server, 1, "killed", play.now);
    play.pass(2.0, &[]);
    assert_eq!(play.views_to(worker(1)).pop().unwrap().generation, 2);
    play.roster.finished(worker(0), json!({}), 1, play.now);
    play.pass(0.2, &[]);
    let view = play.views_to(worker(1)).pop().unwrap();
    assert_eq!((view.generation, view.concluded, view.complete), (2, Some(1), true));
    play.roster.finished(worker(1), json!({}), 1, play.now);
    play.pass(0.2, &[]);
    assert!(play.orders.contains(&Order::To(worker(1), ToMember::Release)));
}

#[test]
fn a_task_alone_does_not_wait() {
    let mut alone = play(1, 0, OnLoss::Stop, true);
    assert!(!alone.roster.is_running());
    alone.pass(0.1, &[]);
    assert!(alone.roster.is_running());
    assert_eq!(alone.roster.view().circle, [TaskId::new(WORKER, 0)]);
    assert_eq!(alone.orders.len(), 1, "it is told once: {:?}", alone.orders);
}

/// Its loss and its return are told in one moment, 0.0 s apart; it was away since its last word.
#[test]
fn a_task_that_is_replaced_before_its_death_is_noticed_was_away_since_its_last_word() {
    let mut play = play(2, 0, OnLoss::Restart, true);
    play.pass(0.5, &[worker(0), worker(1)]);
    play.roster.take_notices();
    let heard = play.roster.entries[&worker(1)].heard;
    play.roster.broken(worker(1), 1, "killed", play.now);
    play.now += Duration::from_millis(300);
    assert_eq!(play.hello(worker(1), 2), Admission::Joined);
    let wanted = play.now - heard;
    assert!(wanted >= Duration::from_millis(300), "{wanted:?}");
    let back = |notice: &Notice| matches!(notice, Notice::Joined { away: Some(away), .. } if *away == wanted);
    let notices = play.roster.take_notices();
    assert!(notices.iter().any(back), "{notices:?}");
}

#[test]
fn an_unlisted_evaluator_is_let_in_at_any_time_and_never_waited_for() {
    let (scorer, second) = (TaskId::new(Role::Evaluator, 0), TaskId::new(Role::Evaluator, 1));
    let members = |play: &Play| play.roster.view().members.len();
    let mut late = play(2, 0, OnLoss::Stop, true);
    assert_eq!(late.hello(scorer, 1), Admission::Joined);
    assert_eq!((members(&late), late.roster.view().generation), (3, 1), "no task is disturbed");
    let joined = |notice: &Notice| matches!(notice, Notice::Joined { task, away: None, .. } if *task == scorer);
    assert!(late.roster.take_notices().iter().any(joined), "it was not there before");
    assert!(
        matches!(late.hello(second, 1), Admission::Refused(reason) if reason.contains("is not a task"))
    );
    late.roster.broken(scorer, 1, "killed", late.now);
    late.pass(2.0, &[]);
    assert_eq!((members(&late), late.stop_to(worker(0))), (2, None));
    assert_eq!(late.hello(scorer, 2), Admission::Joined, "and it may come back");

    // Before the run begins, and gone again before the others are there.
    let mut early = expecting(2, 0, OnLoss::Stop, true);
    assert_eq!(early.hello(scorer, 1), Admission::Joined);
    assert!(!early.roster.is_running());
    early.roster.broken(scorer, 1, "killed", early.now);
    early.pass(2.0, &[]);
    assert_eq!(early.hello(worker(1), 1), Admission::Joined);
    assert!(early.roster.is_running());

    // Where all tasks must have done something together, none may join later.
    let mut check = play(2, 0, OnLoss::Stop, true);
    check.roster.rules.all_finish = true;
    assert!(
        matches!(check.hello(scorer, 1), Admission::Refused(reason) if reason.contains("started without"))
    );
}

#[test]
fn hundreds_of_late_tasks_on_an_overloaded_machine_were_lost_after_eight_seconds() {
    let mut play = play(200, 0, OnLoss::Continue, true);
    let all: Vec<TaskId> = (1..200).map(worker).collect();
    // First all speak in time, then every five seconds, then later still.
    play.pass(5.0, &[]);
    for gap in [5.0, 7.0, 12.0, 20.0] {
        play.pass(gap, &all);
        play.pass(0.1, &[]);
    }
    assert!(play.stop_to(worker(1)).is_none() && play.views_to(worker(0)).is_empty());
    // One that stays silent while the others have recovered is lost as ever, once the overload is forgotten.
    play.pass(30.0, &[]);
    play.pass(9.0, &[worker(7)]);
    assert!(
        matches!(play.stop_to(worker(7)), Some(Stop::Expelled { reason }) if reason.contains("silent for 8 s"))
    );
    // A cut that takes all of them away is a loss in the end.
    play.pass(40.0, &all);
    assert!(play.stop_to(worker(1)).is_some());
}

#[test]
fn patience_that_was_asked_for_is_kept() {
    let mut play = play(3, 0, OnLoss::Continue, true);
    play.roster.rules.patience = Duration::from_secs(30);
    play.pass(29.0, &[worker(2)]);
    assert!(play.stop_to(worker(2)).is_none());
    play.pass(2.0, &[worker(2)]);
    assert!(play.stop_to(worker(2)).is_some());
}

/// Asynchronous workers form again only when a server is lost. One that was away then came back into a generation that it was no
/// part of, and ended with an error.
#[test]
fn a_worker_that_comes_back_after_the_others_formed_without_it_takes_part_again() {
    for on_loss in [OnLoss::Restart, OnLoss::Continue] {
        let mut play = play(3, 2, on_loss, false);
        let server = TaskId::new(Role::Ps, 0);
        play.roster.broken(worker(2), 1, "connection reset", play.now);
        play.pass(2.0, &[]);
        play.roster.broken(server, 1, "connection reset", play.now);
        play.pass(2.0, &[]);
        assert_eq!(play.hello(server, 2), Admission::Joined);
        let without = play.views_to(worker(1)).pop().unwrap();
        assert!(!without.circle.contains(&worker(2)), "{without:?}");
        assert_eq!(play.hello(worker(2), 2), Admission::Joined);
        let with = play.views_to(worker(2)).pop().unwrap();
        assert!(with.circle.contains(&worker(2)) && with.generation > without.generation);
        assert_eq!(play.views_to(worker(1)).pop().unwrap().generation, with.generation);
    }
}
