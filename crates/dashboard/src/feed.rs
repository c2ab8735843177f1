//! Updates pushed to browsers as server-sent events.
//!
//! One loop looks at what anyone is watching and makes each message once; viewers share its bytes. A viewer that does not
//! keep up finds only the newest message, so that any number of slow ones costs no memory.

use crate::app::App;
use crate::logs;
use crate::message::{Request, Response};
use crate::router::aside;
use crate::rows::RunRow;
use crate::runs::locked;
use crate::server::Connection;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(300);
/// A look that takes long is followed by a pause of this many times as long, up to a bound: on a busy machine the time of one
/// look says little about the next.
const SPARED: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_millis(700);
/// Time after which a silent stream says that it is still there, which also finds viewers that have left.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// What the list's viewers get: what changed since the last message.
#[derive(Debug, Clone, Default)]
struct ListNews {
    /// Counts messages, to find out who has missed one.
    number: u64,
    message: Bytes,
}

/// What a run's viewers get.
#[derive(Debug, Clone, Default)]
struct RunNews {
    version: u64,
    page: Bytes,
    logs: Bytes,
}

/// What is being watched.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    list: watch::Sender<ListNews>,
    last: Mutex<HashMap<String, RunRow>>,
    /// By name and task.
    runs: Mutex<HashMap<(String, String), watch::Sender<RunNews>>>,
}

fn message(event: &str, data: &str) -> Bytes {
    Bytes::from(format!("event: {event}\ndata: {data}\n\n"))
}

impl Feed {
    /// Looks at everything that is watched; the loop of [`follow`] calls it.
    fn look(app: &App) {
        if app.feed.list.receiver_count() > 0 {
            let rows = app.runs.lines();
            app.feed.publish(rows, &app.runs.differing());
        }
        let watched: Vec<(String, String)> = {
            let mut runs = locked(&app.feed.runs);
            runs.retain(|_, sender| sender.receiver_count() > 0);
            runs.keys().cloned().collect()
        };
        for (name, task) in watched {
            let news = app.feed.of_run(app, &name, &task);
            if let Some(sender) = locked(&app.feed.runs).get(&(name, task)) {
                sender.send_if_modified(|known| {
                    let is_new = known.version != news.version || known.logs != news.logs;
                    if is_new {
                        *known = news;
                    }
                    is_new
                });
            }
        }
    }

    fn of_run(&self, app: &App, name: &str, task: &str) -> RunNews {
        match app.page(name, task) {
            Ok((version, page)) => {
                let lengths = app.runs.find(name).map(|run| logs::lengths(run.path()));
                RunNews {
                    version,
                    page: message("run", &String::from_utf8_lossy(&page)),
                    logs: message("logs", &json!(lengths.unwrap_or_default()).to_string()),
                }
            }
            Err(refused) => RunNews {
                version: u64::from(refused.status),
                page: message("gone", &String::from_utf8_lossy(&refused.body).replace('\n', " ")),
                logs: Bytes::new(),
            },
        }
    }

    /// Sends what changed in the list.
    fn publish(&self, rows: Vec<RunRow>, differing: &[String]) {
        let mut last = locked(&self.last);
        let changed: Vec<&RunRow> =
            rows.iter().filter(|row| last.get(&row.name) != Some(row)).collect();
        let present: std::collections::HashSet<&str> =
            rows.iter().map(|row| row.name.as_str()).collect();
        let removed: Vec<String> =
            last.keys().filter(|name| !present.contains(name.as_str())).cloned().collect();
        if changed.is_empty() && removed.is_empty() {
            return;
        }
        // All at once is what a page fetches when it opens.
        let all = changed.len() == rows.len() && rows.len() > 1;
        let text = if all {
            message("reset", "{}")
        } else {
            let news = json!({ "changed": changed, "removed": removed, "differing": differing });
            message("runs", &news.to_string())
        };
        *last = rows.into_iter().map(|row| (row.name.clone(), row)).collect();
        self.list.send_modify(|news| {
            news.number += 1;
            news.message = text;
        });
    }

