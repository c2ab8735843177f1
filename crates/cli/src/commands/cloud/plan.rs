//! `paceline cloud plan`: shapes that fit, with time, cost and what bounds them.

use super::{MarketArgs, explained, read_job};
use crate::terminal::failure::Exit;
use crate::terminal::{Table, Terminal};
use paceline_cloud::{Bound, Plan, ReadBound, Shape, words};
use paceline_report::chart::{Axis, Chart, Series};
use paceline_runs::write_atomically;
use std::path::PathBuf;

/// Arguments of `paceline cloud plan`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A job file:\n  name = \"flowers\"\n  command = [\"prepare\", \"gs://lab/photos\", \"gs://lab/shards\", \"--size\", \"192\"]\n  [data]\n  gb = 0.22                  # read in one pass\n  examples = 3670\n  files = 3670               # single files; left out for shards\n  [measured]                 # on a machine at hand\n  examples_per_second = 40\n  cores = 2\n  [quota]                    # `paceline cloud check` reads them from the account\n  vcpus = 8\n  addresses = 4\n  standard_disk_gb = 716\n  [limits]\n  deadline_minutes = 30\n  [shape]\n  extra_nodes = 1            # a Dataproc master\nof training besides:\n  [exchange]                 # what the nodes send each other\n  gradient_mb = 0.25         # four bytes for each weight\n  batch_size = 64\n  [[accuracy]]               # as measured, for `--objective accuracy`; one for each batch size\n  batch_size = 64\n  accuracy = 0.98\n\nExamples:\n  paceline cloud plan flowers.toml --provider gcp\n  paceline cloud plan train.toml --provider aws --objective time --chart front.svg"
)]
pub struct Args {
    /// The job: data, measured rate, limits, quotas
    job: PathBuf,
    #[command(flatten)]
    market: MarketArgs,
    /// Shapes to show besides the chosen one
    #[arg(long, default_value_t = 8)]
    top: usize,
    /// Draw cost over time of all shapes into an SVG file
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
}

/// Plans, and says what was chosen and why.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let job = read_job(&args.job)?;
    let plan = explained(Plan::new(&job, &args.market.catalogue()?, args.market.objective()))?;
    terminal.data(sentence(&plan))?;
    terminal.data(disk_sentence(plan.chosen()))?;
    unpriced(&plan).into_iter().for_each(|missing| terminal.warn(missing));
    terminal.data("")?;
    terminal.data(table(&plan, args.top))?;
    terminal.data(format!(
        "{} shapes considered, {} fit; the table has those that no other beats in time, cost{} at once, best first",
        plan.considered,
        plan.shapes.len(),
        if job.accuracy.is_empty() { "" } else { ", accuracy" },
    ))?;
    terminal.note(assumptions(&plan));
    if let Some(path) = &args.chart {
        write_atomically(path, chart(&plan).standalone().as_bytes())?;
        terminal.note(format!("chart in `{}`", path.display()));
    }
    terminal.json(&plan)?;
    Ok(Exit::Done)
}

/// The answer in words.
pub(super) fn sentence(plan: &Plan) -> String {
    let shape = plan.chosen();
    let machines = machines(shape);
    let bound = match shape.bound {
        Bound::Compute => "the cores bound it".to_owned(),
        Bound::Input => match shape.read_bound {
            ReadBound::Throughput => {
                format!("reading bounds it: {:.0} MB/s from each node's disk", shape.disk.mb_per_s)
            }
            ReadBound::Operations => {
                let iops = shape.disk.iops;
                format!("reading bounds it: {iops:.0} operations a second of each node's disk")
            }
            ReadBound::Network => "reading bounds it: the network to the bucket".to_owned(),
        },
        Bound::Exchange => "sending gradients bounds it".to_owned(),
        Bound::Start => "starting the machines takes most of it".to_owned(),
    };
    format!(
        "{}: {machines} with {:.0} GB {} each: {} ({} to {}), ${}; {bound}",
        plan.job,
        shape.disk.gb,
        shape.disk.kind,
        words::time(shape.seconds),
        words::time(shape.low),
        words::time(shape.high),
        words::dollars(shape.usd),
    )
}

