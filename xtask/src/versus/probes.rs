//! The cost of monitoring: CPU time of `paceline monitor` itself, as the kernel counts it for the whole process.

use super::{benchmarks, paceline::Paceline};
use anyhow::Context;
use std::fmt::Write;
use std::path::Path;

/// Seconds that each recording lasts.
const SECONDS: f64 = 60.0;

/// Records at the usual and at the shortest interval.
pub(super) fn run(root: &Path) -> anyhow::Result<()> {
    let paceline = Paceline::build(root)?;
    let folder = root.join("target/versus");
    std::fs::create_dir_all(&folder)?;
    let mut text = String::from(
        "| interval | CPU, % of one core | of that, reading and writing | columns |\n| --- | --- | --- | --- |\n",
    );
    for (every, name) in [("1", "every second"), ("0.05", "every 50 ms")] {
        let csv = folder.join("probes.csv");
        let before = children()?;
        let (seconds, file) = (SECONDS.to_string(), csv.display().to_string());
        let words = ["monitor", "--every", every, "--duration", &seconds, "--csv", &file];
        let document = paceline.json(&words)?;
        let took = children()? - before;
        let own =
            document["own_cpu_seconds"].as_f64().context("the recorder knows its own time")?;
        let header = std::fs::read_to_string(&csv)?;
        let columns = header.lines().next().unwrap_or_default().split(',').count();
        writeln!(
            text,
            "| {name} | **{:.2} %** | {:.2} % | {columns} |",
            100.0 * took / SECONDS,
            100.0 * own / SECONDS
        )?;
    }
    text.push_str("\n- The whole process over one minute, including start-up and summary, writing every column to a file.\n");
    benchmarks::write_body(root, "probes", &text)
}

/// Processor seconds of all children that have ended so far.
fn children() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    // The state is not a number; of the fields after it, the times of reaped children are the 12th and 13th, in hundredths.
    Ok((fields.get(12).context("the kernel says")? + fields.get(13).context("the kernel says")?)
        / 100.0)
}
