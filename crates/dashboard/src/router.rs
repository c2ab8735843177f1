//! Which address leads to which page, and what every request passes first.

use crate::app::App;
use crate::feed;
use crate::message::{Request, Response};
use crate::server::Connection;
use axum::extract::State;
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use std::sync::Arc;

/// A page that reads files.
type Page = fn(&App, &Request) -> Response;

/// Every address, its method and its page.
const PAGES: &[(&str, Page)] = &[
    ("/", App::index),
    ("/app.js", App::script),
    ("/charts.js", App::charts),
    ("/favicon.ico", App::icon),
    ("/api/runs", App::list),
    ("/api/run", App::run),
    ("/api/compare", App::compare),
    ("/api/log", App::log),
    ("/api/machines", App::machines),
    ("/api/openapi.json", App::openapi),
    ("/report", App::report),
    ("/metrics", App::metrics),
];

/// A page that is given the body of its request, mostly because it changes something.
type Change = fn(&App, &[u8]) -> Response;

/// Every address that changes something.
const CHANGES: &[(&str, Change)] = &[
    ("/api/run/notes", App::annotate),
    ("/api/run/stop", App::stop),
    ("/api/run/delete", App::delete),
];

/// Most bytes of a request's body: a note and its tags.
const MOST_BODY: usize = 64 << 10;
/// Compares runs whose names have no room in an address.
const COMPARE_MANY: &str = "/api/compare/many";
/// Most bytes of the names of runs: those of ten thousand.
const MOST_NAMES: usize = 2 << 20;

pub(crate) fn routes(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for (path, page) in PAGES {
        router = router.route(path, reading(*page));
    }
    for (path, change) in CHANGES {
        router = router.route(path, posted(*change, MOST_BODY));
    }
    router = router.route(COMPARE_MANY, posted(App::compare_many, MOST_NAMES));
    router
        .route("/api/session", get(session))
        .route("/api/events", get(feed::stream))
        .fallback(async || Response::text(404, "not found"))
        .method_not_allowed_fallback(async || {
            Response::text(405, "this address has no such method")
        })
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

fn reading(page: Page) -> MethodRouter<Arc<App>> {
    get(move |State(app): State<Arc<App>>, request: axum::extract::Request| async move {
        let (parts, _) = request.into_parts();
        match Request::of(&parts) {
            Some(request) => aside(move || page(&app, &request)).await,
            None => Response::text(400, "malformed request"),
        }
    })
}

fn posted(change: Change, most: usize) -> MethodRouter<Arc<App>> {
    post(move |State(app): State<Arc<App>>, request: axum::extract::Request| async move {
        match axum::body::to_bytes(request.into_body(), most).await {
            Ok(body) => aside(move || change(&app, &body)).await,
            Err(_) => Response::error(413, "the body is too long or was cut"),
        }
    })
}

async fn session(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
) -> Response {
    app.session(connection.ends)
}

/// Work on files is done by a thread that may wait.
pub(crate) async fn aside(work: impl FnOnce() -> Response + Send + 'static) -> Response {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Response::text(500, "the request could not be served"))
}

/// What every request passes before any page sees it.
async fn guard(
    State(app): State<Arc<App>>,
    request: axum::extract::Request,
    next: Next,
) -> axum::response::Response {
    let method = request.method();
    if ![Method::GET, Method::HEAD, Method::POST].contains(method) {
        return app.count(Response::text(405, "only GET, HEAD and POST are supported"));
    }
    let (parts, body) = request.into_parts();
    let Some(head) = Request::of(&parts) else {
        return app.count(Response::text(400, "malformed request"));
    };
    if let Some(refused) = app.access.refuse(&head) {
        return app.count(refused);
    }
    // A comparison changes nothing: the right to look is enough.
    if parts.method == Method::POST && parts.uri.path() != COMPARE_MANY {
        let refused = match parts.extensions.get::<Arc<Connection>>() {
            Some(connection) => app.access.refuse_change(&head, connection.ends),
            None => Some(Response::error(403, "the connection is not known")),
        };
        if let Some(refused) = refused {
            return app.count(refused);
        }
    }
    let response = next.run(axum::extract::Request::from_parts(parts, body)).await;
    app.counters.add(response.status().as_u16());
    response
}
