//! The pages. No sockets here, so tests call them directly.

use crate::access::{Access, Ends};
use crate::actions;
use crate::counters::Counters;
use crate::error::DashboardError;
use crate::feed::Feed;
use crate::front::{FRONT, ICON, SCRIPT};
use crate::header::HeaderValue;
use crate::logs;
use crate::machines;
use crate::message::{Request, Response};
use crate::notes::Notes;
use crate::rows::forming_state;
use crate::runs::{self, Runs, Seen, locked};
use crate::tasks::{Task, tasks};
use axum::response::IntoResponse;
use bytes::Bytes;
use paceline_report::page::{self, Page};
use paceline_report::script;
use paceline_report::table::{Column, Table};
use paceline_report::timeline;
use paceline_report::training::{self, RunView};
use paceline_runs::{RunFolder, StartTable, format_utc};
use paceline_stats::fnv::Fnv;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const OPENAPI: &str = include_str!("assets/openapi.json");
/// Pages of one run that are kept, one for each task looked at.
const MOST_PAGES: usize = 64;
/// Marks that a page is sent: more than there are in the minute it shows.
const MOST_MARKS: usize = 50;
/// Most runs in one comparison: all that the list has.
const MOST_COMPARED: usize = runs::MOST_RUNS;
/// Most runs of a comparison whose events are read.
const MOST_READ: usize = 112;

