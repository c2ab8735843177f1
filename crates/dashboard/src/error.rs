//! What keeps the dashboard from starting; what goes wrong later is an answer to somebody.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the dashboard cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DashboardError {
    /// The address is taken, or not ours.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The folder of runs cannot be opened.
    #[error("cannot open the folder of runs `{}`", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No token could be drawn.
    #[error("cannot draw a token")]
    Draw(#[source] io::Error),
    /// A token with a character that a cookie cannot hold.
    #[error("the token holds {wrong:?}, which a cookie cannot")]
    Token {
        /// The character.
        wrong: char,
    },
    /// The server stopped.
    #[error("cannot wait for connections")]
    Wait(#[source] io::Error),
}
