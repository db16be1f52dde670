//! A headless Chromium, driven by the DevTools protocol over a WebSocket on loopback.
//!
//! Events report its requests, console messages and exceptions. It resolves no names.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

/// Time limit for one answer of the browser. Long, because test machines are busy.
const ANSWER_WAIT: Duration = Duration::from_secs(90);
/// Time limit for a condition on the page, milliseconds.
const CONDITION_MS: u32 = 60_000;

pub struct Browser {
    child: Child,
    socket: WebSocket<TcpStream>,
    session: String,
    requests: u64,
    /// All events: method and parameters.
    received: Vec<(String, Value)>,
    /// Its profile, removed when dropped.
    _profile: TempDir,
}

impl Browser {
    /// Starts `chromium` with one empty tab of `width` by 900 pixels.
    pub fn start(chromium: &Path, width: u32) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new(chromium)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-port=0",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args([
                "--no-first-run",
                "--disable-default-apps",
                "--disable-breakpad",
                "--disable-dev-shm-usage",
            ])
            .args([
                "--disable-extensions",
                "--hide-scrollbars",
                "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--window-size={width},900"))
            .arg("about:blank")
            .env("TZ", "UTC")
            .env("HOME", profile.path())
            .env("TMPDIR", profile.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let address = devtools(&mut child);
        let mut browser = Browser {
            socket: connect(&address),
            child,
            session: String::new(),
            requests: 0,
            received: Vec::new(),
            _profile: profile,
        };
        browser.open_tab(width);
        browser
    }

    fn open_tab(&mut self, width: u32) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", attach);
        self.session = session["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        self.resize(width, 900);
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Emulates a user who prefers a dark or a light screen.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let how = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", how);
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression in the page is true.
    pub fn until(&mut self, condition: &str) {
        let wait = format!(
            "new Promise((done) => {{ const since = Date.now(); const check = () => {{
               if ({condition}) done(true); else if (Date.now() - since > {CONDITION_MS}) done(false);
               else setTimeout(check, 20); }}; check(); }})"
        );
        if self.value(&wait) != json!(true) {
            let text = self.value("document.body.innerText");
            panic!(
                "never true: {condition}\n{}",
                text.as_str().unwrap_or_default()
            );
        }
    }

    /// Clicks the middle of the first element that `selector` finds.
    pub fn click(&mut self, selector: &str) {
        let place = self.value(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}});
               const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ));
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Moves the pointer over the first element that `selector` finds, with the button pressed: from one
    /// share of its width to another one. Equal shares: without the button.
    pub fn drag(&mut self, selector: &str, shares: [f64; 2]) {
        let place = self.value(&format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}});
               const b = e.getBoundingClientRect(); return [b.x, b.width, b.y + b.height / 2]; }})()"
        ));
        let number = |at: usize| place[at].as_f64().unwrap();
        let [from, to] = shares.map(|share| number(0) + share * number(1));
        let mut mouse = |kind: &str, x: f64, button: &str| {
            let event = json!({"type": kind, "x": x, "y": number(2), "button": button, "buttons": u8::from(button == "left"), "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        };
        if from == to {
            // The first one may only leave another element.
            mouse("mouseMoved", from - 3.0, "none");
            return mouse("mouseMoved", from, "none");
        }
        mouse("mousePressed", from, "left");
        mouse("mouseMoved", (from + to) / 2.0, "left");
        mouse("mouseMoved", to, "left");
        mouse("mouseReleased", to, "left");
    }

    /// Presses and releases a key, by its DOM name.
    pub fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = if key == "Enter" { 13 } else { 0 };
        for kind in ["keyDown", "keyUp"] {
            let event =
                json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Saves a screenshot of the page in the directory FAIRPATH_SCREENSHOTS, if it is set.
    pub fn screenshot(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("FAIRPATH_SCREENSHOTS").map(PathBuf::from) else {
            return;
        };
        // Rows below the window do not exist.
        let whole = self
            .value("['above', 'below'].every((id) => !document.getElementById(id)?.offsetHeight)");
        let shot = self.call(
            "Page.captureScreenshot",
            json!({"captureBeyondViewport": whole}),
        );
        let png = data_encoding::BASE64
            .decode(shot["data"].as_str().unwrap().as_bytes())
            .unwrap();
        std::fs::write(dir.join(name).with_extension("png"), png).unwrap();
    }

    /// The parameters of all events of a method so far.
    pub fn events(&self, method: &str) -> Vec<&Value> {
        self.received
            .iter()
            .filter(|(name, _)| name == method)
            .map(|(_, parameters)| parameters)
            .collect()
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.requests += 1;
        let mut request = json!({"id": self.requests, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        self.socket
            .send(Message::text(request.to_string()))
            .unwrap();
        loop {
            let Message::Text(text) = self.socket.read().unwrap() else {
                continue;
            };
            let mut message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == json!(self.requests) {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
            if let Some(method) = message["method"].as_str() {
                let method = method.to_owned();
                self.received.push((method, message["params"].take()));
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The process group includes its renderers.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// The address that the browser prints when it listens.
fn devtools(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.ok()?;
        line.strip_prefix("DevTools listening on ")
            .map(str::to_owned)
    });
    // Reads further output, because a full pipe would block the browser.
    std::thread::spawn(move || lines.for_each(drop));
    address.expect("chromium prints the address of its DevTools")
}

fn connect(address: &str) -> WebSocket<TcpStream> {
    let host = address
        .trim_start_matches("ws://")
        .split('/')
        .next()
        .unwrap();
    let stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(ANSWER_WAIT)).unwrap();
    tungstenite::client(address, stream).unwrap().0
}
