//! A live page of all runs under a folder.
//!
//! It can be started, stopped or crash without affecting a run. The server answers one request per connection, every size and
//! time bounded. On loopback it shows runs to all users of the machine (requests with a foreign host name are refused, which
//! prevents DNS rebinding); on any other address it requires a token. Runs are named by their path below the folder; nothing
//! outside of it is ever opened, and links inside it are not followed.
//!
//! Charts and tables come from `paceline_report`, so the page shows exactly what a report shows; the page's script only
//! fetches them again while something changes.
//!
//! ```
//! use paceline_dashboard::{DashboardOptions, Server};
//! use std::io::{Read, Write};
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! let folder = tempfile::tempdir()?;
//! let server = Server::bind(&DashboardOptions::loopback(folder.path().to_path_buf()))?;
//! let stop = AtomicBool::new(false);
//! let page = std::thread::scope(|scope| {
//!     let serving = scope.spawn(|| server.run(&stop));
//!     let mut page = String::new();
//!     let asked = std::net::TcpStream::connect(server.address()).and_then(|mut stream| {
//!         let host = server.address();
//!         write!(stream, "GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n")?;
//!         stream.read_to_string(&mut page)
//!     });
//!     stop.store(true, Ordering::Release);
//!     serving.join().expect("no panic").and(Ok((asked, page)))
//! });
//! let (asked, page) = page?;
//! assert!(asked.is_ok() && page.starts_with("HTTP/1.1 200"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod actions;
mod app;
mod counters;
mod error;
mod feed;
mod follow;
mod front;
mod header;
mod index;
mod logs;
mod machines;
mod message;
mod notes;
mod plain_file;
mod router;
mod rows;
mod runs;
mod server;
mod tasks;

pub use error::DashboardError;
pub use header::HeaderValue;
pub use server::{DashboardOptions, Server};
