//! Listens, and bounds every connection: how many there are, how long each may last, how much each may say.
//!
//! All of them share one thread; work on files is done by a few others. hyper speaks HTTP and axum routes; the accept loop is
//! here because axum's has no deadlines.

use crate::access::{Access, Ends, draw_token};
use crate::app::App;
use crate::error::DashboardError;
use crate::feed;
use crate::message::Response;
use crate::router;
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tower_service::Service;

/// Connections served at once; further ones get a 503. Less where the system allows fewer open files.
const MOST_CONNECTIONS: usize = 4096;
/// Connections without a complete request; one more ends the oldest of them.
const MOST_SILENT: usize = 256;
/// Most bytes of a request's head: a comparison names its runs there.
const MOST_HEAD: usize = 64 << 10;
/// Time for a request's head to arrive; browsers open connections that they never use.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Time for a whole connection, from its first byte to its last.
const WHOLE_TIME: Duration = Duration::from_secs(30);
/// The same for a stream of events; a browser asks again by itself.
const STREAM_TIME: Duration = Duration::from_secs(15 * 60);
/// How often the server checks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Threads that read files.
const READERS: usize = 4;
/// Open files wanted, for a thousand viewers and what is read for them.
const WANTED_FILES: u64 = 8192;
/// Open files that are not connections.
const OTHER_FILES: u64 = 128;

/// How the dashboard is served.
#[derive(Debug, Clone)]
pub struct DashboardOptions {
    /// Folder of run folders, at any depth.
    pub root: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Required of all clients, if set. Without it, addresses other than loopback get a random token.
    pub token: Option<String>,
    /// The folder is a copy of one elsewhere, so that changes to it would be lost.
    pub is_copy: bool,
}

impl DashboardOptions {
    /// Loopback, a free port.
    #[must_use]
    pub fn loopback(root: PathBuf) -> DashboardOptions {
        let listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        DashboardOptions { root, listen, token: None, is_copy: false }
    }
}

/// A dashboard that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

