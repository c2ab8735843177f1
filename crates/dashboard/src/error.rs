//! Errors that keep the dashboard from starting; later errors are HTTP responses.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the dashboard cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// The address is in use, or not one of this machine.
    #[error("cannot listen at {address}")]
    Listen { address: SocketAddr, source: io::Error },
    /// The folder of runs cannot be opened.
    #[error("cannot open the folder of runs `{}`", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// No random token could be made.
    #[error("cannot make a random token")]
    Draw(#[source] io::Error),
    /// A token with a character that a cookie cannot hold.
    #[error("the token contains {wrong:?}, which is not allowed in a cookie")]
    Token { wrong: char },
    /// The server stopped.
    #[error("cannot accept connections")]
    Wait(#[source] io::Error),
}
