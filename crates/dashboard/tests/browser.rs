//! The page in a real browser: it lists runs, updates itself during a run, drills down, compares, and survives hostile names.

#![allow(clippy::unwrap_used)]

mod support;

use paceline_runs::{EventLog, unix_seconds};
use paceline_testing::{
    browser::{chromium, page_after},
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
    let mut tab = Tab::open(&browser, &server.url, profile.path());
    let text = "document.body.innerText";
    tab.wait_for("document.querySelectorAll('tbody tr').length === 2");
    let list = tab.evaluate(text).as_str().unwrap().to_owned();
    assert!(list.contains("softmax one-device") && list.contains("2 runs"), "{list}");
    assert!(list.contains("97.00"), "{list}");
    tab.evaluate("location.hash = '#/run/one'");
    tab.wait_for(&format!("{text}.includes('compute-bound: 80')"));
    tab.wait_for(&format!(
        "document.querySelector('svg') && {text}.includes('How far did the loss fall?')"
    ));
    tab.wait_for("document.querySelector('pre.log').textContent.includes('a line of the log <b>')");
    let both = "#/compare/one,two%3Cscript%3Edocument.title%3D%27hacked%27%3C%2Fscript%3E";
    tab.evaluate(&format!("location.hash = \"{both}\""));
    tab.wait_for(&format!("{text}.includes('per run')"));
    assert_eq!(tab.evaluate("document.title"), "Paceline", "a name must stay text");
    // For the eye: kept where one can look at them.
    let shots = paceline_testing::workspace().join("target/dashboard");
    std::fs::create_dir_all(&shots).unwrap();
    for (name, hash) in [("list", "#"), ("run", "#/run/one")] {
        tab.evaluate(&format!("location.hash = '{hash}'"));
        tab.wait_for("document.querySelector('.state')");
        for (width, dark) in [(1400, false), (1400, true), (390, false), (390, true)] {
            let theme = if dark { "-dark" } else { "" };
            let file = shots.join(format!("{name}-{width}{theme}.png"));
            tab.picture(width, dark, &file);
            assert!(std::fs::metadata(&file).unwrap().len() > 5000, "{name}");
            let wide = tab.evaluate("document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= u64::from(width), "{name} is {wide} wide at {width}");
        }
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
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let page = std::thread::scope(|scope| {
        // A page that fails must not leave the writer writing.
        let _ends = Ends(&over);
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
        let mut tab = Tab::open(&browser, &server.url, profile.path());
        tab.wait_for("document.querySelector('.state.running')");
        let first = "Number(document.querySelector('tr[data-run=live]').dataset.step)";
        let seen = tab.evaluate(first).as_u64().unwrap();
        tab.evaluate("globalThis.keptRow = document.querySelector('tr[data-run=live]')");
        tab.wait_for(&format!("{first} > {seen} && {first} > 10"));
        let same =
            tab.evaluate("globalThis.keptRow === document.querySelector('tr[data-run=live]')");
        over.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 20);
        same
    });
    assert_eq!(page, true, "the row is updated, not replaced");
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
    assert_eq!(
        tab.evaluate("document.querySelectorAll('script:not([src])').length"),
        1,
        "the one added above"
    );
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
