//! Which of many runs are read, drawn and listed, so that a page of thousands opens in a moment and says what it leaves out.

use crate::groups::{Group, MOST_DRAWN, groups};
use crate::training::RunView;
use paceline_runs::{RunFolder, RunState, RunsError};
use std::path::{Path, PathBuf};

/// Most runs in a table, or lines across settings; all count in what is said of their settings.
pub(crate) const MOST_LISTED: usize = 1000;
/// Most runs whose events are all read; of more, only those of which curves are drawn.
pub const MOST_READ: usize = 500;

/// Reads runs, given as run folders or as folders of runs. Beyond `whole` runs, those that have ended are known by their
/// summaries, and only those of which curves are drawn are read in full.
///
/// # Errors
/// When a folder holds no run, or the events of a run cannot be read.
pub fn read(paths: &[PathBuf], whole: usize) -> Result<Vec<RunView>, RunsError> {
    let mut given: Vec<Vec<PathBuf>> = Vec::new();
    for path in paths {
        given.push(match RunFolder::is_at(path) {
            true => vec![path.clone()],
            false => paceline_runs::list(path)?.iter().map(|run| run.path().to_owned()).collect(),
        });
    }
    let few = given.iter().map(Vec::len).sum::<usize>() <= whole;
    let (mut views, mut folders) = (Vec::new(), Vec::new());
    for given in given {
        let read = |path: PathBuf| {
            let view = if few { RunView::read(&path) } else { glimpse(&path) };
            Ok((view?, path))
        };
        let mut found = given.into_iter().map(read).collect::<Result<Vec<_>, RunsError>>()?;
        // Names only tell the second; the first run is what the others are compared with.
        found.sort_by(|a, b| a.0.summary.started.total_cmp(&b.0.summary.started));
        for (view, path) in found {
            views.push(view);
            folders.push(path);
        }
    }
    if !few {
        for at in drawn_of(&views).into_iter().take(MOST_READ) {
            views[at] = RunView::read(&folders[at])?;
        }
    }
    Ok(views)
}

/// A run as its summary tells; one without a verdict is read, and its events are forgotten.
fn glimpse(path: &Path) -> Result<RunView, RunsError> {
    let folder = RunFolder::open(path)?;
    match folder.state() {
        RunState::Ended(summary) if summary.diagnosis.is_some() => {
            Ok(RunView::of_events(&folder, Vec::new()))
        }
        _ => {
            let read = RunView::read(path)?;
            Ok(RunView { records: Vec::new(), resources: Vec::new(), ..read })
        }
    }
}

/// Which of some runs have their curves drawn, by their places: those whose events are worth reading.
#[must_use]
pub fn drawn_of(runs: &[RunView]) -> Vec<usize> {
    let groups = groups(runs);
    let drawn: Vec<&RunView> = groups
        .iter()
        .flat_map(|group| drawn_places(group).into_iter().map(|at| group.runs[at]))
        .collect();
    let is_drawn = |run: &RunView| drawn.iter().any(|other| std::ptr::eq(*other, run));
    (0..runs.len()).filter(|at| is_drawn(&runs[*at])).collect()
}

/// The runs of a group that are drawn: all, or those with the lowest loss, in their order.
pub(crate) fn drawn<'a>(group: &Group<'a>) -> (Vec<&'a RunView>, Vec<String>) {
    let places = drawn_places(group);
    places.iter().map(|at| (group.runs[*at], group.labels[*at].clone())).unzip()
}

fn drawn_places(group: &Group<'_>) -> Vec<usize> {
    let mut places = by_loss(group);
    places.truncate(MOST_DRAWN);
    places.sort_unstable();
    places
}

/// The runs of a group that have a row in a table, by their places: all, or the first, with which the others are compared, and
/// those with the lowest loss.
pub(crate) fn listed_places(group: &Group<'_>) -> Vec<usize> {
    let mut places = by_loss(group);
    if places.len() > MOST_LISTED {
        places.retain(|at| *at != 0);
        places.insert(0, 0);
        places.truncate(MOST_LISTED);
    }
    places.sort_unstable();
    places
}

