//! The formulas against figures worked out by hand, and what must hold for any network.

use super::*;
use proptest::prelude::*;

/// Two layers: 4x4x2 → 4x4x8 with 3x3 kernels, then 128 → 10 values.
fn network() -> Network {
    let layer = |name: &str, input, output, kernel, parameters| Layer {
        name: name.to_owned(),
        input,
        output,
        kernel,
        parameters,
        forward: 1e-3,
        backward: 2e-3,
        fixed: 0.0,
        update: 1e-4,
    };
    Network {
        name: "two".to_owned(),
        layers: vec![
            layer("conv", [4, 4, 2], [4, 4, 8], 3, 152.0),
            layer("dense", [1, 1, 128], [1, 1, 10], 1, 1290.0),
        ],
    }
}

const LINK: Link = Link { latency: 1e-4, bandwidth: 1e6 };
const JOB: Job = Job { examples: 1000.0, batch: 100.0, value_bytes: 4.0, overlap: 0.0 };

fn at(name: &str, workers: usize) -> Projection {
    let machines = Machines::one_each(64, 1e12, LINK);
    let strategy = parallel::ALL.iter().find(|entry| entry.name == name).unwrap();
    project(strategy, &network(), &machines, JOB, workers)
}

#[track_caller]
fn close(found: f64, wanted: f64) {
    assert!((found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0), "{found} is not {wanted}");
}

#[test]
fn formulas_match_figures_worked_out_by_hand() {
    // F = 6 ms, U = 0.2 ms, w = 1442, A = 32 + 128 + 128 + 10 = 298, ten steps.
    let serial = at("serial", 1);
    close(serial.compute, 6.0 + 10.0 * 2e-4);
    close(serial.memory, 8.0 * (100.0 * 298.0 + 1442.0));
    let data = at("data", 4);
    close(data.compute, 1.5 + 10.0 * 2e-4);
    close(data.communication, 2.0 * 10.0 * 3.0 * (1e-4 + 1442.0 * 4e-6 / 4.0));
    close(data.memory, 8.0 * (100.0 * 298.0 / 4.0 + 1442.0));
    // Halos of the convolution: 2 rows of 4 pixels, 2 channels in, 8 out.
    let spatial = at("spatial", 4);
    close(spatial.communication - data.communication, 20.0 * (2e-4 + 100.0 * 80.0 * 4e-6));
    let filter = at("filter", 4);
    close(filter.compute, 1.5 + 10.0 * 2e-4 / 4.0);
    close(filter.communication, 3.0 * 10.0 * 3.0 * (1e-4 + 100.0 * 128.0 * 4e-6 / 4.0));
    close(filter.memory, 8.0 * (100.0 * 298.0 + 1442.0 / 4.0));
    close(at("channel", 4).communication, filter.communication);
    let both = at("data+filter", 4);
    close(both.compute, 1.5 + 10.0 * 2e-4 / 2.0);
    let gathers = 3.0 * (1e-4 + 100.0 * 128.0 * 4e-6 / 4.0);
    close(both.communication, 10.0 * (gathers + 2.0 * (1e-4 + 1442.0 * 4e-6 / 4.0)));
    close(both.memory, 8.0 * (100.0 * 298.0 / 2.0 + 1442.0 / 2.0));
    // One layer each; with S segments 1000 (1 + S)/S · 3 ms, and 2·10·S messages of 1280/S values.
    let pipeline = at("pipeline", 2);
    let with = |s: f64| {
        let messages = 20.0 * s * (1e-4 + 100.0 / s * 128.0 * 4e-6);
        1000.0 * (1.0 + s) / s * 3e-3 + 10.0 * 1e-4 + messages
    };
    let best = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0].map(with).into_iter().fold(9e9, f64::min);
    close(pipeline.seconds(), best);
    close(pipeline.memory, 8.0 * f64::max(100.0 * 160.0 + 152.0, 100.0 * 138.0 + 1290.0));
}

