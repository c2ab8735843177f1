//! What stands on the page, and where.

use super::*;
use crate::{Recipe, Row, analyse};
use serde_json::json;

fn found(measures: &[&str]) -> (Recipe, SweepSettings, Findings) {
    let mut text = r#"
        title = "t"
        about = "a"
        sources = ["a report"]
        command = ["train"]
        axis = [{ name = "batch-size", values = [10, 50] }]
    "#
    .to_owned();
    for name in measures {
        text.push_str(&format!(
            "\n[[measure]]\nname = \"{name}\"\nfrom = \"/{name}\"\nunit = \"s\"\nlogarithmic = true"
        ));
    }
    text.push_str(
        "\n[[published]]\nin = \"Table 1\"\ndoubt = \"blurred\"\nmeasure = \"a\"\nalong = \"batch-size\"\nat = [10, 50]\nis = [4.0, 2.0]",
    );
    let recipe = Recipe::parse("t", &text).unwrap();
    let settings = SweepSettings { repeats: Some(3), ..SweepSettings::default() };
    let cells = settings.cells(&recipe).unwrap();
    let rows: Vec<Row> = cells
        .iter()
        .map(|cell| {
            let batch: f64 = cell.settings[0].1.parse().unwrap();
            let taken = json!({ "limit": "taken-cores", "culprit": "other programs" });
            let output = json!({
                "a": 20.0 / batch,
                "diagnosis": if cell.repeat == 1 { taken } else { json!(null) },
            });
            Row { cell: cell.key.clone(), output, ..Row::default() }
        })
        .collect();
    let found = analyse(&recipe, &settings, &cells, &rows);
    (recipe, settings, found)
}

#[test]
fn published_figures_stand_beside_measured_ones_with_their_ratio() {
    let (recipe, settings, few) = found(&["a"]);
    let (_, table) = &tables(&few)[0];
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names[1..], ["a", "95 % interval", "published", "measured / published", "n"]);
    assert_eq!(table.columns[3].unit.as_deref(), Some("s"), "in the same unit");
    assert_eq!(table.rows[0][3..], ["4.00", "0.500", "3 (1 disturbed)"].map(str::to_owned));
    let text = markdown(&recipe, &settings, &few);
    for wanted in ["(a report, Table 1)", "blurred", "2 of 6 cells", "other programs took cores"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(csv(&few).lines().nth(1).unwrap().ends_with(",4,0.5,0,1"), "{}", csv(&few));
    assert!(html(&recipe, &settings, &few, "").contains("A by batch-size"));
}

#[test]
fn many_measures_have_a_table_each() {
    let (_, _, many) = found(&["a", "b", "c", "d"]);
    let tables = tables(&many);
    assert_eq!(tables.len(), 1, "those that nothing was measured of are left out");
    assert_eq!(tables[0].0.as_deref(), Some("A"));
}

#[test]
fn a_dash_in_a_table_is_explained_and_only_where_there_is_one() {
    let (recipe, settings, whole) = found(&["a"]);
    assert!(!markdown(&recipe, &settings, &whole).contains("A dash (–)"));
    let (_, _, part) = found(&["a", "b"]);
    for text in [markdown(&recipe, &settings, &part), html(&recipe, &settings, &part, "")] {
        assert!(text.contains("A dash (–)"), "{text}");
    }
}
