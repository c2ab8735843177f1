//! The server over HTTP: what it shows, what it refuses, how fast a thousand runs open.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_dashboard::DashboardOptions;
use paceline_runs::EventLog;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;
use support::{Running, finished, forming, joined, parts, planned, started, step};

fn json(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[test]
fn runs_are_listed_as_far_as_they_came() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "a-done", "softmax", 0.91);
    let live = planned(root.path(), "b-live", "lenet");
    let mut log = EventLog::append(&live.events_path("worker/0"), "worker/0").unwrap();
    log.write(paceline_runs::unix_seconds(), &started("lenet")).unwrap();
    log.write(paceline_runs::unix_seconds(), &step(120)).unwrap();
    log.flush().unwrap();
    let server = Running::of(root.path());
    let (status, body) = server.get("/api/runs");
    assert_eq!(status, 200);
    let runs = json(&body)["runs"].as_array().unwrap().clone();
    assert_eq!(runs.len(), 2);
    assert_eq!((&runs[0]["state"], &runs[0]["step"]), (&Value::from("running"), &Value::from(120)));
    assert_eq!(
        (&runs[1]["state"], &runs[1]["accuracy"]),
        (&Value::from("done"), &Value::from(0.91))
    );
    // What is written now is seen by the next look.
    log.write(paceline_runs::unix_seconds(), &step(130)).unwrap();
    log.flush().unwrap();
    assert_eq!(json(&server.get("/api/runs").1)["runs"][0]["step"], 130);
    let (status, page) = server.get("/api/run?name=a-done");
    assert_eq!(status, 200);
    let html = json(&page)["html"].as_str().unwrap().to_owned();
    assert!(html.contains("compute-bound") && html.contains("<svg"), "{html}");
}

#[test]
fn the_start_table_shows_who_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let run = forming(root.path(), "forming", "waiting");
    let server = Running::of(root.path());
    let line = json(&server.get("/api/runs").1)["runs"][0].clone();
    assert_eq!((&line["state"], &line["model"]), (&Value::from("forming"), &Value::from("lenet")));
    assert_eq!(line["verdict"], "waiting for worker/1");
    let answer = json(&server.get("/api/run?name=forming").1);
    let html = answer["html"].as_str().unwrap();
    assert!(html.contains("1 of 2 tasks have joined") && html.contains("127.0.0.1:2"), "{html}");
    assert!(html.contains("connection refused"), "{html}");
    // A chief that is gone renews nothing.
    let mut old = run.start_table().unwrap();
    old.written -= 60.0;
    run.write_start_table(&old).unwrap();
    assert_eq!(json(&server.get("/api/runs").1)["runs"][0]["state"], "died");
    // Once it has a plan it is a run like any other, and those who never came are still named.
    planned(root.path(), "forming", "lenet");
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    log.write(paceline_runs::unix_seconds(), &joined("worker/0")).unwrap();
    log.flush().unwrap();
    let answer = json(&server.get("/api/run?name=forming").1);
    let states: Vec<&str> = answer["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["joined", "waiting"]);
    assert!(answer["html"].as_str().unwrap().contains("127.0.0.1:2"));
}

#[test]
fn nothing_outside_of_the_folder_is_read() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("runs");
    finished(&root, "a", "softmax", 0.9);
    finished(outer.path(), "secret", "softmax", 0.9);
    std::fs::write(root.join("a/worker-0.log"), "hello from the worker\n").unwrap();
    std::os::unix::fs::symlink(outer.path().join("secret"), root.join("link")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("a/stolen.log")).unwrap();
    let server = Running::of(&root);
    assert!(server.get("/api/log?name=a&file=worker-0.log").1.contains("hello from the worker"));
    for target in [
        "/api/run?name=../secret",
        "/api/run?name=..%2Fsecret",
        "/api/run?name=link",
        "/api/run?name=/etc",
        "/api/run?name=",
        "/api/log?name=a&file=../../secret/plan.json",
        "/api/log?name=a&file=%2Fetc%2Fpasswd",
        "/api/log?name=a&file=stolen.log",
        "/api/log?name=a&file=plan.json",
        "/report?name=../secret",
        "/../../etc/passwd",
        "/runs/a",
    ] {
        let (status, body) = server.get(target);
        assert_eq!(status, 404, "{target}: {body}");
        assert!(!body.contains("root:"), "{target}");
    }
}

