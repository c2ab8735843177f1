//! A browser tab that a test clicks and types in, through Chromium's DevTools protocol.
//!
//! The protocol runs over two pipes rather than a socket, so it needs no port and no library: messages are JSON, each
//! ended by a zero byte.

use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long the browser may take for anything on a busy machine.
const PATIENCE: Duration = crate::HANG;

/// An open page; the browser ends with it.
#[derive(Debug)]
pub struct Tab {
    browser: Child,
    to: File,
    from: Receiver<Value>,
    session: Option<String>,
    sent: u64,
}

impl Tab {
    /// Starts a browser with a profile in `folder` and opens a page.
    ///
    /// # Panics
    /// When the browser cannot be started or does not answer.
    #[must_use]
    pub fn open(chromium: &Path, address: &str, folder: &Path) -> Tab {
        let [to, from] = ["to", "from"].map(|name| folder.join(name));
        for pipe in [&to, &from] {
            let made = Command::new("mkfifo").arg(pipe).status().expect("mkfifo is there");
            assert!(made.success(), "no pipe at {}", pipe.display());
        }
        // Opened for both directions, a pipe does not wait for its other end.
        let open = |path: &Path| {
            OpenOptions::new().read(true).write(true).open(path).expect("a pipe opens")
        };
        let (to_browser, from_browser) = (open(&to), open(&from));
        let browser = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<\"$TO\" 4>\"$FROM\"", "sh"])
            .arg(chromium)
            .args(crate::browser::QUIETLY)
            .args(["--remote-debugging-pipe", "--window-size=1200,900"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .env("TO", &to)
            .env("FROM", &from)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Chromium starts");
        let (send, messages) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(from_browser);
            let mut message = Vec::new();
            while reader.read_until(0, &mut message).is_ok_and(|count| count > 0) {
                message.pop();
                if let Ok(value) = serde_json::from_slice(&message)
                    && send.send(value).is_err()
                {
                    return;
                }
                message.clear();
            }
        });
        let mut tab = Tab { browser, to: to_browser, from: messages, session: None, sent: 0 };
        let target = tab.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = tab.call("Target.attachToTarget", &attach);
        tab.session = attached["sessionId"].as_str().map(str::to_owned);
        tab.call("Page.navigate", &json!({ "url": address }));
        tab
    }

    /// Calls a method of the protocol and waits for its result.
    ///
    /// # Panics
    /// When the browser refuses or does not answer.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let answer =
                self.from.recv_timeout(left).unwrap_or_else(|_| panic!("no answer to {method}"));
            // Events come in between; they have no number.
            if answer["id"] == self.sent {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    /// The value of an expression in the page; null where it is undefined or throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        self.call("Runtime.evaluate", &params)["result"]["value"].clone()
    }

    /// Waits until an expression is true in the page; says how long that took.
    ///
    /// # Panics
    /// When it does not become true; shows the page then.
    pub fn wait_for(&mut self, expression: &str) -> Duration {
        let begun = Instant::now();
        while self.evaluate(&format!("Boolean({expression})")) != true {
            if begun.elapsed() > PATIENCE {
                let page = self.evaluate("document.body.innerText");
                panic!("never true: {expression}\n{}", page.as_str().unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        begun.elapsed()
    }

    /// Clicks the first element that a selector finds.
    ///
    /// # Panics
    /// When there is none.
    pub fn click(&mut self, selector: &str) {
        // Found and clicked in one go: a page that draws itself again in between would leave the click nothing to hit.
        let found = format!("document.querySelector({})", json!(selector));
        self.wait_for(&format!("(place => place && (place.click(), true))({found})"));
    }

    /// Moves, presses or releases the mouse: `kind` is the protocol's `mouseMoved`, `mousePressed` or `mouseReleased`.
    pub fn mouse(&mut self, kind: &str, (x, y): (f64, f64), clicks: u32) {
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        self.call(
            "Input.dispatchMouseEvent",
            &json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": 1, "clickCount": clicks }),
        );
    }

    /// Drags from one place to another.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.mouse("mouseMoved", from, 0);
        self.mouse("mousePressed", from, 1);
        self.mouse("mouseMoved", ((from.0 + to.0) / 2.0, from.1), 0);
        self.mouse("mouseMoved", to, 0);
        self.mouse("mouseReleased", to, 1);
    }

    /// Types into the first field that a selector finds, in place of what was there.
    ///
    /// # Panics
    /// When there is none.
    pub fn fill(&mut self, selector: &str, text: &str) {
        let found = format!("document.querySelector({})", json!(selector));
        self.wait_for(&format!(
            "(field => field && (field.focus(), field.select(), true))({found})"
        ));
        self.call("Input.insertText", &json!({ "text": text }));
    }

    /// Takes a picture of the page as a screen of that width shows it; narrower than a window can be, too.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn picture(&mut self, width: u32, dark: bool, file: &Path) {
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", &media);
        let screen =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", &screen);
        let shot = json!({ "format": "png", "captureBeyondViewport": true });
        let found = self.call("Page.captureScreenshot", &shot);
        let bytes = from_base64(found["data"].as_str().unwrap_or_default());
        std::fs::write(file, bytes).expect("a picture can be written");
    }

    /// What does not fit the screen of the last picture: a page that scrolls sideways, visible text smaller than 11 pixels
    /// (of a drawing as it is scaled), words of a legend outside of its card.
    #[must_use]
    pub fn misfits(&mut self) -> Vec<String> {
        let found = self.evaluate(MISFITS);
        let texts = found.as_array().expect("the page can be looked at");
        texts.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }
}

/// Names everything that does not fit. Its limits allow for rounding.
const MISFITS: &str = r#"
(() => {
    const found = [];
    const page = document.documentElement;
    if (page.scrollWidth > page.clientWidth) found.push(`${page.scrollWidth} wide on ${page.clientWidth} px`);
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const it = texts.currentNode.parentElement, words = texts.currentNode.data.trim();
        if (!words || !it.checkVisibility({ checkVisibilityCSS: true })) continue;
        const svg = it.ownerSVGElement;
        if (!svg && ['SCRIPT', 'STYLE', 'TITLE'].includes(it.tagName)) continue;
        if (svg && !it.closest('text')) continue;
        const scale = svg?.viewBox.baseVal?.width ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
        const size = parseFloat(getComputedStyle(it).fontSize) * scale;
        if (size < 10.999) found.push(`${size.toFixed(2)} px: ${words.slice(0, 60)}`);
    }
    for (const it of document.querySelectorAll('.legend text')) {
        const card = it.closest('figure').getBoundingClientRect(), box = it.getBoundingClientRect();
        if (box.right > card.right || box.left < card.left || box.bottom > card.bottom)
            found.push(`outside of its card: ${it.textContent}`);
    }
    return found;
})()
"#;

impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for six in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_decoded_whatever_their_length() {
        assert_eq!(from_base64("cGFjZQ=="), b"pace");
        assert_eq!(from_base64("bGluZQ"), b"line");
        assert_eq!(from_base64(""), b"");
    }
}
