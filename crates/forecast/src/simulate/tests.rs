//! Simulations against closed forms, and what must hold whatever is simulated.

use super::*;
use proptest::prelude::*;

const NETWORK: Link = Link { latency: 1e-3, bandwidth: 1e6 };
const LOCAL: Link = Link { latency: 0.0, bandwidth: 1e12 };

/// Steps of exactly 100 ms on 50 examples, 10 kB of gradient and weights, 1 ms to apply.
fn steady() -> Workload {
    Workload {
        steps: vec![0.1],
        examples: 50.0,
        input: 0.0,
        sizes: Vec::new(),
        threads: 1.0,
        parallel: 1.0,
        neighbours: 1.0,
        contended: 1.0,
        cold: 1.0,
        factors: Vec::new(),
        gradient_bytes: 1e4,
        weight_bytes: 1e4,
        apply: 1e-3,
        buckets: Vec::new(),
    }
}

fn apart() -> Cluster {
    Cluster { cores: 1.0, per_host: 1, network: NETWORK, sums: None, local: LOCAL, wake: 0.0 }
}

fn together_on(cores: f64) -> Cluster {
    Cluster { cores, per_host: usize::MAX, ..apart() }
}

fn run(strategy: &str, workload: &Workload, cluster: &Cluster, plan: &Plan) -> SimulationOutcome {
    simulate(strategy, workload, cluster, plan).unwrap()
}

#[track_caller]
fn near(found: f64, wanted: f64, share: f64) {
    assert!((found - wanted).abs() <= share * wanted.abs(), "{found} is not {wanted}");
}

#[test]
fn all_reduce_of_equal_workers_matches_the_formula() {
    for workers in [2usize, 3, 8, 64] {
        let p = workers as f64;
        let plan = Plan { collective: Collective::Ring, ..Plan::even(workers, 0, 50.0) };
        let found = run("multi-worker", &steady(), &apart(), &plan);
        let step = 0.1 + 2.0 * (p - 1.0) * (1e-3 + 1e4 / p / 1e6);
        near(found.updates_per_second, 1.0 / step, 1e-9);
        near(found.examples_per_second, 50.0 * p / step, 1e-9);
        assert!(found.shares.wait < 1e-12, "equal workers never wait");
    }
}

#[test]
fn buckets_travel_while_the_backward_pass_goes_on() {
    let mut workload = steady();
    let plan = Plan { collective: Collective::Ring, ..Plan::even(4, 0, 50.0) };
    let at_the_end = run("multi-worker", &workload, &apart(), &plan).seconds;
    workload.buckets = vec![Bucket { at: 0.5, share: 0.9 }, Bucket { at: 1.0, share: 0.1 }];
    let overlapped = run("multi-worker", &workload, &apart(), &plan).seconds;
    // The large bucket takes 6·(1 + 2.25) = 19.5 ms and is done before the pass; only the small remains.
    near(overlapped / 100.0, 0.1 + 6.0 * (1e-3 + 1e3 / 4.0 / 1e6), 1e-9);
    assert!(overlapped < at_the_end);
}

#[test]
fn sums_of_all_workers_have_a_speed_of_their_own() {
    let sums = Link { latency: 2e-3, bandwidth: 5e5 };
    let cluster = Cluster { sums: Some(sums), ..apart() };
    let plan = Plan { collective: Collective::Ring, ..Plan::even(4, 0, 50.0) };
    let found = run("multi-worker", &steady(), &cluster, &plan);
    near(1.0 / found.updates_per_second, 0.1 + 6.0 * (2e-3 + 1e4 / 4.0 / 5e5), 1e-9);
}

