//! `paceline serve`: a live web page of all runs under a folder; also what `train --serve` starts beside a run.

use crate::terminal::failure::{Exit, FailureExt, usage};
use crate::terminal::{Terminal, typed_path};
use anyhow::Context;
use paceline_dashboard::{DashboardError, DashboardOptions, Server};
use paceline_data::store;
use paceline_data::store::{Staging, staging::without_weights};
use serde_json::json;
use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the page is, unless told otherwise.
pub(super) const ADDRESS: &str = "127.0.0.1:6060";

/// Arguments of `paceline serve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  paceline serve\n  paceline serve sweeps --listen 127.0.0.1:0\n  paceline serve --listen 0.0.0.0:6060\n\n\
                  On loopback every user of this machine may look, and only you may stop, note or delete runs. Anywhere else a token is needed for all of it, \
                  which is part of the address printed.\n\
                  The traffic is not encrypted: across an untrusted network, use `ssh -L 6060:localhost:6060 HOST` instead."
)]
pub struct Args {
    /// Folder of run folders, at any depth, here or in an object store; must exist
    #[arg(default_value = "runs")]
    folder: PathBuf,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = ADDRESS)]
    listen: String,
    /// Ask for this token instead of one drawn by the program
    #[arg(long, env = "PACELINE_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// End when standard input ends: for programs that start this one
    #[arg(long, hide = true)]
    until_eof: bool,
}

/// Serves until it is interrupted.
pub fn exec(args: &Args, terminal: &mut Terminal) -> anyhow::Result<Exit> {
    let listen = resolve(&args.listen)?;
    if args.token.as_ref().is_some_and(|token| token.len() < 16) {
        return Err(usage("the token is too short to keep anyone out", "use 16 letters or more"));
    }
    let stop = terminal.interrupt()?;
    let mut staging = Staging::default();
    let root = staging.followed(&args.folder, without_weights)?;
    let is_copy = store::is_remote(&args.folder);
    let options = DashboardOptions { root, listen, token: args.token.clone(), is_copy };
    let server = Server::bind(&options).or_else(|error| explain(error, args))?;
    if args.until_eof {
        end_with_stdin(&stop);
    }
    terminal.data(format!("runs of `{}` at {}", args.folder.display(), server.url()))?;
    terminal.json(&json!({ "url": server.url(), "address": server.address() }))?;
    if !listen.ip().is_loopback() {
        terminal.warn("the page is open to other machines: the token in the address lets people in, and nothing is encrypted");
    }
    server.run(&stop)?;
    Ok(Exit::Done)
}

/// Adds what the user can do. A folder that is not there is a slip of the keyboard more often than a plan, so it is not made.
fn explain(error: DashboardError, args: &Args) -> anyhow::Result<Server> {
    match error {
        DashboardError::Folder { .. } => Err(error)
            .hint(format!(
                "`paceline train --out DIR` makes a folder of runs; to open the page first, `mkdir {}`",
                typed_path(&args.folder)
            ))
            .exit(Exit::Usage),
        DashboardError::Token { .. } => {
            Err(error).hint("use letters and digits").exit(Exit::Usage)
        }
        DashboardError::Listen { .. } => {
            // Beside a run it is `train` that has the flag.
            let flag = if args.until_eof { "--serve" } else { "--listen" };
            Err(error).hint(format!("another port: `{flag} 127.0.0.1:0` takes a free one"))
        }
        other => Err(other.into()),
    }
}

fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next()).ok_or_else(|| {
        usage(format!("`{text}` is not an address"), "write ADDRESS:PORT, such as 127.0.0.1:6060")
    })
}

fn end_with_stdin(stop: &Arc<AtomicBool>) {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Ordering::Relaxed);
    });
}

/// A dashboard in a process of its own, so that nothing that happens to it can reach a run. Ends with this value.
pub(super) struct Beside {
    child: Child,
}

impl Beside {
    /// Starts `paceline serve` on the folder of runs.
    pub(super) fn start(folder: &Path, listen: &str) -> anyhow::Result<Beside> {
        // The run makes its folder a little later than the page wants to look at it.
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create `{}`", folder.display()))?;
        let program = std::env::current_exe().context("cannot find the program itself")?;
        let child = Command::new(program)
            .arg("serve")
            .arg(folder)
            .args(["--listen", listen, "--until-eof"])
            .stdin(Stdio::piped())
            // Its address is talk here: standard output belongs to the run.
            .stdout(std::io::stderr())
            .spawn()
            .context("cannot start the dashboard")?;
        Ok(Beside { child })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