#[test]
fn a_foreign_host_name_and_a_missing_token_are_refused() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "a", "softmax", 0.9);
    let open = Running::of(root.path());
    let (status, _) = parts(&open.raw(b"GET /api/runs HTTP/1.1\r\nHost: evil.example:80\r\n\r\n"));
    assert_eq!(status, 403, "another site's name must not lead here");
    let (status, _) = parts(&open.raw(b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert_eq!(status, 200);

    let listen = "0.0.0.0:0".parse().unwrap();
    let guarded = Running::start(&DashboardOptions {
        listen,
        ..DashboardOptions::loopback(root.path().to_owned())
    });
    let ask = |headers: &str, target: &str| {
        parts(&guarded.raw(format!("GET {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes()))
            .0
    };
    let token = guarded.url.split("token=").nth(1).unwrap().to_owned();
    assert_eq!(token.len(), 32);
    for target in ["/", "/favicon.ico", "/api/runs", "/api/runs?token=wrong", "/report?name=a"] {
        assert_eq!(ask("", target), 401, "{target}");
    }
    assert_eq!(
        ask("Cookie: paceline-token=00000000000000000000000000000000\r\n", "/api/runs"),
        401
    );
    assert_eq!(ask("", &format!("/?token={token}")), 303);
    assert_eq!(ask(&format!("Cookie: a=b; paceline-token={token}\r\n"), "/api/runs"), 200);
    assert_eq!(ask(&format!("Authorization: Bearer {token}\r\n"), "/api/runs"), 200);
}

#[test]
fn garbage_and_silence_do_not_stop_the_server() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "a", "softmax", 0.9);
    let server = Running::of(root.path());
    let silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"\r\n\r\n",
        b"DELETE / HTTP/1.1\r\n\r\n",
    ] {
        let (status, _) = parts(&server.raw(garbage));
        assert!(matches!(status, 400 | 405), "{status}");
    }
    let mut long = b"GET / HTTP/1.1\r\n".to_vec();
    long.extend(std::iter::repeat_n(b'x', 1 << 20));
    let mut stream = TcpStream::connect(server.address).unwrap();
    let _ = stream.write_all(&long); // the server may hang up in the middle
    let _ = stream.read(&mut [0; 64]);
    assert_eq!(server.get("/api/runs").0, 200);
    drop(silent);
}

/// Clients that connect and say nothing, or say it slowly, once kept all others out.
#[test]
fn hundreds_of_slow_sockets_keep_no_one_out() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "a", "softmax", 0.9);
    let server = Running::of(root.path());
    let mut slow = Vec::new();
    for number in 0..600 {
        let mut stream = TcpStream::connect(server.address).unwrap();
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-");
        }
        slow.push(stream);
    }
    assert_eq!(server.get("/api/runs").0, 200);
    drop(slow);
}

/// What a page of another site can make a browser send changes nothing and is not answered.
#[test]
fn other_origins_are_refused() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "a", "softmax", 0.9);
    let server = Running::of(root.path());
    let ask = |head: &str| parts(&server.raw(head.as_bytes())).0;
    let host = server.address;
    assert_eq!(
        ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: http://evil.example\r\n\r\n")),
        403
    );
    assert_eq!(
        ask(&format!("GET / HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n\r\n")),
        200
    );
    assert_eq!(ask(&format!("PUT / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n")), 405);
    assert_eq!(ask(&format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n")), 403);
}

#[test]
fn prometheus_reads_what_the_server_and_the_runs_do() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "a", "softmax", 0.9);
    let live = planned(root.path(), "b", "lenet");
    let mut log = EventLog::append(&live.events_path("worker/0"), "worker/0").unwrap();
    log.write(paceline_runs::unix_seconds(), &started("lenet")).unwrap();
    log.write(paceline_runs::unix_seconds(), &step(120)).unwrap();
    log.flush().unwrap();
    let server = Running::of(root.path());
    let (status, text) = server.get("/metrics");
    assert_eq!(status, 200);
    for line in [
        "paceline_runs{state=\"done\"} 1",
        "paceline_runs{state=\"running\"} 1",
        "paceline_run_step{run=\"b\",model=\"lenet\"} 120",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
}