/// Four workers on each of two hosts: the ring crosses each card once in each direction, the tree only in its last rounds.
#[test]
fn workers_of_a_host_share_its_card_and_meet_inside_it_first() {
    let local = Link { latency: 1e-4, bandwidth: 1e7 };
    let hosts = Cluster { cores: 4.0, per_host: 4, local, ..apart() };
    let step = |collective, cluster: &Cluster| {
        let plan = Plan { collective, threads: Some(1.0), ..Plan::even(8, 0, 50.0) };
        1.0 / run("multi-worker", &steady(), cluster, &plan).updates_per_second
    };
    near(step(Collective::Ring, &hosts), 0.1 + 14.0 * (1e-3 + 1e4 / 8.0 / 1e6), 1e-9);
    // Up and down: two rounds inside a host, one between them.
    let message = |link: Link| link.message(1e4);
    let tree = 2.0 * (2.0 * message(local) + message(NETWORK));
    near(step(Collective::Tree, &hosts), 0.1 + tree, 1e-9);
    near(step(Collective::Tree, &Cluster { per_host: 1, ..hosts.clone() }), 0.1 + 66e-3, 1e-9);
    // Hosts of three: a pair of the first round lies across a border, so all rounds wait for the network.
    let threes = Cluster { cores: 3.0, per_host: 3, ..hosts.clone() };
    near(step(Collective::Tree, &threes), 0.1 + 66e-3, 1e-9);
    // Where a hop inside a host is the slower one, it decides a round.
    let slow = Cluster { local: Link { latency: 0.0, bandwidth: 1e5 }, ..hosts.clone() };
    near(step(Collective::Ring, &slow), 0.1 + 14.0 * (1e4 / 8.0 / 1e5), 1e-9);
    // Rounds measured among all workers have their hops in them.
    let measured = Cluster { sums: Some(NETWORK), ..slow };
    near(step(Collective::Ring, &measured), 0.1 + 14.0 * (1e-3 + 1e4 / 8.0 / 1e6), 1e-9);
}

/// Four servers on one host, four workers on another: whatever a card carries, it carries for all four.
#[test]
fn servers_and_workers_that_share_cards_have_the_capacity_of_one_card() {
    let workload = Workload { steps: vec![1e-4], apply: 0.0, ..steady() };
    let plan = Plan { threads: Some(1.0), steps: 400, ..Plan::even(4, 4, 50.0) };
    let rate = |per_host: usize| {
        let hosts = Cluster { cores: per_host as f64, per_host, ..apart() };
        run("ps-async", &workload, &hosts, &plan).updates_per_second
    };
    // A card takes a gradient of 10 kB in 10 ms: 100 a second at most. With a card each, four go rounds of at least 10 + 10 ms.
    let (shared, own) = (rate(4), rate(1));
    assert!((50.0..=101.0).contains(&shared), "{shared}");
    assert!(own > 1.5 * shared && own <= 4.0 / 20e-3, "{own}, {shared}");
}

#[test]
fn slowest_of_many_decides_a_synchronous_step() {
    // 1 or 2 tenths with equal chance: the largest of p is 0.2 − 0.1·2^−p on average.
    let workload = Workload { steps: vec![0.1, 0.2], gradient_bytes: 0.0, ..steady() };
    let network = Link { latency: 0.0, bandwidth: 1e9 };
    let cluster = Cluster { network, ..apart() };
    for workers in [1usize, 2, 4] {
        let plan = Plan { steps: 20_000, ..Plan::even(workers, 0, 50.0) };
        let found = run("multi-worker", &workload, &cluster, &plan);
        near(found.seconds / 20_000.0, 0.2 - 0.1 * 0.5f64.powi(workers as i32), 0.01);
    }
}

#[test]
fn lone_worker_pays_for_its_round_trip() {
    // Compute, two messages of 1 + 10 ms, one update.
    for strategy in ["ps-async", "ps-sync"] {
        let found = run(strategy, &steady(), &apart(), &Plan::even(1, 1, 50.0));
        near(found.updates_per_second, 1.0 / (0.1 + 2.0 * 11e-3 + 1e-3), 1e-6);
        near(found.shares.compute, 0.1 / 0.123, 5e-3);
    }
}

#[test]
fn saturated_server_gives_its_capacity_and_no_more() {
    // Its cable takes 10 kB in 10 ms: 100 updates a second, however many workers there are.
    let workload = Workload { weight_bytes: 1e3, ..steady() };
    let plan = Plan { steps: 4000, ..Plan::even(60, 1, 50.0) };
    let found = run("ps-async", &workload, &apart(), &plan);
    near(found.updates_per_second, 100.0, 0.01);
    assert!(found.server.unwrap().1 > 0.98, "{:?}", found.server);
    // A slow update instead: 1 / 25 ms.
    let slow = Workload { apply: 25e-3, ..workload.clone() };
    let found = run("ps-async", &slow, &apart(), &plan);
    near(found.updates_per_second, 40.0, 0.01);
    assert_eq!(found.server.unwrap().0, "updating");
    // Two servers share the bytes: twice the capacity.
    let found = run("ps-async", &workload, &apart(), &Plan { servers: 2, ..plan });
    near(found.updates_per_second, 200.0, 0.02);
}