/// The dashboard without its sockets.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) runs: Arc<Runs>,
    pub(crate) access: Access,
    pub(crate) counters: Counters,
    pub(crate) feed: Feed,
    /// Held while many runs are compared: one comparison of thousands has its place in memory, one for each viewer has not.
    many: Mutex<()>,
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
        let runs = Arc::new(Runs::new(root));
        Ok(App {
            runs,
            access,
            counters: Counters::default(),
            feed: Feed::default(),
            many: Mutex::new(()),
        })
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

    /// The script that makes charts workable, which reports carry inside.
    pub(crate) fn charts(&self, _: &Request) -> Response {
        Response::new(200, "text/javascript; charset=utf-8", script::CHARTS)
    }

    pub(crate) fn icon(&self, _: &Request) -> Response {
        Response::new(200, "image/svg+xml", ICON)
    }

    pub(crate) fn list(&self, request: &Request) -> Response {
        let rows = self.runs.lines();
        tagged(request, &json!({ "runs": rows, "differing": self.runs.differing() }))
    }

    /// For Prometheus.
    pub(crate) fn metrics(&self, _: &Request) -> Response {
        let read = self.runs.read_bytes.load(Ordering::Relaxed);
        let text = self.counters.text(&self.runs.lines(), read);
        Response::new(200, "text/plain; version=0.0.4; charset=utf-8", text)
    }

    /// What a page must know before it offers changes.
    pub(crate) fn session(&self, ends: Ends) -> Response {
        let refused = self.access.why_not_change(ends);
        Response::json(&json!({
            "csrf": self.access.csrf(),
            "may_change": refused.is_none(),
            "reason": refused,
            "version": env!("CARGO_PKG_VERSION"),
        }))
    }

    pub(crate) fn openapi(&self, _: &Request) -> Response {
        Response::new(200, "application/json", OPENAPI)
    }

    fn find(&self, name: &str) -> Result<RunFolder, Response> {
        self.runs.find(name).ok_or_else(|| Response::error(404, "no such run"))
    }

    pub(crate) fn run(&self, request: &Request) -> Response {
        let name = request.first("name").unwrap_or_default();
        let task = request.first("task").unwrap_or_default();
        let (tag, body) = match self.page(name, task) {
            Ok(page) => page,
            Err(response) => return response,
        };
        let tag = HeaderValue::tag(tag);
        if request.header("if-none-match") == tag.as_str() {
            return Response::new(304, "application/json", "");
        }
        let mut response = Response::new(200, "application/json", body);
        response.headers.push(("ETag", tag));
        response
    }

    /// A run's page, made once for all viewers, and a number that changes with it.
    pub(crate) fn page(&self, name: &str, task: &str) -> Result<(u64, Bytes), Response> {
        let run = self.find(name)?;
        let opened = self.runs.opened(name, &run);
        let mut it = locked(&opened);
        let files = runs::fingerprint(run.path());
        // A process that is killed changes no file.
        let state = match run.start_table() {
            Some(table) if RunFolder::forming(run.path()).is_some() => {
                forming_state(&table).to_owned()
            }
            _ => run.state().word(),
        };
        let what = format!("{task} {state} {}", it.is_reading());
        let version = fnv(what.as_bytes(), Fnv::after(files));
        if let Some((known, body)) = it.pages.get(task)
            && *known == version
        {
            return Ok((version, body.clone()));
        }
        let page = match run.start_table() {
            Some(table) if RunFolder::forming(run.path()).is_some() => forming(&run, &table),
            _ => {
                let seen = self.runs.see_opened(&opened, &mut it);
                details(&run, task, seen.map_err(|error| Response::error(500, &error))?)
            }
        };
        let body = Bytes::from(page.to_string());
        if it.pages.len() >= MOST_PAGES {
            it.pages.clear();
        }
        it.pages.insert(task.to_owned(), (version, body.clone()));
        Ok((version, body))
    }

    pub(crate) fn compare(&self, request: &Request) -> Response {
        let names: Vec<&str> = request.all("name").collect();
        // A page that leaves some out says how many were chosen.
        let said = request.first("chosen").and_then(|chosen| chosen.parse().ok()).unwrap_or(0);
        match self.comparison(&names, said) {
            Ok(found) => tagged(request, &found),
            Err(response) => response,
        }
    }

    /// The same for more runs than an address has room for.
    pub(crate) fn compare_many(&self, body: &[u8]) -> Response {
        #[derive(Deserialize)]
        struct Asked {
            names: Vec<String>,
        }
        let names = match serde_json::from_slice(body) {
            Ok(Asked { names }) => names,
            Err(error) => return malformed(&error),
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.comparison(&names, 0).map_or_else(|response| response, |found| Response::json(&found))
    }

    fn comparison(&self, names: &[&str], said: usize) -> Result<Value, Response> {
        let _one = (names.len() > training::MOST_DRAWN).then(|| locked(&self.many));
        let views = self.compared(&names[..names.len().min(MOST_COMPARED)])?;
        if views.is_empty() {
            return Err(Response::error(400, "no run given"));
        }
        let chosen = names.len().max(said);
        let mut page = Page::new("", "");
        if chosen > views.len() {
            page.remark(&format!(
                "{chosen} runs were chosen; the first {} are compared.",
                views.len()
            ));
        }
        training::describe(&mut page, &views);
        Ok(json!({ "html": page.body(), "chosen": chosen, "drawn": views.len() }))
    }

    /// Runs to be compared. Of many, only those have their events whose curves are drawn.
    fn compared(&self, names: &[&str]) -> Result<Vec<RunView>, Response> {
        let failed = |error: String| Response::error(500, &error);
        let runs: Vec<RunFolder> =
            names.iter().map(|name| self.find(name)).collect::<Result<_, _>>()?;
        let all = || names.iter().zip(&runs);
        if names.len() <= training::MOST_DRAWN {
            let see = |(name, run): (&&str, &RunFolder)| self.runs.see(name, run);
            return all().map(|it| Ok(see(it)?.view)).collect::<Result<_, _>>().map_err(failed);
        }
        let glimpse = |(name, run): (&&str, &RunFolder)| self.runs.glimpse(name, run);
        let mut views: Vec<RunView> =
            all().map(glimpse).collect::<Result<_, _>>().map_err(failed)?;
        let drawn = training::drawn_of(&views);
        for at in drawn.into_iter().take(MOST_READ) {
            views[at] = self.runs.see_among_many(names[at], &runs[at]).map_err(failed)?;
        }
        Ok(views)
    }

    pub(crate) fn machines(&self, request: &Request) -> Response {
        match self.find(request.first("name").unwrap_or_default()) {
            Ok(run) => tagged(request, &json!({ "tasks": machines::latest(run.path()) })),
            Err(response) => response,
        }
    }

    /// Keeps tags, a note, and whether a run is archived.
    pub(crate) fn annotate(&self, body: &[u8]) -> Response {
        #[derive(Deserialize)]
        struct Asked {
            name: String,
            #[serde(flatten)]
            notes: Notes,
        }
        let Asked { name, notes } = match serde_json::from_slice(body) {
            Ok(asked) => asked,
            Err(error) => return malformed(&error),
        };
        if let Some(wrong) = notes.wrong() {
            return Response::error(400, &wrong);
        }
        let run = match self.find(&name) {
            Ok(run) => run,
            Err(response) => return response,
        };
        match notes.write(run.path()) {
            Ok(()) => Response::json(&notes),
            Err(error) => Response::error(500, &error.to_string()),
        }
    }

    /// Stops a run.
    pub(crate) fn stop(&self, body: &[u8]) -> Response {
        #[derive(Deserialize)]
        struct Asked {
            name: String,
        }
        let run = match serde_json::from_slice(body) {
            Ok(Asked { name }) => self.find(&name),
            Err(error) => return malformed(&error),
        };
        match run.map(|run| actions::stop(&run)) {
            Ok(Ok(process)) => Response::json(&json!({ "process": process })),
            Ok(Err((status, words))) => Response::error(status, &words),
            Err(response) => response,
        }
    }

    /// Deletes a run whose name was given twice.
    pub(crate) fn delete(&self, body: &[u8]) -> Response {
        #[derive(Deserialize)]
        struct Asked {
            name: String,
            confirm: String,
        }
        let Asked { name, confirm } = match serde_json::from_slice(body) {
            Ok(asked) => asked,
            Err(error) => return malformed(&error),
        };
        if confirm != name {
            return Response::error(400, "`confirm` must be the name of the run");
        }
        match self.find(&name).map(|run| actions::delete(&run)) {
            Ok(Ok(())) => Response::json(&json!({ "deleted": name })),
            Ok(Err((status, words))) => Response::error(status, &words),
            Err(response) => response,
        }
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
        let name = request.first("name").unwrap_or_default();
        match self.find(name).map(|run| self.runs.see(name, &run)) {
            Ok(Ok(seen)) => {
                let mut page =
                    Page::new("Training report", "What one run did, how fast, and what limited it");
                training::describe(&mut page, &[seen.view]);
                let mut response = Response::new(200, "text/html; charset=utf-8", page.html());
                response.policy =
                    HeaderValue::new(page::policy()).expect("hashes are visible ASCII");
                response
            }
            Ok(Err(error)) => Response::error(500, &error),
            Err(response) => response,
        }
    }
}

