//! The JSON API: real answers against `docs/openapi.json`, and everything that changes a run.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_runs::{EventLog, unix_seconds};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use support::{Running, finished, forming, parts, planned, started, step};

fn document() -> Value {
    let path = paceline_testing::workspace().join("docs/openapi.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Whether a value is what a schema says; the place of the first difference otherwise.
fn check(document: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let inner = document.pointer(name.trim_start_matches('#')).ok_or(name)?;
        return check(document, inner, value, place);
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return Err(format!("{place}: the schema has no type")),
    };
    let is = |kind: &&str| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    };
    if !kinds.iter().any(is) {
        return Err(format!("{place}: {value} is not {kinds:?}"));
    }
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        if schema.get("items").is_some() {
            check(document, &schema["items"], item, &format!("{place}[{at}]"))?;
        }
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{place}: `{name}` is missing"));
        }
    }
    for (name, field) in fields {
        let known = schema["properties"].get(name);
        match (known, &schema["additionalProperties"]) {
            (Some(schema), _) => check(document, schema, field, &format!("{place}.{name}"))?,
            (None, Value::Bool(false)) => {
                return Err(format!("{place}: `{name}` is not described"));
            }
            (None, more @ Value::Object(_)) => {
                check(document, more, field, &format!("{place}.{name}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The schema of an answer.
fn schema<'a>(document: &'a Value, path: &str, method: &str, status: u16) -> &'a Value {
    let answer = &document["paths"][path][method]["responses"][status.to_string()];
    assert!(answer.is_object(), "{method} {path} does not describe {status}");
    &answer["content"]["application/json"]["schema"]
}

fn post(server: &Running, path: &str, body: &Value, headers: &str) -> (u16, Value) {
    let text = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n{headers}\r\n{text}",
        server.address,
        text.len()
    );
    let (status, answer) = parts(&server.raw(request.as_bytes()));
    (status, serde_json::from_str(&answer).unwrap_or(Value::Null))
}

fn allowed(server: &Running) -> String {
    let session: Value = serde_json::from_str(&server.get("/api/session").1).unwrap();
    assert_eq!(session["may_change"], true, "{session}");
    format!("X-Paceline-Csrf: {}\r\n", session["csrf"].as_str().unwrap())
}

#[test]
fn answers_are_what_the_document_says() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "one", "softmax", 0.91);
    finished(root.path(), "two", "lenet", 0.95);
    forming(root.path(), "three", "waiting");
    let live = planned(root.path(), "four", "lenet");
    let mut log = EventLog::append(&live.events_path("worker/0"), "worker/0").unwrap();
    log.write(unix_seconds(), &started("lenet")).unwrap();
    log.write(unix_seconds(), &step(10)).unwrap();
    log.flush().unwrap();
    std::fs::write(root.path().join("one/worker-0.log"), "a line\n").unwrap();
    let csv = "time_seconds,elapsed_seconds,cpu_user_percent\n1,1,50\n2,2,\n";
    std::fs::write(root.path().join("one/resources-worker-0.csv"), csv).unwrap();
    let server = Running::of(root.path());
    let document = document();
    let mut seen = Vec::new();
    for (target, status) in [
        ("/api/runs", 200),
        ("/api/run?name=one", 200),
        ("/api/run?name=three", 200),
        ("/api/run?name=four&task=worker/0", 200),
        ("/api/run?name=none", 404),
        ("/api/compare?name=one&name=two", 200),
        ("/api/compare", 400),
        ("/api/compare?name=none", 404),
        ("/api/log?name=one&file=worker-0.log", 200),
        ("/api/log?name=one&file=none.log", 404),
        ("/api/machines?name=one", 200),
        ("/api/machines?name=none", 404),
        ("/api/session", 200),
    ] {
        let path = target.split('?').next().unwrap();
        let (found, body) = server.get(target);
        assert_eq!(found, status, "{target}: {body}");
        let value: Value = serde_json::from_str(&body).unwrap();
        let schema = schema(&document, path, "get", status);
        check(&document, schema, &value, target).unwrap();
        seen.push(path.to_owned());
    }
    let served: Value = serde_json::from_str(&server.get("/api/openapi.json").1).unwrap();
    assert_eq!(served, document);
    let headers = allowed(&server);
    let long = json!({ "name": "one", "note": "x".repeat(20_000) });
    for (path, body, status) in [
        ("/api/run/notes", json!({ "name": "one", "tags": ["best"], "note": "fast" }), 200),
        ("/api/run/notes", json!({ "name": "none" }), 404),
        ("/api/run/notes", json!({ "name": "one", "tags": ["two words"] }), 400),
        ("/api/run/notes", long, 400),
        ("/api/run/notes", json!({ "name": "one", "note": "x".repeat(100_000) }), 413),
        ("/api/run/notes", json!([]), 400),
        ("/api/compare/many", json!({ "names": ["one", "two", "one"] }), 200),
        ("/api/compare/many", json!({ "names": [] }), 400),
        ("/api/compare/many", json!({ "names": ["one", "none"] }), 404),
        ("/api/compare/many", json!({ "names": ["x".repeat(3 << 20)] }), 413),
        ("/api/run/stop", json!({ "name": "one" }), 409),
        ("/api/run/stop", json!({ "name": "../one" }), 404),
        ("/api/run/delete", json!({ "name": "two", "confirm": "tow" }), 400),
        ("/api/run/delete", json!({ "name": "four", "confirm": "four" }), 409),
        ("/api/run/delete", json!({ "name": "two", "confirm": "two" }), 200),
        ("/api/run/delete", json!({ "name": "two", "confirm": "two" }), 404),
    ] {
        let (found, value) = post(&server, path, &body, &headers);
        assert_eq!(found, status, "{path} {value}");
        check(&document, schema(&document, path, "post", status), &value, path).unwrap();
        seen.push(path.to_owned());
    }
    // Nothing is described that is not answered, and all of these are real addresses.
    for (path, methods) in document["paths"].as_object().unwrap() {
        let streams = path == "/api/events" || path == "/api/openapi.json" || path == "/metrics";
        assert!(streams || seen.contains(path), "{path} is not tried");
        assert_eq!(methods.as_object().unwrap().len(), 1, "{path}");
    }
    assert!(!root.path().join("two").exists());
    let runs: Value = serde_json::from_str(&server.get("/api/runs").1).unwrap();
    let one = runs["runs"].as_array().unwrap().iter().find(|run| run["name"] == "one").unwrap();
    assert_eq!((&one["tags"], &one["note"]), (&json!(["best"]), &json!("fast")));
}

