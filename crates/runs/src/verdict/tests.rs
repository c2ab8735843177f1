//! The rules on evidence as it was recorded, and at their edges.

use super::*;

fn run() -> Evidence {
    Evidence {
        steps: 1000,
        seconds: 10.0,
        phases: PhaseTimes {
            input: 0.05,
            compute: 0.9,
            exchange: 0.03,
            wait: 0.02,
            ..PhaseTimes::default()
        },
        threads: 2,
        busy_cores: Some(1.9),
        examples: Examples::Any,
        ..Evidence::default()
    }
}

/// One machine of two cores, both busy with the run.
fn node() -> NodeLoad {
    NodeLoad {
        host: "here".to_owned(),
        cores: Some(2.0),
        busy: Some(1.95),
        own: Some(1.9),
        ..NodeLoad::default()
    }
}

fn on(node: NodeLoad) -> Surroundings {
    Surroundings { nodes: vec![node], ..Surroundings::default() }
}

fn quiet() -> Surroundings {
    on(node())
}

fn worker(number: u32, milliseconds: f64) -> WorkerLoad {
    WorkerLoad { task: format!("worker/{number}"), own_seconds_per_step: milliseconds / 1e3 }
}

#[test]
fn the_phase_that_holds_the_steps_up_is_named() {
    assert_eq!(judge(&run()).limit, Limit::Compute);
    let input = judge(&Evidence {
        phases: PhaseTimes { input: 0.5, compute: 0.45, ..run().phases },
        ..run()
    });
    assert_eq!((input.limit, input.saving), (Limit::Input, 0.5));
    assert!(input.words.contains("50 %"), "{}", input.words);
    let exchange = Evidence {
        phases: PhaseTimes {
            exchange: 0.4,
            wait: 0.3,
            compute: 0.3,
            input: 0.0,
            ..PhaseTimes::default()
        },
        ..run()
    };
    assert_eq!(judge(&exchange).limit, Limit::Exchange);
    let wait = Evidence {
        phases: PhaseTimes {
            exchange: 0.1,
            wait: 0.3,
            compute: 0.6,
            input: 0.0,
            ..PhaseTimes::default()
        },
        ..run()
    };
    assert_eq!(judge(&wait).limit, Limit::Synchronisation);
}

#[test]
fn idle_threads_and_tiny_steps_are_not_called_healthy() {
    assert_eq!(judge(&Evidence { busy_cores: Some(1.0), ..run() }).limit, Limit::IdleCores);
    assert_eq!(judge(&Evidence { busy_cores: None, ..run() }).limit, Limit::Compute);
    assert_eq!(judge(&Evidence { steps: 1_000_000, ..run() }).limit, Limit::SmallSteps);
}

#[test]
fn no_remedy_saves_all_of_the_time() {
    let input = PhaseTimes { input: 0.998, compute: 0.002, ..PhaseTimes::default() };
    let words = judge(&Evidence { phases: input, ..run() }).words;
    assert!(words.contains("99.8 % of the time") && words.contains("at most 99.8 %"), "{words}");
    let all = PhaseTimes { input: 1.0, ..PhaseTimes::default() };
    let words = judge(&Evidence { phases: all, ..run() }).words;
    assert!(words.contains("100 % of the time") && words.contains("at most 99.9 %"), "{words}");
}

/// A step that sleeps, or waits for an accelerator, was called compute-bound: "only faster or more cores would help".
#[test]
fn steps_that_wait_without_a_core_are_idle_and_not_compute() {
    let waits = Evidence { busy_cores: Some(0.03), threads: 1, ..run() };
    let alone = on(NodeLoad { busy: Some(0.1), own: Some(0.03), ..node() });
    let verdict = judge_within(&waits, &alone);
    assert_eq!((verdict.limit, verdict.saving), (Limit::Idle, 0.0));
    assert!(verdict.words.contains("only 0.03 cores"), "{}", verdict.words);
    // Beside others it is the same, unless it wanted a core and got none.
    let beside = |waiting| NodeLoad { busy: Some(1.9), own: Some(0.03), waiting, ..node() };
    assert_eq!(judge_within(&waits, &on(beside(Some(0.0)))).limit, Limit::Idle);
    assert_ne!(judge_within(&waits, &on(beside(Some(0.9)))).limit, Limit::Idle);
    // One thread that computes is not idle, on however many cores.
    let computes = Evidence { busy_cores: Some(0.9), threads: 1, ..run() };
    assert_eq!(judge_within(&computes, &alone).limit, Limit::Compute);
    assert_eq!(judge(&Evidence { busy_cores: None, ..run() }).limit, Limit::Compute);
}

