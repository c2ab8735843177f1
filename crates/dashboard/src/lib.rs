//! A live page of all runs under a folder.
//!
//! It only reads run folders, so it can be started, stopped or crash without affecting a run. The server is small: GET only,
//! one request per connection, every size and time bounded. On loopback it is open to all users of the machine (requests
//! with a foreign host name are refused, which prevents DNS rebinding); on any other address it requires a token. Runs are
//! named by their path below the folder; nothing outside of it is ever opened.
//!
//! Charts and tables come from `paceline_report`, so the page shows exactly what a report shows; the page's script only
//! fetches them again while something changes.

mod app;
mod error;
mod http;
mod logs;
mod runs;
mod server;

pub use app::{App, Request, Response};
pub use error::DashboardError;
pub use http::HeaderValue;
pub use server::{Options, Server};