#[test]
fn limits_are_said_with_their_reason() {
    let why = |name, workers| at(name, workers).infeasible.unwrap();
    assert!(why("serial", 2).contains("serial"));
    assert!(why("data", 101).contains("at most 100 workers"));
    assert!(why("spatial", 17).contains("16 workers: the smallest layer has no more pixels"));
    assert!(why("pipeline", 3).contains("2 workers: the network has no more layers"));
    assert!(why("filter", 9).contains("8 workers"));
    assert!(why("channel", 129).contains("128 workers"));
    assert!(why("data+filter", 7).contains("no groups"));
    for (name, workers) in [("data", 100), ("filter", 8), ("channel", 128), ("data+filter", 16)] {
        assert_eq!(at(name, workers).infeasible, None, "{name}");
    }
}

#[test]
fn a_strategy_that_needs_too_much_memory_is_not_recommended() {
    let needed = at("data", 2).memory;
    let machines = Machines::one_each(2, needed - 1.0, LINK);
    let answer = rank(&network(), &machines, JOB, &[1, 2]).unwrap();
    for found in &answer.projections {
        let fits = found.memory <= machines.memory;
        assert_eq!(found.infeasible.is_none(), fits, "{found:?}");
    }
    assert!(answer.ranking.iter().all(|&at| answer.projections[at].strategy != "data"));
}

#[test]
fn tasks_that_share_a_host_share_its_cores() {
    let machines = Machines {
        cores: 2.0,
        tasks_per_host: vec![4],
        sharing: vec![(1, 1.0), (2, 1.9)],
        memory: 1e12,
        network: LINK,
        local: Link { latency: 0.0, bandwidth: 1e9 },
    };
    close(machines.slowdown(1), 1.0);
    close(machines.slowdown(2), 1.9);
    close(machines.slowdown(4), 3.8);
    let wide = Machines { sharing: vec![(1, 1.0), (5, 3.0)], ..machines.clone() };
    close(wide.slowdown(3), 2.0);
    let data = parallel::ALL.iter().find(|entry| entry.name == "data").unwrap();
    let alone = project(data, &network(), &machines, JOB, 1);
    let four = project(data, &network(), &machines, JOB, 4);
    // Four workers on what two can use: hardly faster than one, and the local link is the one used.
    close(four.compute, (1.5 + 2e-3) * 3.8);
    assert!(four.compute > 0.9 * alone.compute && four.communication < 1e-3);
    let two_hosts = Machines { tasks_per_host: vec![1, 1], ..machines };
    assert!(project(data, &network(), &two_hosts, JOB, 2).communication > 1e-3);
}

/// Two hosts of four: groups of four gather inside a host, and their four sums share its card.
#[test]
fn workers_of_a_host_share_its_card() {
    let local = Link { latency: 1e-5, bandwidth: 1e8 };
    let machines = Machines {
        cores: 64.0,
        tasks_per_host: vec![4, 4],
        sharing: vec![(64, 1.0)],
        memory: 1e12,
        network: LINK,
        local,
    };
    let project = |name: &str, workers| {
        let strategy = parallel::ALL.iter().find(|entry| entry.name == name).unwrap();
        project(strategy, &network(), &machines, JOB, workers)
    };
    // One ring: each card carries one message at a time.
    close(project("data", 8).communication, 10.0 * 14.0 * (1e-4 + 1442.0 * 4.0 / 8.0 / 1e6));
    close(project("data", 4).communication, 10.0 * 6.0 * (1e-5 + 1442.0 * 4.0 / 4.0 / 1e8));
    // Two groups of four or four of two, whichever is faster: values of a gather are 100·128/8, of a sum 1442/8.
    let with = |inner: f64, gather: f64, rings: f64| {
        let gathers = 3.0 * (inner - 1.0) * (1e-5 + gather);
        10.0 * (gathers + 2.0 * (8.0 / inner - 1.0) * (1e-4 + rings * 1442.0 * 4.0 / 8.0 / 1e6))
    };
    let gather = 100.0 * 128.0 * 4.0 / 8.0 / 1e8;
    let both = project("data+filter", 8);
    let (inner, rings) =
        if both.arrangement.as_deref() == Some("2 groups of 4") { (4.0, 4.0) } else { (2.0, 2.0) };
    close(both.communication, with(inner, gather, rings));
    // A pipeline of two workers stays on its host.
    let pipeline = project("pipeline", 2);
    let segments: f64 = pipeline.arrangement.unwrap().split(' ').next().unwrap().parse().unwrap();
    let message = 1e-5 + 100.0 / segments * 128.0 * 4.0 / 1e8;
    close(pipeline.communication, 20.0 * segments * message);
}

