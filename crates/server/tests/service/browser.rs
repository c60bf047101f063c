//! Headless Chromium, by its devtools protocol over a pipe.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The time that the browser has, beside other tests, for its start and for each question.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(120);
/// The name of a page that resolves to the host of the tests.
pub const REBOUND_NAME: &str = "rebound.example";

/// A browser with one page.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    last_id: u64,
    session: Option<String>,
    /// Exceptions of the page, and what its content policy refused.
    pub problems: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts a browser; `None` where there is none.
    pub fn start() -> Option<Self> {
        Command::new("chromium").arg("--version").output().ok()?;
        let profile = tempfile::tempdir().unwrap();
        // The pipe of the protocol has the descriptors 3 and 4.
        let mut chromium = Command::new("sh");
        chromium.args(["-c", r#"exec chromium "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#, "sh"]);
        chromium.args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"]);
        chromium.args(["--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server"]);
        let host = crate::nodes::HOST.to_string();
        chromium.arg(format!("--host-resolver-rules=MAP {REBOUND_NAME} {host}"));
        chromium.arg(format!("--user-data-dir={}", profile.path().display()));
        let mut child = chromium.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers.read_until(0, &mut message).is_ok_and(|len| len > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let (last_id, session, problems) = (0, None, Vec::new());
        let mut browser =
            Self { child, commands, messages, last_id, session, problems, _profile: profile };
        browser.attach();
        Some(browser)
    }

    /// Opens the page, and has its exceptions and its refused content reported.
    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", target);
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Calls a method of the protocol, and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let message = self.messages.recv_timeout(BROWSER_TIMEOUT).unwrap();
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            let is_problem = message["method"] == "Runtime.exceptionThrown"
                || message["params"]["entry"]["source"] == "security";
            if is_problem {
                self.problems.push(message);
            }
        }
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Evaluates an expression of JavaScript in the page, and waits for its promise.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let evaluated = self.call("Runtime.evaluate", parameters);
        match evaluated["exceptionDetails"].is_null() {
            true => evaluated["result"]["value"].clone(),
            // The document is not there yet.
            false => Value::Null,
        }
    }

    /// Waits until an expression is true in the page.
    pub fn wait_for(&mut self, expression: &str) {
        let deadline = Instant::now() + BROWSER_TIMEOUT;
        while self.evaluate(expression) != true {
            if Instant::now() > deadline {
                let shown = self.evaluate("document.body.innerText");
                panic!("not true: {expression}; {}", shown.as_str().unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until an element of the page has this text.
    pub fn wait_for_text(&mut self, id: &str, text: &str) {
        self.wait_for(&format!("document.getElementById({id:?}).textContent === {text:?}"));
    }

    /// Types a text where the focus is.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    pub fn press_enter(&mut self) {
        for kind in ["keyDown", "keyUp"] {
            let key = json!({
                "type": kind, "key": "Enter", "code": "Enter", "text": "\r",
                "windowsVirtualKeyCode": 13,
            });
            self.call("Input.dispatchKeyEvent", key);
        }
    }
}