#[test]
fn the_hand_over_of_a_tiny_batch_is_not_slow_input() {
    let waits = Evidence {
        phases: PhaseTimes {
            input: 0.3,
            compute: 0.7,
            exchange: 0.0,
            wait: 0.0,
            ..PhaseTimes::default()
        },
        ..run()
    };
    // 4 µs a step, 1.2 of them for the next batch: what a batch of one costs.
    assert_eq!(judge(&Evidence { steps: 2_500_000, ..waits }).limit, Limit::SmallSteps);
    // 80 µs a step, 24 of them for the next batch: the input is slow.
    assert_eq!(judge(&Evidence { steps: 125_000, ..waits }).limit, Limit::Input);
}

#[test]
fn thin_evidence_is_said_to_be_thin() {
    let verdict = judge(&Evidence { steps: 5, ..run() });
    assert!(verdict.thin && verdict.words.contains("thin evidence: 5 steps"));
    assert_eq!(judge(&Evidence::default()).limit, Limit::Unknown);
}

#[test]
fn other_programs_are_blamed_only_when_no_core_is_left() {
    let burned = Evidence { busy_cores: Some(1.0), ..run() };
    let full = NodeLoad { busy: Some(2.0), own: Some(1.0), ..node() };
    let verdict = judge_within(&burned, &on(full.clone()));
    assert_eq!((verdict.limit, verdict.saving), (Limit::TakenCores, 0.5));
    assert!(verdict.words.contains("1.0 of 2 cores"), "{}", verdict.words);
    // Half of the machine was free: whatever the others did, they were not in the way.
    let four = on(NodeLoad { cores: Some(4.0), ..full.clone() });
    assert_eq!(judge_within(&burned, &four).limit, Limit::IdleCores);
    // A run that waits for a disk hardly asks for a core: none was taken from it.
    let idler = NodeLoad { own: Some(0.1), waiting: Some(0.01), ..full.clone() };
    assert_ne!(judge_within(&burned, &on(idler)).limit, Limit::TakenCores);
    let eager = NodeLoad { waiting: Some(0.5), ..full.clone() };
    let verdict = judge_within(&burned, &on(eager));
    assert_eq!(verdict.limit, Limit::TakenCores);
    assert!((verdict.saving - 1.0 / 3.0).abs() < 1e-9, "{}", verdict.saving);
    // Workers that are ready and get no core make each other wait in the exchange; the cores are what is missing.
    let starved = Evidence {
        phases: PhaseTimes {
            compute: 0.1,
            exchange: 0.9,
            input: 0.0,
            wait: 0.0,
            ..PhaseTimes::default()
        },
        ..run()
    };
    let around = on(NodeLoad { own: Some(0.1), waiting: Some(2.8), ..full.clone() });
    assert_eq!(judge_within(&starved, &around).limit, Limit::TakenCores);
    // A run that waits for its peers does not want the cores that others use.
    let waiting = Evidence {
        phases: PhaseTimes { compute: 0.2, wait: 0.75, input: 0.05, ..run().phases },
        busy_cores: Some(0.4),
        ..run()
    };
    let verdict = judge_within(&waiting, &on(NodeLoad { own: Some(0.4), ..full.clone() }));
    assert_eq!(verdict.limit, Limit::Synchronisation);
    let throttled = on(NodeLoad { throttled: Some(0.4), ..node() });
    let verdict = judge_within(&run(), &throttled);
    assert_eq!(verdict.culprit.as_deref(), Some("the cgroup's quota"));
    // Of several machines the one is named where the cores are missing.
    let there = NodeLoad { host: "there".to_owned(), ..full };
    let two = Surroundings { nodes: vec![node(), there], ..Surroundings::default() };
    let verdict = judge_within(&burned, &two);
    assert_eq!(verdict.culprit.as_deref(), Some("other programs on there"));
    assert!(verdict.words.contains("1.0 of 2 cores"), "{}", verdict.words);
}

