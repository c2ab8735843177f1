//! Who may look, and who may change something.
//!
//! Looking needs the token where there is one; on loopback without a token every user of the machine may look, and requests
//! under a foreign host name are refused (DNS rebinding: a page of another site tries to read ours). Changing something
//! (notes, stopping, deleting) has the authority of the user that started the server, so on loopback without a token it
//! is for processes of that user alone, and no page of another site can ask a browser for it: such a request needs a header
//! with a value drawn at the start of the server, which only pages of this origin can read.

use crate::error::DashboardError;
use crate::header::HeaderValue;
use crate::message::{Request, Response};
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

/// The header that a request for a change carries.
pub(crate) const CSRF_HEADER: &str = "x-paceline-csrf";

/// What is asked of clients.
#[derive(Debug)]
pub(crate) struct Access {
    token: Option<String>,
    loopback: bool,
    is_copy: bool,
    csrf: String,
}

/// The two ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
}

impl Access {
    /// With `loopback`, only requests addressed to this machine are served; a copy is not changed.
    ///
    /// # Errors
    /// When the token cannot be part of a cookie, or the system has no random numbers.
    pub(crate) fn new(
        token: Option<String>,
        loopback: bool,
        is_copy: bool,
    ) -> Result<Access, DashboardError> {
        if let Some(wrong) = token.iter().flat_map(|token| token.chars()).find(|c| !in_cookie(*c)) {
            return Err(DashboardError::Token { wrong });
        }
        let csrf = draw_token().map_err(DashboardError::Draw)?;
        Ok(Access { token, loopback, is_copy, csrf })
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// What a page of this origin sends with a request for a change.
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }

    /// Refuses requests from elsewhere and those without the token; one with the token in its address gets a cookie and a
    /// redirect.
    pub(crate) fn refuse(&self, request: &Request) -> Option<Response> {
        let host = request.header("host");
        if self.loopback && !names_loopback(host) {
            let words = "this server only answers requests addressed to localhost";
            return Some(Response::text(403, words));
        }
        let origin = request.header("origin");
        if !origin.is_empty() && origin.strip_prefix("http://") != Some(host) {
            return Some(Response::text(403, "this server only answers its own pages"));
        }
        let token = self.token.as_deref()?;
        if request.first("token").is_some_and(|given| same(given, token)) {
            let mut response = Response::text(303, "");
            // Two slashes would lead to another host.
            let path = format!("/{}", request.path.trim_start_matches('/'));
            let cookie = format!("paceline-token={token}; HttpOnly; SameSite=Strict; Path=/");
            let (Some(path), Some(cookie)) = (HeaderValue::new(path), HeaderValue::new(cookie))
            else {
                return Some(Response::text(400, "malformed request"));
            };
            response.headers.extend([("Location", path), ("Set-Cookie", cookie)]);
            return Some(response);
        }
        let cookie = request.header("cookie").split(';').any(|cookie| {
            cookie.trim().strip_prefix("paceline-token=").is_some_and(|given| same(given, token))
        });
        (!cookie && !self.is_bearer(request)).then(|| {
            Response::text(401, "token required: open the address that `paceline serve` printed")
        })
    }

    /// Refuses a request for a change that may look but not change.
    pub(crate) fn refuse_change(&self, request: &Request, ends: Ends) -> Option<Response> {
        // A browser never adds this header by itself.
        if !self.is_bearer(request) && !same(request.header(CSRF_HEADER), &self.csrf) {
            let words = format!(
                "changes need the header `{CSRF_HEADER}` with the value that /api/session gives"
            );
            return Some(Response::error(403, &words));
        }
        self.why_not_change(ends).map(|words| Response::error(403, words))
    }

