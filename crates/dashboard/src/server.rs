//! Listens, and hands each connection to one of a bounded number of threads.

use crate::app::{App, Response};
use crate::error::DashboardError;
use crate::http::{self, RequestError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Connections served at once; further ones get a 503.
const MOST_CONNECTIONS: usize = 64;
/// How often the server checks whether it should stop, in nanoseconds.
const LOOK_EVERY: i64 = 100_000_000;

/// How the dashboard is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder of run folders, at any depth.
    pub root: PathBuf,
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Required of all clients, if set. Without it, addresses other than loopback get a random token.
    pub token: Option<String>,
}

impl Options {
    /// Loopback, a free port.
    #[must_use]
    pub fn loopback(root: PathBuf) -> Options {
        Options { root, listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), token: None }
    }
}

/// A dashboard that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
}

impl Server {
    /// Binds the address and opens the folder.
    ///
    /// # Errors
    /// The address is in use, or the folder cannot be opened.
    pub fn bind(options: &Options) -> Result<Server, DashboardError> {
        let listen = |source| DashboardError::Listen { address: options.listen, source };
        let token = match &options.token {
            Some(token) => Some(token.clone()),
            None if options.listen.ip().is_loopback() => None,
            None => Some(draw_token().map_err(DashboardError::Draw)?),
        };
        let listener = TcpListener::bind(options.listen).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let app = App::open(&options.root, token, address.ip().is_loopback())?;
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
        match self.app.token() {
            Some(token) => format!("http://{}/?token={}", self.address, percent_encoded(token)),
            None => format!("http://{}/", self.address),
        }
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// The listening socket fails.
    pub fn run(&self, stop: &AtomicBool) -> Result<(), DashboardError> {
        let open = Arc::new(AtomicUsize::new(0));
        while !stop.load(Ordering::Relaxed) {
            let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
            let time = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY };
            match poll(&mut waiting, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(DashboardError::Wait(error.into())),
            }
            // A connection that is gone before it is accepted does not matter.
            while let Ok((stream, _)) = self.listener.accept() {
                serve(stream, Arc::clone(&self.app), &open);
            }
        }
        Ok(())
    }
}

fn serve(mut stream: TcpStream, app: Arc<App>, open: &Arc<AtomicUsize>) {
    if stream.set_nonblocking(false).is_err() {
        return;
    }
    if open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
        open.fetch_sub(1, Ordering::Relaxed);
        let _ = http::write(&mut stream, &Response::text(503, "too many connections"), false);
        return;
    }
    let counted = ConnectionGuard(Arc::clone(open));
    let work = move || {
        let _counted = counted;
        answer(&mut stream, &app);
    };
    // Without a thread the connection closes, and the browser asks again.
    let _ = std::thread::Builder::new().name("dashboard".to_owned()).spawn(work);
}

fn answer(stream: &mut TcpStream, app: &App) {
    let (response, head_only) = match http::read(stream) {
        Ok(request) => (app.answer(&request), request.head_only),
        Err(RequestError::Gone) => return,
        Err(RequestError::Syntax) => (Response::text(400, "malformed request"), false),
        Err(RequestError::TooLong) => (Response::text(431, "the request is too long"), false),
        Err(RequestError::Method) => {
            (Response::text(405, "only GET and HEAD are supported"), false)
        }
    };
    // A client that has left does not need the response.
    if http::write(stream, &response, head_only).is_ok() && response.status >= 400 {
        // Unread input would reset the connection and lose our response.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.take(64 << 10).read_to_end(&mut Vec::new());
    }
}

/// Decrements the connection count, even if the thread panics.
struct ConnectionGuard(Arc<AtomicUsize>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
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

/// 128 random bits.
fn draw_token() -> std::io::Result<String> {
    let mut bits = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}
