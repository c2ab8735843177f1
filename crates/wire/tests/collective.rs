//! What all ranks do together, over every carrier: right sums, the same bits everywhere, no hang.

#![allow(clippy::unwrap_used)]

mod mesh;

use mesh::{Carrier, links, run, soon, worker};
use paceline_wire::{Group, LinkError, Wait};
use proptest::prelude::*;
use std::thread;
use std::time::{Duration, Instant};

/// Numbers that differ by rank and place, with rounding in their sums.
fn numbers(rank: usize, length: usize, seed: u64) -> Vec<f32> {
    let mut state = seed ^ (rank as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / 1000.0 - 5000.0
        })
        .collect()
}

fn plain_sum(size: usize, length: usize, seed: u64) -> Vec<f64> {
    let mut sums = vec![0.0; length];
    for rank in 0..size {
        for (sum, value) in sums.iter_mut().zip(numbers(rank, length, seed)) {
            *sum += f64::from(value);
        }
    }
    sums
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn assert_sums(results: &[Vec<f32>], size: usize, length: usize, seed: u64) {
    let wanted = plain_sum(size, length, seed);
    for (got, wanted) in results[0].iter().zip(&wanted) {
        assert!((f64::from(*got) - wanted).abs() <= 0.02, "{got} instead of {wanted}");
    }
    assert_eq!(results[0].len(), length);
    for (rank, other) in results.iter().enumerate() {
        assert!(bits(other) == bits(&results[0]), "rank {rank} has other bits than rank 0");
    }
}

fn check_all_reduce(carrier: Carrier, size: usize, lengths: &[usize], seed: u64) {
    let results = run(size, carrier, |mut group| {
        let mut all = Vec::new();
        for (call, length) in lengths.iter().enumerate() {
            let mut data = numbers(group.rank(), *length, seed + call as u64);
            let mut trailer = [1.0, group.rank() as f64];
            group.all_reduce_with(&mut data, &mut trailer, &soon("adding up")).unwrap();
            assert_eq!(trailer, [size as f64, (size * (size - 1) / 2) as f64]);
            all.push(data);
        }
        all
    });
    for (call, length) in lengths.iter().enumerate() {
        let of_call: Vec<_> = results.iter().map(|ranks| ranks[call].clone()).collect();
        assert_sums(&of_call, size, *length, seed + call as u64);
    }
}

#[test]
fn sizes_around_every_limit_add_up_on_every_carrier() {
    // Empty, tiny, around the tree's limit, around a piece, larger than any buffer in between.
    let lengths = [0, 1, 3, 1024, 16_383, 16_384, 16_385, 32_768, 65_536, 65_537, 100_003, 300_007];
    for carrier in Carrier::ALL {
        for size in 1..=5 {
            check_all_reduce(carrier, size, &lengths, 7);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn all_reduce_equals_the_plain_sum(
        size in 1usize..=5,
        carrier in prop::sample::select(Carrier::ALL.to_vec()),
        lengths in prop::collection::vec(0usize..60_000, 1..4),
        seed in any::<u32>(),
    ) {
        check_all_reduce(carrier, size, &lengths, seed.into());
    }
}

#[test]
fn the_same_group_and_numbers_give_the_same_bits_every_time() {
    let once = || {
        run(4, Carrier::Tcp, |mut group| {
            let mut data = numbers(group.rank(), 200_000, 3);
            group.all_reduce(&mut data, &soon("adding up")).unwrap();
            bits(&data)
        })
    };
    assert!(once() == once());
}

#[test]
fn parts_begun_while_others_are_computed_add_up_too() {
    for carrier in Carrier::ALL {
        for (size, part) in [(1, 1000), (2, 1000), (2, 160_000), (3, 150_001)] {
            let length = part * 7;
            let results = run(size, carrier, |mut group| {
                let grad = numbers(group.rank(), length, 11);
                let mut sums = vec![0.0; length];
                for round in 0..5 {
                    // Last part first, as a backward pass does.
                    for index in (0..7).rev() {
                        let range = index * part..(index + 1) * part;
                        group.begin(range.clone(), &grad[range]);
                    }
                    let mut trailer = [f64::from(round)];
                    sums.fill(f32::NAN);
                    let store = |range: std::ops::Range<usize>, part: &[f32]| {
                        sums[range].copy_from_slice(part);
                    };
                    group.finish(&mut trailer, &soon("finishing"), store).unwrap();
                    assert_eq!(trailer[0], f64::from(round) * size as f64);
                }
                sums
            });
            assert_sums(&results, size, length, 11);
        }
    }
}

#[test]
fn shared_buffers_and_parts_of_them_add_up_in_any_mixture() {
    for carrier in Carrier::ALL {
        for size in 1..=4 {
            let length = 150_001;
            let results = run(size, carrier, |mut group| {
                let rank = group.rank();
                let own = numbers(rank, length, 5);
                let mut buffer = group.buffer(length, &soon("sharing")).unwrap();
                assert_eq!(buffer.is_shared(), carrier == Carrier::Shared && size > 1);
                assert_eq!(buffer.len(), length);
                // Several rounds, so that a rank that ran ahead would show.
                for part in [0..length, 0..1024, 77..78, 1000..140_000, 3..20_000] {
                    buffer.copy_from_slice(&own);
                    let mut trailer = [rank as f64];
                    let slice = &mut buffer[part.clone()];
                    group.all_reduce_with(slice, &mut trailer, &soon("adding up")).unwrap();
                    assert_eq!(trailer, [(size * (size - 1) / 2) as f64]);
                    assert!(bits(&buffer[..part.start]) == bits(&own[..part.start]));
                    assert!(bits(&buffer[part.end..]) == bits(&own[part.end..]));
                }
                // One rank's numbers lie elsewhere; the sum must not care.
                for length in [500, length] {
                    let mut elsewhere = own[..length].to_vec();
                    buffer.copy_from_slice(&own);
                    let data = if rank == 0 { &mut elsewhere } else { &mut buffer[..length] };
                    group.all_reduce(data, &soon("adding up")).unwrap();
                    if rank == 0 {
                        buffer[..length].copy_from_slice(&elsewhere);
                    }
                }
                buffer.to_vec()
            });
            assert_sums(&results, size, length, 5);
        }
    }
}

#[test]
fn numbers_that_lie_open_are_summed_without_being_changed() {
    let (length, rounds) = (10_007, 60);
    for size in 2..=4 {
        let results = run(size, Carrier::Shared, |mut group| {
            let rank = group.rank();
            let share = |group: &mut Group| group.buffer(length, &soon("sharing")).unwrap();
            let mut places = [share(&mut group), share(&mut group)];
            let elsewhere = vec![0.0; length];
            assert!(group.is_open(&places[0]) && group.is_open(&places[1][100..200]));
            assert!(!group.is_open(&elsewhere));
            let mut last = Vec::new();
            for round in 0..rounds {
                // In turns, and overwritten at once: a rank that still read the round before would show.
                let [place, other] = &mut places;
                place.copy_from_slice(&numbers(rank, length, round));
                let mut sums = vec![f32::NAN; length];
                let mut trailer = [1.0, rank as f64];
                let store = |range: std::ops::Range<usize>, part: &[f32], trailer: &[f64]| {
                    assert_eq!(trailer, [size as f64, (size * (size - 1) / 2) as f64]);
                    sums[range].copy_from_slice(part);
                    if rank as u64 == round % 3 {
                        thread::yield_now();
                    }
                };
                group.sum_open(place, &mut trailer, &soon("adding up"), store).unwrap();
                assert!(bits(place) == bits(&numbers(rank, length, round)), "round {round}");
                let mut again = numbers(rank, length, round);
                if round % 7 == 0 {
                    group.all_reduce(&mut again, &soon("adding up")).unwrap();
                    assert!(bits(&again) == bits(&sums), "the same sums as elsewhere");
                }
                std::mem::swap(place, other);
                last = sums;
            }
            last
        });
        assert_sums(&results, size, length, rounds - 1);
    }
}

#[test]
fn trailers_longer_than_fit_in_a_note_add_up() {
    for carrier in Carrier::ALL {
        run(3, carrier, |mut group| {
            let mut data = [1.0f32; 10];
            let mut trailer: Vec<f64> = (0..40).map(f64::from).collect();
            group.all_reduce_with(&mut data, &mut trailer, &soon("adding up")).unwrap();
            group.begin(0..10, &data);
            group.finish(&mut trailer, &soon("finishing"), |_, _| ()).unwrap();
            assert!(trailer.iter().enumerate().all(|(i, sum)| *sum == 9.0 * i as f64));
        });
    }
}

#[test]
fn broadcast_gather_and_barrier_reach_all_ranks() {
    for carrier in Carrier::ALL {
        for size in 1..=5 {
            for root in [0, size - 1] {
                let results = run(size, carrier, |mut group| {
                    let mut data = numbers(group.rank(), 400_000, 1);
                    group.broadcast(root, &mut data, &soon("broadcast")).unwrap();
                    group.barrier(&soon("barrier")).unwrap();
                    let mine = vec![group.rank() as u8; group.rank() * 1000];
                    let all = group.gather(root, &mine, 1 << 20, &soon("gather")).unwrap();
                    assert_eq!(all.is_some(), group.rank() == root);
                    for (rank, one) in all.into_iter().flatten().enumerate() {
                        assert!(one == vec![rank as u8; rank * 1000]);
                    }
                    data
                });
                for data in results {
                    assert!(bits(&data) == bits(&numbers(root, 400_000, 1)));
                }
            }
        }
    }
}

#[test]
fn parts_of_any_length_reach_all_ranks_at_their_place() {
    for carrier in Carrier::ALL {
        for lengths in [
            vec![5],
            vec![3, 4],
            vec![0, 7],
            vec![100_003, 40_000],
            vec![16_384, 16_385],
            vec![0, 0, 0],
            vec![50_000, 0, 3],
            vec![1, 70_000, 16_383, 2],
        ] {
            let size = lengths.len();
            let results = run(size, carrier, |mut group| {
                let mut all = Vec::new();
                for call in 0..3 {
                    let mut data = vec![f32::NAN; lengths.iter().sum()];
                    let before: usize = lengths[..group.rank()].iter().sum();
                    let mine = numbers(group.rank(), lengths[group.rank()], call);
                    data[before..before + mine.len()].copy_from_slice(&mine);
                    group.all_gather(&mut data, &lengths, &soon("gathering")).unwrap();
                    // The ranks must still be in lockstep afterwards.
                    let mut sums = vec![1.0f32; 20_000];
                    group.all_reduce(&mut sums, &soon("adding up")).unwrap();
                    assert!(sums.iter().all(|sum| *sum == size as f32));
                    all.push(data);
                }
                let (sent, received) = group.traffic();
                assert!(size == 1 || sent.min(received) > 0, "nothing travelled");
                all
            });
            for calls in results {
                for (call, data) in calls.into_iter().enumerate() {
                    let parts = (0..size).map(|rank| numbers(rank, lengths[rank], call as u64));
                    assert!(
                        bits(&data) == bits(&parts.collect::<Vec<_>>().concat()),
                        "{lengths:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_rank_gets_its_part_from_every_rank() {
    for carrier in Carrier::ALL {
        for lengths in
            [vec![7], vec![3, 0], vec![40_000, 100_003], vec![0, 5, 70_000], vec![9, 9, 9, 9]]
        {
            let size = lengths.len();
            let word = |from: usize, to: usize, at: usize| (from * 1000 + to * 100 + at) as u32;
            run(size, carrier, |mut group| {
                let rank = group.rank();
                for _ in 0..3 {
                    let part = |to: usize| (0..lengths[to]).map(move |at| word(rank, to, at));
                    let out: Vec<u32> = (0..size).flat_map(part).collect();
                    let mut into = vec![u32::MAX; size * lengths[rank]];
                    group.all_to_all(&out, &lengths, &mut into, &soon("dealing")).unwrap();
                    let mine = |from: usize| (0..lengths[rank]).map(move |at| word(from, rank, at));
                    assert!(into == (0..size).flat_map(mine).collect::<Vec<_>>(), "{lengths:?}");
                    // The ranks must still be in lockstep afterwards.
                    let mut sums = vec![1.0f32; 20_000];
                    group.all_reduce(&mut sums, &soon("adding up")).unwrap();
                    assert!(sums.iter().all(|sum| *sum == size as f32));
                }
            });
        }
    }
}

#[test]
fn no_rank_passes_a_barrier_before_the_last_arrives() {
    for carrier in Carrier::ALL {
        let times = run(3, carrier, |mut group| {
            if group.rank() == 2 {
                thread::sleep(Duration::from_millis(80));
            }
            let came = Instant::now();
            group.barrier(&soon("barrier")).unwrap();
            (came, Instant::now())
        });
        let last = times.iter().map(|time| time.0).max().unwrap();
        assert!(times.iter().all(|time| time.1 >= last));
    }
}

#[test]
fn ranks_that_disagree_on_the_length_get_an_error() {
    for carrier in Carrier::ALL {
        let errors = run(2, carrier, |mut group| {
            let mut data = vec![1.0f32; 1000 + group.rank()];
            group.all_reduce(&mut data, &soon("adding up")).unwrap_err()
        });
        // The second to notice may already find the link closed by the first.
        let told = |error: &LinkError| matches!(error, LinkError::Protocol { .. });
        assert!(errors.iter().any(told), "{errors:?}");
        assert!(errors.iter().all(|error| told(error) || error.is_lost()), "{errors:?}");
    }
}

#[test]
fn a_rank_that_goes_away_is_an_error_for_all_others_soon() {
    for carrier in Carrier::ALL {
        let cases = [(2, 100), (2, 3_000_000), (4, 100), (4, 3_000_000)];
        for ((size, length), gathers) in
            cases.into_iter().flat_map(|case| [(case, false), (case, true)])
        {
            // So far away that only a test that hangs would see it.
            let wait = Wait::within(Duration::from_secs(3600), "adding up");
            let results = run(size, carrier, |mut group| {
                if group.rank() == 1 {
                    drop(group);
                    return None;
                }
                let mut data = vec![1.0f32; length];
                let lengths = vec![length / size; size];
                // One call may still succeed where small messages had left already.
                let mut error = None;
                for call in 0..6 {
                    error = if call % 2 == usize::from(gathers) {
                        group.all_reduce(&mut data, &wait).err()
                    } else {
                        group.all_gather(&mut data, &lengths, &wait).err()
                    };
                    if error.is_some() {
                        break;
                    }
                }
                Some(error.expect("a sum without rank 1").to_string())
            });
            assert!(results.iter().flatten().any(|text| text.contains("worker/1")), "{results:?}");
        }
    }
}

#[test]
fn a_silent_rank_is_named_at_the_deadline_in_both_ways_to_add_up() {
    for carrier in Carrier::ALL {
        for length in [100, 3_000_000] {
            let mut mesh = links(2, carrier).into_iter();
            let mut group = Group::new(0, mesh.next().unwrap());
            let _silent = mesh.next().unwrap();
            let wait = Wait::within(Duration::from_millis(80), "adding up step 17");
            group.begin(0..length, &vec![1.0; length]);
            let error = group.finish(&mut [], &wait, |_, _| ()).unwrap_err();
            assert!(error.is_timeout(), "{error}");
            assert_eq!(error.task(), Some(worker(1)));
            assert!(error.to_string().ends_with("step 17"), "{error}");
        }
    }
}