    /// Why a client may not change anything; nothing if it may.
    pub(crate) fn why_not_change(&self, ends: Ends) -> Option<&'static str> {
        if self.is_copy {
            return Some("the runs lie in an object store, where this page changes nothing");
        }
        if self.token.is_some() {
            return None;
        }
        let own = rustix::process::geteuid().as_raw();
        let allowed = owner_of(ends).is_some_and(|user| user == own || user == 0);
        (!allowed).then_some(
            "only the user that started `paceline serve` may change something here; with `--token` all that have it may",
        )
    }

    fn is_bearer(&self, request: &Request) -> bool {
        let given = request.header("authorization").strip_prefix("Bearer ");
        self.token.as_deref().zip(given).is_some_and(|(token, given)| same(given, token))
    }
}

/// The user behind a connection from this machine, as the kernel's table of sockets tells.
fn owner_of(ends: Ends) -> Option<u32> {
    let table = if ends.client.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
    let table = std::fs::read_to_string(table).ok()?;
    let (local, remote) = (in_table(ends.client), in_table(ends.server));
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        (fields.next()? == local && fields.next()? == remote)
            .then(|| fields.nth(4)?.parse().ok())
            .flatten()
    })
}

/// An address as that table writes it: words of 32 bits in the machine's byte order.
fn in_table(address: SocketAddr) -> String {
    let bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut out = String::new();
    for word in bytes.chunks_exact(4) {
        let word = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
        out.push_str(&format!("{word:08X}"));
    }
    format!("{out}:{:04X}", address.port())
}

/// Whether a character may be part of a cookie's value (RFC 6265), and so of a token.
fn in_cookie(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '"' | ',' | ';' | '\\')
}

/// Whether a Host header means this machine itself.
fn names_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Compares in constant time.
fn same(given: &str, token: &str) -> bool {
    given.len() == token.len()
        && given.bytes().zip(token.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// 128 random bits.
pub(crate) fn draw_token() -> std::io::Result<String> {
    let mut bits = [0u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(bits.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn ends(listen: &str) -> (TcpStream, TcpStream, Ends) {
        let listener = TcpListener::bind(listen).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, address) = listener.accept().unwrap();
        let ends = Ends { client: address, server: server.local_addr().unwrap() };
        (client, server, ends)
    }

    #[test]
    fn the_user_behind_a_connection_is_known() {
        let (client, _server, ends) = ends("127.0.0.1:0");
        assert_eq!(owner_of(ends), Some(rustix::process::geteuid().as_raw()));
        let open = Access::new(None, true, false).unwrap();
        assert_eq!(open.why_not_change(ends), None);
        drop(client);
        let copy = Access::new(Some("0123456789abcdef".to_owned()), true, true).unwrap();
        assert!(copy.why_not_change(ends).unwrap().contains("object store"));
        let unknown = Ends { client: "127.0.0.1:1".parse().unwrap(), ..ends };
        assert!(open.why_not_change(unknown).is_some());
        assert_eq!(in_table("[::1]:80".parse().unwrap()).len(), 32 + 5);
    }

    #[test]
    fn other_sites_and_requests_without_the_drawn_value_change_nothing() {
        let (_client, _server, ends) = ends("127.0.0.1:0");
        let access = Access::new(None, true, false).unwrap();
        let request = |headers: &[(&str, &str)]| Request {
            headers: headers.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            ..Request::default()
        };
        let foreign = request(&[("host", "localhost:1"), ("origin", "http://evil.example")]);
        assert_eq!(access.refuse(&foreign).unwrap().status, 403);
        for origin in ["null", "https://localhost:1", "http://localhost:2"] {
            let foreign = request(&[("host", "localhost:1"), ("origin", origin)]);
            assert_eq!(access.refuse(&foreign).unwrap().status, 403, "{origin}");
        }
        let own = request(&[("host", "localhost:1"), ("origin", "http://localhost:1")]);
        assert!(access.refuse(&own).is_none());
        assert_eq!(access.refuse_change(&own, ends).unwrap().status, 403);
        let drawn = access.csrf().to_owned();
        assert!(access.refuse_change(&request(&[(CSRF_HEADER, &drawn)]), ends).is_none());
        let wrong = "0".repeat(32);
        assert!(access.refuse_change(&request(&[(CSRF_HEADER, &wrong)]), ends).is_some());
    }
}
