//! Products of several tasks, joined by links in this process: the same bits as one task, whatever the placement, with a task that is lost too.

#![allow(clippy::unwrap_used)]

use paceline_cluster::session::{
    Gate, OnLoss, Rules, SILENCE, Session, SessionSettings, Switchboard, Unobserved,
};
use paceline_kernels::Isa;
use paceline_matmul::cluster::{ClusterOutcome, TaskResult, shared_settings, take_part};
use paceline_matmul::{Input, MatmulError, MatmulSettings, Placement, Plan, Work, run};
use paceline_wire::{Role, TaskId};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, thread};

const SIZE: u64 = 220;

fn settings(work: Work, placement: Placement) -> MatmulSettings {
    let matrix = |matrix| Input::Generated { size: SIZE, seed: 7, matrix };
    MatmulSettings {
        left: matrix(0),
        right: matrix(1),
        work,
        block: Some(50),
        memory: 1 << 30,
        workers: 1,
        threads: 1,
        isa: Isa::current().unwrap(),
        verify: true,
        output: None,
        launch: None,
        state: None,
        save_every: Duration::ZERO,
        placement,
    }
}

fn task(index: u32) -> TaskId {
    TaskId::new(Role::Worker, index)
}

/// Fails where another task has ended the product before this one came.
fn join(
    board: &Switchboard,
    me: TaskId,
    tasks: u32,
    settings: &MatmulSettings,
) -> Result<Session, MatmulError> {
    let session = SessionSettings {
        me,
        tasks: (0..tasks).map(|index| (task(index), String::new())).collect(),
        chief_address: format!("memory:{}", task(0)),
        run: "a product".to_owned(),
        plan: shared_settings(settings).unwrap(),
        rules: Rules {
            on_loss: OnLoss::Continue,
            regroup: false,
            all_finish: false,
            join_timeout: paceline_testing::HANG,
            patience: SILENCE,
        },
        host: "here".to_owned(),
        cancel: Arc::default(),
    };
    let gate: Arc<dyn Gate> = Arc::new(board.line(me));
    Ok(Session::start(gate, &session, Arc::new(Unobserved))?)
}

/// What the chief has; `stop` is raised for each task by its number.
fn together(
    settings: &MatmulSettings,
    stops: &[AtomicBool],
) -> Result<ClusterOutcome, MatmulError> {
    let (board, count) = (Switchboard::default(), u32::try_from(stops.len()).unwrap());
    thread::scope(|scope| {
        let play = |index: u32| {
            let session = join(&board, task(index), count, settings)?;
            let stop = &stops[index as usize];
            let host = format!("host-{index}");
            take_part(&session, &host, settings, &|| json!(index), stop, &mut |_| ())
        };
        let members: Vec<_> = (1..count).map(|index| scope.spawn(move || play(index))).collect();
        let chief = play(0);
        let lost = |index: usize| stops[index].load(Ordering::Relaxed);
        for (index, member) in members.into_iter().enumerate() {
            let result = member.join().unwrap();
            assert!(result.is_ok() != lost(index + 1), "worker/{}: {result:?}", index + 1);
        }
        match chief? {
            TaskResult::Chief(outcome) => Ok(*outcome),
            TaskResult::Member(report) => panic!("{report:?}"),
        }
    })
}

fn going_on(count: usize) -> Vec<AtomicBool> {
    (0..count).map(|_| AtomicBool::new(false)).collect()
}

#[test]
fn three_machines_have_the_bits_of_one_and_move_what_the_plan_says() {
    for work in [Work::Trace, Work::Identity, Work::Product] {
        for placement in Placement::ALL {
            let settings = settings(work, placement);
            let alone = run(&settings, &AtomicBool::new(false), &mut |_| ()).unwrap();
            let found = together(&settings, &going_on(3)).unwrap();
            let key = |outcome: &paceline_matmul::ProductOutcome| {
                (outcome.trace.to_bits(), outcome.sum.to_bits(), outcome.norm.to_bits())
            };
            assert_eq!(key(&found.outcome), key(&alone), "{work:?} {placement:?}");
            let plan = Plan { workers: 3, placement, ..alone.plan };
            let received: u64 = found.nodes.iter().map(|node| node.bytes_received).sum();
            let sent: u64 = found.nodes.iter().map(|node| node.bytes_sent).sum();
            assert_eq!((received, sent), (plan.moved_bytes(), plan.moved_bytes()), "{placement:?}");
            for (index, node) in found.nodes.iter().enumerate() {
                let own = (0..plan.jobs()).filter(|&job| plan.worker_of(job) == index).count();
                assert_eq!((node.jobs, node.lost, node.taken_over), (own, false, 0), "{node:?}");
                assert_eq!(
                    (&node.host, &node.resources),
                    (&format!("host-{index}"), &json!(index))
                );
            }
        }
    }
}