/// What is known of a connection, to its limits and to the pages it asks for.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) ends: Ends,
    /// Its head has arrived.
    asked: AtomicBool,
    /// It is a stream of events, which may last.
    pub(crate) streams: AtomicBool,
    /// Counts connections.
    open: Arc<AtomicUsize>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// Binds the address and opens the folder.
    ///
    /// # Errors
    /// The address is in use, or the folder cannot be opened.
    pub fn bind(options: &DashboardOptions) -> Result<Server, DashboardError> {
        let listen = |source| DashboardError::Listen { address: options.listen, source };
        let token = match &options.token {
            Some(token) => Some(token.clone()),
            None if options.listen.ip().is_loopback() => None,
            None => Some(draw_token().map_err(DashboardError::Draw)?),
        };
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let access = Access::new(token, address.ip().is_loopback(), options.is_copy)?;
        let app = App::open(&options.root, access)?;
        Ok(Server { listener, address, app: Arc::new(app) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to open in a browser; contains the token, if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        match self.app.access.token() {
            Some(token) => format!("http://{}/?token={}", self.address, percent_encoded(token)),
            None => format!("http://{}/", self.address),
        }
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// The listening socket fails.
    pub fn run(&self, stop: &AtomicBool) -> Result<(), DashboardError> {
        let most = allowed_connections();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(READERS)
            .build()
            .map_err(DashboardError::Wait)?;
        let served = runtime.block_on(self.accept(stop, most));
        // A file that is being read is not waited for.
        runtime.shutdown_background();
        served
    }

    async fn accept(&self, stop: &AtomicBool, most: usize) -> Result<(), DashboardError> {
        let listener = self.listener.try_clone().and_then(tokio::net::TcpListener::from_std);
        let listener = listener.map_err(DashboardError::Wait)?;
        let router = router::routes(Arc::clone(&self.app));
        tokio::spawn(feed::follow(Arc::clone(&self.app)));
        let open = Arc::new(AtomicUsize::new(0));
        let mut silent = Silent::default();
        while !stop.load(Ordering::Relaxed) {
            let (stream, client) = match timeout(LOOK_EVERY, listener.accept()).await {
                Ok(Ok(accepted)) => accepted,
                // A connection that is gone before it is accepted does not matter; without a free file, one ends soon.
                Ok(Err(_)) => {
                    tokio::time::sleep(LOOK_EVERY).await;
                    continue;
                }
                Err(_) => continue,
            };
            let Ok(server) = stream.local_addr() else { continue };
            let count = open.fetch_add(1, Ordering::Relaxed);
            let connection = Arc::new(Connection {
                ends: Ends { client, server },
                asked: AtomicBool::new(false),
                streams: AtomicBool::new(false),
                open: Arc::clone(&open),
            });
            if count >= most {
                refuse(&stream, 503, "too many connections");
                continue;
            }
            let served = serve(stream, router.clone(), Arc::clone(&connection));
            silent.add(connection, tokio::spawn(served).abort_handle());
        }
        Ok(())
    }
}

/// Connections that have not asked for anything yet, oldest first.
#[derive(Debug, Default)]
struct Silent {
    waiting: VecDeque<(std::sync::Weak<Connection>, AbortHandle)>,
}

impl Silent {
    /// Adds one; where there are too many, the oldest ends, so that silent clients do not keep others out.
    fn add(&mut self, connection: Arc<Connection>, task: AbortHandle) {
        self.waiting.push_back((Arc::downgrade(&connection), task));
        drop(connection);
        if self.waiting.len() <= MOST_SILENT {
            return;
        }
        self.waiting.retain(|(connection, _)| {
            connection.upgrade().is_some_and(|it| !it.asked.load(Ordering::Relaxed))
        });
        while self.waiting.len() > MOST_SILENT {
            if let Some((_, task)) = self.waiting.pop_front() {
                task.abort();
            }
        }
    }
}

/// Serves one request within the time that a connection has.
async fn serve(stream: TcpStream, router: axum::Router, connection: Arc<Connection>) {
    // hyper waits for more after an empty line, and a TLS handshake is not worth a parser.
    let mut first = [0u8];
    match timeout(HEAD_TIME, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first[0].is_ascii_alphabetic() => {}
        Ok(Ok(1)) => return refuse(&stream, 400, "malformed request"),
        _ => return,
    }
    let state = Arc::clone(&connection);
    let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        state.asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(Arc::clone(&state));
        router.clone().call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MOST_HEAD)
        .keep_alive(false)
        .title_case_headers(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    // A client that has left does not need the response.
    let in_time = timeout(WHOLE_TIME, served.as_mut()).await.is_ok();
    if !in_time && connection.streams.load(Ordering::Relaxed) {
        let _ = timeout(STREAM_TIME, served).await;
    }
}

/// Answers without reading, as far as the socket takes it at once.
fn refuse(stream: &TcpStream, status: u16, words: &str) {
    let response = Response::text(status, words);
    let body = response.body.clone();
    let response = response.into_response();
    let mut text = format!("HTTP/1.1 {}\r\nConnection: close\r\n", response.status());
    for (name, value) in response.headers() {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(&body);
    let _ = stream.try_write(&bytes);
    // Unread input would reset the connection and lose our response.
    let mut rest = [0u8; 4096];
    while stream.try_read(&mut rest).is_ok_and(|count| count > 0) {}
}

/// How many connections this process may have: the system's limit on open files is raised as far as it goes.
fn allowed_connections() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED_FILES, |most| most.min(WANTED_FILES));
    if limit.current.is_some_and(|now| now < wanted) {
        // Where it stays lower, fewer are served.
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let files = getrlimit(Resource::Nofile).current.unwrap_or(WANTED_FILES);
    let sockets = files.saturating_sub(OTHER_FILES).max(files / 2);
    usize::try_from(sockets).unwrap_or(MOST_CONNECTIONS).min(MOST_CONNECTIONS)
}

/// Percent-encodes everything but letters, digits and four marks.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