#[test]
fn a_busy_disk_is_named_behind_slow_input_if_the_run_reads_from_it() {
    let input = Evidence {
        phases: PhaseTimes {
            input: 0.7,
            compute: 0.3,
            exchange: 0.0,
            wait: 0.0,
            ..PhaseTimes::default()
        },
        busy_cores: Some(0.5),
        ..run()
    };
    let lazy = NodeLoad { busy: Some(0.6), own: Some(0.5), ..node() };
    let culprit = |node: NodeLoad| judge_within(&input, &on(node)).culprit;
    let busy = NodeLoad { disk_busy: Some(0.95), read: Some(1e6), ..lazy.clone() };
    assert_eq!(judge_within(&input, &on(busy.clone())).limit, Limit::Input);
    assert_eq!(culprit(busy.clone()).as_deref(), Some("the disk"));
    // A limit above the disk holds requests back before the disk sees them; those who wait are counted.
    let limited = NodeLoad { disk_busy: Some(0.02), disk_pressure: Some(0.9), ..busy.clone() };
    assert_eq!(culprit(limited).as_deref(), Some("the disk"));
    assert_eq!(culprit(NodeLoad { disk_busy: Some(0.1), ..lazy.clone() }), None);
    assert_eq!(culprit(NodeLoad { read: Some(0.0), ..busy }), None, "others use the disk");
}

#[test]
fn advice_on_input_fits_what_is_read() {
    let input = Evidence {
        phases: PhaseTimes {
            input: 0.7,
            compute: 0.3,
            exchange: 0.0,
            wait: 0.0,
            ..PhaseTimes::default()
        },
        ..run()
    };
    let words = |examples| judge(&Evidence { examples, ..input }).words;
    assert!(words(Examples::Images).contains("smaller images"));
    assert!(
        words(Examples::Rows).contains("rows prepared") && !words(Examples::Rows).contains("image")
    );
    assert!(!words(Examples::Any).contains("image"));
}

#[test]
fn one_slow_worker_is_named_and_four_equal_ones_are_not() {
    let waiting = Evidence {
        phases: PhaseTimes {
            input: 0.0,
            compute: 0.5,
            exchange: 0.05,
            wait: 0.45,
            ..PhaseTimes::default()
        },
        ..run()
    };
    let slow = Surroundings {
        workers: vec![worker(0, 10.0), worker(1, 10.5), worker(2, 40.0)],
        ..quiet()
    };
    let verdict = judge_within(&waiting, &slow);
    assert_eq!((verdict.limit, verdict.culprit.as_deref()), (Limit::Straggler, Some("worker/2")));
    assert!(verdict.saving > 0.5 && verdict.saving < 0.75, "{}", verdict.saving);
    let equal = Surroundings { workers: (0..4).map(|n| worker(n, 10.0)).collect(), ..quiet() };
    assert_eq!(judge_within(&waiting, &equal).limit, Limit::Synchronisation);
    let two = Surroundings { workers: vec![worker(0, 30.0), worker(1, 10.0)], ..quiet() };
    assert_eq!(judge_within(&waiting, &two).culprit.as_deref(), Some("worker/0"));
    // A task that is stopped now and then is often stopped while it exchanges; the other one waits a quarter of the time all the same.
    let halting = Evidence {
        phases: PhaseTimes {
            input: 0.0,
            compute: 0.27,
            exchange: 0.6,
            wait: 0.125,
            ..PhaseTimes::default()
        },
        ..run()
    };
    assert_eq!(judge_within(&halting, &two).culprit.as_deref(), Some("worker/0"));
}

#[test]
fn a_full_link_a_full_server_and_neither_are_told_apart() {
    let moving = Evidence {
        phases: PhaseTimes {
            input: 0.0,
            compute: 0.4,
            exchange: 0.6,
            wait: 0.0,
            ..PhaseTimes::default()
        },
        ..run()
    };
    let link = |capacity| Link {
        task: "ps/0".to_owned(),
        bytes_per_second: 126e6,
        while_used: 210e6,
        capacity,
    };
    let full = Surroundings { links: vec![link(Some(225e6))], ..quiet() };
    let verdict = judge_within(&moving, &full);
    assert_eq!((verdict.limit, verdict.culprit.as_deref()), (Limit::Network, Some("ps/0")));
    assert!(verdict.words.contains("210 MB/s, 93 % of the link"), "{}", verdict.words);
    assert!(
        verdict.words.contains("removing the exchange would save at most"),
        "{}",
        verdict.words
    );
    let server = |busy_cores| ServerLoad { task: "ps/0".to_owned(), busy_cores, threads: 1 };
    let busy =
        Surroundings { links: vec![link(Some(1e10))], servers: vec![server(0.95)], ..quiet() };
    assert_eq!(judge_within(&moving, &busy).limit, Limit::Server);
    // All machines are idle and the capacity is unknown: bytes are in flight.
    let bored = || on(NodeLoad { busy: Some(0.4), own: Some(0.3), ..node() });
    let idle = Surroundings { links: vec![link(None)], servers: vec![server(0.1)], ..bored() };
    let moving_slowly = Evidence { busy_cores: Some(0.3), ..moving };
    let verdict = judge_within(&moving_slowly, &idle);
    assert_eq!(verdict.limit, Limit::Network);
    assert!(verdict.words.contains("capacity is not known"), "{}", verdict.words);
    // It is known and hardly used: not the bandwidth.
    let wide = Surroundings { links: vec![link(Some(1e10))], ..bored() };
    assert_eq!(judge_within(&moving_slowly, &wide).limit, Limit::Exchange);
    let neither = Surroundings { links: vec![link(None)], servers: vec![server(0.1)], ..quiet() };
    assert_eq!(judge_within(&moving, &neither).limit, Limit::Exchange);
}