#[test]
fn overlap_hides_no_more_than_the_backward_pass() {
    let machines = Machines::one_each(8, 1e12, LINK);
    let data = parallel::ALL.iter().find(|entry| entry.name == "data").unwrap();
    let with = |overlap| project(data, &network(), &machines, Job { overlap, ..JOB }, 8);
    let plain = with(0.0).communication;
    assert!(with(1.0).communication < 1e-12, "0.25 s of messages under 0.5 s of backward pass");
    assert!(with(0.5).communication < plain && with(0.5).communication > 0.0);
    let slow = Machines::one_each(8, 1e12, Link { bandwidth: 1e4, ..LINK });
    let found = project(data, &network(), &slow, Job { overlap: 1.0, ..JOB }, 8);
    let whole = project(data, &network(), &slow, JOB, 8);
    close(whole.communication - found.communication, 1000.0 * 4e-3 / 8.0);
}

#[test]
fn groups_of_a_pipeline_are_as_even_as_can_be() {
    let mut network = network();
    let time = |forward: f64| Layer { forward, backward: 0.0, ..network.layers[0].clone() };
    network.layers = [5.0, 1.0, 1.0, 1.0, 4.0, 4.0].map(time).to_vec();
    assert_eq!(network.groups(3), vec![0..2, 2..5, 5..6]);
    assert_eq!(network.groups(6).len(), 6);
    assert_eq!(network.groups(1), vec![0..6]);
}

#[test]
fn nonsense_is_refused_by_name() {
    let machines = Machines::one_each(2, 1e9, LINK);
    let error = |network: &Network, machines: &Machines, job, counts: &[usize]| {
        rank(network, machines, job, counts).unwrap_err().to_string()
    };
    let good = network();
    let empty = Network { layers: Vec::new(), ..good.clone() };
    assert!(error(&empty, &machines, JOB, &[1]).contains("`two` has no layers"));
    let mut broken = good.clone();
    broken.layers[1].backward = f64::NAN;
    assert!(error(&broken, &machines, JOB, &[1]).contains("`dense`"));
    let none = Job { batch: 0.0, ..JOB };
    assert!(error(&good, &machines, none, &[1]).contains("batch size"));
    assert!(error(&good, &machines, JOB, &[0]).contains("number of workers"));
    let dead = Machines::one_each(2, 1e9, Link { bandwidth: 0.0, ..LINK });
    assert!(error(&good, &dead, JOB, &[1]).contains("bandwidth"));
}

proptest! {
    /// Faster links never slow a strategy down, and more overlap never either.
    #[test]
    fn better_links_never_hurt(
        workers in 2usize..40, latency in 0.0..1e-2f64, bandwidth in 1e4..1e10f64, overlap in 0.0..1.0f64,
    ) {
        let job = Job { overlap, ..JOB };
        for strategy in parallel::ALL {
            let slow = Machines::one_each(64, 1e15, Link { latency, bandwidth });
            let fast = Machines::one_each(64, 1e15, Link { latency: latency / 2.0, bandwidth: bandwidth * 3.0 });
            let [a, b] = [&slow, &fast].map(|machines| project(strategy, &network(), machines, job, workers));
            prop_assert!(b.seconds() <= a.seconds() * (1.0 + 1e-12), "{} {workers}", strategy.name);
            let hidden = Job { overlap: 1.0, ..JOB };
            let c = project(strategy, &network(), &slow, hidden, workers);
            prop_assert!(c.seconds() <= a.seconds() * (1.0 + 1e-12));
            prop_assert!(a.compute > 0.0 && a.communication >= 0.0 && a.memory > 0.0);
        }
    }
}
