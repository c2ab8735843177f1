//! Charts: the same bytes every time, safe text, and no panic whatever the numbers.
//!
//! Golden files live in `golden/`; `PACELINE_UPDATE_GOLDEN=1 cargo test -p paceline-report` rewrites them. Look at the
//! difference in a browser before committing it.

use paceline_report::chart::{Axis, Chart, Series, Span};
use proptest::prelude::*;

fn assert_golden(name: &str, found: &str) {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("PACELINE_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).expect("golden files can be written");
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{name} differs from its golden file");
}

#[test]
fn scatter_with_line_and_band() {
    let spans = [2.0, 4.0, 8.0].map(|x| Span { x, y: 100.0 * x, low: 90.0 * x, high: 110.0 * x });
    let chart = Chart::new(
        "Speed by batch size",
        Axis::new("batch size").ticks_at([2.0, 4.0, 8.0]),
        Axis::new("").unit("images/s").from_zero(),
    )
    .described("Speed rises with batch size.")
    .with(Series::points("records", [(2.0, 190.0), (2.0, 215.0), (4.0, 405.0), (8.0, 790.0)]))
    .with(Series::band("records", spans))
    .with(Series::line("records", [(2.0, 200.0), (8.0, 800.0)]).unlabelled())
    .with(Series::averages("means", spans).unlabelled());
    assert_golden("scatter.svg", &chart.standalone());
}

#[test]
fn curves_are_named_in_a_legend() {
    let falling = |rate: f64| {
        (0..6).map(move |step| (f64::from(step) * 100.0, 2.3 * (-rate * f64::from(step)).exp()))
    };
    let chart = Chart::new("Loss while training", Axis::new("step"), Axis::new("loss").from_zero())
        .with(Series::line("one device", falling(0.3)))
        .with(Series::line("mirrored", falling(0.32)))
        .with(Series::line("ps, async", falling(0.6)));
    assert_golden("curves.svg", &chart.standalone());
}

#[test]
fn bars_stand_side_by_side_with_their_values() {
    let bar = |x: f64, y: f64| Span { x, y, low: y * 0.95, high: y * 1.05 };
    let chart = Chart::new(
        "Reading speed",
        Axis::categories("batch size", ["2", "4", "8"]),
        Axis::new("").unit("images/s"),
    )
    .with(Series::bars("image files", [bar(0.0, 900.0), bar(1.0, 1100.0), bar(2.0, 1250.0)]))
    .with(Series::bars("records", [bar(0.0, 1300.0), bar(1.0, 1900.0), bar(2.0, 2600.0)]));
    assert_golden("bars.svg", &chart.standalone());
}

#[test]
fn names_cannot_break_out_of_the_drawing() {
    let hostile = "</svg><script>alert(1)</script>\"'&";
    let chart =
        Chart::new(hostile, Axis::new(hostile).unit(hostile), Axis::categories(hostile, [hostile]))
            .described(hostile)
            .with(Series::line(hostile, [(0.0, 0.0), (1.0, 0.0)]))
            .with(Series::points(format!("{hostile}2"), [(0.0, 0.0)]));
    let svg = chart.standalone();
    assert_eq!(svg.matches("<script").count(), 0);
    assert_eq!(svg.matches("</svg>").count(), 2, "the drawing and the file around it");
}

#[test]
fn a_million_points_draw_a_small_file() {
    let noise = (0..1_000_000).map(|step| (f64::from(step), f64::from(step % 1000 * 7919 % 1000)));
    let svg = Chart::new("long run", Axis::new("step"), Axis::new("loss"))
        .with(Series::line("loss", noise))
        .svg();
    assert!(svg.len() < 60_000, "{} bytes", svg.len());
}

#[test]
fn a_gap_in_a_line_stays_a_gap() {
    let line = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 2.0), (4.0, 1.0)];
    let svg = Chart::new("gap", Axis::new("x"), Axis::new("y")).with(Series::line("y", line)).svg();
    let path = svg
        .split("class=\"line\" d=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .expect("a line");
    assert_eq!(path.matches('M').count(), 2, "{path}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_numbers_give_a_broken_drawing(
        points in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 0..20),
        logarithmic in any::<bool>(),
    ) {
        let axis = |name: &str| if logarithmic { Axis::new(name).logarithmic() } else { Axis::new(name) };
        let spans: Vec<Span> = points.windows(2).map(|pair| Span { x: pair[0].0, y: pair[0].1, low: pair[1].0, high: pair[1].1 }).collect();
        let svg = Chart::new("any", axis("x"), axis("y"))
            .with(Series::points("points", points.clone()))
            .with(Series::line("line", points))
            .with(Series::band("band", spans.clone()))
            .with(Series::averages("averages", spans.clone()))
            .with(Series::bars("bars", spans))
            .svg();
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        prop_assert!(svg.ends_with("</svg>"));
    }
}
