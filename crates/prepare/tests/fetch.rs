//! `fetch` against a local server that misbehaves in every way we know.
#![allow(clippy::unwrap_used)] // also in functions that tests share

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use paceline_prepare::fetch::{
    Dataset, Event, FetchError, FetchOptions, Fetched, MARKER, RemoteFile, datasets::Archive, fetch,
};
use sha2::{Digest, Sha256};

/// What the server does to one request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Trick {
    /// Serves properly, ranges too.
    Honest,
    /// Sends half of what is left and closes.
    Truncate,
    /// Sends half of what is left and then nothing, for ever.
    Stall,
    /// Sends the whole although a part was asked for.
    IgnoreRange,
    /// Sends another part than asked for.
    WrongPart,
    /// Announces more bytes than there are.
    Overstate,
    /// Announces fewer bytes than there are.
    Understate,
    /// Right size, wrong bytes.
    WrongBytes,
    /// Fails with this status.
    Status(u16),
    /// Sends the client elsewhere.
    Redirect,
    /// Redirects to itself for ever.
    Loop,
    /// Closes the connection without an answer.
    HangUp,
    /// No length, the end of the connection is the end of the file; cut short.
    Unframed,
}

/// A request as the server saw it.
#[derive(Debug, Clone)]
struct Request {
    path: String,
    headers: HashMap<String, String>,
}

