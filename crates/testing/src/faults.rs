//! A proxy that injects the faults of networks and services: errors, stalls, cut connections, late answers.
//!
//! One request a connection, forwarded byte for byte unless a rule says otherwise.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::google;

/// What becomes of a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is not forwarded; the answer is this status with this body.
    Status(u16, &'static str),
    /// It is carried out, but the answer is a 500: the client cannot know.
    LostAnswer,
    /// It is carried out, and the connection ends without an answer.
    NoAnswer,
    /// It is carried out, and the answer is cut off in the middle of its body.
    Truncate,
    /// Nothing comes for this long, then the connection ends.
    Stall(Duration),
}

/// A fault for some of the requests.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The method; all where empty.
    pub method: &'static str,
    /// What the path and query contain.
    pub contains: &'static str,
    /// How many requests are let through first.
    pub after: usize,
    /// How many are then met.
    pub times: usize,
    pub fault: Fault,
}

#[derive(Debug, Default)]
struct ProxyState {
    rules: Vec<Rule>,
    seen: Vec<String>,
}

/// A proxy in front of a service.
#[derive(Debug)]
pub struct FaultyProxy {
    pub address: SocketAddr,
    state: Arc<Mutex<ProxyState>>,
}

impl FaultyProxy {
    /// Starts one in front of `upstream`; it lives as long as the process.
    ///
    /// # Panics
    /// Without a free port.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        Self::serve(upstream, false)
    }

    /// The same in front of an S3 service, which then looks like Google Cloud Storage.
    ///
    /// # Panics
    /// Without a free port.
    #[must_use]
    pub fn as_google(upstream: SocketAddr) -> Self {
        Self::serve(upstream, true)
    }

    fn serve(upstream: SocketAddr, google: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of loopback");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::new(Mutex::new(ProxyState::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A client that hangs up is what this is made for.
                thread::spawn(move || drop(serve(stream, upstream, google, &state)));
            }
        });
        Self { address, state }
    }

    /// From now on these rules hold, and the log is empty.
    pub fn rules(&self, rules: &[Rule]) {
        *lock(&self.state) = ProxyState { rules: rules.to_vec(), seen: Vec::new() };
    }

    /// The requests since, as `METHOD path`.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        lock(&self.state).seen.clone()
    }
}

/// Conditional requests go one at a time, so that nothing changes between check and write: services guarantee
/// that themselves, threaded emulators do not.
static TURN: Mutex<()> = Mutex::new(());

fn lock(state: &Mutex<ProxyState>) -> MutexGuard<'_, ProxyState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    mut client: TcpStream,
    upstream: SocketAddr,
    google: bool,
    state: &Mutex<ProxyState>,
) -> io::Result<()> {
    let (head, body) = read_request(&mut client)?;
    let line = head.lines().next().unwrap_or_default().to_owned();
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let fault = {
        let mut state = lock(state);
        let path = decoded(path);
        state.seen.push(format!("{method} {path}"));
        let rule = state.rules.iter_mut().find(|rule| {
            (rule.method.is_empty() || rule.method == method)
                && path.contains(rule.contains)
                && rule.times > 0
        });
        match rule {
            Some(rule) if rule.after > 0 => {
                rule.after -= 1;
                None
            }
            Some(rule) => {
                rule.times -= 1;
                Some(rule.fault.clone())
            }
            None => None,
        }
    };
    match fault {
        Some(Fault::Status(status, text)) => return answer(&mut client, status, text),
        Some(Fault::Stall(time)) => {
            thread::sleep(time);
            return client.shutdown(Shutdown::Both);
        }
        _ => {}
    }
    let mut answered = Vec::new();
    let lower = head.to_ascii_lowercase();
    let conditional = !matches!(method, "GET" | "HEAD")
        && ["\nif-match:", "\nif-none-match:", "\nx-goog-if-generation-match:"]
            .iter()
            .any(|name| lower.contains(name));
    let _turn = conditional.then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    if google {
        let translated = google::request(&without_keep_alive(&head));
        let stands = match translated.condition {
            Some(wanted) => google::generation(upstream, path)? == wanted,
            None => true,
        };
        if !stands {
            return answer(&mut client, 412, "<Error><Code>PreconditionFailed</Code></Error>");
        }
        exchange(upstream, &translated.head, &body, &mut answered)?;
        google::answer(&mut answered);
    } else {
        exchange(upstream, &without_keep_alive(&head), &body, &mut answered)?;
    }
    match fault {
        Some(Fault::LostAnswer) => {
            answer(&mut client, 500, "<Error><Code>InternalError</Code></Error>")
        }
        Some(Fault::NoAnswer) => client.shutdown(Shutdown::Both),
        Some(Fault::Truncate) => {
            let head = answered.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0) + 4;
            let head = head.min(answered.len());
            let half = head + (answered.len() - head) / 2;
            client.write_all(&answered[..half])?;
            client.shutdown(Shutdown::Both)
        }
        _ => {
            client.write_all(&answered)?;
            client.shutdown(Shutdown::Write)
        }
    }
}

/// A path with its letters instead of their numbers: clients differ in what they write so.
fn decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a request and takes the whole answer.
fn exchange(
    upstream: SocketAddr,
    head: &str,
    body: &[u8],
    answered: &mut Vec<u8>,
) -> io::Result<()> {
    let mut service = TcpStream::connect(upstream)?;
    service.write_all(head.as_bytes())?;
    // A service may answer before it has read everything, and one whose connection is reset after the answer has
    // answered.
    let _ = service.write_all(body);
    let _ = service.read_to_end(answered);
    Ok(())
}

fn read_request(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 64 << 10];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        let count = client.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&chunk[..count]);
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let length = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0);
    while body.len() < length {
        let count = client.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        body.extend_from_slice(&chunk[..count]);
    }
    Ok((head, body))
}

/// The end of the answer is the end of the connection, so that lengths need not be understood here.
fn without_keep_alive(head: &str) -> String {
    let lines = head.trim_end().lines();
    let kept = lines.filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let mut head: Vec<&str> = kept.collect();
    head.push("Connection: close\r\n\r\n");
    head.join("\r\n")
}

fn answer(client: &mut TcpStream, status: u16, text: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} Injected\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(text.as_bytes())?;
    client.shutdown(Shutdown::Write)
}
