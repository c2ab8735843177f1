//! What some runs were limited by, at the top of their page: each run's sentence, or a count where there are many.

use crate::groups::Group;
use crate::many::MOST_LISTED;
use crate::page::{Page, Tone};
use crate::training::{Growth, RunView, named, scaling_of};
use paceline_runs::Status;

/// Most verdicts at the top of a page; more are counted there, and listed behind a fold.
const MOST_VERDICTS: usize = 8;
/// Sentences of evidence that stand at the top of a page; of more the first does, the others are behind a fold.
const MOST_EVIDENCE: usize = 4;

pub(crate) fn verdicts(page: &mut Page, runs: &[RunView], groups: &[Group<'_>]) {
    let mut points: Vec<String> = Vec::new();
    let mut folded: Vec<String> = Vec::new();
    let mut evidence: &[String] = &[];
    if let [only] = runs {
        points.push(only.summary.verdict.clone());
        match only.evidence() {
            few if few.len() < MOST_EVIDENCE => points.extend_from_slice(few),
            all => {
                points.extend(all.first().cloned());
                evidence = &all[1..];
            }
        }
    } else {
        let told = named(groups).map(|(run, name)| format!("{name}: {}", run.summary.verdict));
        let told: Vec<String> = told.collect();
        if runs.len() > MOST_VERDICTS {
            points.extend(counted(groups));
            folded = told;
        } else {
            points = told;
        }
    }
    points.extend(scaling_of(runs).iter().map(Growth::words));
    let failed = runs.iter().filter(|run| run.summary.status == Status::Failed).count();
    let sentence =
        if runs.len() == 1 { "Where the time went" } else { "Where the time went, per run" };
    let tone = match failed {
        0 => Tone::Good,
        all if all == runs.len() => Tone::Bad,
        _ => Tone::Doubtful,
    };
    page.verdict(tone, sentence, &points);
    if !evidence.is_empty() {
        page.folded_list("What else was measured", evidence);
    }
    if !folded.is_empty() {
        let title = match folded.len() {
            all if all > MOST_LISTED => format!("Verdicts on {MOST_LISTED} of {all} runs"),
            _ => "The verdict on every run".to_owned(),
        };
        folded.truncate(MOST_LISTED);
        page.folded_list(&title, &folded);
    }
}

/// How many runs were limited by what, the most frequent first, each with the first such run.
fn counted(groups: &[Group<'_>]) -> Vec<String> {
    let mut limits: Vec<(String, usize, String)> = Vec::new();
    let mut all = 0;
    for (run, name) in named(groups) {
        all += 1;
        let verdict = &run.summary.verdict;
        // A verdict begins with what limited the run.
        let (limit, rest) = match verdict.split_once(": ") {
            Some((limit, rest)) if run.summary.status != Status::Failed => (limit, rest),
            _ if run.summary.status == Status::Failed => ("failed", verdict.as_str()),
            _ => ("no verdict", verdict.as_str()),
        };
        match limits.iter_mut().find(|(known, ..)| known == limit) {
            Some((_, count, _)) => *count += 1,
            None => limits.push((limit.to_owned(), 1, format!("{name}: {rest}"))),
        }
    }
    limits.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    let words = |(limit, count, first): &(String, usize, String)| {
        format!("{count} of {all} runs: {limit}, such as {first}")
    };
    limits.iter().map(words).collect()
}