struct Server {
    url: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Serves `files`; the n-th request gets the n-th trick, later ones the last.
    fn start(files: &[(&str, Vec<u8>)], tricks: &[Trick]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let files: HashMap<String, Vec<u8>> =
            files.iter().map(|(name, bytes)| (format!("/{name}"), bytes.clone())).collect();
        let (files, tricks) = (Arc::new(files), tricks.to_vec());
        let log = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let (files, tricks, log) = (Arc::clone(&files), tricks.clone(), Arc::clone(&log));
                thread::spawn(move || drop(answer(stream, &files, &tricks, &log)));
            }
        });
        Self { url, seen }
    }

    fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn answer(
    mut stream: TcpStream,
    files: &HashMap<String, Vec<u8>>,
    tricks: &[Trick],
    log: &Mutex<Vec<Request>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split_whitespace().nth(1).unwrap_or("/").to_owned();
    let mut headers = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let number = {
        let mut log = log.lock().unwrap();
        log.push(Request { path: path.clone(), headers: headers.clone() });
        log.len() - 1
    };
    let trick = tricks[number.min(tricks.len() - 1)];
    let Some(bytes) = files.get(path.trim_start_matches("/moved")) else {
        return write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    };
    let total = bytes.len();
    let asked = headers
        .get("range")
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    // A tag that is not ours means that the client has a part of something else.
    let current = headers.get("if-range").is_none_or(|tag| tag == "\"v1\"");
    let start = asked.filter(|_| current && trick != Trick::IgnoreRange);
    if start.is_some_and(|start| start >= total) {
        return write!(
            stream,
            "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{total}\r\nContent-Length: 0\r\n\r\n"
        );
    }
    let body = &bytes[start.unwrap_or(0)..];
    let head = |length: usize| {
        let status = match start {
            Some(start) => {
                format!("206 Partial Content\r\nContent-Range: bytes {start}-{}/{total}", total - 1)
            }
            None => "200 OK".into(),
        };
        format!("HTTP/1.1 {status}\r\nETag: \"v1\"\r\nContent-Length: {length}\r\n\r\n")
    };
    match trick {
        Trick::Honest | Trick::IgnoreRange => {
            stream.write_all(head(body.len()).as_bytes())?;
            stream.write_all(body)
        }
        Trick::Truncate => {
            stream.write_all(head(body.len()).as_bytes())?;
            stream.write_all(&body[..body.len() / 2])
        }
        Trick::Stall => {
            stream.write_all(head(body.len()).as_bytes())?;
            stream.write_all(&body[..body.len() / 2])?;
            stream.flush()?;
            thread::sleep(Duration::from_secs(60));
            Ok(())
        }
        Trick::WrongPart => {
            write!(
                stream,
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 1-{}/{total}\r\nContent-Length: {}\r\n\r\n",
                total - 1,
                total - 1
            )?;
            stream.write_all(&bytes[1..])
        }
        Trick::Overstate => {
            stream.write_all(head(body.len() + 1000).as_bytes())?;
            stream.write_all(body)
        }
        Trick::Understate => {
            stream.write_all(head(body.len() - 10).as_bytes())?;
            stream.write_all(body)
        }
        Trick::WrongBytes => {
            stream.write_all(head(body.len()).as_bytes())?;
            stream.write_all(&vec![0x55; body.len()])
        }
        Trick::Status(status) => {
            write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 2\r\n\r\nno")
        }
        Trick::Redirect => {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: /moved{path}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
        }
        Trick::Loop => {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {path}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
        }
        Trick::HangUp => Ok(()),
        Trick::Unframed => {
            write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            stream.write_all(&bytes[..total / 3])
        }
    }
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn hash(bytes: &[u8]) -> &'static str {
    leak(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed * 2 + 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn remote(name: &'static str, bytes: &[u8]) -> RemoteFile {
    RemoteFile { name, bytes: bytes.len() as u64, sha256: hash(bytes), content_sha256: None }
}

fn dataset(mirrors: &[&Server], files: Vec<RemoteFile>) -> Dataset {
    let mirrors: Vec<&'static str> =
        mirrors.iter().map(|server| leak(server.url.clone())).collect();
    Dataset {
        name: "sample",
        about: "for tests",
        licence: "none",
        mirrors: Box::leak(mirrors.into_boxed_slice()),
        files: Box::leak(files.into_boxed_slice()),
        archive: None,
    }
}

/// For a server that stands still: sooner noticed than by the others' clients, which wait for a loaded machine.
fn hasty() -> FetchOptions {
    FetchOptions { stall: Duration::from_secs(2), ..quick() }
}

fn quick() -> FetchOptions {
    FetchOptions {
        stall: Duration::from_secs(900),
        attempts: 3,
        back_off: Duration::from_millis(5),
        ..FetchOptions::default()
    }
}

fn get(dataset: &Dataset, out: &Path, options: &FetchOptions) -> Result<Fetched, FetchError> {
    fetch(dataset, out, options, &AtomicBool::new(false), &mut |_| {})
}

fn names(out: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// One file of 200 kB through a series of tricks.
fn through(tricks: &[Trick]) -> (Result<Fetched, FetchError>, Vec<Request>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let bytes = noise(1, 200_000);
    let server = Server::start(&[("a.bin", bytes.clone())], tricks);
    let sample = dataset(&[&server], vec![remote("a.bin", &bytes)]);
    let stalls = tricks.iter().any(|trick| matches!(trick, Trick::Stall));
    let options = if stalls { hasty() } else { quick() };
    let outcome = get(&sample, dir.path(), &options);
    if outcome.is_ok() {
        assert_eq!(std::fs::read(dir.path().join("a.bin")).unwrap(), bytes, "{tricks:?}");
    }
    (outcome, server.requests(), names(dir.path()))
}

#[test]
fn passing_troubles_are_survived() {
    use Trick::*;
    for tricks in [
        vec![Honest],
        vec![Truncate, Honest],
        vec![Truncate, Truncate, Truncate, Truncate, Truncate, Honest],
        vec![Stall, Honest],
        vec![Status(500), Status(503), Honest],
        vec![Status(429), Honest],
        vec![HangUp, Honest],
        vec![Redirect, Honest],
        vec![Truncate, IgnoreRange],
        vec![Truncate, WrongPart, Honest],
        vec![Unframed, Honest],
        vec![Truncate, Redirect, Honest],
    ] {
        let (outcome, requests, left) = through(&tricks);
        let fetched = outcome.unwrap_or_else(|error| panic!("{tricks:?}: {error}"));
        assert!(!fetched.was_complete);
        assert_eq!(requests.len(), tricks.len(), "{tricks:?}");
        assert_eq!(left, ["a.bin", MARKER], "{tricks:?}");
    }
}

#[test]
fn lasting_troubles_are_named_and_leave_nothing_wrong() {
    use Trick::*;
    for (trick, wanted) in [
        (Overstate, "has 201000 bytes, expected 200000"),
        (Understate, "has 199990 bytes, expected 200000"),
        (WrongBytes, "SHA-256"),
        (Status(404), "status 404"),
        (Status(500), "status 500"),
        (HangUp, "cannot download"),
        (Loop, "cannot follow"),
        (IgnoreRange, ""),
    ] {
        let (outcome, requests, left) = through(&[trick]);
        if trick == IgnoreRange {
            assert!(outcome.is_ok());
            continue;
        }
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains(wanted), "{trick:?}: {message}");
        assert!(message.contains("/a.bin"), "{trick:?}: {message}");
        assert!(requests.len() <= 20, "{trick:?}: {} requests", requests.len());
        assert!(!left.contains(&"a.bin".into()) && !left.contains(&MARKER.into()), "{left:?}");
    }
}

#[test]
fn downloads_go_on_by_range_in_the_next_call() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = noise(2, 300_000);
    let server = Server::start(&[("a.bin", bytes.clone())], &[Trick::Stall, Trick::Honest]);
    let sample = dataset(&[&server], vec![remote("a.bin", &bytes)]);
    let cancel = AtomicBool::new(false);
    // Stopped by the user in the middle of the stall.
    let stopped = fetch(&sample, dir.path(), &hasty(), &cancel, &mut |event| {
        if matches!(event, Event::Progress { .. }) {
            cancel.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(stopped, Err(FetchError::Cancelled)), "{stopped:?}");
    get(&sample, dir.path(), &quick()).unwrap();
    assert_eq!(std::fs::read(dir.path().join("a.bin")).unwrap(), bytes);
    let second = &server.requests()[1].headers;
    assert!(second["range"].starts_with("bytes=") && second["range"] != "bytes=0-", "{second:?}");
    assert_eq!(second["if-range"], "\"v1\"");
}

#[test]
fn stale_part_of_another_version_is_thrown_away() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = noise(3, 100_000);
    let server = Server::start(&[("a.bin", bytes.clone())], &[Trick::Honest]);
    let sample = dataset(&[&server], vec![remote("a.bin", &bytes)]);
    // Without a tag the old part looks fine until the checksum says otherwise.
    for (part, tag) in [(noise(9, 40_000), None), (noise(9, 40_000), Some("\"v0\""))] {
        std::fs::write(dir.path().join(".a.bin.part"), part).unwrap();
        if let Some(tag) = tag {
            let text = format!("{}/a.bin\n{tag}\n", server.url);
            std::fs::write(dir.path().join(".a.bin.tag"), text).unwrap();
        }
        get(&sample, dir.path(), &quick()).unwrap();
        assert_eq!(std::fs::read(dir.path().join("a.bin")).unwrap(), bytes);
        assert_eq!(names(dir.path()), ["a.bin", MARKER]);
        std::fs::remove_file(dir.path().join("a.bin")).unwrap();
    }
}

#[test]
fn second_mirror_helps_where_the_first_fails() {
    let bytes = noise(4, 50_000);
    for trick in [Trick::Status(404), Trick::WrongBytes, Trick::HangUp, Trick::Understate] {
        let dir = tempfile::tempdir().unwrap();
        let bad = Server::start(&[("a.bin", bytes.clone())], &[trick]);
        let good = Server::start(&[("a.bin", bytes.clone())], &[Trick::Honest]);
        let sample = dataset(&[&bad, &good], vec![remote("a.bin", &bytes)]);
        let fetched = get(&sample, dir.path(), &quick()).unwrap();
        assert!(fetched.files[0].from.starts_with(&good.url), "{trick:?}");
    }
}

#[test]
fn local_files_and_folders_serve_as_well() {
    let (dir, away) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (first, second) = (noise(5, 1000), noise(6, 2000));
    std::fs::write(away.path().join("a.bin"), &first).unwrap();
    std::fs::write(away.path().join("b.bin"), &second).unwrap();
    let both = dataset(&[], vec![remote("a.bin", &first), remote("b.bin", &second)]);
    let from = |path: &Path| FetchOptions { from: Some(path.to_str().unwrap().into()), ..quick() };
    let out = dir.path().join("both");
    get(&both, &out, &from(away.path())).unwrap();
    assert_eq!(names(&out), ["a.bin", "b.bin", MARKER]);
    let one = dataset(&[], vec![remote("a.bin", &first)]);
    get(&one, &dir.path().join("one"), &from(&away.path().join("a.bin"))).unwrap();
    // Wrong and missing files are named, and leave no file.
    std::fs::write(away.path().join("a.bin"), b"tampered").unwrap();
    let bad = dir.path().join("bad");
    let message = get(&one, &bad, &from(away.path())).unwrap_err().to_string();
    assert!(message.contains(away.path().to_str().unwrap()) && message.contains("SHA-256"));
    let message = get(&one, &bad, &from(&away.path().join("none"))).unwrap_err().to_string();
    assert!(message.contains("none"), "{message}");
    assert!(names(&bad).is_empty(), "{:?}", names(&bad));
}

/// Of PyTorch's files only the beginning of the checksum is known, and about how large they are.
#[test]
fn a_file_is_known_by_the_beginning_of_its_checksum_where_no_more_is_known() {
    let bytes = noise(7, 20_000);
    let known = RemoteFile { bytes: 19_900, sha256: &hash(&bytes)[..8], ..remote("a.pth", &bytes) };
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&[("a.pth", bytes.clone())], &[Trick::Honest]);
    let fetched = get(&dataset(&[&server], vec![known.clone()]), dir.path(), &quick()).unwrap();
    assert_eq!((fetched.files[0].bytes, &*fetched.files[0].sha256), (20_000, hash(&bytes)));
    let server = Server::start(&[("a.pth", noise(8, 20_000))], &[Trick::Honest]);
    let bad = dir.path().join("bad");
    let error = get(&dataset(&[&server], vec![known.clone()]), &bad, &quick()).unwrap_err();
    assert!(error.to_string().contains(known.sha256), "{error}");
    assert!(names(&bad).is_empty(), "{:?}", names(&bad));
}

#[test]
fn same_contents_packed_again_are_accepted() {
    let Some(mnist) = paceline_testing::real_data("mnist") else { return };
    let dir = tempfile::tempdir().unwrap();
    let dataset = paceline_prepare::fetch::datasets::find("mnist").unwrap();
    let options = FetchOptions { from: Some(mnist.to_str().unwrap().into()), ..quick() };
    let fetched = get(dataset, dir.path(), &options).unwrap();
    assert_eq!(fetched.files.len(), 4);
    assert!(get(dataset, dir.path(), &quick()).unwrap().was_complete);
    // A flipped byte inside is noticed the same way.
    let bad = dir.path().join("t10k-labels-idx1-ubyte.gz");
    let mut bytes = std::fs::read(&bad).unwrap();
    bytes[2000] ^= 1;
    std::fs::write(&bad, bytes).unwrap();
    std::fs::remove_file(dir.path().join(MARKER)).unwrap();
    get(dataset, dir.path(), &options).unwrap();
}

/// Name, contents and kind of an entry in an archive.
type Entry = (&'static str, &'static [u8], tar::EntryType);

fn archive(entries: &[Entry]) -> Vec<u8> {
    let gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(gz);
    for (name, contents, kind) in entries {
        let mut header = tar::Header::new_gnu();
        // Written by hand, because the builder refuses what an attacker would write.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        if kind.is_symlink() {
            header.as_gnu_mut().unwrap().linkname[..4].copy_from_slice(b"/etc");
        }
        header.set_cksum();
        builder.append(&header, *contents).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

#[test]
fn archives_are_unpacked_whole_or_refused() {
    use tar::EntryType::{Directory, Regular, Symlink};
    let good: &[Entry] = &[
        ("set/", b"", Directory),
        ("set/rose/1.jpg", b"one", Regular),
        ("set/daisy/2.jpg", b"two", Regular),
    ];
    let cases: &[(&[Entry], &str)] = &[
        (good, ""),
        (&[("set/a", b"", Regular), ("../evil", b"x", Regular)], "outside"),
        (&[("set/a", b"", Regular), ("/tmp/evil", b"x", Regular)], "outside"),
        (&[("set/a", b"", Regular), ("set/../../evil", b"x", Regular)], "outside"),
        (&[("other/a", b"", Regular), ("set/b", b"x", Regular)], "outside"),
        (&[("set/link", b"", Symlink), ("set/link/passwd", b"x", Regular)], "neither a file"),
        (&[("set/a", &[0; 2000], Regular), ("set/b", b"", Regular)], "more than"),
        (&[("set/a", b"", Regular)], "holds 1 files, expected 2"),
    ];
    for (entries, wanted) in cases {
        let dir = tempfile::tempdir().unwrap();
        let bytes = archive(entries);
        let server = Server::start(&[("set.tgz", bytes.clone())], &[Trick::Honest]);
        let mut sample = dataset(&[&server], vec![remote("set.tgz", &bytes)]);
        sample.archive = Some(Archive { folder: "set", files: 2, max_bytes: 1000 });
        let out = dir.path().join("out");
        match get(&sample, &out, &quick()) {
            Ok(fetched) => {
                assert_eq!(*wanted, "");
                assert_eq!(fetched.folder, out.join("set"));
                assert_eq!(std::fs::read(out.join("set/rose/1.jpg")).unwrap(), b"one");
                assert_eq!(names(&out), [MARKER, "set"]);
                assert!(get(&sample, &out, &quick()).unwrap().was_complete);
            }
            Err(error) => {
                let message = error.to_string();
                assert!(!wanted.is_empty() && message.contains(wanted), "{wanted}: {message}");
                assert_eq!(names(&out), ["set.tgz"]);
                assert_eq!(names(dir.path()), ["out"]);
            }
        }
    }
    // Not an archive at all.
    let dir = tempfile::tempdir().unwrap();
    let bytes = noise(7, 5000);
    let server = Server::start(&[("set.tgz", bytes.clone())], &[Trick::Honest]);
    let mut sample = dataset(&[&server], vec![remote("set.tgz", &bytes)]);
    sample.archive = Some(Archive { folder: "set", files: 2, max_bytes: 1000 });
    let message = get(&sample, dir.path(), &quick()).unwrap_err().to_string();
    assert!(message.contains("cannot be unpacked"), "{message}");
}

#[test]
fn folder_of_another_data_set_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = noise(8, 100);
    let server = Server::start(&[("a.bin", bytes.clone())], &[Trick::Honest]);
    let mut sample = dataset(&[&server], vec![remote("a.bin", &bytes)]);
    get(&sample, dir.path(), &quick()).unwrap();
    sample.name = "another";
    let error = get(&sample, dir.path(), &quick()).unwrap_err();
    assert!(error.to_string().contains("holds the data set `sample`"), "{error}");
}

const URL: &str = "PACELINE_TEST_URL";
const OUT: &str = "PACELINE_TEST_OUT";

fn shared_sample(url: &str) -> (Vec<u8>, Dataset) {
    let bytes = noise(10, 2_000_000);
    let mut sample = dataset(&[], vec![remote("a.bin", &bytes)]);
    sample.mirrors = Box::leak(vec![leak(url.to_owned())].into_boxed_slice());
    (bytes, sample)
}

/// Not a test of its own: what the processes below run.
#[test]
fn child() {
    let (Ok(url), Some(out)) = (std::env::var(URL), std::env::var_os(OUT)) else { return };
    let (_, sample) = shared_sample(&url);
    get(&sample, Path::new(&out), &quick()).unwrap();
}

fn start(server: &Server, out: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(URL, &server.url)
        .env(OUT, out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn ten_processes_download_once() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, _) = shared_sample("");
    let server = Server::start(&[("a.bin", bytes.clone())], &[Trick::Truncate, Trick::Honest]);
    let children: Vec<_> = (0..10).map(|_| start(&server, dir.path())).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(std::fs::read(dir.path().join("a.bin")).unwrap(), bytes);
    assert_eq!(names(dir.path()), ["a.bin", MARKER]);
    // One download: the first request, cut short, and its continuation.
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests.iter().all(|request| request.path == "/a.bin"));
}

#[test]
fn lock_of_a_killed_process_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, _) = shared_sample("");
    let server = Server::start(&[("a.bin", bytes.clone())], &[Trick::Stall, Trick::Honest]);
    let mut first = start(&server, dir.path());
    while server.requests().is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    let mut second = start(&server, dir.path());
    thread::sleep(Duration::from_millis(50));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(second.wait().unwrap().success());
    assert_eq!(std::fs::read(dir.path().join("a.bin")).unwrap(), bytes);
}
