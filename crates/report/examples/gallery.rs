//! Writes one page with every kind of chart, for visual inspection: `cargo run -p paceline-report --example gallery -- target/gallery.html`.

use paceline_report::chart::{Axis, Chart, Series, Span};
use paceline_report::experiment::{Context, page};
use paceline_report::page::{Figure, Page, Tone};
use paceline_stats::experiment::{Experiment, Group, Observation, Parameter, analyse};

/// Noise that is the same on every run.
fn noise(seed: u64) -> f64 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 40) as f64 / f64::from(1u32 << 24) - 0.5
}

fn speed_test() -> Experiment {
    let parameter = |key: &str, name: &str, step: &str, setting| Parameter {
        key: key.into(),
        name: name.into(),
        step: step.into(),
        setting,
    };
    let mut order = 0;
    let mut group = |name: &str, base: f64, gain: f64| {
        let mut observations = Vec::new();
        for repetition in 1..=3 {
            for batch in [2.0, 4.0, 8.0, 16.0] {
                for batches in [3.0, 6.0, 9.0] {
                    let values = vec![batch, batches, f64::from(repetition), batch * batches];
                    let response = (base + gain * batch) * (1.0 + 0.12 * noise(order));
                    observations.push(Observation { values, response, order });
                    order += 1;
                }
            }
        }
        Group { name: name.into(), observations }
    };
    Experiment {
        verb: "are read".into(),
        unit: "images/s".into(),
        parameters: vec![
            parameter("batch_size", "batch size", "each further image per batch", true),
            parameter("batches", "batch count", "each further batch", true),
            parameter("repetition", "repetition", "each further repetition", false),
            parameter("images", "data set size", "each further image", true),
        ],
        groups: vec![group("image files", 900.0, 22.0), group("records", 1400.0, 60.0)],
    }
}

fn charts() -> String {
    let mut page = Page::new("Every kind of chart", "For changes to the drawing code");
    page.verdict(Tone::Good, "A verdict in one sentence", &["and what it rests on".to_owned()]);
    let falling = |rate: f64| {
        (0..400).map(move |step| {
            let x = f64::from(step);
            (
                x * 10.0,
                0.2 + 2.1 * (-rate * x / 60.0).exp()
                    + 0.1 * noise(step as u64 + (rate * 100.0) as u64),
            )
        })
    };
    let curves = Chart::new("Loss", Axis::new("step"), Axis::new("loss").from_zero())
        .with(Series::line("one device", falling(0.5)))
        .with(Series::line("mirrored", falling(0.8)))
        .with(Series::line("ps, sync", falling(0.75)))
        .with(Series::line("ps, async", falling(1.4)));
    let bar = |x: f64, y: f64| Span { x, y, low: y * 0.95, high: y * 1.05 };
    let bars = Chart::new(
        "Bars",
        Axis::categories("batch size", ["2", "4", "8", "16"]),
        Axis::new("").unit("images/s"),
    )
    .with(Series::bars(
        "image files",
        [bar(0.0, 900.0), bar(1.0, 1100.0), bar(2.0, 1250.0), bar(3.0, 1300.0)],
    ))
    .with(Series::bars(
        "records",
        [bar(0.0, 1300.0), bar(1.0, 1900.0), bar(2.0, 2600.0), bar(3.0, 2800.0)],
    ));
    let log = Chart::new(
        "Scaling",
        Axis::new("workers").logarithmic(),
        Axis::new("").unit("examples/s").logarithmic(),
    )
    .with(Series::line("ideal", [1.0, 2.0, 4.0, 8.0, 16.0, 64.0].map(|n| (n, n * 120.0))))
    .with(Series::line(
        "measured",
        [1.0, 2.0, 4.0, 8.0, 16.0].map(|n: f64| (n, 120.0 * n.powf(0.8))),
    ));
    let empty = Chart::new("Nothing", Axis::new("x"), Axis::new("y"));
    let figure = |chart: &Chart| Figure {
        title: chart.title.clone(),
        colour: None,
        key: vec![("n".into(), "400".into())],
        svg: chart.svg(),
        words: String::new(),
        notes: Vec::new(),
    };
    page.figures(&[figure(&curves), figure(&bars), figure(&log), figure(&empty)]);
    page.html()
}

fn main() -> std::io::Result<()> {
    let target = std::env::args().nth(1).unwrap_or_else(|| "gallery.html".to_owned());
    std::fs::write(&target, charts())?;
    let experiment = speed_test();
    let context = Context {
        title: "Reading speed test".into(),
        lead: "2 sources · 12 settings × 3 repeats · warm page cache · 2 threads · seed 1".into(),
        cards: Vec::new(),
        method: vec![
            "The clock runs from the first batch asked for to the last one delivered.".into(),
        ],
        settings: vec![
            ("image files".into(), "/data/flowers".into()),
            ("records".into(), "/data/shards".into()),
        ],
        footer: "Written by the gallery example.".into(),
    };
    std::fs::write(
        target.replace(".html", "-speedtest.html"),
        page(&experiment, &analyse(&experiment), &context),
    )
}
