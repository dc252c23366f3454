//! Clients that people already use, installed from PyPI and npm: each case goes through one of
//! them, and what its caller got comes back. `tests/clients` has the programs.

use super::documents::text;
use super::*;

const TOKEN: &str = "sk_demo_acme";
const PACKAGES: [&[&str]; 2] = [&["stripe", "requests", "httpx"], &["stripe", "axios", "axios-retry"]];
/// Attempts to install: a registry may be away for a moment.
const TRIES: u32 = 3;

#[derive(Clone)]
pub struct Case {
    pub path: &'static str,
    pub key: String,
    pub token: &'static str,
    pub behave: Option<&'static str>,
    pub retries: u32,
}

impl Case {
    pub fn new(retries: u32) -> Self {
        Self { path: "/v1/charges", key: key("client"), token: TOKEN, behave: None, retries }
    }
}

pub struct Clients(tempfile::TempDir);

impl Clients {
    /// Installs them; the error says what could not be had. Blocks.
    pub fn install() -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let run = |program: &Path, args: &[&str]| {
            let once = || {
                let mut command = Command::new(program);
                let output = command.args(args).current_dir(dir.path()).stdin(Stdio::null()).output();
                let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let failed = || format!("{} {args:?}: {said}", program.display());
                output.status.success().then_some(()).ok_or_else(failed)
            };
            (1..TRIES).fold(once(), |done, _| done.or_else(|_| once()))
        };
        run(Path::new("python3"), &["-m", "venv", "venv"])?;
        run(&dir.path().join("venv/bin/pip"), &[&["install", "--quiet"], PACKAGES[0]].concat())?;
        run(Path::new("npm"), &[&["install", "--silent", "--no-audit"], PACKAGES[1]].concat())?;
        for file in ["clients.py", "clients.mjs"] {
            fs::write(dir.path().join(file), text(&format!("tests/clients/{file}"))).unwrap();
        }
        Ok(Self(dir))
    }

    /// Sends one case through a client, to a gateway at `base`. Returns what its caller got.
    pub async fn send(&self, client: &str, base: &str, case: &Case) -> Value {
        let (program, file) = match client {
            "curl" => return self.curl(base, case).await,
            "stripe (Node)" | "fetch" | "axios-retry" => ("node".into(), "clients.mjs"),
            _ => (self.0.path().join("venv/bin/python"), "clients.py"),
        };
        let Case { path, key, token, behave, retries } = case;
        let headers: BTreeMap<&str, &str> = behave.iter().map(|behave| ("Demo-Behave", *behave)).collect();
        let line = json!({
            "client": client, "path": path, "key": key, "token": token, "headers": headers, "retries": retries,
        });
        let mut command = tokio::process::Command::new(program);
        command.args([file, base]).current_dir(self.0.path()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        child.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).await.unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = output.next_line().await.unwrap().expect("the program ended");
        serde_json::from_str(&line).unwrap()
    }

    async fn curl(&self, base: &str, case: &Case) -> Value {
        let Case { path, key, token, behave, retries } = case;
        let mut command = tokio::process::Command::new("curl");
        // No /dev/null: curl truncates its output before it retries.
        command.args(["--silent", "--write-out", "%{http_code}", "--output"]);
        command.arg(self.0.path().join("answer"));
        command.args(["--retry", &retries.to_string(), "--data", r#"{"amount":2000,"currency":"usd"}"#]);
        let behave = behave.map(|behave| format!("Demo-Behave: {behave}"));
        let own = [format!("Authorization: Bearer {token}"), format!("Idempotency-Key: {key}")];
        for header in own.into_iter().chain(behave).chain(["Content-Type: application/json".to_owned()]) {
            command.args(["--header", &header]);
        }
        let output = command.arg(format!("{base}{path}")).output().await.unwrap();
        let status = String::from_utf8_lossy(&output.stdout).parse::<u16>();
        json!({ "status": status.unwrap_or_else(|_| panic!("curl: {output:?}")) })
    }
}

pub fn said(result: &Value) -> String {
    let status = result["status"].as_u64().map_or_else(|| "nothing".to_owned(), |status| status.to_string());
    match result["threw"].as_str() {
        Some(threw) => format!("{threw} ({status})"),
        None => status,
    }
}