#[test]
fn nothing_is_changed_without_the_drawn_value_or_from_another_origin() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "one", "softmax", 0.91);
    let server = Running::of(root.path());
    let body = json!({ "name": "one", "confirm": "one" });
    let good = allowed(&server);
    for headers in [
        String::new(),
        "X-Paceline-Csrf: 00000000000000000000000000000000\r\n".to_owned(),
        format!("{good}Origin: http://evil.example\r\n"),
        format!("{good}Origin: null\r\n"),
    ] {
        assert_eq!(post(&server, "/api/run/delete", &body, &headers).0, 403, "{headers}");
        assert!(root.path().join("one").exists());
    }
    // Comparing many changes nothing, but pages of other sites may not ask for it either.
    let names = json!({ "names": ["one"] });
    assert_eq!(post(&server, "/api/compare/many", &names, "").0, 200);
    let foreign = "Origin: http://evil.example\r\n";
    assert_eq!(post(&server, "/api/compare/many", &names, foreign).0, 403);
    // A page that is asked for does not change anything either.
    assert_eq!(server.get("/api/run/delete?name=one&confirm=one").0, 405);
    assert_eq!(post(&server, "/api/run/delete", &body, &good).0, 200);
    assert!(!root.path().join("one").exists());
}

/// Reads a stream of events until one of a kind comes.
fn until(reader: &mut impl BufRead, kind: &str) -> Value {
    let mut event = String::new();
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended before `{kind}`");
        if let Some(name) = line.strip_prefix("event: ") {
            event = name.trim().to_owned();
        }
        if let Some(data) = line.strip_prefix("data: ")
            && event == kind
        {
            return serde_json::from_str(data).unwrap();
        }
    }
}

fn stream(server: &Running, target: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(server.address).unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
    socket.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(socket);
    until(&mut reader, "hello");
    reader
}

#[test]
fn updates_are_pushed_to_those_that_watch() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "old", "softmax", 0.9);
    let run = planned(root.path(), "live", "lenet");
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    log.write(unix_seconds(), &started("lenet")).unwrap();
    log.flush().unwrap();
    let server = Running::of(root.path());
    let mut list = stream(&server, "/api/events");
    let mut page = stream(&server, "/api/events?run=live");
    assert_eq!(until(&mut page, "run")["state"], "running");
    until(&mut list, "reset"); // the first look finds everything
    log.write(unix_seconds(), &step(120)).unwrap();
    log.flush().unwrap();
    let news = until(&mut list, "runs");
    assert_eq!(news["changed"].as_array().unwrap().len(), 1, "only what changed: {news}");
    assert_eq!(
        (&news["changed"][0]["name"], &news["changed"][0]["step"]),
        (&json!("live"), &json!(120))
    );
    while until(&mut page, "run")["steps"] != true {}
    std::fs::write(run.path().join("worker-0.log"), "four").unwrap();
    while until(&mut page, "logs")["worker-0.log"] != 4 {}
    drop(log);
    std::fs::remove_dir_all(run.path()).unwrap();
    while until(&mut list, "runs")["removed"] != json!(["live"]) {}
    until(&mut page, "gone");
    let (status, _) = server.get("/api/events?run=none");
    assert_eq!(status, 404);
}
