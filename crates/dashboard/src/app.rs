//! The pages. No sockets here, so tests call them directly.

use crate::access::Access;
use crate::counters::Counters;
use crate::error::DashboardError;
use crate::header::HeaderValue;
use crate::logs;
use crate::message::{Request, Response};
use crate::runs::{self, Runs, Task};
use axum::response::IntoResponse;
use paceline_report::page::{self, Page};
use paceline_report::policy::hash_source;
use paceline_report::table::{Column, Table};
use paceline_report::theme;
use paceline_report::training::{self, RunView};
use paceline_runs::{RunFolder, StartTable, format_utc};
use paceline_stats::fnv::Fnv;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

const INDEX: &str = include_str!("assets/index.html");
const SCRIPT: &str = include_str!("assets/app.js");
const STYLE: &str = include_str!("assets/app.css");
/// Most runs in one comparison.
const MOST_COMPARED: usize = 12;

/// The page, and the policy that allows only its own script and style: whatever a run's name, log or file contains, it is
/// never executed.
struct IndexPage {
    html: String,
    policy: HeaderValue,
}

static FRONT: LazyLock<IndexPage> = LazyLock::new(|| {
    let style = [theme::TOKENS_CSS, theme::PAGE_CSS, theme::CHART_CSS, STYLE].concat();
    let script = hash_source(SCRIPT);
    let policy = format!(
        "default-src 'none'; script-src {script}; style-src {}; img-src 'self' data:; connect-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        hash_source(&style)
    );
    IndexPage {
        // The script is a file of its own, and one with this hash.
        html: INDEX.replace("{style}", &style).replace("{integrity}", script.trim_matches('\'')),
        policy: HeaderValue::new(policy).expect("hashes are visible ASCII"),
    }
});

/// The dashboard without its sockets.
#[derive(Debug)]
pub(crate) struct App {
    runs: Runs,
    pub(crate) access: Access,
    pub(crate) counters: Counters,
}

impl App {
    /// A dashboard of the runs below `root`.
    ///
    /// # Errors
    /// When there is no such folder.
    pub(crate) fn open(root: &Path, access: Access) -> Result<App, DashboardError> {
        let root = fs::read_dir(root)
            .and_then(|_| fs::canonicalize(root))
            .map_err(|source| DashboardError::Folder { path: root.to_owned(), source })?;
        Ok(App { runs: Runs::new(root), access, counters: Counters::default() })
    }

    /// Counts a response that no page made.
    pub(crate) fn count(&self, response: Response) -> axum::response::Response {
        self.counters.add(response.status);
        response.into_response()
    }

    pub(crate) fn index(&self, _: &Request) -> Response {
        let mut response = Response::new(200, "text/html; charset=utf-8", FRONT.html.as_str());
        response.policy = FRONT.policy.clone();
        response
    }

    pub(crate) fn script(&self, _: &Request) -> Response {
        Response::new(200, "text/javascript; charset=utf-8", SCRIPT)
    }

    pub(crate) fn icon(&self, _: &Request) -> Response {
        Response::new(200, "image/svg+xml", ICON)
    }

    pub(crate) fn list(&self, request: &Request) -> Response {
        tagged(request, &json!({ "runs": self.runs.lines() }))
    }

    /// For Prometheus.
    pub(crate) fn metrics(&self, _: &Request) -> Response {
        let text = self.counters.text(&self.runs.lines());
        Response::new(200, "text/plain; version=0.0.4; charset=utf-8", text)
    }

    fn find(&self, name: &str) -> Result<RunFolder, Response> {
        self.runs.find(name).ok_or_else(|| Response::error(404, "no such run"))
    }

    pub(crate) fn run(&self, request: &Request) -> Response {
        let name = request.first("name").unwrap_or_default();
        let run = match self.find(name) {
            Ok(run) => run,
            Err(response) => return response,
        };
        let task = request.first("task").unwrap_or_default();
        let tag = HeaderValue::tag(fnv(task.as_bytes(), Fnv::after(runs::fingerprint(&run))));
        if request.header("if-none-match") == tag.as_str() {
            return Response::new(304, "application/json", "");
        }
        let found = match run.start_table() {
            Some(table) if RunFolder::forming(run.path()).is_some() => Ok(forming(&run, &table)),
            _ => details(&run, task),
        };
        let mut response = match found {
            Ok(value) => Response::json(&value),
            Err(error) => Response::error(500, &error.to_string()),
        };
        response.headers.push(("ETag", tag));
        response
    }