/// Beside 25 other programs, a loop that slept nine tenths of its time was told that cores would save it 90 %.
#[test]
fn a_run_that_sleeps_is_not_short_of_cores_because_it_wakes_up_late() {
    let input = PhaseTimes { input: 0.9, compute: 0.1, exchange: 0.0, wait: 0.0, ..run().phases };
    let sleeper = Evidence { phases: input, busy_cores: Some(0.02), ..run() };
    let beside = |waiting| {
        on(NodeLoad { busy: Some(2.0), own: Some(0.02), waiting: Some(waiting), ..node() })
    };
    assert_eq!(judge_within(&sleeper, &beside(0.2)).limit, Limit::Input);
    // Where most of the input is waiting for a core, the cores are what is missing, and no more than that is promised.
    let verdict = judge_within(&sleeper, &beside(0.7));
    assert_eq!((verdict.limit, verdict.saving), (Limit::TakenCores, 0.7));
}

/// Steal was recorded and read by no rule; it counted as other programs of the machine.
#[test]
fn cores_that_the_hypervisor_takes_are_not_blamed_on_programs_here() {
    let stolen = NodeLoad { busy: Some(1.2), own: Some(1.2), stolen: Some(0.8), ..node() };
    let verdict = judge_within(&run(), &on(stolen.clone()));
    assert_eq!(
        (verdict.limit, verdict.culprit.as_deref()),
        (Limit::TakenCores, Some("the hypervisor"))
    );
    assert!((verdict.saving - 0.4).abs() < 1e-9, "{}", verdict.saving);
    assert!(verdict.words.contains("gave 0.8 cores to other machines"), "{}", verdict.words);
    assert!(verdict.evidence.iter().any(|line| line == "the hypervisor took 0.8 cores"));
    let little = NodeLoad { stolen: Some(0.1), ..stolen };
    assert_ne!(judge_within(&run(), &on(little)).limit, Limit::TakenCores);
}

/// A run that was stopped for half of its time was called "compute-bound on few cores".
#[test]
fn a_run_that_was_stopped_from_outside_is_said_to_have_been() {
    let stop = |task: &str, share| Stop { task: task.to_owned(), share };
    let halted = Evidence { busy_cores: Some(0.9), ..run() };
    let around = Surroundings { stops: vec![stop("worker/0", 0.5)], ..quiet() };
    let verdict = judge_within(&halted, &around);
    assert_eq!((verdict.limit, verdict.saving), (Limit::Stopped, 0.5));
    assert!(
        verdict.words.contains("the process was stopped 50 % of the time"),
        "{}",
        verdict.words
    );
    let blink = Surroundings { stops: vec![stop("worker/0", 0.02)], ..quiet() };
    assert_eq!(judge_within(&halted, &blink).limit, Limit::IdleCores);
    // One of two is stopped and the other waits for it: the one is the cause, and why is said.
    let waiting = Evidence {
        phases: PhaseTimes {
            input: 0.0,
            compute: 0.5,
            exchange: 0.05,
            wait: 0.45,
            ..PhaseTimes::default()
        },
        ..run()
    };
    let around = Surroundings {
        workers: vec![worker(0, 10.0), worker(1, 40.0)],
        stops: vec![stop("worker/1", 0.7)],
        ..quiet()
    };
    let verdict = judge_within(&waiting, &around);
    assert_eq!((verdict.limit, verdict.culprit.as_deref()), (Limit::Straggler, Some("worker/1")));
    assert!(verdict.words.contains("was stopped 70 % of the time"), "{}", verdict.words);
    // One is stopped and no task waits for it.
    let around = Surroundings { workers: vec![worker(0, 10.0), worker(1, 10.0)], ..around };
    let verdict = judge_within(&run(), &around);
    assert_eq!((verdict.limit, verdict.culprit.as_deref()), (Limit::Stopped, Some("worker/1")));
}