#[test]
fn a_thousand_runs_are_listed_and_remembered() {
    let root = tempfile::tempdir().unwrap();
    let first = finished(root.path(), "0000", "softmax", 0.9);
    let plan = std::fs::read(first.path().join("plan.json")).unwrap();
    let summary = std::fs::read(first.path().join("summary.json")).unwrap();
    for number in 1..1000 {
        let folder = root.path().join(format!("{number:04}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("plan.json"), &plan).unwrap();
        std::fs::write(folder.join("summary.json"), &summary).unwrap();
    }
    let server = Running::of(root.path());
    for look in ["first", "second"] {
        let begun = Instant::now();
        let (status, body) = server.get("/api/runs");
        assert_eq!(status, 200);
        assert_eq!(json(&body)["runs"].as_array().unwrap().len(), 1000);
        // Said, not asserted: other tests run beside this one.
        println!("{look} look at 1,000 runs: {:.1} ms", 1e3 * begun.elapsed().as_secs_f64());
    }
}

/// Whatever a request holds, the head of the answer has the headers of an answer and ends where it should.
#[test]
fn nothing_of_a_request_becomes_a_header_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "a", "softmax", 0.9);
    let listen = "0.0.0.0:0".parse().unwrap();
    let guarded = Running::start(&DashboardOptions {
        listen,
        ..DashboardOptions::loopback(root.path().to_owned())
    });
    let token = guarded.url.split("token=").nth(1).unwrap().to_owned();
    let ask = |target: &str| {
        let cookie = format!("Cookie: paceline-token={token}\r\n");
        guarded.raw(format!("GET {target} HTTP/1.1\r\nHost: x\r\n{cookie}\r\n").as_bytes())
    };
    for target in [
        "/api/run?name=a&task=%22%0d%0aInjected:%20yes".to_owned(),
        "/api/run?name=a&task=%0aInjected:%20yes".to_owned(),
        "/api/run?name=a&task=%0dInjected:%20yes%00%c3%a4".to_owned(),
        format!("/x%0d%0aInjected:%20yes?token={token}"),
        format!("/x\nInjected: yes?token={token}"),
        format!("/x\rInjected:yes?token={token}"),
    ] {
        let answer = ask(&target);
        let head = answer.split("\r\n\r\n").next().unwrap();
        assert!(head.starts_with("HTTP/1.1 "), "{target}: {head}");
        let names: Vec<&str> = head.split(['\r', '\n']).collect();
        assert!(!names.iter().any(|line| line.starts_with("Injected")), "{target}: {head}");
    }
    // Nor does a redirect lead to another host.
    let answer = ask(&format!("//evil.example/?token={token}"));
    assert!(answer.contains("\r\nLocation: /evil.example/\r\n"), "{answer}");
}

#[test]
fn a_folder_that_is_not_there_and_a_token_that_no_cookie_holds_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let missing = root.path().join("typo");
    let error =
        paceline_dashboard::Server::bind(&DashboardOptions::loopback(missing.clone())).unwrap_err();
    assert!(error.to_string().contains("typo"), "{error}");
    assert!(!missing.exists());
    for wrong in ["0123456789abcdef;x", "0123456789abcdef\r\nA: b", "0123456789 abcdef"] {
        let token = Some(wrong.to_owned());
        let options =
            DashboardOptions { token, ..DashboardOptions::loopback(root.path().to_owned()) };
        assert!(paceline_dashboard::Server::bind(&options).is_err(), "{wrong:?}");
    }
    let token = Some("0123456789abcdef+/=&".to_owned());
    let server = Running::start(&DashboardOptions {
        token,
        ..DashboardOptions::loopback(root.path().to_owned())
    });
    assert!(server.url.ends_with("?token=0123456789abcdef%2B%2F%3D%26"), "{}", server.url);
    let target = server.url.split(&server.address.to_string()).nth(1).unwrap();
    assert_eq!(server.get(target).0, 303);
}