/// Many servers are simulated by a few that stand for them: capacity must grow all the same.
#[test]
fn servers_beyond_the_simulated_ones_count() {
    let workload = Workload { weight_bytes: 1e3, ..steady() };
    for servers in [4usize, 8, 32] {
        let plan = Plan { steps: 40_000, ..Plan::even(servers * 100, servers, 50.0) };
        let found = run("ps-async", &workload, &apart(), &plan);
        near(found.updates_per_second, 100.0 * servers as f64, 0.03);
        assert_eq!(found.servers, servers);
    }
}

/// Among very many asynchronous workers one stands for several: capacity, free rate and staleness are those of all.
#[test]
fn workers_beyond_the_simulated_ones_count() {
    let workers = 5 * placement::MOST_WORKERS + 3;
    let of = |workload: &Workload, workers: usize, servers: usize, rounds: usize| {
        let plan = Plan { steps: (rounds * workers) as u64, ..Plan::even(workers, servers, 50.0) };
        run("ps-async", workload, &apart(), &plan)
    };
    // A lone server's cable takes 10 kB in 10 ms, however many wait for it. All of them have a gradient on it at any time, of
    // which a part is through when counting begins, and another part when it ends.
    let workload = Workload { weight_bytes: 1e3, ..steady() };
    let rounds = 20;
    let full = of(&workload, workers, 1, rounds);
    near(full.updates_per_second, 100.0, 0.5 / rounds as f64);
    assert_eq!((full.workers, full.servers), (workers, 1));
    // With servers enough each goes on as if it were alone: compute, and two messages of 1 + 1 ms.
    let workload = Workload { gradient_bytes: 1e3, weight_bytes: 1e3, ..steady() };
    let free = of(&workload, workers, workers, 6);
    near(free.updates_per_second, workers as f64 / 0.104, 0.01);
    // All began with the same weights, so of the 6 rounds and a fifth more before them the first was half as stale.
    let settled = 1.0 - 0.5 / (1.2 * 6.0);
    near(free.staleness.unwrap().mean + 1.0, settled * workers as f64, 0.01);
    // Twice as many workers and servers, half of each simulated: twice as fast.
    let steps = (0..100).map(|at| 0.1 + 1e-3 * f64::from(at * 37 % 101)).collect();
    let workload = Workload { steps, ..steady() };
    let half = of(&workload, placement::MOST_WORKERS, placement::MOST_WORKERS / 16, 6);
    let whole = of(&workload, 2 * placement::MOST_WORKERS, placement::MOST_WORKERS / 8, 6);
    near(whole.examples_per_second, 2.0 * half.examples_per_second, 0.01);
    near(whole.shares.wait, half.shares.wait, 0.02);
    let [whole, half] = [whole, half].map(|found| found.staleness.unwrap());
    near(whole.mean + 1.0, 2.0 * (half.mean + 1.0), 0.01);
    near(whole.p99 as f64, 2.0 * half.p99 as f64, 0.02);
}

#[test]
fn below_saturation_asynchronous_workers_do_not_disturb_each_other() {
    // Messages of 1 ms in steps of 100: four seldom meet on the server's cable.
    let workload = Workload { gradient_bytes: 1e3, weight_bytes: 1e3, apply: 1e-4, ..steady() };
    let plan = Plan { steps: 400, ..Plan::even(4, 1, 50.0) };
    let one = run("ps-async", &workload, &apart(), &Plan { workers: 1, ..plan.clone() });
    let four = run("ps-async", &workload, &apart(), &plan);
    near(four.updates_per_second, 4.0 * one.updates_per_second, 0.02);
}

/// Cables are shared, not taken in turns: the classic result for customers who go round two stations that share
/// their time among them is `N/(N+1)` of what one station can do, where `N` are there.
#[test]
fn workers_in_a_hurry_cannot_fill_both_directions_of_a_server() {
    let workload = Workload { steps: vec![1e-6], apply: 0.0, ..steady() };
    let network = Link { latency: 0.0, ..NETWORK };
    let cluster = Cluster { network, ..apart() };
    for workers in [3usize, 6, 12] {
        let plan = Plan { steps: 20_000, ..Plan::even(workers, 1, 50.0) };
        let found = run("ps-async", &workload, &cluster, &plan);
        let n = workers as f64;
        near(found.updates_per_second, 100.0 * n / (n + 1.0), 0.05);
    }
}