/// Eight threads on two cores were called "compute-bound on few cores", with advice to use more of them.
#[test]
fn more_threads_than_cores_are_named() {
    let eight = Evidence { threads: 8, ..run() };
    let crowd = NodeLoad { threads: 8.0, waiting: Some(5.5), allowed: Some(2.0), ..node() };
    let verdict = judge_within(&eight, &on(crowd.clone()));
    assert_eq!(verdict.limit, Limit::TooManyThreads);
    assert!(
        verdict.words.contains("8 threads share 2 cores, and 5.5 of them"),
        "{}",
        verdict.words
    );
    assert!(verdict.evidence.iter().any(|line| line.starts_with("CPU wait")));
    // A process that may use one of the two cores.
    let pinned = NodeLoad {
        threads: 2.0,
        allowed: Some(1.0),
        waiting: Some(0.9),
        own: Some(1.0),
        busy: Some(1.0),
        ..node()
    };
    assert_eq!(judge_within(&run(), &on(pinned)).limit, Limit::TooManyThreads);
    // Other programs take the cores: they come first.
    let taken = NodeLoad { busy: Some(2.0), own: Some(1.0), ..crowd.clone() };
    assert_eq!(judge_within(&eight, &on(taken)).limit, Limit::TakenCores);
    let patient = NodeLoad { waiting: Some(0.2), ..crowd };
    assert_ne!(judge_within(&eight, &on(patient)).limit, Limit::TooManyThreads);
}

/// "Nothing else stands in the way" was said beside a program that used up the memory's bandwidth.
#[test]
fn beside_another_busy_program_the_verdict_is_weaker() {
    let beside = NodeLoad { cores: Some(4.0), busy: Some(2.9), waiting: Some(0.0), ..node() };
    let verdict = judge_within(&run(), &on(beside));
    assert_eq!(verdict.limit, Limit::Compute);
    assert!(verdict.words.contains("other programs kept 1.0 cores busy"), "{}", verdict.words);
    assert!(!verdict.words.contains("stands in the way"), "{}", verdict.words);
    let alone = judge_within(&run(), &quiet());
    assert!(alone.words.contains("nothing else that was measured"), "{}", alone.words);
}

#[test]
fn waiting_for_memory_is_not_called_compute() {
    let around = on(NodeLoad { memory_pressure: Some(0.3), ..node() });
    assert_eq!(judge_within(&run(), &around).limit, Limit::Memory);
}

/// Pages that are read back from disk show up as slow input.
#[test]
fn a_run_that_reads_its_memory_back_is_short_of_memory_and_not_of_input() {
    let phases = PhaseTimes { input: 0.6, compute: 0.4, ..PhaseTimes::default() };
    let waits = Evidence { phases, ..run() };
    let pressed = NodeLoad { memory_pressure: Some(0.4), major_faults: Some(300.0), ..node() };
    assert_eq!(judge_within(&waits, &on(pressed.clone())).limit, Limit::Memory);
    let of_others = NodeLoad { major_faults: Some(0.0), ..pressed };
    assert_eq!(judge_within(&waits, &on(of_others)).limit, Limit::Input);
}

#[test]
fn a_verdict_says_what_it_rests_on() {
    let around = Surroundings { workers: vec![worker(0, 1.0), worker(1, 1.0)], ..quiet() };
    let verdict = judge_within(&run(), &around);
    assert!(verdict.evidence.len() >= 4, "{:?}", verdict.evidence);
    assert!(verdict.evidence[0].starts_with("1000 steps in 10"), "{:?}", verdict.evidence);
}

