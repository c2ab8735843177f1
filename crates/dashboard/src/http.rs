//! Just enough HTTP/1.1: one GET per connection, every length and time bounded before anything is trusted.

use crate::app::{Request, Response};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Most bytes of a request's head.
const MOST_HEAD: usize = 16 << 10;
/// Time for a request to arrive; browsers open connections that they never use.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Time for a client to take its response.
const WRITE_TIME: Duration = Duration::from_secs(20);

/// The value of a header: visible ASCII and spaces. A line break would let an attacker add headers or a body (header
/// injection); this type cannot hold one, and headers can only be made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderValue(String);

impl HeaderValue {
    /// Checks a text; nothing if a character is a control character or outside of ASCII.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<HeaderValue> {
        let text = text.into();
        text.bytes().all(|byte| matches!(byte, b' '..=b'~')).then_some(HeaderValue(text))
    }

    /// A value that is written in this program.
    pub(crate) fn fixed(text: &'static str) -> HeaderValue {
        HeaderValue::new(text).expect("the program's own headers are visible ASCII")
    }

    /// Hexadecimal digits in quotation marks: what a browser sends back to learn whether something has changed.
    pub(crate) fn tag(hash: u64) -> HeaderValue {
        HeaderValue(format!("\"{hash:016x}\""))
    }

    /// A number.
    pub(crate) fn number(value: usize) -> HeaderValue {
        HeaderValue(value.to_string())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a request was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// Nothing came, or not in time: there is no client to answer.
    Gone,
    /// Not an HTTP request.
    Syntax,
    /// Too long.
    TooLong,
    /// A method other than GET and HEAD.
    Method,
}

/// Reads the head of a request.
pub(crate) fn read(stream: &mut TcpStream) -> Result<Request, RequestError> {
    let started = Instant::now();
    let mut head = Vec::with_capacity(1024);
    let mut part = [0u8; 1024];
    let end = loop {
        let left = HEAD_TIME.checked_sub(started.elapsed()).filter(|left| !left.is_zero());
        let left = left.ok_or(RequestError::Gone)?;
        stream.set_read_timeout(Some(left)).map_err(|_| RequestError::Gone)?;
        let count = stream.read(&mut part).map_err(|_| RequestError::Gone)?;
        if count == 0 {
            return Err(RequestError::Gone);
        }
        head.extend_from_slice(&part[..count]);
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if head.len() > MOST_HEAD {
            return Err(RequestError::TooLong);
        }
    };
    parse(&head[..end])
}

fn parse(head: &[u8]) -> Result<Request, RequestError> {
    let head = std::str::from_utf8(head).map_err(|_| RequestError::Syntax)?;
    // Parsers disagree on whether a lone line break ends a line; a request needs none of these characters.
    if head.split("\r\n").any(|line| line.chars().any(|c| c.is_control() && c != '\t')) {
        return Err(RequestError::Syntax);
    }
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(RequestError::Syntax);
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(RequestError::Syntax);
    }
    if method != "GET" && method != "HEAD" {
        return Err(RequestError::Method);
    }
    let mut headers = BTreeMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(RequestError::Syntax)?;
        headers.insert(name.trim().to_ascii_lowercase(), value.trim().to_owned());
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect::<Option<Vec<_>>>()
        .ok_or(RequestError::Syntax)?;
    Ok(Request { path: path.to_owned(), query, headers, head_only: method == "HEAD" })
}

/// Decodes `%2F` and `+`; `None` if the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                out.push(u8::from_str_radix(digits, 16).ok()?);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// Writes a response and closes the connection.
pub(crate) fn write(
    stream: &mut TcpStream,
    response: &Response,
    head_only: bool,
) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIME))?;
    let mut bytes = head(response).into_bytes();
    if !head_only {
        bytes.extend_from_slice(&response.body);
    }
    stream.write_all(&bytes)?;
    stream.flush()
}

/// The lines before the body.
fn head(response: &Response) -> String {
    let mut head = format!("HTTP/1.1 {} {}\r\n", response.status, reason(response.status));
    let mut add = |name: &'static str, value: &HeaderValue| {
        head.push_str(&format!("{name}: {}\r\n", value.as_str()));
    };
    add("Content-Type", &HeaderValue::fixed(response.content_type));
    add("Content-Length", &HeaderValue::number(response.body.len()));
    add("Content-Security-Policy", &response.policy);
    for (name, value) in ALWAYS {
        add(name, &HeaderValue::fixed(value));
    }
    for (name, value) in &response.headers {
        add(name, value);
    }
    head.push_str("\r\n");
    head
}

/// Headers of every response: no content sniffing, no framing, no referrer.
const ALWAYS: &[(&str, &str)] = &[
    ("Connection", "close"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-cache"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
];

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        303 => "See Other",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed_or_refused() {
        let request = parse(
            b"GET /api/run?name=a%2Fb&task=worker/0&x=1+2 HTTP/1.1\r\nHost: localhost:1\r\nA: b",
        )
        .unwrap();
        assert_eq!(request.path, "/api/run");
        assert_eq!(request.first("name"), Some("a/b"));
        assert_eq!(request.first("x"), Some("1 2"));
        assert_eq!(request.headers["host"], "localhost:1");
        for (wrong, why) in [
            (&b"POST / HTTP/1.1"[..], RequestError::Method),
            (b"GET /", RequestError::Syntax),
            (b"GET http://elsewhere/ HTTP/1.1", RequestError::Syntax),
            (b"GET / HTTP/2", RequestError::Syntax),
            (b"GET /?a=%zz HTTP/1.1", RequestError::Syntax),
            (b"GET /?a=%ff HTTP/1.1", RequestError::Syntax),
            (b"GET / HTTP/1.1\r\nnonsense", RequestError::Syntax),
            (b"\xff\xff", RequestError::Syntax),
            (b"GET /a\nSet-Cookie:b HTTP/1.1", RequestError::Syntax),
            (b"GET /a\rb HTTP/1.1", RequestError::Syntax),
            (b"GET / HTTP/1.1\r\nA: b\nC: d", RequestError::Syntax),
            (b"GET / HTTP/1.1\r\nA: b\0", RequestError::Syntax),
            (b"", RequestError::Syntax),
        ] {
            assert_eq!(parse(wrong).unwrap_err(), why, "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn no_control_character_becomes_part_of_a_header() {
        for code in (0..32).chain(127..160).chain([0x2028]) {
            let c = char::from_u32(code).unwrap();
            assert_eq!(HeaderValue::new(format!("a{c}b")), None, "{code:#x}");
        }
        assert_eq!(HeaderValue::new("W/\"a b~\"").unwrap().as_str(), "W/\"a b~\"");
    }

    #[test]
    fn the_head_ends_where_the_body_begins() {
        let mut response = Response::text(200, "text");
        response.headers.push(("ETag", HeaderValue::tag(7)));
        let head = head(&response);
        assert!(head.ends_with("\r\nETag: \"0000000000000007\"\r\n\r\n"), "{head}");
        assert_eq!(head.matches("\r\n\r\n").count(), 1);
    }
}