    fn watch_run(&self, name: &str, task: &str) -> watch::Receiver<RunNews> {
        let mut runs = locked(&self.runs);
        runs.entry((name.to_owned(), task.to_owned())).or_default().subscribe()
    }
}

/// Looks again and again while there are viewers. Ends with the runtime.
pub(crate) async fn follow(app: Arc<App>) {
    loop {
        let begun = Instant::now();
        let looking = Arc::clone(&app);
        let _ = tokio::task::spawn_blocking(move || Feed::look(&looking)).await;
        tokio::time::sleep((SPARED * begun.elapsed()).clamp(EVERY, LONGEST_PAUSE)).await;
    }
}

/// A viewer: what it watches, and what it has got.
struct Viewer {
    app: Arc<App>,
    watched: Watched,
    /// Messages that are ready to be sent.
    ready: Vec<Bytes>,
}

enum Watched {
    List(watch::Receiver<ListNews>, u64),
    Run(watch::Receiver<RunNews>, RunNews),
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.app.counters.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Viewer {
    /// The next message, or a sign of life.
    async fn next(&mut self) -> Option<Bytes> {
        while self.ready.is_empty() {
            let changed = match &mut self.watched {
                Watched::List(news, _) => timeout(HEARTBEAT, news.changed()).await,
                Watched::Run(news, _) => timeout(HEARTBEAT, news.changed()).await,
            };
            match changed {
                Ok(Ok(())) => self.take(),
                Ok(Err(_)) => return None,
                Err(_) => self.ready.push(Bytes::from_static(b": still here\n\n")),
            }
        }
        self.ready.pop()
    }

    fn take(&mut self) {
        match &mut self.watched {
            Watched::List(news, seen) => {
                let news = news.borrow_and_update();
                let missed = news.number > *seen + 1;
                *seen = news.number;
                // One that has missed a message asks for the whole list.
                self.ready.push(if missed { message("reset", "{}") } else { news.message.clone() });
            }
            Watched::Run(news, seen) => {
                let news = news.borrow_and_update().clone();
                if news.logs != seen.logs {
                    self.ready.push(news.logs.clone());
                }
                if news.version != seen.version {
                    self.ready.push(news.page.clone());
                }
                *seen = news;
            }
        }
    }
}

/// A stream of updates: of the list, or of one run.
pub(crate) async fn stream(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let (parts, _) = request.into_parts();
    let Some(request) = Request::of(&parts) else {
        return Response::error(400, "malformed request").into_response();
    };
    let watched = match request.first("run") {
        None => {
            let news = app.feed.list.subscribe();
            let seen = news.borrow().number;
            Watched::List(news, seen)
        }
        Some(name) => {
            let (looking, name) = (Arc::clone(&app), name.to_owned());
            let task = request.first("task").unwrap_or_default().to_owned();
            // Only runs and tasks that are there are watched, so that names made up cost nothing.
            let (wanted, of) = (name.clone(), task.clone());
            let found = aside(move || match looking.page(&wanted, &of) {
                Ok(_) => Response::text(200, ""),
                Err(refused) => refused,
            });
            let found = found.await;
            if found.status != 200 {
                return found.into_response();
            }
            let mut news = app.feed.watch_run(&name, &task);
            // A run that others watch already is shown at once.
            news.mark_changed();
            Watched::Run(news, RunNews::default())
        }
    };
    connection.streams.store(true, Ordering::Relaxed);
    app.counters.viewers.fetch_add(1, Ordering::Relaxed);
    let hello = Bytes::from_static(b"retry: 1000\nevent: hello\ndata: {}\n\n");
    let viewer = Viewer { app, watched, ready: vec![hello] };
    let messages = stream::unfold(viewer, |mut viewer| async move {
        let message = viewer.next().await?;
        Some((Ok::<_, Infallible>(message), viewer))
    });
    Response::new(200, "text/event-stream", "").with_body(Body::from_stream(messages))
}
