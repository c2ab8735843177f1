//! The page in a real browser: it lists runs, updates itself during a run, drills down, compares, and survives hostile names.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_runs::{EventLog, unix_seconds};
use paceline_testing::{
    browser::{chromium, page_after, picture},
    devtools::Tab,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Running, finished, planned, started, step};

#[test]
fn the_list_the_run_and_the_comparison_are_shown() {
    let Some(browser) = chromium() else { return };
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "one", "softmax", 0.91);
    finished(root.path(), "two<script>document.title='hacked'</script>", "lenet", 0.97);
    std::fs::write(root.path().join("one/worker-0.log"), "a line of the log <b>\n").unwrap();
    let server = Running::of(root.path());
    let profile = tempfile::tempdir().unwrap();
    let open = |hash: &str| {
        page_after(
            &browser,
            &format!("{}{hash}", server.url),
            Duration::from_secs(3),
            profile.path(),
        )
    };
    let list = open("");
    assert!(list.contains("softmax one-device") && list.contains("2 runs"), "{list}");
    assert!(list.contains("97.00"), "{list}");
    assert!(!list.contains("<title>hacked"), "a name must stay text");
    let run = open("#/run/one");
    assert!(run.contains("compute-bound: 80"), "{run}");
    assert!(run.contains("<svg") && run.contains("How far did the loss fall?"), "{run}");
    assert!(run.contains("a line of the log &lt;b&gt;"), "{run}");
    let both = open("#/compare/one,two%3Cscript%3Edocument.title%3D%27hacked%27%3C%2Fscript%3E");
    assert!(both.contains("per run") && !both.contains("<title>hacked"), "{both}");
    // For the eye: kept where one can look at them.
    let shots = paceline_testing::workspace().join("target/dashboard");
    std::fs::create_dir_all(&shots).unwrap();
    for (name, hash, size, dark) in [
        ("list", "", (1200, 700), false),
        ("list-dark-phone", "", (500, 800), true),
        ("run", "#/run/one", (1200, 1800), false),
        ("run-dark-phone", "#/run/one", (500, 1600), true),
    ] {
        let file = shots.join(format!("{name}.png"));
        picture(&browser, &format!("{}{hash}", server.url), size, dark, &file, profile.path());
        assert!(std::fs::metadata(&file).unwrap().len() > 5000, "{name}");
    }
}

#[test]
fn a_running_run_is_updated_without_a_reload() {
    let Some(browser) = chromium() else { return };
    let root = tempfile::tempdir().unwrap();
    let run = planned(root.path(), "live", "lenet");
    let mut log = EventLog::append(&run.events_path("worker/0"), "worker/0").unwrap();
    log.write(unix_seconds(), &started("lenet")).unwrap();
    log.write(unix_seconds(), &step(10)).unwrap();
    log.flush().unwrap();
    let server = Running::of(root.path());
    let (over, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let page = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Steps go on as fast as the page looks, so that any look but the first sees more than ten.
            let mut at = 10;
            while !over.load(Ordering::Relaxed) {
                at += 10;
                log.write(unix_seconds(), &step(at)).unwrap();
                log.flush().unwrap();
                begun.store(true, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
            at
        });
        let profile = tempfile::tempdir().unwrap();
        let page = page_after(&browser, &server.url, Duration::from_secs(6), profile.path());
        over.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 20);
        page
    });
    assert!(page.contains("state running") && page.contains(">live<"), "{page}");
    let seen: u64 =
        page.split("data-step=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    assert!(seen > 10, "the page shows step {seen}");
}

/// An address whose answer, were `task` part of a header as it is, would be of this kind and have this body.
fn injected(kind: &str, body: &str) -> String {
    let task = format!(
        "\"\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let task: String = task.bytes().map(|byte| format!("%{byte:02x}")).collect();
    format!("api/run?name=one&task={task}")
}

/// `task` once went unchecked into the ETag: a link was enough for headers and a body of a stranger's choice.
#[test]
fn a_task_with_line_breaks_becomes_neither_a_header_nor_a_page() {
    let Some(browser) = chromium() else { return };
    let root = tempfile::tempdir().unwrap();
    finished(root.path(), "one", "softmax", 0.91);
    let server = Running::of(root.path());
    let profile = tempfile::tempdir().unwrap();
    let script = injected("text/javascript", "document.title = 'hacked'");
    for body in [
        format!("<title>theirs</title><script src=\"/{}\"></script>", script.replace('&', "&amp;")),
        "<title>theirs</title><script>document.title = 'hacked'</script>".to_owned(),
        "<title>theirs</title><img src=x onerror=\"document.title = 'hacked'\">".to_owned(),
    ] {
        let address = format!("{}{}", server.url, injected("text/html", &body));
        let page = page_after(&browser, &address, Duration::from_secs(3), profile.path());
        assert!(!page.contains("<title>"), "{page}");
        assert!(page.contains("compute-bound"), "the answer is the run's own: {page}");
    }
}

/// Styles and scripts are allowed by their hashes: the page's own work, one that comes from elsewhere does not.
#[test]
fn the_policy_allows_the_pages_own_script_and_style_and_no_other() {
    let Some(browser) = chromium() else { return };
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    finished(root.path(), "one", "softmax", 0.91);
    let server = Running::of(root.path());
    let mut tab = Tab::open(&browser, &server.url, folder.path());
    tab.wait_for("document.querySelectorAll('tbody tr').length === 1");
    let margin = "getComputedStyle(document.body).marginTop";
    assert_eq!(tab.evaluate(margin), "0px", "the page's own style applies");
    tab.evaluate(
        "globalThis.refused = []; \
         document.addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective)); \
         for (const [kind, text] of [['script', 'document.title = `hacked`'], ['style', 'body { margin-top: 7px }']]) \
           { const made = document.createElement(kind); made.textContent = text; document.body.append(made); } \
         const image = document.createElement('div'); image.innerHTML = '<img src=x onerror=\"document.title = `hacked`\">'; \
         document.body.append(image)",
    );
    tab.wait_for("refused.includes('script-src-elem') && refused.includes('style-src-elem')");
    tab.wait_for("refused.includes('script-src-attr')");
    assert_eq!(tab.evaluate("document.title"), "Paceline");
    assert_eq!(tab.evaluate(margin), "0px");
    // The report that the page links to has a policy and a hash of its own.
    tab.call(
        "Page.navigate",
        &serde_json::json!({ "url": format!("{}report?name=one", server.url) }),
    );
    tab.wait_for("document.body && document.body.innerText.includes('Training report')");
    assert_eq!(tab.evaluate(margin), "0px");
}
