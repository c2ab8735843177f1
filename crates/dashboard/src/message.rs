//! Requests and responses as the pages see them: decoded, bounded, and without sockets, so that tests call pages directly.

use crate::header::HeaderValue;
use axum::body::Body;
use axum::http::request::Parts;
use bytes::Bytes;
use std::collections::BTreeMap;

/// For responses that are not a page: no script, no style, no origin.
const NO_PAGE: &str = "default-src 'none'; sandbox; frame-ancestors 'none'";
/// Headers of every response: no content sniffing, no framing, no referrer.
const ALWAYS: &[(&str, &str)] = &[
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-cache"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
];

/// A request, decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// The path, as sent.
    pub(crate) path: String,
    /// Names and values after the question mark, decoded.
    pub(crate) query: Vec<(String, String)>,
    /// Headers by their lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
}

impl Request {
    /// The head of a request; nothing where its query is not percent-encoded UTF-8.
    pub(crate) fn of(parts: &Parts) -> Option<Request> {
        let query = parts.uri.query().unwrap_or_default();
        let query = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((decode(name)?, decode(value)?))
            })
            .collect::<Option<Vec<_>>>()?;
        let headers = parts.headers.iter().filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        });
        Some(Request { path: parts.uri.path().to_owned(), query, headers: headers.collect() })
    }

    /// The first value of a name.
    #[must_use]
    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.query.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
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
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                let digits = std::str::from_utf8(&digits).ok()?;
                out.push(u8::from_str_radix(digits, 16).ok()?);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) policy: HeaderValue,
    pub(crate) headers: Vec<(&'static str, HeaderValue)>,
    pub(crate) body: Bytes,
}

impl Response {
    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<Bytes>) -> Response {
        let policy = HeaderValue::fixed(NO_PAGE);
        Response { status, content_type, policy, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn text(status: u16, text: &str) -> Response {
        Response::new(status, "text/plain; charset=utf-8", format!("{text}\n"))
    }

    pub(crate) fn json(value: &impl serde::Serialize) -> Response {
        match serde_json::to_vec(value) {
            Ok(body) => Response::new(200, "application/json", body),
            Err(error) => Response::text(500, &error.to_string()),
        }
    }

    /// What went wrong, for programs and people alike.
    pub(crate) fn error(status: u16, text: &str) -> Response {
        let mut response = Response::json(&serde_json::json!({ "error": text }));
        response.status = status;
        response
    }

    /// The same with another body, for a stream of events.
    pub(crate) fn with_body(self, body: Body) -> axum::response::Response {
        let mut response = axum::response::Response::new(body);
        let status = axum::http::StatusCode::from_u16(self.status);
        *response.status_mut() = status.unwrap_or(axum::http::StatusCode::INTERNAL_SERVER_ERROR);
        let mut add = |name: &'static str, value: &HeaderValue| {
            // The program's own names.
            if let Ok(name) = axum::http::HeaderName::from_bytes(name.as_bytes()) {
                response.headers_mut().insert(name, value.into());
            }
        };
        add("Content-Type", &HeaderValue::fixed(self.content_type));
        add("Content-Security-Policy", &self.policy);
        for (name, value) in ALWAYS {
            add(name, &HeaderValue::fixed(value));
        }
        for (name, value) in &self.headers {
            add(name, value);
        }
        response
    }
}

impl axum::response::IntoResponse for Response {
    fn into_response(self) -> axum::response::Response {
        let body = Body::from(self.body.clone());
        self.with_body(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(target: &str) -> Option<Request> {
        let request = axum::http::Request::get(target).header("Host", "localhost:1");
        Request::of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn queries_are_decoded_or_refused() {
        let request = parse("/api/run?name=a%2Fb&task=worker/0&x=1+2").unwrap();
        assert_eq!(request.path, "/api/run");
        assert_eq!(request.first("name"), Some("a/b"));
        assert_eq!(request.first("x"), Some("1 2"));
        assert_eq!(request.header("host"), "localhost:1");
        for wrong in ["/?a=%zz", "/?a=%ff", "/?a=%+1", "/?a=%1", "/?%"] {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn every_response_says_what_a_browser_may_do_with_it() {
        let mut response = Response::text(200, "text");
        response.headers.push(("ETag", HeaderValue::tag(7)));
        let response = axum::response::IntoResponse::into_response(response);
        assert_eq!(response.headers()["etag"], "\"0000000000000007\"");
        assert_eq!(response.headers()["content-security-policy"], NO_PAGE);
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    }
}
