//! Curves of known truth: what is recovered, what the intervals cover, what is recommended.

use super::*;
use paceline_stats::random::Random;

fn curve(fixed: f64, parallel: f64, aggregation: f64, per_machine: f64) -> Scaling {
    let (across, per_host, spread) = (0.0, None, 0.0);
    Scaling { fixed, parallel, aggregation, per_machine, across, per_host, spread }
}

#[test]
fn curve_of_known_coefficients_is_recovered() {
    let truth = curve(20.0, 900.0, 5.0, 0.4);
    let runs: Vec<ScalingRun> =
        [(0.1, 1.0), (0.2, 2.0), (0.5, 4.0), (0.3, 8.0), (1.0, 16.0), (0.1, 32.0)]
            .map(|(fraction, machines)| ScalingRun {
                fraction,
                machines,
                seconds: truth.predict(fraction, machines),
            })
            .to_vec();
    let found = Scaling::fit(&runs).unwrap();
    assert!((found.predict(1.0, 64.0) / truth.predict(1.0, 64.0) - 1.0).abs() < 1e-6);
    assert!((found.parallel - 900.0).abs() < 1e-3, "{found:?}");
}

#[test]
fn two_sizes_are_too_few() {
    let run = |machines| ScalingRun { fraction: 1.0, machines, seconds: 10.0 };
    let error = Scaling::fit(&[run(1.0), run(2.0), run(2.0)]).unwrap_err();
    assert!(matches!(error, ForecastError::TooFewRuns { found: 2, .. }));
}

fn runs(sizes: &[f64], mut time: impl FnMut(f64) -> f64) -> Vec<ScalingRun> {
    let run = |&machines: &f64| ScalingRun { fraction: 1.0, machines, seconds: time(machines) };
    sizes.iter().map(run).collect()
}

/// The example that showed intervals of ±8 % everywhere: 36.3 (33.3 to 39.3) at 64 machines, where the truth
/// is 85.3, and 19 machines recommended, where 9 are best.
#[test]
fn three_runs_do_not_say_what_sixty_four_machines_would_take() {
    let truth = |m: f64| 20.0 + 80.0 / m + m;
    let fit = ScalingFit::new(&runs(&[1.0, 2.0, 4.0], truth)).unwrap();
    for machines in [1.0, 2.0, 3.0, 4.0, 8.0, 9.0, 16.0, 32.0, 64.0] {
        let found = fit.estimate(1.0, machines);
        assert!(found.low <= truth(machines) && truth(machines) <= found.high, "{found:?}");
        assert_eq!(found.extrapolated, machines > 4.0);
    }
    let width = |machines: f64| {
        let found = fit.estimate(1.0, machines);
        (found.high / found.low).ln()
    };
    assert!(width(64.0) > 3.0 * width(4.0) && width(8.0) > 1.5 * width(4.0));
    let chosen = fit.choose(64, None, None).unwrap();
    assert!(chosen.machines <= 8, "far outside of what was run: {chosen:?}");
    // The run that is asked for settles it.
    let further = f64::from(chosen.settled_by.unwrap().machines);
    let fit = ScalingFit::new(&runs(&[1.0, 2.0, 4.0, further], truth)).unwrap();
    let chosen = fit.choose(64, None, None).unwrap();
    assert!((8..=10).contains(&chosen.machines), "{chosen:?}");
}