#[test]
fn equal_asynchronous_workers_are_as_stale_as_there_are_others() {
    for workers in [1usize, 2, 5, 20] {
        let plan = Plan { steps: 2000, ..Plan::even(workers, 1, 50.0) };
        let stale = run("ps-async", &steady(), &apart(), &plan).staleness.unwrap();
        near(stale.mean + 1.0, workers as f64, 0.02);
        assert_eq!(stale.median, workers as u64 - 1);
    }
}

#[test]
fn backup_workers_hide_a_straggler() {
    let workload = Workload { factors: vec![1.0, 1.0, 1.0, 10.0], ..steady() };
    let plan = Plan { steps: 50, ..Plan::even(4, 1, 50.0) };
    let held_up = run("ps-sync", &workload, &apart(), &plan);
    assert_eq!(held_up.slowest, 3);
    assert!(held_up.shares.wait > 0.6, "three wait nine tenths of the time: {:?}", held_up.shares);
    let hidden = run("ps-sync", &workload, &apart(), &Plan { backup: 1, ..plan });
    assert!(hidden.updates_per_second > 5.0 * held_up.updates_per_second);
    assert!(hidden.dropped > 0, "the straggler's gradients come too late");
}

#[test]
fn tasks_of_one_machine_share_its_cores() {
    // Nothing but compute: p workers on two cores do two steps per step's time at most.
    let workload = Workload { gradient_bytes: 0.0, weight_bytes: 0.0, apply: 0.0, ..steady() };
    for (workers, speed) in [(1usize, 1.0), (2, 2.0), (4, 2.0), (8, 2.0)] {
        let plan = Plan { steps: 400, ..Plan::even(workers, 1, 50.0) };
        for strategy in ["multi-worker", "ps-async", "ps-sync"] {
            let found = run(strategy, &workload, &together_on(2.0), &plan);
            // One worker has both cores, and a step that uses both.
            let wanted = if workers == 1 { 2.0 } else { speed };
            near(found.examples_per_second, 500.0 * wanted, 0.02);
        }
    }
}

#[test]
fn input_is_hidden_where_a_core_is_free_and_the_order_is_known() {
    let workload =
        Workload { input: 0.25, gradient_bytes: 0.0, weight_bytes: 0.0, apply: 0.0, ..steady() };
    let plan = Plan { threads: Some(1.0), ..Plan::even(1, 1, 50.0) };
    let rate = |strategy: &str, plan: &Plan| {
        run(strategy, &workload, &together_on(2.0), plan).updates_per_second
    };
    near(rate("multi-worker", &plan), 1.0 / 0.075, 1e-6);
    near(rate("ps-sync", &plan), 1.0 / 0.075, 1e-6);
    // Batches that are dealt on demand cannot be read ahead; nor is there a core for two workers' readers.
    near(rate("ps-async", &plan), 1.0 / 0.1, 1e-6);
    near(rate("multi-worker", &Plan { workers: 2, ..plan }), 1.0 / 0.1, 1e-6);
}

#[test]
fn a_worker_that_waits_for_others_at_a_server_must_be_woken() {
    let workload = Workload { gradient_bytes: 0.0, weight_bytes: 0.0, apply: 0.0, ..steady() };
    let cluster = Cluster { wake: 0.01, ..together_on(4.0) };
    let plan = Plan { threads: Some(1.0), ..Plan::even(1, 1, 50.0) };
    let one = run("ps-sync", &workload, &cluster, &plan);
    near(one.updates_per_second, 1.0 / 0.1, 1e-6);
    let two = run("ps-sync", &workload, &cluster, &Plan { workers: 2, ..plan });
    near(two.updates_per_second, 1.0 / 0.11, 1e-6);
}

/// Three workers of short steps on two cores: each keeps its core for a slice, so that what a handover costs is
/// paid once in a slice, not once in a step.
#[test]
fn asynchronous_workers_keep_their_turn_from_step_to_step() {
    let workload = Workload {
        // Not in lockstep: then a server that takes one gradient at a time would cost one of them its turn.
        steps: vec![0.95e-4, 1e-4, 1.05e-4],
        cold: 2.0,
        gradient_bytes: 0.0,
        weight_bytes: 0.0,
        apply: 0.0,
        ..steady()
    };
    let plan = Plan { threads: Some(1.0), steps: 4000, ..Plan::even(3, 1, 50.0) };
    let found = run("ps-async", &workload, &together_on(2.0), &plan);
    // 40 steps a slice; the first of them takes twice as long.
    near(found.updates_per_second, 2e4, 0.05);
}

