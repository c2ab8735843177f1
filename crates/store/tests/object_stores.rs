//! Real object stores on this machine, through a proxy that fails, stalls, cuts off and forgets to answer.
//!
//! Every service goes through the same course; what is special to one is below.
#![allow(clippy::unwrap_used)]

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::Arc,
    thread,
    time::Duration,
};

use paceline_store::{
    IfExists, Mirror, RemoteSettings, Spool, Store, StoreError, Stream, download, open_with,
};
use paceline_testing::{
    emulators::Emulator,
    faults::{Fault, FaultyProxy, Rule},
};

/// A service behind a proxy.
struct Rig {
    _emulator: Emulator,
    proxy: FaultyProxy,
    store: Arc<dyn Store>,
    settings: RemoteSettings,
    root: String,
}

fn settings(variables: Vec<(&'static str, String)>) -> RemoteSettings {
    RemoteSettings {
        connect: Duration::from_secs(5),
        stall: Duration::from_secs(10),
        retries: 5,
        back_off: Duration::from_millis(10),
        give_up: Duration::from_secs(60),
        renew: Duration::from_secs(1),
        variables: variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    }
}

fn rig(
    emulator: Emulator,
    variables: fn(SocketAddr) -> Vec<(&'static str, String)>,
    root: impl Fn(SocketAddr) -> String,
) -> Rig {
    let proxy = FaultyProxy::start(emulator.address);
    let settings = settings(variables(proxy.address));
    let root = root(proxy.address);
    let store = open_with(&root, &settings).unwrap();
    Rig { _emulator: emulator, proxy, store, settings, root }
}

fn s3() -> Option<Rig> {
    let emulator = Emulator::s3("bucket")?;
    Some(rig(emulator, Emulator::s3_variables, |_| "s3://bucket/some/prefix".to_owned()))
}

fn azure() -> Option<Rig> {
    let emulator = Emulator::azure("container")?;
    Some(rig(emulator, Emulator::azure_variables, |_| "az://container/some/prefix".to_owned()))
}

/// Google's interface over moto; see `paceline_testing::faults::FaultyProxy::as_google`.
fn google() -> Option<Rig> {
    let emulator = Emulator::s3("bucket")?;
    let proxy = FaultyProxy::as_google(emulator.address);
    let settings = settings(Emulator::google_variables(proxy.address));
    let root = "gs://bucket/some/prefix".to_owned();
    let store = open_with(&root, &settings).unwrap();
    Some(Rig { _emulator: emulator, proxy, store, settings, root })
}

fn web() -> Option<Rig> {
    let emulator = Emulator::webdav()?;
    Some(rig(emulator, |_| Vec::new(), |address| format!("http://{address}/some")))
}

fn once(method: &'static str, contains: &'static str, fault: Fault) -> Rule {
    Rule { method, contains, after: 0, times: 1, fault }
}

/// Bytes that tell where they belong.
fn bytes(count: usize) -> Vec<u8> {
    (0..count as u32).map(|at| (at / 5) as u8 ^ (at >> 13) as u8).collect()
}

fn put(store: &dyn Store, key: &str, bytes: &[u8], if_exists: IfExists) -> Result<(), StoreError> {
    let mut upload = store.create(key, if_exists)?;
    for chunk in bytes.chunks(1 << 20) {
        upload.write_all(chunk).unwrap();
    }
    upload.commit()
}

/// What every store must do; large objects take parts and pieces.
fn course(rig: &Rig, large: usize) {
    let store = &*rig.store;
    rig.proxy.rules(&[]);
    assert_eq!(store.size("nothing").unwrap(), None);
    let missing = store.read("nothing", 9).unwrap_err();
    assert!(missing.is_missing(), "{missing:?}");
    assert!(missing.to_string().contains(&format!("{}/nothing", rig.root)), "{missing}");
    assert!(store.list("").unwrap_err().is_missing());

    for (key, size) in [("a/empty", 0), ("a/b/small one.bin", 1000), ("large", large)] {
        let bytes = bytes(size);
        put(store, key, &bytes, IfExists::Replace).unwrap();
        assert_eq!(store.size(key).unwrap(), Some(size as u64), "{key}");
        assert!(store.read(key, u64::MAX).unwrap() == bytes, "{key}");
    }
    let all = bytes(large);
    assert!(matches!(store.read("large", 1000), Err(StoreError::TooLarge { limit: 1000, .. })));
    assert_eq!(store.read_range("large", 7..4000).unwrap(), all[7..4000]);
    assert!(store.read_range("large", 3..large as u64 - 1).unwrap() == all[3..large - 1]);
    let beyond = large as u64 - 5..large as u64 + 5;
    assert!(matches!(store.read_range("large", beyond), Err(StoreError::OutOfRange { .. })));
    assert!(matches!(store.read_range("large", 0..u64::MAX), Err(StoreError::OutOfRange { .. })));

    let root = store.list("").unwrap();
    assert_eq!(root.folders, ["a"]);
    assert_eq!(root.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["large"]);
    assert_eq!(root.files[0].size, large as u64);
    let inner = store.list("a").unwrap();
    assert_eq!((inner.folders, inner.files.len()), (vec!["b".to_owned()], 1));

    // Of several who want to be the first, exactly one is.
    for (key, size) in [("won", 100), ("won-large", large)] {
        let results: Vec<Result<(), StoreError>> = thread::scope(|scope| {
            let tries: Vec<_> = (0..3)
                .map(|number| {
                    let mut bytes = bytes(size);
                    bytes[0] = number;
                    scope.spawn(move || put(store, key, &bytes, IfExists::Fail))
                })
                .collect();
            tries.into_iter().map(|try_| try_.join().unwrap()).collect()
        });
        let winners: Vec<usize> = (0..3).filter(|&number| results[number].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{key}: {results:?}");
        for result in results.iter().filter(|result| result.is_err()) {
            assert!(matches!(result, Err(StoreError::Exists { .. })), "{result:?}");
        }
        assert_eq!(store.read_range(key, 0..1).unwrap(), [winners[0] as u8], "{key}");
    }
    // An upload that is given up shows nothing and leaves nothing.
    let mut given_up = store.create("given-up", IfExists::Replace).unwrap();
    given_up.write_all(&all).unwrap();
    drop(given_up);
    assert_eq!(store.size("given-up").unwrap(), None);
    let names: Vec<String> = store.list("").unwrap().files.into_iter().map(|f| f.name).collect();
    assert_eq!(names, ["large", "won", "won-large"]);
    assert_eq!(store.sweep("").unwrap(), 0, "nothing temporary stays behind");

    let held = store.lock("lock").unwrap();
    let second = store.lock("lock").unwrap_err();
    let own = std::process::id();
    assert!(matches!(second, StoreError::Locked { pid: Some(pid), .. } if pid == own), "{second}");
    drop(held);
    drop(store.lock("lock").unwrap());
    assert_eq!(store.size("lock").unwrap(), None);

    let mut streamed = Vec::new();
    Stream::new(store.find("large").unwrap(), 5).read_to_end(&mut streamed).unwrap();
    assert!(streamed == all[5..]);
    let spool = Spool::new(store.find("large").unwrap()).unwrap();
    let mut record = [0; 1000];
    assert_eq!(spool.read_at(&mut record, large as u64 - 500).unwrap(), 500);
    assert_eq!(record[..500], all[large - 500..]);

    store.remove("large").unwrap();
    store.remove("large").unwrap();
    assert_eq!(store.size("large").unwrap(), None);
}

/// Transient faults are overcome, and no reader sees half of an object.
fn faults(rig: &Rig) {
    let store = &*rig.store;
    let small = bytes(3000);
    let large = bytes((9 << 20) + 11);
    put(store, "f/small", &small, IfExists::Replace).unwrap();
    put(store, "f/large", &large, IfExists::Replace).unwrap();
    for fault in [
        Fault::Status(500, "<Error><Code>InternalError</Code></Error>"),
        Fault::Status(503, "<html>busy</html>"),
        Fault::Truncate,
    ] {
        rig.proxy.rules(&[once("GET", "f/", fault.clone()), once("HEAD", "f/", fault.clone())]);
        assert!(store.read("f/small", 9999).unwrap() == small, "{fault:?}");
        rig.proxy.rules(&[Rule {
            method: "GET",
            contains: "f/large",
            after: 1,
            times: 3,
            fault: fault.clone(),
        }]);
        assert!(store.read("f/large", u64::MAX).unwrap() == large, "{fault:?}");
    }
    let twice = |fault| Rule { method: "PUT", contains: "f/", after: 0, times: 2, fault };
    for fault in [Fault::Status(500, ""), Fault::LostAnswer] {
        for (key, bytes) in [("f/new-small", &small), ("f/new-large", &large)] {
            rig.proxy.rules(&[twice(fault.clone())]);
            put(store, key, bytes, IfExists::Replace).unwrap();
            rig.proxy.rules(&[]);
            assert!(store.read(key, u64::MAX).unwrap() == *bytes, "{key} after {fault:?}");
            store.remove(key).unwrap();
        }
    }
    // The object arrived, its answer did not, and the repetition meets the object: that is a success.
    let hasty = RemoteSettings { stall: Duration::from_secs(1), ..rig.settings.clone() };
    let hasty = open_with(&rig.root, &hasty).unwrap();
    for (number, fault) in
        [Fault::LostAnswer, Fault::NoAnswer, Fault::Stall(Duration::from_secs(3))]
            .iter()
            .enumerate()
    {
        for (name, bytes) in [("small", &small), ("large", &large)] {
            let key = format!("f/only-{name}-{number}");
            let all = ["PUT", "POST"].map(|method| once(method, "f/only", fault.clone()));
            rig.proxy.rules(&all);
            put(&*hasty, &key, bytes, IfExists::Fail).unwrap();
            rig.proxy.rules(&[]);
            assert!(store.read(&key, u64::MAX).unwrap() == *bytes, "{key} after {fault:?}");
        }
    }
    rig.proxy.rules(&[once("PUT", "f/first", Fault::LostAnswer)]);
    put(store, "f/first", &small, IfExists::Fail).unwrap();
    rig.proxy.rules(&[]);
    let other = put(store, "f/first", &large[..3000], IfExists::Fail);
    assert!(other.is_ok() == (small == large[..3000]), "the same bytes are the same object");
    let other = put(store, "f/first", &large[1..3001], IfExists::Fail);
    assert!(matches!(other, Err(StoreError::Exists { .. })), "{other:?}");

    // A service that stays away: the error says where, and nothing half-written can be seen.
    let always =
        Rule { method: "PUT", contains: "f/", after: 1, times: 99, fault: Fault::Status(500, "") };
    rig.proxy.rules(&[always]);
    let error = put(store, "f/never", &large, IfExists::Replace).unwrap_err();
    rig.proxy.rules(&[]);
    assert!(error.to_string().contains(&format!("{}/f/never", rig.root)), "{error}");
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(store.size("f/never").unwrap(), None);
}

#[test]
fn s3_does_what_a_store_must() {
    let Some(rig) = s3() else { return };
    course(&rig, (17 << 20) + 123);
    faults(&rig);

    // Parallel pieces, not one long answer.
    put(&*rig.store, "p", &bytes(13 << 20), IfExists::Replace).unwrap();
    rig.proxy.rules(&[]);
    assert_eq!(rig.store.read("p", u64::MAX).unwrap().len(), 13 << 20);
    let gets = rig.proxy.seen().iter().filter(|seen| seen.starts_with("GET")).count();
    assert_eq!(gets, 1 + 4, "one that tells the size, four pieces of 4 MiB");

    // An answer that stands still is asked for again.
    let hasty = RemoteSettings { stall: Duration::from_millis(300), ..rig.settings.clone() };
    let store = open_with(&rig.root, &hasty).unwrap();
    rig.proxy.rules(&[once("GET", "p", Fault::Stall(Duration::from_secs(2)))]);
    assert_eq!(store.read_range("p", 5..9).unwrap(), bytes(9)[5..]);
    let stubborn = RemoteSettings { retries: 1, ..hasty };
    let store = open_with(&rig.root, &stubborn).unwrap();
    let always = Rule {
        method: "GET",
        contains: "p",
        after: 0,
        times: 9,
        fault: Fault::Stall(Duration::from_secs(2)),
    };
    rig.proxy.rules(&[always]);
    let error = store.read_range("p", 5..9).unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("s3://bucket/some/prefix/p"),
        "{error}"
    );

    let said = "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>";
    let words = "400 Bad Request: The provided token has expired. (ExpiredToken)";
    expired(&rig, (400, said), words, "AWS_SESSION_TOKEN");
    mirrored(&rig);
}

/// Credentials whose time is over: said once, with the bucket, the key and what to do.
fn expired(rig: &Rig, answer: (u16, &'static str), words: &str, hint: &str) {
    put(&*rig.store, "p", b"present", IfExists::Replace).unwrap();
    rig.proxy.rules(&[Rule {
        method: "",
        contains: "",
        after: 0,
        times: 99,
        fault: Fault::Status(answer.0, answer.1),
    }]);
    for (error, key) in [
        (rig.store.read("p", 9).unwrap_err(), "/p"),
        (put(&*rig.store, "q", b"x", IfExists::Replace).unwrap_err(), "/q"),
        (put(&*rig.store, "q", b"x", IfExists::Fail).unwrap_err(), "/q"),
        (rig.store.list("").unwrap_err(), ""),
    ] {
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(cause, words);
        assert!(error.to_string().contains(&format!("`{}{key}`", rig.root)), "{error}");
        assert!(error.hint().is_some_and(|said| said.contains(hint)), "{:?}", error.hint());
        assert!(!error.is_transient());
    }
    let seen = rig.proxy.seen();
    assert!(seen.len() <= 6, "no use in asking again: {seen:?}");
    rig.proxy.rules(&[]);
    assert_eq!(rig.store.size("q").unwrap(), None);
}

/// A lock outlives its holder's patience as long as the holder lives, and no longer.
#[test]
fn a_lock_is_kept_by_the_living_and_taken_from_the_dead() {
    let Some(rig) = s3() else { return };
    rig.store.write("dead/lock", b"{\"pid\":1,\"token\":\"0\"}").unwrap();
    let held = rig.store.lock("lock").unwrap();
    let first = rig.store.lock("dead/lock").unwrap_err();
    assert!(matches!(first, StoreError::Locked { pid: Some(1), .. }), "{first}");
    thread::sleep(Duration::from_secs(6)); // a lease without renewals ends after four seconds here
    let taken = rig.store.lock("dead/lock").unwrap();
    assert!(matches!(rig.store.lock("lock"), Err(StoreError::Locked { .. })));
    assert!(matches!(rig.store.lock("dead/lock"), Err(StoreError::Locked { .. })));
    drop((held, taken));
    assert!(rig.store.list("").unwrap_err().is_missing(), "nothing is left of them");
}

#[test]
fn azure_does_what_a_store_must() {
    let Some(rig) = azure() else { return };
    course(&rig, (17 << 20) + 123);
    faults(&rig);
    let said = "<Error><Code>AuthenticationFailed</Code><Message>Signature not valid in the specified time frame.\nTime: 0</Message></Error>";
    let words =
        "403 Forbidden: Signature not valid in the specified time frame. (AuthenticationFailed)";
    expired(&rig, (403, said), words, "AZURE_STORAGE_SAS_TOKEN");
    mirrored(&rig);
}

#[test]
fn google_does_what_a_store_must() {
    let Some(rig) = google() else { return };
    course(&rig, (17 << 20) + 123);
    faults(&rig);
    let said = "<Error><Code>AuthenticationRequired</Code><Message>Authentication required.</Message></Error>";
    let words = "401 Unauthorized: Authentication required. (AuthenticationRequired)";
    expired(&rig, (401, said), words, "gcloud auth");
    mirrored(&rig);
}

#[test]
fn a_web_server_does_what_it_can() {
    let Some(rig) = web() else { return };
    rig.store.write("x", b"").unwrap(); // WebDAV wants the folder to be there before it is looked at
    rig.store.remove("x").unwrap();
    put(&*rig.store, "a/b", &bytes(6 << 20), IfExists::Replace).unwrap();
    assert!(rig.store.read("a/b", u64::MAX).unwrap() == bytes(6 << 20));
    assert_eq!(rig.store.read_range("a/b", 5..9).unwrap(), bytes(9)[5..]);
    assert_eq!(rig.store.list("").unwrap().folders, ["a"]);
    put(&*rig.store, "once", b"1", IfExists::Fail).unwrap();
    assert!(matches!(
        put(&*rig.store, "once", b"2", IfExists::Fail),
        Err(StoreError::Exists { .. })
    ));
    assert_eq!(rig.store.read("once", 9).unwrap(), b"1");
    assert_eq!(rig.store.sweep("").unwrap(), 0);
    rig.proxy.rules(&[
        once("GET", "a/b", Fault::Status(500, "")),
        once("HEAD", "a/b", Fault::Status(503, "")),
    ]);
    assert!(rig.store.read("a/b", u64::MAX).unwrap() == bytes(6 << 20));
}

/// A folder that grows here is there too, whole, and comes back.
fn mirrored(rig: &Rig) {
    rig.proxy.rules(&[once("PUT", "run/", Fault::Status(500, ""))]);
    let here = tempfile::tempdir().unwrap();
    let run = here.path().join("run");
    let checkpoint = run.join("checkpoints/0000000001");
    std::fs::create_dir_all(&checkpoint).unwrap();
    let there = open_with(format!("{}/run", rig.root), &rig.settings).unwrap();
    let mirror = Mirror::start(&run, Arc::clone(&there), false).unwrap();
    std::fs::write(run.join("events-worker-0.jsonl"), "{}\n{\"half").unwrap();
    std::fs::write(checkpoint.join("weights.safetensors"), bytes(9 << 20)).unwrap();
    std::fs::write(checkpoint.join("manifest.json"), "{}").unwrap();
    let report = mirror.finish();
    assert!(report.failures.is_empty(), "{report:?}");
    let back = tempfile::tempdir().unwrap();
    assert_eq!(download(&*there, back.path()).unwrap(), 3);
    let read = |name: &str| std::fs::read(back.path().join(name)).unwrap();
    assert_eq!(read("events-worker-0.jsonl"), b"{}\n");
    assert!(read("checkpoints/0000000001/weights.safetensors") == bytes(9 << 20));
    let manifest = rig
        .proxy
        .seen()
        .iter()
        .rposition(|seen| seen.contains("manifest.json") && seen.starts_with("PUT"));
    let weights = rig
        .proxy
        .seen()
        .iter()
        .rposition(|seen| seen.contains("weights") && seen.starts_with("PUT"));
    assert!(manifest > weights, "a promise goes last: {:?}", rig.proxy.seen());
}

#[test]
fn without_credentials_the_error_says_so_and_no_request_is_repeated() {
    let nothing = FaultyProxy::start(([127, 0, 0, 1], 9).into()); // no server behind it
    nothing.rules(&[Rule {
        method: "",
        contains: "",
        after: 0,
        times: 99,
        fault: Fault::Stall(Duration::from_secs(3)),
    }]);
    let mut variables = vec![
        ("AWS_METADATA_ENDPOINT", format!("http://{}", nothing.address)),
        ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent".to_owned()),
        ("AWS_CONFIG_FILE", "/nonexistent".to_owned()),
    ];
    for asked in [1, 0] {
        let settings =
            RemoteSettings { stall: Duration::from_secs(1), ..settings(variables.clone()) };
        let store = open_with("s3://nobodys-bucket/key", &settings).unwrap();
        let error = store.read("x", 9).unwrap_err();
        assert!(error.to_string().contains("s3://nobodys-bucket/key/x"), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("no credentials were found"), "{cause}");
        assert!(error.hint().unwrap().contains("AWS_PROFILE") && !error.is_transient());
        assert_eq!(nothing.seen().len(), asked, "{:?}", nothing.seen());
        nothing.rules(&[]);
        variables.push(("AWS_EC2_METADATA_DISABLED", "true".to_owned()));
    }
}

/// Keys that a tool renews in the files of the AWS command line are taken from there.
#[test]
fn keys_come_from_the_profile_that_is_named() {
    let Some(emulator) = Emulator::s3("bucket") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("credentials");
    std::fs::write(&path, "[lab]\naws_access_key_id=a\naws_secret_access_key=b\n").unwrap();
    let mut variables = vec![
        ("AWS_ENDPOINT_URL", format!("http://{}", emulator.address)),
        ("AWS_SHARED_CREDENTIALS_FILE", path.display().to_string()),
        ("AWS_CONFIG_FILE", "/nonexistent".to_owned()),
        ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ("AWS_PROFILE", "lab".to_owned()),
    ];
    let store = open_with("s3://bucket/x", &settings(variables.clone())).unwrap();
    store.write("key", b"1").unwrap();
    assert_eq!(store.read("key", 9).unwrap(), b"1");
    variables.last_mut().unwrap().1 = "missing-profile".to_owned();
    let store = open_with("s3://bucket/x", &settings(variables)).unwrap();
    assert!(store.read("key", 9).unwrap_err().hint().is_some());
}
