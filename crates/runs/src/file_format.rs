//! The number of the format that `plan.json` and `summary.json` are written in.
//!
//! Fields may be added under the same number; one that goes away or means something else gets the next. A reader that knows only earlier
//! formats says so by name, because it would take such a file for what it is not.

use crate::RunsError;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The format written here, and the last one that is understood. Files of 0.1 do not say theirs: it is this one.
pub const FILE_FORMAT: u64 = 1;

/// The name under which a file says its format.
pub(crate) const FORMAT_FIELD: &str = "format";

/// A file's contents behind the number of their format.
#[derive(Serialize)]
pub(crate) struct Numbered<'a, T> {
    format: u64,
    #[serde(flatten)]
    contents: &'a T,
}

impl<'a, T> Numbered<'a, T> {
    pub(crate) fn new(contents: &'a T) -> Self {
        Self { format: FILE_FORMAT, contents }
    }
}

/// As much of a file as says whether the rest can be understood.
#[derive(Deserialize)]
struct FormatOnly {
    #[serde(default = "first")]
    format: u64,
}

fn first() -> u64 {
    1
}

/// Refuses contents of a later format. Contents that are not such a file at all are refused where the rest of them is read.
pub(crate) fn check(path: &Path, contents: &[u8]) -> Result<(), RunsError> {
    match serde_json::from_slice(contents) {
        Ok(FormatOnly { format }) if format > FILE_FORMAT => {
            Err(RunsError::LaterFormat { path: path.to_path_buf(), format, known: FILE_FORMAT })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::{RunFolder, RunState, RunView, RunsError, Summary, list};
    use serde_json::{Value, json};
    use std::fs;

    fn later(run: &RunFolder, name: &str) {
        fs::write(run.path().join(name), json!({ "format": 2, "spec": {} }).to_string()).unwrap();
    }

    #[test]
    fn a_summary_says_its_format_once_and_keeps_it_when_amended() {
        let (_root, run) = RunFolder::temporary();
        run.write_summary(&Summary::default()).unwrap();
        run.amend_summary(&Summary { examples: 7, ..Summary::default() }).unwrap();
        let text = fs::read_to_string(run.path().join("summary.json")).unwrap();
        assert_eq!(text.matches("\"format\"").count(), 1, "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["format"], 1);
        assert_eq!(run.summary().unwrap().unwrap().examples, 7);
    }

    /// A plan that could not be read was taken for none, and the run for another program's.
    #[test]
    fn a_plan_of_a_later_format_is_refused_by_name_and_the_run_is_listed_as_broken() {
        let (root, run) = RunFolder::temporary();
        later(&run, "plan.json");
        for error in [
            RunFolder::open(run.path()).unwrap_err(),
            RunView::read(run.path()).unwrap_err(),
            run.plan::<Value, Value>().unwrap_err(),
        ] {
            assert!(matches!(error, RunsError::LaterFormat { format: 2, known: 1, .. }), "{error}");
            assert!(error.to_string().contains("plan.json"), "{error}");
        }
        let RunState::Broken(why) = run.state() else { panic!("{:?}", run.state()) };
        assert!(why.contains("plan.json` is of format 2"), "{why}");
        assert_eq!(list(root.path()).unwrap(), [run], "it is a run all the same");
    }

    #[test]
    fn a_summary_of_a_later_format_is_refused_by_name() {
        let (_root, run) = RunFolder::temporary();
        fs::write(run.path().join("plan.json"), "{}").unwrap();
        assert!(RunFolder::open(run.path()).is_ok(), "no number is the first format");
        later(&run, "summary.json");
        let error = run.summary().unwrap_err();
        assert!(matches!(error, RunsError::LaterFormat { .. }), "{error}");
        assert!(error.to_string().contains("summary.json` is of format 2"), "{error}");
        assert!(RunFolder::open(run.path()).is_err());
        assert!(matches!(run.state(), RunState::Broken(_)));
    }
}