/// Share of truths inside the 95 % intervals, between the sizes that were run and outside of them, and the
/// mean widths there (`ln` of high over low).
fn coverage(sizes: &[f64], noise: f64, seed: u64) -> ([f64; 2], [f64; 2]) {
    let mut random = Random::new(seed, 0x5ca1);
    let (mut covered, mut width, mut asked) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    for _ in 0..120 {
        let fixed = 100.0 * random.uniform() * random.uniform();
        let parallel = 10f64.powf(1.0 + 2.0 * random.uniform());
        // Half of all jobs have no such term at all.
        let mut maybe =
            |most: f64| if random.uniform() < 0.5 { 0.0 } else { most * random.uniform() };
        let (aggregation, per_machine) = (maybe(10.0), maybe(2.0));
        let truth = curve(fixed, parallel, aggregation, per_machine);
        // Sum of twelve uniforms: near enough to a normal number.
        let mut normal = || (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0;
        let runs = runs(sizes, |m| truth.predict(1.0, m) * (noise * normal()).exp());
        let fit = ScalingFit::new(&runs).unwrap();
        let (first, last) = fit.measured();
        let far = last * 2f64.powf(1.0 + 2.0 * random.uniform());
        let inside = |share: f64| (first + (last - first) * share).round();
        for machines in [inside(random.uniform()), inside(random.uniform()), far.round()] {
            let found = fit.estimate(1.0, machines);
            let true_time = truth.predict(1.0, machines);
            let at = usize::from(found.extrapolated);
            asked[at] += 1.0;
            covered[at] += f64::from(found.low <= true_time && true_time <= found.high);
            width[at] += (found.high / found.low).ln();
        }
    }
    ([0, 1].map(|at| covered[at] / asked[at]), [0, 1].map(|at| width[at] / asked[at]))
}

#[test]
fn intervals_cover_nineteen_truths_in_twenty() {
    let few: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0];
    let repeated: &[f64] = &[1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 8.0, 8.0, 8.0];
    let many: &[f64] = &[1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0];
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for (seed, sizes) in [few, repeated, many].into_iter().enumerate() {
        for (noise, least) in [(0.02, 0.9), (0.04, 0.9), (0.08, 0.88)] {
            let (covered, width) = coverage(sizes, noise, seed as u64);
            // Single settings vary by a few per cent around their share; their mean must not.
            assert!(covered[0] >= least, "{sizes:?}, noise {noise}: {covered:?}");
            assert!(covered[1] >= 0.9, "{sizes:?}, noise {noise}: {covered:?}");
            assert!(width[1] > 2.0 * width[0], "{sizes:?}, noise {noise}: {width:?}");
            inside.push(covered[0]);
            outside.push(covered[1]);
        }
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let (inside, outside) = (mean(&inside), mean(&outside));
    assert!((0.90..=0.98).contains(&inside), "inside {inside}");
    assert!(outside >= 0.93, "outside {outside}");
}

#[test]
fn deadline_counts_at_the_upper_end_where_anything_keeps_it() {
    let truth = |m: f64| 10.0 + 1000.0 / m + 0.5 * m;
    let fit = ScalingFit::new(&runs(&[1.0, 2.0, 4.0, 8.0, 16.0], truth)).unwrap();
    let chosen = fit.choose(64, Some(1.0), Some(100.0)).unwrap();
    assert!(chosen.keeps_deadline && chosen.estimate.high <= 100.0, "{chosen:?}");
    // Just what 16 machines are expected to take: possible, not certain.
    let tight = fit.choose(16, Some(1.0), Some(fit.estimate(1.0, 16.0).seconds + 0.1)).unwrap();
    assert!(tight.machines == 16 && !tight.keeps_deadline, "{tight:?}");
    assert!(fit.choose(16, Some(1.0), Some(20.0)).is_none());
}

#[test]
fn sizes_are_all_or_spread_by_ratio() {
    assert_eq!(sizes_between(3, 6), [3, 4, 5, 6]);
    assert!(sizes_between(6, 3).is_empty());
    let many = sizes_between(1, 1_000_000);
    assert!(many.len() < 200 && many[0] == 1 && many.last() == Some(&1_000_000));
}

#[test]
fn scaling_runs_with_a_mistyped_column_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let read = |text: &str| {
        let path = folder.path().join("runs.csv");
        std::fs::write(&path, text).unwrap();
        ScalingRun::read(&path).map_err(|error| error.to_string())
    };
    let holds = |error: &str, parts: &[&str]| {
        for part in parts {
            assert!(error.contains(part), "no {part} in: {error}");
        }
    };
    // It used to be taken for runs on all of the input.
    let error = read("machines,seconds,fractoin\n1,10,0.1\n").unwrap_err();
    holds(&error, &["runs.csv", "`fractoin`"]);
    holds(&read("machines,seconds\n1,10\n2,NaN\n").unwrap_err(), &["line 3", "`NaN`"]);
    holds(&read("machines,seconds\n1,10\ntwo,5\n").unwrap_err(), &["line 3", "`two`"]);
}

/// Four workers a host: within one 4 + 96/m s, across several 6 s more.
fn across(m: f64) -> f64 {
    4.0 + 96.0 / m + if m > 4.0 { 6.0 } else { 0.0 }
}

#[test]
fn what_leaving_a_host_costs_is_fitted_where_runs_are_on_both_sides() {
    let fit = ScalingFit::on_hosts(&runs(&[1.0, 2.0, 4.0, 8.0, 16.0], across), Some(4)).unwrap();
    assert!((fit.curve().across - 6.0).abs() < 0.05, "{:?}", fit.curve());
    for machines in [3.0, 4.0, 5.0, 12.0] {
        let found = fit.estimate(1.0, machines);
        assert!((found.seconds / across(machines) - 1.0).abs() < 0.01, "{machines}: {found:?}");
        assert!(!found.beyond_border && !found.extrapolated, "{found:?}");
    }
    // Eight workers take 22 s, four 28 s; five, on two hosts for one worker's sake, 29.2 s.
    let smooth = ScalingFit::new(&runs(&[1.0, 2.0, 4.0, 8.0, 16.0], across)).unwrap();
    assert!(smooth.estimate(1.0, 5.0).seconds < 28.0, "no border, no step");
    assert!(fit.estimate(1.0, 5.0).seconds > fit.estimate(1.0, 4.0).seconds);
}

#[test]
fn a_border_that_no_run_crossed_is_named_and_its_other_side_is_not_believed() {
    let fit = ScalingFit::on_hosts(&runs(&[1.0, 2.0, 3.0, 4.0], across), Some(4)).unwrap();
    let [inside, outside] = [4.0, 8.0].map(|machines| fit.estimate(1.0, machines));
    assert!(!inside.beyond_border && outside.beyond_border && outside.extrapolated);
    assert!(outside.low <= across(8.0) && across(8.0) <= outside.high, "{outside:?}");
    let smooth = ScalingFit::new(&runs(&[1.0, 2.0, 3.0, 4.0], across)).unwrap();
    let width = |found: ScalingEstimate| (found.high / found.low).ln();
    assert!(width(outside) > 2.0 * width(smooth.estimate(1.0, 8.0)));
    // Where more workers bring little, leaving the host is not worth the risk; two full hosts settle it.
    let poor = |m: f64| 20.0 + 12.0 / m;
    let fit = ScalingFit::on_hosts(&runs(&[1.0, 2.0, 3.0, 4.0], poor), Some(4)).unwrap();
    let chosen = fit.choose(64, None, None).unwrap();
    assert_eq!((chosen.machines, chosen.settled_by.map(|run| run.machines)), (4, Some(8)));
    // From several hosts to one is as far.
    let fit = ScalingFit::on_hosts(&runs(&[8.0, 12.0, 16.0], across), Some(4)).unwrap();
    assert!(fit.estimate(1.0, 4.0).beyond_border && !fit.estimate(1.0, 32.0).beyond_border);
}
