//! `paceline report`: runs, or recordings of machines, as one page, or as a table for other programs.

mod recordings;

use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::{Terminal, show_count};
use anyhow::Context;
use paceline_data::store;
use paceline_data::store::{Staging, staging::without_weights};
use paceline_report::nodes::{self, Recorded};
use paceline_report::page::{self, Page};
use paceline_report::training::{self, RunView};
use paceline_report::{chart, epochs};
use paceline_runs::{RunFolder, RunsError, list, write_atomically};
use recordings::Recordings;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Arguments of `paceline report`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline report runs/*\n  paceline report runs/a runs/b --format markdown --out -\n  paceline report runs/* --format svg --out figures\n  paceline report node1.csv node2.csv\n  paceline report speedtest"
)]
pub struct Args {
    /// Run folders, or folders of runs; the first run is what the others are compared with. Or recordings: CSV files of `paceline monitor`, dstat and sar (`sadf -d`), each a node, and folders of `prepare`, `speedtest` and `matmul --record`
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// What to write
    #[arg(long, default_value = "html")]
    format: Format,
    /// File to write (for svg a folder), `-` for standard output [default: report.html, .md, .csv, epochs.csv or report-figures in the current folder]
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One self-contained page
    Html,
    /// Verdicts and tables
    Markdown,
    /// One line per run
    Csv,
    /// One line per evaluation of each run, as CSV: loss and accuracy in training and on held-out examples
    Epochs,
    /// Every chart as a file of its own, for papers
    Svg,
}

/// Last line of a Markdown report: not shown, but tells that the file may be written again.
const MARKDOWN_MARK: &str = "\n<!-- written by paceline report -->\n";

impl Format {
    fn file_name(self) -> &'static str {
        match self {
            Format::Html => "report.html",
            Format::Markdown => "report.md",
            Format::Csv => "report.csv",
            Format::Epochs => "epochs.csv",
            Format::Svg => "report-figures",
        }
    }

    /// Whether nothing is lost by writing `text` to a file: there is none, or an earlier report.
    fn may_replace(self, path: &Path, text: &str) -> anyhow::Result<bool> {
        if !path.is_file() {
            return Ok(true);
        }
        let there =
            std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let there = String::from_utf8_lossy(&there);
        Ok(match self {
            Format::Html => there.contains(page::GENERATOR),
            Format::Markdown => there.ends_with(MARKDOWN_MARK),
            Format::Csv | Format::Epochs => there.lines().next() == text.lines().next(),
            Format::Svg => there.contains("<svg") && there.contains("class=\"chart\""),
        })
    }
}

/// Reads the runs and writes the report.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let mut staging = Staging::default();
    let folders = args.runs.iter().map(|run| staging.input(run, &without_weights));
    let folders = folders.collect::<Result<Vec<_>, _>>()?;
    let recordings = Recordings::among(&folders)?;
    if recordings.is_none() {
        check(&folders, terminal)?;
    }
    let subject = match &recordings {
        Some(recordings) => Subject::Nodes(recordings.recorded()),
        // Each run's evaluations are wanted where they are written one by one.
        None if args.format == Format::Epochs => Subject::Runs(read(&folders, usize::MAX)?),
        None => Subject::Runs(read(&folders, training::MOST_READ)?),
    };
    if args.format == Format::Svg {
        return figures(args, &subject, terminal);
    }
    let text = subject.text(args.format);
    let to_stdout = args.out.as_deref() == Some(Path::new("-"));
    if to_stdout && terminal.wants_json() {
        return Err(usage("--out - and --json both want standard output", "leave one of them out"));
    }
    if to_stdout {
        terminal.data(&text)?;
        return Ok(Exit::Done);
    }
    let text = if args.format == Format::Markdown { text + MARKDOWN_MARK } else { text };
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(args.format.file_name()));
    if store::is_remote(&out) {
        let (folder, name) = store::open_file(&out)?;
        folder.write(&name, text.as_bytes())?;
    } else {
        if !args.format.may_replace(&out, &text)? {
            if args.out.is_none() {
                return Err(usage(
                    format!("`{}` is not a report that Paceline wrote", out.display()),
                    "nothing was written; name another file with --out",
                ));
            }
            terminal.warn(format!("replacing `{}`, which Paceline did not write", out.display()));
        }
        write_atomically(&out, text.as_bytes())?;
    }
    terminal.data(format!("{} in `{}`", subject.words(), out.display()))?;
    terminal.json(&subject.document(&out))?;
    Ok(Exit::Done)
}

/// What a report is about.
enum Subject<'a> {
    Runs(Vec<RunView>),
    Nodes(Vec<Recorded<'a>>),
}

impl Subject<'_> {
    /// How much of it there is.
    fn words(&self) -> String {
        match self {
            Subject::Runs(runs) if runs.len() == 1 => "1 run".to_owned(),
            Subject::Runs(runs) => format!("{} runs", runs.len()),
            Subject::Nodes(all) => match all.iter().map(Recorded::node_count).sum() {
                1 => "1 node".to_owned(),
                nodes => format!("{nodes} nodes"),
            },
        }
    }

    fn text(&self, format: Format) -> String {
        match (self, format) {
            (Subject::Runs(runs), Format::Markdown) => training::markdown(runs),
            (Subject::Runs(runs), Format::Csv) => training::csv(runs),
            (Subject::Runs(runs), Format::Epochs) => epochs::csv(runs),
            (Subject::Runs(runs), _) => html(runs),
            (Subject::Nodes(all), Format::Markdown) => nodes::markdown(all),
            (Subject::Nodes(all), Format::Csv | Format::Epochs) => nodes::csv(all),
            (Subject::Nodes(all), _) => html_of_nodes(all),
        }
    }

    fn pictures(&self) -> Vec<(String, chart::Drawing)> {
        match self {
            Subject::Runs(runs) => training::pictures(runs),
            Subject::Nodes(all) => nodes::pictures(all),
        }
    }

    fn document(&self, out: &Path) -> Value {
        match self {
            Subject::Runs(runs) => {
                json!({ "out": out, "runs": runs.iter().map(|run| &run.summary).collect::<Vec<_>>() })
            }
            Subject::Nodes(all) => json!({ "out": out, "nodes": nodes::document(all) }),
        }
    }
}

/// Writes every chart as a drawing of its own into a folder.
fn figures(args: &Args, subject: &Subject<'_>, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from(Format::Svg.file_name()));
    if folder == Path::new("-") || store::is_remote(&folder) || folder.is_file() {
        return Err(usage(
            format!("--format svg writes several files, `{}` is not a folder", folder.display()),
            "name a folder with --out",
        ));
    }
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    let mut files = Vec::new();
    for (number, (title, svg)) in subject.pictures().into_iter().enumerate() {
        let file = folder.join(format!("{:02}-{}.svg", number + 1, file_stem(&title)));
        let text = chart::standalone(&title, &svg);
        if !Format::Svg.may_replace(&file, &text)? {
            return Err(usage(
                format!("`{}` is not a chart that Paceline wrote", file.display()),
                "name another folder with --out",
            ));
        }
        write_atomically(&file, text.as_bytes())?;
        files.push(file);
    }
    let (charts, about) = (show_count(files.len(), "chart"), subject.words());
    terminal.data(format!("{charts} of {about} in `{}`", folder.display()))?;
    terminal.json(&json!({ "out": folder, "files": files }))?;
    Ok(Exit::Done)
}

/// A title as part of a file's name.
fn file_stem(title: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' };
    let words: String = title.chars().map(plain).collect();
    let joined = words.split_whitespace().collect::<Vec<_>>().join("-");
    joined.chars().take(60).collect()
}

/// A run that was named and is not there must not be missing from the page silently; what else `runs/*` brings along may.
fn check(folders: &[PathBuf], terminal: &Terminal) -> anyhow::Result<()> {
    for folder in folders {
        if let Err(error @ RunsError::NoRun { .. }) = RunFolder::open(folder) {
            return Err(error).hint("`paceline runs` lists the runs here; name their folders");
        }
        if folders.len() > 1
            && !RunFolder::is_at(folder)
            && list(folder).is_ok_and(|runs| runs.is_empty())
        {
            terminal.warn(format!("`{}` holds no run and is left out", folder.display()));
        }
    }
    Ok(())
}

/// A folder is a run, or holds runs.
pub(super) fn read(folders: &[PathBuf], whole: usize) -> anyhow::Result<Vec<RunView>> {
    let runs = training::read(folders, whole)?;
    if runs.is_empty() {
        let names: Vec<String> = folders.iter().map(|path| path.display().to_string()).collect();
        return Err(anyhow::anyhow!("no run in {}", names.join(", ")))
            .hint("a run folder holds plan.json or events-*.jsonl; `paceline train` makes one under runs/");
    }
    Ok(runs)
}

fn html_of_nodes(all: &[Recorded<'_>]) -> String {
    let mut page = Page::new("What the nodes did", "CPU, memory, network and disks over time");
    nodes::describe(&mut page, all);
    page.footer(&format!("Written by Paceline {}", env!("CARGO_PKG_VERSION")));
    page.html()
}

fn html(runs: &[RunView]) -> String {
    let what = if runs.len() == 1 { "one run".to_owned() } else { format!("{} runs", runs.len()) };
    let mut page =
        Page::new("Training report", format!("What {what} did, how fast, and what limited it"));
    training::describe(&mut page, runs);
    page.footer(&format!("Written by Paceline {}", env!("CARGO_PKG_VERSION")));
    page.html()
}