/// All runs of a group, the lowest loss first; in their order where all are shown.
fn by_loss(group: &Group<'_>) -> Vec<usize> {
    let loss = |at: &usize| {
        let last = &group.runs[*at].summary.last;
        let loss = if last.test_loss.is_nan() { last.train_loss } else { last.test_loss };
        if loss.is_nan() { f64::INFINITY } else { loss }
    };
    let mut places: Vec<usize> = (0..group.runs.len()).collect();
    places.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
    places
}

/// What a group's part of a page leaves out; nothing where all is shown.
pub(crate) fn left_out(group: &Group<'_>) -> Option<String> {
    let all = group.runs.len();
    let listed = match all {
        few if few <= MOST_DRAWN => return None,
        some if some <= MOST_LISTED => "the table lists all".to_owned(),
        _ => format!("tables list {MOST_LISTED}, `paceline report --format csv` all"),
    };
    Some(format!("{MOST_DRAWN} of {all} runs are drawn, those with the lowest loss; {listed}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training;
    use paceline_runs::{Diagnosis, Event, EventLog, Final, Step, Summary};
    use serde_json::json;

    fn run(at: u32) -> RunView {
        let plan =
            json!({ "spec": { "model": "lenet", "learning_rate": f64::from(at), "seed": 1 } });
        RunView {
            summary: Summary {
                model: "lenet".to_owned(),
                last: Final { test_loss: 1.0 / f64::from(at), ..Final::default() },
                ..Summary::default()
            },
            settings: paceline_runs::RunSettings::of(&plan, None),
            plan: paceline_runs::RecordedPlan::of(plan),
            ..RunView::default()
        }
    }

    /// Every pair of runs was once compared by walking through both plans: minutes for thousands. And every table had them all.
    #[test]
    fn a_page_of_thousands_of_runs_lists_the_best_and_says_so() {
        let runs: Vec<RunView> = (1..=3000).map(run).collect();
        let mut page = crate::page::Page::new("", "");
        training::describe(&mut page, &runs);
        let html = page.body();
        let said = "28 of 3000 runs are drawn, those with the lowest loss; tables list 1000";
        assert!(html.contains(said), "{}", &html[..2000]);
        let first = html.split("<table").nth(1).unwrap().split("</table").next().unwrap();
        assert_eq!(first.matches("<tr").count(), 1 + MOST_LISTED);
        assert!(first.contains(">lr 1<") && first.contains(">lr 3000<"), "the first and the best");
        assert!(!first.contains(">lr 2<"), "not the worst");
        assert!(html.len() < 4 << 20, "{} bytes", html.len());
        assert!(html.contains("1000 of 3000 runs"), "the lines across settings");
    }

    /// A report once held the events of all runs in memory.
    #[test]
    fn of_many_runs_only_those_that_are_drawn_are_read() {
        let folder = tempfile::tempdir().unwrap();
        for at in 1..=40_u32 {
            let path = folder.path().join(format!("{at:02}"));
            std::fs::create_dir_all(&path).unwrap();
            let plan = json!({ "spec": { "model": "lenet", "learning_rate": f64::from(at) } });
            std::fs::write(path.join("plan.json"), plan.to_string()).unwrap();
            let run = RunFolder::open(&path).unwrap();
            let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
            log.write(1.0, &Event::Step(Step { step: 1, ..Step::default() })).unwrap();
            drop(log);
            run.write_summary(&Summary {
                started: f64::from(at),
                last: Final { test_loss: 1.0 / f64::from(at), ..Final::default() },
                diagnosis: (at != 7).then(Diagnosis::default),
                ..Summary::default()
            })
            .unwrap();
        }
        let known = |whole| {
            let runs = read(&[folder.path().to_owned()], whole).unwrap();
            assert_eq!(runs.len(), 40);
            assert!(runs.windows(2).all(|two| two[0].summary.started < two[1].summary.started));
            runs.iter().map(|run| !run.records.is_empty()).collect::<Vec<bool>>()
        };
        assert!(known(40).iter().all(|read| *read));
        assert_eq!(known(39), (1..=40).map(|at| at > 12).collect::<Vec<bool>>());
    }
}
