//! From request to response. No sockets here, so tests call it directly.

use crate::error::DashboardError;
use crate::http::HeaderValue;
use crate::logs;
use crate::runs::{self, Runs, Task};
use paceline_report::page::{self, Page};
use paceline_report::policy::hash_source;
use paceline_report::table::{Column, Table};
use paceline_report::theme;
use paceline_report::training::{self, RunView};
use paceline_runs::{RunFolder, StartTable, format_utc};
use paceline_stats::fnv::Fnv;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

const INDEX: &str = include_str!("assets/index.html");
const SCRIPT: &str = include_str!("assets/app.js");
const STYLE: &str = include_str!("assets/app.css");
/// For responses that are not a page: no script, no style, no origin.
const NO_PAGE: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";
/// Most runs in one comparison.
const MOST_COMPARED: usize = 12;

/// A parsed request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The path, as sent.
    pub path: String,
    /// Names and values after the question mark, decoded.
    pub query: Vec<(String, String)>,
    /// Headers by their lower-case name.
    pub headers: BTreeMap<String, String>,
    /// Whether this is a HEAD request.
    pub head_only: bool,
}

impl Request {
    /// The first value of a name.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A response.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub content_type: &'static str,
    /// The Content-Security-Policy.
    pub policy: HeaderValue,
    pub headers: Vec<(&'static str, HeaderValue)>,
    pub body: Vec<u8>,
}

impl Response {
    pub(crate) fn new(
        status: u16,
        content_type: &'static str,
        body: impl Into<Vec<u8>>,
    ) -> Response {
        let policy = HeaderValue::fixed(NO_PAGE);
        Response { status, content_type, policy, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn text(status: u16, text: &str) -> Response {
        Response::new(status, "text/plain; charset=utf-8", format!("{text}\n"))
    }

    fn json(value: &impl serde::Serialize) -> Response {
        match serde_json::to_vec(value) {
            Ok(body) => Response::new(200, "application/json", body),
            Err(error) => Response::text(500, &error.to_string()),
        }
    }
}

/// The page with its script and style inside, and the policy that allows only these two: whatever a run's name, log or
/// file contains, it is never executed.
struct IndexPage {
    html: String,
    policy: HeaderValue,
}

static FRONT: LazyLock<IndexPage> = LazyLock::new(|| {
    let style = [theme::TOKENS_CSS, theme::PAGE_CSS, theme::CHART_CSS, STYLE].concat();
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; \
         base-uri 'none'; form-action 'none'",
        hash_source(SCRIPT),
        hash_source(&style)
    );
    IndexPage {
        html: INDEX.replace("{style}", &style).replace("{script}", SCRIPT),
        policy: HeaderValue::new(policy).expect("hashes are visible ASCII"),
    }
});

/// The dashboard without its sockets.
#[derive(Debug)]
pub struct App {
    runs: Runs,
    token: Option<String>,
    loopback: bool,
}

impl App {
    /// A dashboard of the runs below `root`. With `loopback`, only requests addressed to this machine are served.
    ///
    /// # Errors
    /// When there is no such folder, or the token cannot be part of a cookie.
    pub fn open(root: &Path, token: Option<String>, loopback: bool) -> Result<App, DashboardError> {
        let root = fs::read_dir(root)
            .and_then(|_| fs::canonicalize(root))
            .map_err(|source| DashboardError::Folder { path: root.to_owned(), source })?;
        if let Some(wrong) = token.iter().flat_map(|token| token.chars()).find(|c| !in_cookie(*c)) {
            return Err(DashboardError::Token { wrong });
        }
        Ok(App { runs: Runs::new(root), token, loopback })
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Serves a request.
    #[must_use]
    pub fn answer(&self, request: &Request) -> Response {
        if self.loopback && !names_loopback(request.header("host")) {
            // DNS rebinding: a page of another site tries to read ours.
            return Response::text(403, "this server only answers requests addressed to localhost");
        }
        if let Some(refused) = self.refuse(request) {
            return refused;
        }
        match request.path.as_str() {
            "/" => {
                let mut response =
                    Response::new(200, "text/html; charset=utf-8", FRONT.html.as_str());
                response.policy = FRONT.policy.clone();
                response
            }
            "/favicon.ico" => Response::new(200, "image/svg+xml", ICON),
            "/api/runs" => tagged(request, &json!({ "runs": self.runs.lines() })),
            "/api/run" => self.run(request),
            "/api/compare" => self.compare(request),
            "/api/log" => self.log(request),
            "/report" => self.report(request),
            _ => Response::text(404, "not found"),
        }
    }

    /// Refuses requests without the token; one with the token in its address gets a cookie and a redirect.
    fn refuse(&self, request: &Request) -> Option<Response> {
        let token = self.token.as_deref()?;
        if request.first("token").is_some_and(|given| same(given, token)) {
            let mut response = Response::text(303, "");
            // Two slashes would lead to another host.
            let path = format!("/{}", request.path.trim_start_matches('/'));
            let cookie = format!("paceline-token={token}; HttpOnly; SameSite=Strict; Path=/");
            let (Some(path), Some(cookie)) = (HeaderValue::new(path), HeaderValue::new(cookie))
            else {
                return Some(Response::text(400, "malformed request"));
            };
            response.headers.extend([("Location", path), ("Set-Cookie", cookie)]);
            return Some(response);
        }
        let cookie = request.header("cookie").split(';').any(|cookie| {
            cookie.trim().strip_prefix("paceline-token=").is_some_and(|given| same(given, token))
        });
        let bearer = request.header("authorization").strip_prefix("Bearer ");
        let passes = cookie || bearer.is_some_and(|given| same(given, token));
        (!passes).then(|| {
            Response::text(401, "token required: open the address that `paceline serve` printed")
        })
    }

    fn find(&self, name: &str) -> Result<RunFolder, Response> {
        self.runs.find(name).ok_or_else(|| Response::text(404, "no such run"))
    }

    fn run(&self, request: &Request) -> Response {
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
            Err(error) => Response::text(500, &error.to_string()),
        };
        response.headers.push(("ETag", tag));
        response
    }

