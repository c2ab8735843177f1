//! A live page of all runs under a folder.
//!
//! It can be started, stopped or crash without affecting a run. The server answers one request per connection, every size and
//! time bounded. On loopback it shows runs to all users of the machine (requests with a foreign host name are refused, which
//! prevents DNS rebinding); on any other address it requires a token. Runs are named by their path below the folder; nothing
//! outside of it is ever opened, and links inside it are not followed.
//!
//! Charts and tables come from `paceline_report`, so the page shows exactly what a report shows; the page's script only
//! fetches them again while something changes.

mod access;
mod actions;
mod app;
mod counters;
mod error;
mod feed;
mod follow;
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
pub use server::{Options, Server};
