//! The HTTP client under `object_store`: the blocking one that the rest of the program uses.
//!
//! A request blocks the thread that drives the future, which is the thread that asked; nothing else runs
//! there. Bodies are streamed, so that a large answer takes no more memory than its reader gives it.

use std::{
    io::{self, Read},
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService,
    },
};
use ureq::{Agent, BodyReader};

use super::RemoteSettings;

/// Bytes taken from a connection at a time.
const CHUNK: usize = 256 << 10;
/// Bytes of an error's body that are read.
const LONGEST_COMPLAINT: u64 = 64 << 10;
/// Connections kept open to one host; each piece of each object in flight uses one.
const CONNECTIONS: usize = 64;
/// The metadata addresses that give cloud machines and containers their credentials; elsewhere none answers.
const METADATA: [&str; 4] =
    ["169.254.169.254", "169.254.170.2", "[fd00:ec2::254]", "metadata.google.internal"];
/// Variables that put other addresses in their place.
const METADATA_VARIABLES: [&str; 3] =
    ["AWS_METADATA_ENDPOINT", "GCE_METADATA_HOST", "GCE_METADATA_ROOT"];
/// Patience with those addresses.
const METADATA_CONNECT: Duration = Duration::from_secs(1);

/// Makes clients.
#[derive(Debug)]
pub(crate) struct Connector {
    settings: RemoteSettings,
    redirects: u32,
}

impl Connector {
    pub(crate) fn new(settings: &RemoteSettings) -> Self {
        Self { settings: settings.clone(), redirects: 0 }
    }

    /// Web servers move files about; object stores do not, and signatures would not survive it.
    pub(crate) fn following_redirects(self) -> Self {
        Self { redirects: 8, ..self }
    }

    fn agent(&self, connect: Duration) -> Agent {
        let stall = Some(self.settings.stall);
        Agent::config_builder()
            .timeout_resolve(Some(connect))
            .timeout_connect(Some(connect))
            .timeout_recv_response(stall)
            .timeout_per_read(stall)
            .timeout_per_write(stall)
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .max_redirects(self.redirects)
            .max_redirects_will_error(false)
            .max_idle_connections(CONNECTIONS)
            .max_idle_connections_per_host(CONNECTIONS)
            // Compression on the way would make lengths and ranges meaningless.
            .accept_encoding("identity")
            .user_agent(concat!("paceline/", env!("CARGO_PKG_VERSION")))
            .build()
            .into()
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let agent = self.agent(self.settings.connect);
        let metadata = self.agent(METADATA_CONNECT.min(self.settings.connect));
        let named = METADATA_VARIABLES.iter().filter_map(|name| self.settings.variable(name));
        let hosts = METADATA.map(str::to_owned).into_iter().chain(named.filter_map(host));
        Ok(HttpClient::new(Client { agent, metadata, metadata_hosts: hosts.collect() }))
    }
}

#[derive(Debug)]
struct Client {
    agent: Agent,
    metadata: Agent,
    metadata_hosts: Vec<String>,
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let mut chunks = Vec::new();
        let mut body = std::pin::pin!(body);
        while let Some(frame) = body.frame().await {
            chunks.extend(frame?.into_data().ok());
        }
        let payload: Bytes = match chunks.len() {
            1 => chunks.remove(0),
            _ => chunks.concat().into(),
        };
        let host = parts.uri.host().unwrap_or_default();
        let metadata = self.metadata_hosts.iter().any(|known| known == host);
        let agent = if metadata { &self.metadata } else { &self.agent };
        let head = parts.method == http::Method::HEAD;
        let bodiless =
            payload.is_empty() && matches!(parts.method.as_str(), "GET" | "HEAD" | "DELETE");
        let answer = if bodiless {
            agent.run(http::Request::from_parts(parts, ()))
        } else {
            agent.run(http::Request::from_parts(parts, &payload[..]))
        };
        let answer = answer.map_err(|error| {
            match kind(&error) {
                // A repeated request would not be answered either.
                HttpErrorKind::Connect | HttpErrorKind::Timeout if metadata => {
                    HttpError::new(HttpErrorKind::Unknown, NoCredentials)
                }
                kind => HttpError::new(kind, error),
            }
        })?;
        let (parts, body) = answer.into_parts();
        let length = body.content_length().filter(|_| parts.status.is_success() && !head);
        // What a server says about a failure is quoted in a line; a page of it is enough.
        let most = if parts.status.is_success() { u64::MAX } else { LONGEST_COMPLAINT };
        let reader = Mutex::new(body.into_reader().take(most));
        let body = HttpResponseBody::new(Incoming { reader, left: length, ended: false });
        Ok(Response::from_parts(parts, body))
    }
}

/// There are no credentials.
#[derive(Debug, thiserror::Error)]
#[error("no credentials were found, and this machine has no service that gives it any")]
pub(crate) struct NoCredentials;

/// The host of an address, with or without a scheme before it.
fn host(address: String) -> Option<String> {
    let uri = if address.contains("://") { address } else { format!("http://{address}") };
    Some(uri.parse::<Uri>().ok()?.host()?.to_owned())
}

/// Whether and when a request may be repeated.
fn kind(error: &ureq::Error) -> HttpErrorKind {
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed => HttpErrorKind::Connect,
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::Io(source) => match source.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => HttpErrorKind::Timeout,
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::AddrNotAvailable => HttpErrorKind::Connect,
            _ => HttpErrorKind::Interrupted,
        },
        // A malformed answer: cut off in its head, or garbled.
        ureq::Error::Protocol(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    }
}

/// The body of an answer while it arrives.
struct Incoming {
    /// Only ever touched through `&mut`; the lock is what makes it shareable by type.
    reader: Mutex<io::Take<BodyReader<'static>>>,
    /// Bytes announced and not yet read, where any were announced.
    left: Option<u64>,
    ended: bool,
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let wanted = self.left.map_or(CHUNK, |left| (left as usize).clamp(1, CHUNK));
        let mut chunk = BytesMut::zeroed(wanted);
        let reader = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner);
        let frame = match reader.read(&mut chunk) {
            Ok(0) => {
                self.ended = true;
                None
            }
            Ok(count) => {
                chunk.truncate(count);
                self.left = self.left.map(|left| left.saturating_sub(count as u64));
                Some(Ok(Frame::data(chunk.freeze())))
            }
            Err(error) => {
                self.ended = true;
                let kind = match error.kind() {
                    io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => HttpErrorKind::Timeout,
                    _ => HttpErrorKind::Interrupted,
                };
                Some(Err(HttpError::new(kind, error)))
            }
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
