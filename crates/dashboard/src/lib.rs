//! A live page of all runs under a folder.
//!
//! It reads run folders and nothing else, so it can be started, stopped or crash without a run noticing. The server is a small one
//! of our own: answers to GET only, one request per connection, every size and time bounded. On loopback it is open to
//! all users of the machine (requests under a foreign host name are refused, so that no web page elsewhere can read along);
//! anywhere else it asks for a token. Runs are named by their path below the folder; nothing outside of it is ever opened.
//!
//! Charts and tables come from `paceline_report`, so the page shows exactly what a report shows; the script in the page only fetches
//! them again while something changes.

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