    pub(crate) fn compare(&self, request: &Request) -> Response {
        let mut views = Vec::new();
        for name in request.all("name").take(MOST_COMPARED) {
            match self.find(name).map(|run| RunView::read(run.path())) {
                Ok(Ok(view)) => views.push(view),
                Ok(Err(error)) => return Response::error(500, &error.to_string()),
                Err(response) => return response,
            }
        }
        if views.is_empty() {
            return Response::error(400, "no run given");
        }
        let mut page = Page::new("", "");
        training::describe(&mut page, &views);
        tagged(request, &json!({ "html": page.body() }))
    }

    pub(crate) fn log(&self, request: &Request) -> Response {
        let run = match self.find(request.first("name").unwrap_or_default()) {
            Ok(run) => run,
            Err(response) => return response,
        };
        let file = request.first("file").unwrap_or_default();
        // Only files on the list: a path from a request is never joined.
        if !logs::list(run.path()).iter().any(|known| known == file) {
            return Response::error(404, "no such log");
        }
        let from = request.first("from").and_then(|from| from.parse().ok());
        match logs::read(&run.path().join(file), from) {
            Ok(chunk) => Response::json(&chunk),
            Err(error) => Response::error(500, &error.to_string()),
        }
    }

    pub(crate) fn report(&self, request: &Request) -> Response {
        let run = match self.find(request.first("name").unwrap_or_default()) {
            Ok(run) => run,
            Err(response) => return response,
        };
        match RunView::read(run.path()) {
            Ok(view) => {
                let mut page =
                    Page::new("Training report", "What one run did, how fast, and what limited it");
                training::describe(&mut page, &[view]);
                let mut response = Response::new(200, "text/html; charset=utf-8", page.html());
                response.policy =
                    HeaderValue::new(page::policy()).expect("hashes are visible ASCII");
                response
            }
            Err(error) => Response::error(500, &error.to_string()),
        }
    }
}

/// The page of a run whose tasks have not all joined yet.
fn forming(run: &RunFolder, table: &StartTable) -> Value {
    let tasks = runs::tasks(run, &[]);
    let (here, all) = (tasks.len() - table.missing().count(), tasks.len());
    let mut page = Page::new("", "");
    page.section(&format!("{here} of {all} tasks have joined"));
    page.table(&task_table(&tasks));
    page.remark("The run starts when all tasks have joined. If some are still missing at the deadline, it ends and names them.");
    json!({
        "state": runs::forming_state(table),
        "html": page.body(),
        "steps": false,
        "tasks": [],
        "logs": logs::list(run.path()),
    })
}

/// A run's page: tasks, charts, logs; of one task only, if named.
fn details(run: &RunFolder, task: &str) -> Result<Value, paceline_runs::RunsError> {
    let mut view = RunView::read(run.path())?;
    let tasks = runs::tasks(run, &view.records);
    if !task.is_empty() {
        view.records.retain(|record| record.task == task);
        view.resources.retain(|(name, _)| name == task);
    }
    let state = view.state.clone();
    let mut page = Page::new("", "");
    if tasks.len() > 1 || tasks.iter().any(|task| task.state == "waiting") {
        page.section("Tasks");
        page.table(&task_table(&tasks));
    }
    let has_steps = view.summary.global_steps > 0;
    training::describe(&mut page, &[view]);
    Ok(json!({
        "state": state,
        "html": page.body(),
        "steps": has_steps,
        "tasks": tasks,
        "logs": logs::list(run.path()),
    }))
}

fn task_table(tasks: &[Task]) -> Table {
    let mut table = Table::new([
        Column::words("task"),
        Column::words("state"),
        Column::words("address"),
        Column::words("joined (UTC)"),
        Column::numbers("step"),
        Column::words("last message"),
    ]);
    for task in tasks {
        table.row([
            task.task.clone(),
            task.state.clone(),
            task.address.clone(),
            task.joined.map_or_else(|| "–".to_owned(), format_utc),
            task.step.to_string(),
            task.words.clone(),
        ]);
    }
    table
}

/// JSON with an ETag.
fn tagged(request: &Request, value: &Value) -> Response {
    let mut response = Response::json(value);
    let tag = HeaderValue::tag(fnv(&response.body, Fnv::default()));
    if request.header("if-none-match") == tag.as_str() {
        return Response::new(304, "application/json", "");
    }
    response.headers.push(("ETag", tag));
    response
}

/// A hash that goes on over some bytes.
fn fnv(bytes: &[u8], mut hash: Fnv) -> u64 {
    hash.add(bytes);
    hash.value()
}

const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\"><rect width=\"16\" height=\"16\" rx=\"3\" fill=\"#0072b2\"/>\
<path d=\"M3 11l3-5 3 3 4-6\" stroke=\"#fff\" stroke-width=\"2\" fill=\"none\" stroke-linecap=\"round\" stroke-linejoin=\"round\"/></svg>";