#[test]
fn blocks_of_a_lost_machine_are_done_by_the_others() {
    for placement in [Placement::Diagonal, Placement::Rows] {
        let settings = settings(Work::Product, placement);
        let alone = run(&settings, &AtomicBool::new(false), &mut |_| ()).unwrap();
        let stops = going_on(3);
        stops[2].store(true, Ordering::Relaxed); // leaves before its first job
        let found = together(&settings, &stops).unwrap();
        assert_eq!(found.outcome.norm.to_bits(), alone.norm.to_bits());
        let [first, second, third] = &found.nodes[..] else { panic!("three nodes") };
        assert!(third.lost && third.jobs == 0, "{third:?}");
        assert_eq!(first.jobs + second.jobs, alone.plan.jobs());
        let plan = Plan { workers: 3, placement, ..alone.plan };
        let left = (0..plan.jobs()).filter(|&job| plan.worker_of(job) == 2).count();
        assert_eq!(first.taken_over + second.taken_over, left, "{first:?} {second:?}");
    }
}

#[test]
fn the_chief_writes_the_whole_product_and_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let alone = MatmulSettings {
        output: Some(folder.path().join("alone.npy")),
        ..settings(Work::Product, Placement::Diagonal)
    };
    run(&alone, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let cluster = MatmulSettings {
        output: Some(folder.path().join("cluster.npy")),
        state: Some(folder.path().join("state.json")),
        placement: Placement::Grid,
        ..alone.clone()
    };
    let stops = going_on(2);
    // The chief is stopped from the start: nothing is lost but time.
    stops[0].store(true, Ordering::Relaxed);
    stops[1].store(true, Ordering::Relaxed);
    let stopped = together(&cluster, &stops).unwrap();
    assert!(!stopped.outcome.complete);
    let whole = together(&cluster, &going_on(2)).unwrap();
    assert!(whole.outcome.complete && !folder.path().join("state.json").exists());
    let bytes = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(bytes("alone.npy") == bytes("cluster.npy"));
}

#[test]
fn a_machine_that_cannot_read_its_matrix_ends_the_product_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let written = MatmulSettings {
        output: Some(path.clone()),
        ..settings(Work::Product, Placement::Diagonal)
    };
    run(&written, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let good = MatmulSettings {
        left: Input::File(path.clone()),
        right: Input::File(path.clone()),
        ..settings(Work::Trace, Placement::Rows)
    };
    let bad = folder.path().join("b").join("a.npy");
    fs::create_dir(bad.parent().unwrap()).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&bad, bytes).unwrap();
    let damaged =
        MatmulSettings { left: Input::File(bad.clone()), right: Input::File(bad), ..good.clone() };
    let board = Switchboard::default();
    let error = thread::scope(|scope| {
        let board = &board;
        let play = |index: u32, settings: &MatmulSettings| {
            let session = join(board, task(index), 2, settings)?;
            let go_on = AtomicBool::new(false);
            take_part(&session, "here", settings, &|| json!(null), &go_on, &mut |_| ())
        };
        // The last block row of five is that of worker 0; the fourth of six would be worker 1's.
        let settings = (
            MatmulSettings { block: Some(40), ..good.clone() },
            MatmulSettings { block: Some(40), ..damaged.clone() },
        );
        let member = scope.spawn(move || play(1, &settings.1));
        let chief = play(0, &settings.0).map(drop).unwrap_err();
        assert!(member.join().unwrap().is_err());
        chief
    });
    let said = error.to_string();
    assert!(said.starts_with("worker 1: ") && said.contains("not a finite"), "{said}");
}
