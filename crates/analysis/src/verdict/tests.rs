//! The rules on evidence as it was recorded, and at their edges.

use super::*;

fn run() -> Evidence {
    Evidence {
        steps: 1000,
        seconds: 10.0,
        input: 0.05,
        compute: 0.9,
        exchange: 0.03,
        wait: 0.02,
        threads: 2,
        busy_cores: Some(1.9),
        examples: Examples::Any,
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
    let input = judge(&Evidence { input: 0.5, compute: 0.45, ..run() });
    assert_eq!((input.limit, input.saving), (Limit::Input, 0.5));
    assert!(input.words.contains("50 %"), "{}", input.words);
    let exchange = Evidence { exchange: 0.4, wait: 0.3, compute: 0.3, input: 0.0, ..run() };
    assert_eq!(judge(&exchange).limit, Limit::Exchange);
    let wait = Evidence { exchange: 0.1, wait: 0.3, compute: 0.6, input: 0.0, ..run() };
    assert_eq!(judge(&wait).limit, Limit::Synchronisation);
}

#[test]
fn idle_threads_and_tiny_steps_are_not_called_healthy() {
    assert_eq!(judge(&Evidence { busy_cores: Some(1.0), ..run() }).limit, Limit::IdleCores);
    assert_eq!(judge(&Evidence { busy_cores: None, ..run() }).limit, Limit::Compute);
    assert_eq!(judge(&Evidence { steps: 1_000_000, ..run() }).limit, Limit::SmallSteps);
}

#[test]
fn the_hand_over_of_a_tiny_batch_is_not_slow_input() {
    let waits = Evidence { input: 0.3, compute: 0.7, exchange: 0.0, wait: 0.0, ..run() };
    // 4 µs a step, 1.2 of them for the next batch: what a batch of one costs.
    assert_eq!(judge(&Evidence { steps: 2_500_000, ..waits }).limit, Limit::SmallSteps);
    // 80 µs a step, 24 of them: somebody is slow.
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
    let starved = Evidence { compute: 0.1, exchange: 0.9, input: 0.0, wait: 0.0, ..run() };
    let around = on(NodeLoad { own: Some(0.1), waiting: Some(2.8), ..full.clone() });
    assert_eq!(judge_within(&starved, &around).limit, Limit::TakenCores);
    // A run that waits for its peers does not want the cores that others use.
    let waiting =
        Evidence { compute: 0.2, wait: 0.75, input: 0.05, busy_cores: Some(0.4), ..run() };
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
        input: 0.7,
        compute: 0.3,
        exchange: 0.0,
        wait: 0.0,
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
    let input = Evidence { input: 0.7, compute: 0.3, exchange: 0.0, wait: 0.0, ..run() };
    let words = |examples| judge(&Evidence { examples, ..input }).words;
    assert!(words(Examples::Images).contains("smaller images"));
    assert!(
        words(Examples::Rows).contains("rows prepared") && !words(Examples::Rows).contains("image")
    );
    assert!(!words(Examples::Any).contains("image"));
}

#[test]
fn one_slow_worker_is_named_and_four_equal_ones_are_not() {
    let waiting = Evidence { input: 0.0, compute: 0.5, exchange: 0.05, wait: 0.45, ..run() };
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
    let halting = Evidence { input: 0.0, compute: 0.27, exchange: 0.6, wait: 0.125, ..run() };
    assert_eq!(judge_within(&halting, &two).culprit.as_deref(), Some("worker/0"));
}

#[test]
fn a_full_link_a_full_server_and_neither_are_told_apart() {
    let moving = Evidence { input: 0.0, compute: 0.4, exchange: 0.6, wait: 0.0, ..run() };
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
    // Nobody is busy and the capacity is not known: bytes are on their way.
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

#[test]
fn waiting_for_memory_is_not_called_compute() {
    let around = on(NodeLoad { memory_pressure: Some(0.3), ..node() });
    assert_eq!(judge_within(&run(), &around).limit, Limit::Memory);
}

#[test]
fn a_verdict_says_what_it_rests_on() {
    let around = Surroundings { workers: vec![worker(0, 1.0), worker(1, 1.0)], ..quiet() };
    let verdict = judge_within(&run(), &around);
    assert!(verdict.evidence.len() >= 4, "{:?}", verdict.evidence);
    assert!(verdict.evidence[0].starts_with("1000 steps in 10"), "{:?}", verdict.evidence);
}
