//! `paceline cloud plan`: shapes that fit, with time, cost and what bounds them.

use super::{MarketArgs, explained, read_job};
use crate::terminal::failure::Exit;
use crate::terminal::{Table, Terminal};
use paceline_cloud::{Bound, Job, Plan, ReadBound, Shape, words};
use paceline_report::chart::{Axis, Chart, Series};
use paceline_runs::write_atomically;
use std::path::PathBuf;

/// Arguments of `paceline cloud plan`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A job file:\n  name = \"flowers\"\n  command = [\"prepare\", \"gs://lab/photos\", \"gs://lab/shards\", \"--size\", \"192\"]\n  [data]\n  gb = 0.22                  # read in one pass\n  examples = 3670\n  files = 3670               # single files; left out for shards\n  [measured]                 # on a machine at hand\n  examples_per_second = 40\n  cores = 2\n  [quota]                    # `paceline cloud check` reads them from the account\n  vcpus = 8\n  addresses = 4\n  standard_disk_gb = 716\n  [limits]\n  deadline_minutes = 30\n  [shape]\n  extra_nodes = 1            # a Dataproc master\nof training besides:\n  [exchange]                 # what the nodes send each other\n  gradient_mb = 0.25         # four bytes for each weight\n  batch_size = 64\n  [[accuracy]]               # as measured, for `--objective accuracy`; one for each batch size\n  batch_size = 64\n  accuracy = 0.98\nof a program of yours that computes on GPUs:\n  [measured]\n  examples_per_second = 900\n  gpu = \"T4\"                 # what gave the rate, instead of `cores`; `gpus = 2` if two did\n  [shape]                    # left out: every GPU whose speed beside it is known\n  gpu = \"T4\"\n  gpus_per_node = 1\n\nExamples:\n  paceline cloud plan flowers.toml --provider gcp\n  paceline cloud plan train.toml --provider aws --objective time --chart front.svg"
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
    if let Some(gpus) = gpu_sentence(&job, plan.chosen()) {
        terminal.data(gpus)?;
    }
    unpriced(&plan).into_iter().for_each(|missing| terminal.warn(missing));
    idle_gpu(&job, &plan).into_iter().for_each(|warning| terminal.warn(warning));
    late(&job, &plan).into_iter().for_each(|warning| terminal.warn(warning));
    terminal.data("")?;
    terminal.data(table(&plan, args.top))?;
    terminal.data(format!(
        "{} shapes considered, {} fit; the table has those that no other beats in time{} at once, best first",
        plan.considered,
        plan.shapes.len(),
        if job.accuracy.is_empty() { " and cost" } else { ", cost and accuracy" },
    ))?;
    if let Some(refused) = refused(&plan) {
        terminal.note(refused);
    }
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
        Bound::Compute if shape.gpu_speed.is_some() => "the GPUs bound it".to_owned(),
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
        "{}: {machines}{} {:.0} GB {} each: {} ({} to {}), ${}; {bound}",
        plan.job,
        if shape.gpu.is_some() { " and" } else { " with" },
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
            "{has}; the {} can use {:.1} MB/s and {:.0} IOPS; its {} are met first",
            if shape.gpu_speed.is_some() { "GPUs" } else { "cores" },
            used.mb_per_s,
            used.iops.ceil(),
            bound.words()
        ),
    }
}

/// A deadline is held against the time that is expected, which may be exceeded.
fn late(job: &Job, plan: &Plan) -> Option<String> {
    let deadline = job.limits.deadline_minutes.map(|minutes| minutes * 60.0)?;
    let high = plan.chosen().high;
    (high > deadline).then(|| {
        let [high, deadline] = [high, deadline].map(words::time);
        format!("it is expected in time, but may take up to {high}, more than the deadline of {deadline}: a shorter one in [limits] leaves more room")
    })
}

/// How fast a GPU is taken for that is not the one that was measured.
fn gpu_sentence(job: &Job, shape: &Shape) -> Option<String> {
    let (gpu, speed) = (shape.gpu.as_ref()?, shape.gpu_speed?);
    let measured = job.measured.gpu.as_ref().filter(|measured| *measured != gpu)?;
    Some(format!(
        "each {gpu} is taken for {:.2} times the {measured} that was measured: {:.2} to {:.2} times by the arithmetic and memory of their data sheets",
        speed.expected, speed.low, speed.high
    ))
}

/// GPUs cost money whether or not anything computes on them.
pub(super) fn idle_gpu(job: &Job, plan: &Plan) -> Option<String> {
    let gpu = plan.chosen().gpu.as_ref()?;
    let ours = job.command.first().filter(|command| *command != "run");
    if let Some(command) = ours {
        return Some(format!(
            "`paceline {command}` computes on the cores: the {gpu} would cost money and idle; `run -- COMMAND` of yours may use it"
        ));
    }
    job.measured.cores.map(|_| format!(
        "[measured] is a rate of cores: the {gpu} is in the cost and makes nothing faster here; measure on one, and say `gpu` instead of `cores`"
    ))
}

/// What the answer leaves out.
fn unpriced(plan: &Plan) -> Option<String> {
    let gpu = plan.chosen().gpu.as_ref().filter(|_| !plan.gpu_price_known)?;
    Some(format!(
        "no price of a {gpu} in this catalogue: costs are without the {} GPUs; `[[gpu]]` with name and usd_per_hour in a `--catalog` of your own adds it",
        plan.chosen().gpus
    ))
}

fn machines(shape: &Shape) -> String {
    let each = shape
        .gpu
        .as_ref()
        .map_or_else(String::new, |gpu| format!(" with {} {gpu}", shape.gpus / shape.nodes.max(1)));
    let beside = match shape.extra_nodes {
        0 => String::new(),
        extra => format!(" and {extra} beside"),
    };
    format!("{} x {}{each}{beside}", shape.nodes, shape.machine)
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

/// Why shapes fell out, the most frequent reasons first.
fn refused(plan: &Plan) -> Option<String> {
    let mut reasons: Vec<(&String, &usize)> = plan.refused.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let words = reasons.iter().map(|(reason, count)| format!("{reason} ({count})"));
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| format!("shapes left out: {}", words.join(", ")))
}

fn assumptions(plan: &Plan) -> String {
    let on = match plan.chosen().gpu_speed {
        Some(_) => {
            "a GPU is as fast as the measured one, or as data sheets say, 0.9 of it kept on more GPUs"
        }
        None => {
            "a vCPU is as fast as a measured core (or `speed` in a catalogue of your own), 0.9 of it kept on more cores"
        }
    };
    format!(
        "prices of {} in {} ({}); check them before you spend\n\
         assumed: {on}, \
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
