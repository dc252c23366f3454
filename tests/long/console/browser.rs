//! A headless Chromium, driven through ChromeDriver's plain WebDriver HTTP (W3C WebDriver;
//! Chromium's own commands under `goog/`). It ends with this process, however that ends: a shell
//! holds the other end of a pipe, and Chromium ends with its driver.

use crate::support::*;
use onceway_lab::wait::for_some;
use tokio::process::{Child, Command};

const WITHIN: Duration = Duration::from_secs(60);
/// The name of an element in answers (WebDriver, section 11).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Flags for a machine that runs as root and has no network.
const FLAGS: &str = "--headless=new --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run \
                     --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
                     --remote-debugging-pipe";

pub struct Browser {
    session: String,
    _driver: Child,
    _profile: TempDir,
}

/// The number of starts of the driver: now and then it ends at once, on a busy machine.
const STARTS: usize = 3;

async fn until_started(driver: &Path) -> (Child, u16) {
    for _ in 0..STARTS {
        // The driver ends with this process: then its standard input ends, and so does `read`. The
        // shell's own output is closed, so that none is left once the driver has ended.
        let script = "\"$0\" --port=0 & driver=$!; exec >&-; read -r line; kill $driver";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(driver).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = async {
            while let Some(line) = said.next_line().await.unwrap() {
                if let Some((_, rest)) = line.split_once("started successfully on port ") {
                    return rest.trim_end_matches('.').parse::<u16>().ok();
                }
            }
            None
        };
        if let Some(port) = timeout(WITHIN, port).await.ok().flatten() {
            // Its output is read to the end, so that it never waits for a reader.
            tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
            return (child, port);
        }
    }
    panic!("chromedriver ended, or did not say its port, {STARTS} times");
}

impl Browser {
    /// Starts one; `None` if none is installed, which is said.
    pub async fn start(what: &str) -> Option<Browser> {
        let (Some(chromium), Some(driver)) = (installed("chromium"), installed("chromedriver")) else {
            let how = "`apt-get install chromium chromium-driver`";
            not_checked(&format!("{what}, because chromium and chromedriver are not installed: {how}"));
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let (child, port) = until_started(&driver).await;
        let base = format!("http://127.0.0.1:{port}");
        let mut args: Vec<String> = FLAGS.split(' ').map(str::to_owned).collect();
        args.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": chromium, "args": args },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let begun = command(&format!("{base}/session"), &wanted).await;
        let id = begun["sessionId"].as_str().expect("a session");
        let session = format!("{base}/session/{id}");
        Some(Browser { session, _driver: child, _profile: profile })
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        command(&format!("{}/{path}", self.session), &body).await
    }

    async fn get(&self, path: &str) -> Value {
        let answer = Ask::get(format!("{}/{path}", self.session)).send(WITHIN).await.unwrap();
        answer.json()["value"].clone()
    }

    pub async fn open(&self, url: &str) {
        self.post("url", json!({ "url": url })).await;
    }

    pub async fn url(&self) -> String {
        self.get("url").await.as_str().unwrap_or_default().to_owned()
    }

    pub async fn run(&self, body: &str) -> Value {
        self.post("execute/sync", json!({ "script": body, "args": [] })).await
    }

    pub async fn text(&self, selector: &str) -> String {
        let found =
            self.run(&format!("return document.querySelector({})?.innerText ?? ''", json!(selector))).await;
        found.as_str().unwrap_or_default().to_owned()
    }

    async fn element(&self, selector: &str) -> String {
        let found = self.post("element", json!({ "using": "css selector", "value": selector })).await;
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("no {selector}: {found}")).to_owned()
    }

    /// Clicks, and waits for the page that follows. An element may be replaced meanwhile.
    pub async fn click(&self, selector: &str) {
        let clicked = async || {
            let element = self.element(selector).await;
            let url = format!("{}/element/{element}/click", self.session);
            match ask(&url, &json!({})).await {
                Ok(_) => Ok(Some(())),
                Err(why) if why["error"] == "stale element reference" => Ok(None),
                Err(why) => panic!("{selector} cannot be clicked: {}", why["message"]),
            }
        };
        for_some(selector, WITHIN, clicked).await.unwrap();
    }

    /// Types into an input, after its present text.
    pub async fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector).await;
        self.post(&format!("element/{element}/value"), json!({ "text": text })).await;
    }

    pub async fn cookies(&self) -> Value {
        self.get("cookie").await
    }

    /// The browser's complaints since the last call, one line each.
    pub async fn complaints(&self) -> Vec<String> {
        let lines = self.post("se/log", json!({ "type": "browser" })).await;
        let all = lines.as_array().cloned().unwrap_or_default();
        all.iter().map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    async fn devtools(&self, cmd: &str, params: Value) -> Value {
        self.post("goog/cdp/execute", json!({ "cmd": cmd, "params": params })).await
    }

    /// Sets the size of the screen, in CSS pixels; a narrow one is a phone's.
    pub async fn size(&self, width: u32, height: u32) {
        let params =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.devtools("Emulation.setDeviceMetricsOverride", params).await;
    }

    pub async fn scheme(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Writes a picture of the whole page into the folder of ONCEWAY_SCREENSHOTS, if it names one.
    pub async fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("ONCEWAY_SCREENSHOTS") else { return };
        let folder = PathBuf::from(folder);
        fs::create_dir_all(&folder).unwrap();
        self.run("scrollTo(0, 0)").await;
        let shot = self.devtools("Page.captureScreenshot", json!({ "captureBeyondViewport": true })).await;
        let bytes = STANDARD.decode(shot["data"].as_str().expect("a picture")).unwrap();
        fs::write(folder.join(format!("{name}.png")), bytes).unwrap();
    }

    pub async fn close(self) {
        Ask { method: http::Method::DELETE, ..Ask::get(self.session.clone()) }.send(WITHIN).await.unwrap();
    }
}

async fn ask(url: &str, body: &Value) -> Result<Value, Value> {
    let answer = Ask::post(url, body.to_string()).send(WITHIN).await.unwrap();
    let value = answer.json()["value"].clone();
    if answer.status == 200 { Ok(value) } else { Err(value) }
}

async fn command(url: &str, body: &Value) -> Value {
    ask(url, body)
        .await
        .unwrap_or_else(|why| panic!("{url} {body:.300}: {}: {}", why["error"], why["message"]))
}
