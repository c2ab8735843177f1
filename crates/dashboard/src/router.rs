//! Which address leads to which page, and what every request passes first.

use crate::app::App;
use crate::message::{Request, Response};
use crate::server::Connection;
use axum::Router;
use axum::extract::State;
use axum::http::Method;
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{MethodRouter, get};
use std::sync::Arc;

/// A page that reads files.
type Page = fn(&App, &Request) -> Response;

/// Every address, its method and its page.
const PAGES: &[(&str, Page)] = &[
    ("/", App::index),
    ("/app.js", App::script),
    ("/favicon.ico", App::icon),
    ("/api/runs", App::list),
    ("/api/run", App::run),
    ("/api/compare", App::compare),
    ("/api/log", App::log),
    ("/report", App::report),
    ("/metrics", App::metrics),
];

pub(crate) fn routes(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for (path, page) in PAGES {
        router = router.route(path, reading(*page));
    }
    router
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

/// Work on files is done by a thread that may wait.
async fn aside(work: impl FnOnce() -> Response + Send + 'static) -> Response {
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
    if parts.method == Method::POST {
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