/// Of 16 s, 11 were spent waiting for a lost worker, and the verdict was on the other 5.
#[test]
fn a_run_that_stood_still_after_a_loss_is_said_to_have() {
    let phases = PhaseTimes { compute: 0.3, recovery: 0.69, wait: 0.01, ..PhaseTimes::default() };
    let evidence = Evidence { phases, ..run() };
    let lost = vec!["worker/1".to_owned()];
    let around = Surroundings { lost, ..Surroundings::default() };
    let verdict = judge_within(&evidence, &around);
    assert_eq!((verdict.limit, verdict.culprit.as_deref()), (Limit::Recovery, Some("worker/1")));
    assert!(verdict.words.contains("worker/1 was lost, and 69 % of the time"), "{}", verdict.words);
    assert!(verdict.evidence[0].ends_with("recovery 69 %"), "{:?}", verdict.evidence);
    let little = PhaseTimes { compute: 0.9, recovery: 0.1, ..PhaseTimes::default() };
    let verdict = judge_within(&Evidence { phases: little, ..run() }, &around);
    assert_eq!(verdict.limit, Limit::Compute);
    assert!(verdict.evidence[0].contains("recovery 10 %"), "{:?}", verdict.evidence);
}

/// Two workers in lockstep, the second slower by `slow`, with an all-reduce in which the first waits for it.
fn in_lockstep(slow: f64) -> (Evidence, Surroundings) {
    let step = 10e-3 * (1.0 + slow);
    let waited = 1.0 - 10e-3 / step;
    let phases =
        PhaseTimes { compute: 1.0 - waited / 2.0, exchange: waited / 2.0, ..PhaseTimes::default() };
    let evidence = Evidence { phases, seconds: 1000.0 * step, waits_in_exchange: true, ..run() };
    (evidence, Surroundings { workers: vec![worker(0, 10.0), worker(1, 1e3 * step)], ..quiet() })
}

/// A worker that cost a synchronous job a quarter of its time was called "compute-bound, nothing else stands in the way".
#[test]
fn a_slow_worker_is_named_by_what_it_costs_the_others() {
    for slow in [0.15, 0.33, 0.5, 1.0, 3.0] {
        let (evidence, around) = in_lockstep(slow);
        let verdict = judge_within(&evidence, &around);
        let named = (verdict.limit, verdict.culprit.as_deref());
        assert_eq!(named, (Limit::Straggler, Some("worker/1")), "{slow}: {}", verdict.words);
        let cost = 1.0 - 1.0 / (1.0 + slow);
        assert!((verdict.saving - cost).abs() < 1e-9, "{slow}: {} and {cost}", verdict.saving);
    }
    // What cannot be told from chance is said to be too little.
    let (evidence, around) = in_lockstep(0.08);
    let verdict = judge_within(&evidence, &around);
    assert_eq!(verdict.limit, Limit::Compute);
    assert!(
        verdict.words.contains("worker/1") && verdict.words.contains("too little"),
        "{}",
        verdict.words
    );
    let (evidence, around) = in_lockstep(0.0);
    assert!(!judge_within(&evidence, &around).words.contains("worker/1"));
    // Workers that do not wait for each other lose nothing to the slow one.
    let (evidence, around) = in_lockstep(1.0);
    let apart = Evidence { waits_in_exchange: false, ..evidence };
    assert_ne!(judge_within(&apart, &around).limit, Limit::Straggler);
}

/// An exchange that takes most of the time is not the fault of the worker that happens to be the slower one.
#[test]
fn a_long_exchange_is_not_blamed_on_the_slower_worker() {
    let phases = PhaseTimes { compute: 0.12, exchange: 0.88, ..PhaseTimes::default() };
    let evidence = Evidence { phases, waits_in_exchange: true, ..run() };
    let around = Surroundings { workers: vec![worker(0, 1.0), worker(1, 1.6)], ..quiet() };
    assert_eq!(judge_within(&evidence, &around).limit, Limit::Exchange);
}

#[test]
fn short_steps_of_python_are_small_steps() {
    let short = Evidence { seconds: 0.5, ..run() };
    assert_eq!(judge(&short).limit, Limit::Compute);
    assert_eq!(judge(&Evidence { framework_seconds: 1e-3, ..short }).limit, Limit::SmallSteps);
}

#[test]
fn threads_that_wait_for_each_other_are_named_where_their_number_was_not_told() {
    let crowded = NodeLoad {
        allowed: Some(2.0),
        threads: 1.0,
        all_threads: Some(19.0),
        waiting: Some(4.0),
        ..node()
    };
    let verdict = judge_within(&run(), &on(crowded.clone()));
    assert_eq!(verdict.limit, Limit::TooManyThreads, "{}", verdict.words);
    assert!(verdict.words.contains("19 threads"), "{}", verdict.words);
    let beside = NodeLoad { own: Some(1.0), ..crowded };
    assert_ne!(judge_within(&run(), &on(beside)).limit, Limit::TooManyThreads);
}