#[test]
fn smaller_shares_cost_less_but_never_less_than_the_fixed_part() {
    // A fifth of a step of 50 examples does not depend on them.
    let sizes = vec![(25.0, 0.06), (50.0, 0.1)];
    let workload = Workload { sizes, gradient_bytes: 0.0, ..steady() };
    let network = Link { latency: 0.0, bandwidth: 1e9 };
    let cluster = Cluster { network, ..apart() };
    let found = run("multi-worker", &workload, &cluster, &Plan::even(5, 0, 10.0));
    near(found.seconds / 100.0, 0.02 + 0.08 / 5.0, 1e-9);
}

#[test]
fn steps_of_other_sizes_follow_the_timed_ones() {
    // Timed on another machine, twice as fast: 50 examples took 50 ms there.
    let sizes = vec![(10.0, 0.02), (50.0, 0.05), (100.0, 0.1)];
    let workload = Workload { sizes, ..steady() };
    for (examples, seconds) in
        [(50.0, 0.1), (30.0, 0.07), (75.0, 0.15), (200.0, 0.4), (5.0, 0.0325)]
    {
        let found = run("multi-worker", &workload, &apart(), &Plan::even(1, 0, examples));
        near(1.0 / found.updates_per_second, seconds, 1e-9);
    }
}

#[test]
fn knee_is_where_more_workers_bring_little() {
    // A server that makes 100 updates a second, and steps of 0.112 s: a dozen workers fill it.
    let workload = Workload { gradient_bytes: 1e2, weight_bytes: 1e2, apply: 10e-3, ..steady() };
    let outcomes: Vec<SimulationOutcome> = [1, 2, 4, 8, 16, 32, 64]
        .map(|workers| {
            let plan = Plan { steps: 2000, ..Plan::even(workers, 1, 50.0) };
            run("ps-async", &workload, &apart(), &plan)
        })
        .to_vec();
    assert_eq!(knee(&outcomes).unwrap().workers, 16);
}

#[test]
fn nonsense_is_refused_by_name() {
    let error = |workload: &Workload, cluster: &Cluster, plan: &Plan, strategy: &str| {
        simulate(strategy, workload, cluster, plan).unwrap_err().to_string()
    };
    let (good, plan) = (steady(), Plan::even(2, 1, 50.0));
    assert!(error(&good, &apart(), &plan, "gossip").contains("multi-worker, ps-sync, ps-async"));
    let none = Workload { steps: Vec::new(), ..good.clone() };
    assert!(error(&none, &apart(), &plan, "ps-async").contains("measured steps"));
    let backwards = Workload { steps: vec![-1.0], ..good.clone() };
    assert!(error(&backwards, &apart(), &plan, "ps-async").contains("-1"));
    let no_workers = Plan { workers: 0, ..plan.clone() };
    assert!(error(&good, &apart(), &no_workers, "multi-worker").contains("number of workers"));
    let unserved = Plan { servers: 0, ..plan.clone() };
    assert!(error(&good, &apart(), &unserved, "ps-sync").contains("number of servers"));
    let all = Plan { backup: 2, ..plan };
    assert!(error(&good, &apart(), &all, "ps-sync").contains("backup workers"));
}

/// Work grows with the workers alone: as many events for each of their steps, however many workers there are, and so
/// many servers with them.
#[test]
fn events_of_a_worker_step_do_not_grow_with_the_cluster() {
    let steps = (0..20).map(|at| 0.1 + 1e-3 * f64::from(at)).collect();
    let workload = Workload { steps, ..steady() };
    let shared = Cluster { per_host: 4, cores: 4.0, ..apart() };
    for (cluster, most) in [(apart(), 26.0), (together_on(64.0), 60.0), (shared, 240.0)] {
        for strategy in ["ps-async", "ps-sync"] {
            let events = |workers: usize| {
                // Each of them makes three steps or a little more.
                let steps = if strategy == "ps-sync" { 3 } else { 3 * workers as u64 };
                let plan = Plan { steps, ..Plan::even(workers, workers.div_ceil(16), 50.0) };
                let found = run(strategy, &workload, &cluster, &plan);
                // The first step of workers in lockstep is simulated and not counted.
                let all = if strategy == "ps-sync" { steps + 1 } else { 3 };
                found.events as f64 / (workers as u64 * all) as f64
            };
            let (some, many) = (events(1024), events(4096));
            let where_they_are = cluster.per_host;
            assert!(many < most, "{strategy}, {where_they_are} a host: {many} events a step");
            assert!(many < 1.25 * some, "{strategy}, {where_they_are} a host: {some}, {many}");
        }
    }
}

