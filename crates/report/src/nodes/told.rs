//! What nodes did in words, tables and files.

use super::metrics::{METRICS, Metric};
use super::{Recorded, charts};
use crate::chart::Drawing;
use crate::csv::Csv;
use crate::page::{Page, Tone};
use crate::table::{Column, Table};
use crate::training::decimal;
use serde_json::{Map, Value, json};

/// What a column of the table of nodes holds: heading, unit, column of the recording, divisor, decimals.
type Mean = (&'static str, &'static str, &'static str, f64, usize);

const MEANS: &[Mean] = &[
    ("CPU idle", "%", "cpu_idle_percent", 1.0, 1),
    ("memory used", "GB", "memory_used_bytes", 1e9, 2),
    ("memory free", "GB", "memory_free_bytes", 1e9, 2),
    ("network in", "MB/s", "network_received_bytes_per_second", 1e6, 2),
    ("network out", "MB/s", "network_sent_bytes_per_second", 1e6, 2),
    ("disk read", "MB/s", "disk_read_bytes_per_second", 1e6, 2),
    ("disk written", "MB/s", "disk_written_bytes_per_second", 1e6, 2),
];

/// What every node did on average, one row each.
pub(crate) fn means(all: &[Recorded<'_>]) -> Table {
    let several = all.len() > 1;
    let mut tasks = all.iter().flat_map(|one| &one.nodes).flat_map(|node| &node.tasks);
    let tasks = tasks.any(|(task, _)| !task.is_empty());
    let mut columns = if several { vec![Column::words("run")] } else { Vec::new() };
    columns.push(Column::words("node"));
    if tasks {
        columns.push(Column::words("tasks"));
    }
    columns.extend(MEANS.iter().map(|(name, unit, ..)| Column::numbers(*name).unit(*unit)));
    let mut table = Table::new(columns).captioned("Means over the whole time.");
    for one in all {
        for node in &one.nodes {
            let mut row = if several { vec![one.name.clone()] } else { Vec::new() };
            row.push(node.name.clone());
            if tasks {
                let names: Vec<&str> = node.tasks.iter().map(|task| task.0.as_str()).collect();
                row.push(names.join(" "));
            }
            row.extend(MEANS.iter().map(|(_, _, column, divisor, decimals)| {
                let mean = node.mean(column);
                decimal(mean.map_or(f64::NAN, |mean| mean / divisor), *decimals)
            }));
            table.rows.push(row);
        }
    }
    table
}

/// What was marked, in order.
pub(super) fn marks_table(all: &[Recorded<'_>]) -> Table {
    let several = all.len() > 1;
    let mut columns = if several { vec![Column::words("run")] } else { Vec::new() };
    columns.extend([Column::words("mark"), Column::numbers("time").unit("s")]);
    let mut table = Table::new(columns);
    for one in all {
        for mark in one.marks.iter().filter(|mark| mark.notable) {
            let mut row = if several { vec![one.name.clone()] } else { Vec::new() };
            row.extend([mark.what.clone(), decimal(mark.time, 1)]);
            table.rows.push(row);
        }
    }
    table
}

/// The findings in a sentence, and what they rest on: how long, how many nodes, which of them was busiest.
pub(super) fn words(all: &[Recorded<'_>]) -> (String, Vec<String>) {
    let mut points = Vec::new();
    for one in all {
        let mut idle: Vec<(f64, &str)> = one
            .nodes
            .iter()
            .filter_map(|node| Some((node.mean("cpu_idle_percent")?, node)))
            .map(|(idle, node)| (idle, node.name.as_str()))
            .collect();
        idle.sort_by(|a, b| a.0.total_cmp(&b.0));
        let about = if all.len() > 1 { format!("{}: ", one.name) } else { String::new() };
        match &idle[..] {
            [] => {}
            [(share, node)] => {
                points.push(format!("{about}CPU of {node}: {share:.0} % idle on average"));
            }
            [(least, _), .., (most, _)] if most - least < 1.0 => {
                points.push(format!("{about}CPU of every node: {least:.0} % idle on average"));
            }
            [(least, busiest), .., (most, calmest)] => points.push(format!(
                "{about}the busiest node was {busiest} (CPU {least:.0} % idle on average), the least busy {calmest} ({most:.0} %)"
            )),
        }
        if one.apart {
            points.push(format!(
                "{about}the recordings have no moment in common: each is drawn from its own begin"
            ));
        }
    }
    let nodes: usize = all.iter().map(|one| one.nodes.len()).sum();
    let seconds = all.iter().map(Recorded::seconds).fold(0.0, f64::max);
    let what = if nodes == 1 { "one node".to_owned() } else { format!("{nodes} nodes") };
    (format!("What {what} did in {seconds:.0} s"), points)
}

/// Adds everything about some recordings to a page.
pub fn describe(page: &mut Page, all: &[Recorded<'_>]) {
    let (sentence, points) = words(all);
    page.verdict(Tone::Good, &sentence, &points);
    page.section("Nodes");
    page.table(&means(all));
    let marks = marks_table(all);
    charts(all).place(page);
    if !marks.rows.is_empty() {
        page.section("Marks");
        page.table(&marks);
    }
}

/// The findings and the table of means, for a README or a mail.
#[must_use]
pub fn markdown(all: &[Recorded<'_>]) -> String {
    let (sentence, points) = words(all);
    let mut text = format!("**{sentence}**\n\n");
    points.iter().for_each(|point| text.push_str(&format!("- {point}\n")));
    text.push_str(&format!("\n{}", means(all).markdown()));
    let marks = marks_table(all);
    if !marks.rows.is_empty() {
        text.push_str(&format!("\n{}", marks.markdown()));
    }
    text
}

/// One line per node with the means of every column that is drawn, at full precision.
#[must_use]
pub fn csv(all: &[Recorded<'_>]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for column in METRICS.iter().flat_map(Metric::columns) {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let mut header = vec!["recording", "node", "tasks"];
    header.extend(&columns);
    let mut csv = Csv::new(&header);
    for one in all {
        for node in &one.nodes {
            let tasks: Vec<&str> = node.tasks.iter().map(|task| task.0.as_str()).collect();
            let mut row = vec![one.name.clone(), node.name.clone(), tasks.join(" ")];
            row.extend(columns.iter().map(|column| {
                let mean = node.mean(column);
                mean.map_or_else(String::new, |mean| mean.to_string())
            }));
            csv.row(&row);
        }
    }
    csv.finish()
}

/// Means of every node, for other programs.
#[must_use]
pub fn document(all: &[Recorded<'_>]) -> Value {
    let mut rows = Vec::new();
    for one in all {
        for node in &one.nodes {
            let means: Map<String, Value> =
                MEANS.iter().map(|it| (it.2.to_owned(), json!(node.mean(it.2)))).collect();
            rows.push(json!({ "recording": one.name, "node": node.name, "means": means }));
        }
    }
    json!(rows)
}

/// Every picture with its title, for papers.
#[must_use]
pub fn pictures(all: &[Recorded<'_>]) -> Vec<(String, Drawing)> {
    charts(all).figures.into_iter().map(|it| (it.title, it.svg)).collect()
}