    fn compare(&self, request: &Request) -> Response {
        let mut views = Vec::new();
        for name in request.all("name").take(MOST_COMPARED) {
            match self.find(name).map(|run| RunView::read(run.path())) {
                Ok(Ok(view)) => views.push(view),
                Ok(Err(error)) => return Response::text(500, &error.to_string()),
                Err(response) => return response,
            }
        }
        if views.is_empty() {
            return Response::text(400, "no run given");
        }
        let mut page = Page::new("", "");
        training::describe(&mut page, &views);
        tagged(request, &json!({ "html": page.body() }))
    }

    fn log(&self, request: &Request) -> Response {
        let run = match self.find(request.first("name").unwrap_or_default()) {
            Ok(run) => run,
            Err(response) => return response,
        };
        let file = request.first("file").unwrap_or_default();
        // Only files on the list: a path from a request is never joined.
        if !logs::list(run.path()).iter().any(|known| known == file) {
            return Response::text(404, "no such log");
        }
        let from = request.first("from").and_then(|from| from.parse().ok());
        match logs::read(&run.path().join(file), from) {
            Ok(chunk) => Response::json(&chunk),
            Err(error) => Response::text(500, &error.to_string()),
        }
    }

    fn report(&self, request: &Request) -> Response {
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
            Err(error) => Response::text(500, &error.to_string()),
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

/// Whether a character may be part of a cookie's value (RFC 6265), and so of a token.
fn in_cookie(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '"' | ',' | ';' | '\\')
}

/// Whether a Host header means this machine itself.
fn names_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Compares in constant time.
fn same(given: &str, token: &str) -> bool {
    given.len() == token.len()
        && given.bytes().zip(token.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\"><rect width=\"16\" height=\"16\" rx=\"3\" fill=\"#0072b2\"/>\
<path d=\"M3 11l3-5 3 3 4-6\" stroke=\"#fff\" stroke-width=\"2\" fill=\"none\" stroke-linecap=\"round\" stroke-linejoin=\"round\"/></svg>";