/// The figures of many updates, by few: what large synchronous clusters are simulated with.
#[test]
fn a_few_updates_of_many_workers_say_what_many_updates_say() {
    let steps = (0..100).map(|at| 0.1 + 1e-3 * f64::from(at * 37 % 101)).collect();
    let workload = Workload { steps, factors: vec![1.0, 1.05, 0.97], ..steady() };
    for per_host in [1, 4] {
        let cluster = Cluster { per_host, cores: 4.0, ..apart() };
        let found = [3, 60].map(|steps| {
            let plan = Plan { steps, ..Plan::even(1200, 75, 50.0) };
            run("ps-sync", &workload, &cluster, &plan)
        });
        let [few, many] = found;
        near(few.examples_per_second, many.examples_per_second, 0.01);
        near(few.shares.compute, many.shares.compute, 0.02);
        near(few.shares.wait, many.shares.wait, 0.02);
    }
}

/// Where hosts have several tasks, a few servers stand for many as well: what they can do must not change.
#[test]
fn servers_that_share_hosts_are_as_fast_as_the_few_that_stand_for_them() {
    // A host's card takes 10 kB in 10 ms, so 32 servers on 8 hosts take 800 gradients a second.
    let workload = Workload { weight_bytes: 1e3, ..steady() };
    let cluster = Cluster { per_host: 4, cores: 4.0, ..apart() };
    let plan = Plan { steps: 8000, ..Plan::even(800, 32, 50.0) };
    let found = run("ps-async", &workload, &cluster, &plan);
    near(found.updates_per_second, 800.0, 0.05);
    assert_eq!(found.servers, 32);
    // All on one machine of two cores: an update takes 100 ms of a worker's core and 1 ms of a server's.
    let plan = Plan { steps: 1000, threads: Some(1.0), ..Plan::even(320, 20, 50.0) };
    let found = run("ps-async", &workload, &together_on(2.0), &plan);
    near(found.updates_per_second, 2.0 / 0.101, 0.05);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Whatever the numbers: it ends, nothing is negative, no worker is busy longer than the clock ran,
    /// and the same seed gives the same result.
    #[test]
    fn any_cluster_ends_with_sound_figures(
        workers in 1usize..12, servers in 1usize..4, per_host in 1usize..20, cores in 1.0..5.0f64,
        latency in 0.0..1e-2f64, megabytes in 0.0..5.0f64, apply in 0.0..0.05f64, seed in 0u64..99,
        cold in 1.0..3.0f64,
    ) {
        let workload = Workload {
            steps: vec![0.01, 0.02, 0.5], gradient_bytes: megabytes * 1e6, weight_bytes: megabytes * 1e6,
            apply, cold, factors: vec![1.0, 1.3], ..steady()
        };
        let network = Link { latency, bandwidth: 1e7 };
        let local = Link { latency, bandwidth: 1e9 };
        let cluster = Cluster { cores, per_host, network, sums: None, local, wake: 0.0 };
        let plan = Plan { steps: 40, seed, ..Plan::even(workers, servers, 20.0) };
        for entry in strategies::ALL {
            let found = run(entry.name, &workload, &cluster, &plan);
            prop_assert!(found.examples_per_second > 0.0 && found.examples_per_second.is_finite());
            let shares = found.shares;
            prop_assert!(shares.compute >= 0.0 && shares.exchange >= 0.0 && shares.wait >= -1e-9);
            prop_assert!((shares.compute + shares.exchange + shares.wait - 1.0).abs() < 1e-9);
            // Cores are never used beyond what there is: compute per second is bounded by them.
            let hosts = (workers + servers).div_ceil(per_host) as f64;
            let spent: f64 = found.tasks.iter().map(|task| task.compute).sum();
            prop_assert!(spent <= 1.6 * cores * hosts * found.seconds + 4.0 * workers as f64, "{}", entry.name);
            prop_assert_eq!(found, run(entry.name, &workload, &cluster, &plan));
        }
    }
}
