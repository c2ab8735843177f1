//! Object stores on this machine, for tests: what `cargo xtask test` installs, started on a free port.
//!
//! S3 is moto's server, Azure is Azurite, a web server that lists and writes is WsgiDAV. A missing
//! one is reported, like everything in this crate.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{interpreter, missing, workspace};

/// How long an emulator may take to answer for the first time; Python imports take their time on a
/// machine that is busy compiling.
const PATIENCE: Duration = crate::HANG;
/// Azurite's account and key are published with it.
pub const AZURE_ACCOUNT: &str = "devstoreaccount1";
/// The key of that account.
pub const AZURE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A running emulator; ends with this value.
#[derive(Debug)]
pub struct Emulator {
    child: Child,
    pub address: SocketAddr,
    folder: PathBuf,
}

impl Emulator {
    /// An S3 service with a bucket `bucket`, whatever credentials come.
    #[must_use]
    pub fn s3(bucket: &str) -> Option<Self> {
        let python = python("moto.server")?;
        let emulator = Self::start("moto", |port, _| {
            let mut command = Command::new(&python);
            command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
            command
        })?;
        let answer = emulator.request(&format!("PUT /{bucket} HTTP/1.1"), &[]);
        assert!(answer.contains(" 200 "), "no bucket: {answer}");
        Some(emulator)
    }

    /// An Azure blob service with a container `container`.
    #[must_use]
    pub fn azure(container: &str) -> Option<Self> {
        let program = std::env::var_os("PACELINE_TEST_AZURITE")
            .map_or_else(|| workspace().join("target/test-env-azurite"), PathBuf::from);
        let program = program.join("node_modules/azurite/dist/src/blob/main.js");
        if !program.exists() {
            return missing(&format!("no `{}`; run `cargo xtask test`", program.display()));
        }
        let emulator = Self::start("azurite", |port, folder| {
            let mut command = Command::new("node");
            command.arg(&program).arg("--location").arg(folder);
            command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
            command.args(["--silent", "--skipApiVersionCheck", "--disableTelemetry"]);
            command
        })?;
        let made = Command::new(python("hmac")?)
            .args(["-c", MAKE_CONTAINER, &emulator.address.to_string(), container])
            .output()
            .expect("python runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(emulator)
    }

    /// A web server that can be listed and written to.
    #[must_use]
    pub fn webdav() -> Option<Self> {
        let python = python("wsgidav")?;
        Self::start("wsgidav", |port, folder| {
            let mut command = Command::new(&python);
            command.args(["-m", "wsgidav.server.server_cli", "--host", "127.0.0.1", "--port"]);
            command.arg(port.to_string()).arg("--root").arg(folder);
            command.args(["--auth", "anonymous", "--server", "cheroot", "--quiet", "--no-config"]);
            command
        })
    }

    fn start(name: &str, command: impl Fn(u16, &Path) -> Command) -> Option<Self> {
        // Another test may take the port between our look and the emulator's.
        for _ in 0..3 {
            let port = free_port();
            let folder =
                std::env::temp_dir().join(format!("paceline-{name}-{}-{port}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder for an emulator");
            let child = command(port, &folder)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let child = match child {
                Ok(child) => child,
                Err(error) => return missing(&format!("cannot start {name}: {error}")),
            };
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let mut emulator = Self { child, address, folder };
            let started = Instant::now();
            while started.elapsed() < PATIENCE {
                if TcpStream::connect(address).is_ok() {
                    return Some(emulator);
                }
                if emulator.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                    break;
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        missing(&format!("{name} does not start"))
    }

    /// Sends one request without ceremony; the answer as text.
    #[must_use]
    pub fn request(&self, line: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).expect("the emulator listens");
        let head = format!(
            "{line}\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).expect("sent");
        let mut answer = Vec::new();
        // A connection that is cut after the answer does not matter here.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The variables by which programs find an S3 service here.
    #[must_use]
    pub fn s3_variables(address: SocketAddr) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", format!("http://{address}")),
            ("AWS_ACCESS_KEY_ID", "testing".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "testing".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// The variables by which programs find Google Cloud Storage here.
    #[must_use]
    pub fn google_variables(address: SocketAddr) -> Vec<(&'static str, String)> {
        vec![("STORAGE_EMULATOR_HOST", address.to_string())]
    }

    /// The variables by which programs find an Azure blob service here.
    #[must_use]
    pub fn azure_variables(address: SocketAddr) -> Vec<(&'static str, String)> {
        let connection = format!(
            "AccountName={AZURE_ACCOUNT};AccountKey={AZURE_KEY};BlobEndpoint=http://{address}/{AZURE_ACCOUNT}"
        );
        vec![("AZURE_STORAGE_CONNECTION_STRING", connection)]
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The interpreter with the emulators, if it is there and can import `module`.
fn python(module: &str) -> Option<PathBuf> {
    interpreter("PACELINE_TEST_STORES_PYTHON", "test-env-stores", module)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of loopback");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Makes a container: the one request of Azure's that our own client has no call for.
const MAKE_CONTAINER: &str = r#"
import base64, hashlib, hmac, sys, urllib.request
from email.utils import formatdate
address, container = sys.argv[1:]
account = "devstoreaccount1"
key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
date = formatdate(usegmt=True)
text = ("PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:2021-12-02\n"
        + f"/{account}/{account}/{container}\nrestype:container")
sign = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
request = urllib.request.Request(f"http://{address}/{account}/{container}?restype=container", method="PUT",
    headers={"x-ms-date": date, "x-ms-version": "2021-12-02", "Authorization": f"SharedKey {account}:{sign}"})
urllib.request.urlopen(request).read()
"#;