/// Which disk a node needs, and which of its limits comes first.
fn disk_sentence(shape: &Shape) -> String {
    let (disk, used) = (&shape.disk, shape.disk_use);
    let has = format!(
        "each node's disk: {:.0} GB {} for {:.0} MB/s and {:.0} IOPS",
        disk.gb, disk.kind, disk.mb_per_s, disk.iops
    );
    match shape.read_bound {
        ReadBound::Network => format!("{has}; the data come over the network"),
        bound => format!(
            "{has}; the cores can use {:.1} MB/s and {:.0} IOPS; its {} are met first",
            used.mb_per_s,
            used.iops.ceil(),
            bound.words()
        ),
    }
}

/// What the answer leaves out.
fn unpriced(plan: &Plan) -> Option<String> {
    let gpu = plan.gpu.as_ref().filter(|_| plan.gpu_usd_per_hour.is_none())?;
    Some(format!(
        "no price of a {gpu} in this catalogue: costs are without the {} GPUs; `[[gpu]]` with name and usd_per_hour in a `--catalog` of your own adds it",
        plan.chosen().gpus
    ))
}

fn machines(shape: &Shape) -> String {
    match shape.extra_nodes {
        0 => format!("{} x {}", shape.nodes, shape.machine),
        extra => format!("{} x {} and {extra} beside", shape.nodes, shape.machine),
    }
}

fn table(plan: &Plan, top: usize) -> Table {
    let accuracy = plan.chosen().accuracy.is_some();
    let mut header =
        vec!["machines", "disk each", "MB/s", "IOPS", "time", "from", "to", "USD", "bound by"];
    if accuracy {
        header.extend(["batch size", "accuracy"]);
    }
    let mut table = Table::new(header);
    let others = plan.front().filter(|shape| *shape != plan.chosen()).take(top);
    for shape in std::iter::once(plan.chosen()).chain(others) {
        let mut row = vec![
            machines(shape),
            format!("{:.0} GB {}", shape.disk.gb, shape.disk.kind),
            format!("{:.0}", shape.disk.mb_per_s),
            format!("{:.0}", shape.disk.iops),
            words::time(shape.seconds),
            words::time(shape.low),
            words::time(shape.high),
            words::dollars(shape.usd),
            bound(shape),
        ];
        if accuracy {
            row.push(shape.batch_size.map_or(String::new(), |batch| batch.to_string()));
            row.push(shape.accuracy.map_or(String::new(), |accuracy| accuracy.to_string()));
        }
        table.row(row);
    }
    table
}

fn bound(shape: &Shape) -> String {
    match shape.bound {
        Bound::Input => format!("{}, {}", shape.bound.words(), shape.read_bound.words()),
        other => other.words().to_owned(),
    }
}

fn assumptions(plan: &Plan) -> String {
    format!(
        "prices of {} in {} ({}); check them before you spend\n\
         assumed: a vCPU is as fast as a measured core (or `speed` in a catalogue of your own), 0.9 of it kept on more cores, \
         reading hides behind computing, in operations of 256 KiB or a file and one to find it; the interval is from all overlapping to nothing overlapping at 0.75",
        plan.catalogue_date, plan.region, plan.provider,
    )
}

fn chart(plan: &Plan) -> Chart {
    let point = |shape: &Shape| (shape.seconds / 60.0, shape.usd);
    let mut front: Vec<(f64, f64)> = plan.front().map(point).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    Chart::new("Cost over time of every shape that fits", Axis::new("time").unit("min"), Axis::new("cost").unit("USD").from_zero())
        .described("Each point is a number of machines of one type; the line joins those that no other beats in both")
        .with(Series::points("shapes", plan.shapes.iter().map(point)))
        .with(Series::line("not beaten in both", front))
        .with(Series::points("chosen", [point(plan.chosen())]))
}