fn malformed(error: &serde_json::Error) -> Response {
    Response::error(
        400,
        &format!("the body is not the JSON that /api/openapi.json describes: {error}"),
    )
}

/// The page of a run whose tasks have not all joined yet.
fn forming(run: &RunFolder, table: &StartTable) -> Value {
    let tasks = tasks(run, &[]);
    let (here, all) = (tasks.len() - table.missing().count(), tasks.len());
    let mut page = Page::new("", "");
    page.section(&format!("{here} of {all} tasks have joined"));
    page.table(&task_table(&tasks));
    page.remark("The run starts when all tasks have joined. If some are still missing at the deadline, it ends and names them.");
    json!({
        "state": forming_state(table),
        "html": page.body(),
        "steps": false,
        "tasks": [],
        "marks": [],
        "logs": logs::list(run.path()),
    })
}

/// A run's page: tasks, charts, logs; of one task only, if named.
fn details(run: &RunFolder, task: &str, seen: Seen) -> Value {
    let Seen { mut view, merged, is_glance } = seen;
    let mut tasks = tasks(run, &view.records);
    if view.state == "done" {
        // Servers write no events; they end with the run.
        tasks.iter_mut().filter(|task| task.state == "joined").for_each(|task| {
            task.state.clone_from(&view.state);
            task.words.clear();
        });
    }
    if !task.is_empty() {
        view.records.retain(|record| record.task == task);
        view.resources.retain(|(name, _)| name == task);
    }
    let state = view.state.clone();
    let start = view.start();
    let marks: Vec<Value> = timeline::marks(&view)
        .into_iter()
        .map(|it| json!({ "time": start + it.time, "what": it.what, "notable": it.notable }))
        .collect();
    let recent = &marks[marks.len().saturating_sub(MOST_MARKS)..];
    let recent = json!(recent);
    let mut page = Page::new("", "");
    if is_glance {
        page.remark("A first look at samples of a long log; the rest is being read, and the page will follow.");
    } else if merged > 1 {
        page.remark(&format!("A long run: the curves rest on means of up to {merged} steps."));
    }
    if tasks.len() > 1 || tasks.iter().any(|task| task.state == "waiting") {
        page.section("Tasks");
        page.table(&task_table(&tasks));
    }
    let has_steps = view.summary.global_steps > 0;
    training::describe(&mut page, &[view]);
    json!({
        "state": state,
        "html": page.body(),
        "steps": has_steps,
        "tasks": tasks,
        "marks": recent,
        "logs": logs::list(run.path()),
    })
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
