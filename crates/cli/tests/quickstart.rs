//! `paceline quickstart` as a real process, as far as it takes no minute: what it refuses to touch.

#![allow(clippy::unwrap_used)]

mod support;

use support::{run_in, said};

/// `quickstart --out .` once removed `runs/` and `photos/` that it had not made.
#[test]
fn quickstart_in_a_folder_with_runs_and_photos_of_the_users_deletes_nothing() {
    for mine in ["runs/my-run/plan.json", "photos/cat.jpg", "report.html"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(mine);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "a week of work").unwrap();
        let output = run_in(folder.path(), &["quickstart", "--out", "."]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let name = mine.split('/').next().unwrap();
        assert!(said.contains(&format!("./{name}")) && said.contains("hint:"), "{said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "a week of work", "{mine}");
        // Nothing was begun either.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "{mine}");
    }
}
