//! Clients that people already use, through a real gateway: a lost answer, a running key, and each
//! kind of refusal.
//!
//! `tests/clients` has the programs; their packages come from PyPI and npm. What a client's caller
//! gets is compared with the table of `docs/clients.md`. No client may make a second effect, and
//! the SDKs of a payment API must throw on every refusal: one that resolves is taken for a payment.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use onceway::fleet::region::{Action, Part};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::support::documents::text;
use crate::support::solo::{Solo, add_lines};
use crate::support::{effects, key, key_status, not_checked, route, run, until};

const POLICY: &str =
    "key = \"required\"\nhold = \"12s\"\nwait = \"0s\"\nupstream_timeout = \"6s\"\ndialect = \"stripe\"\n";
const PACKAGES: [&[&str]; 2] = [&["stripe", "requests", "httpx"], &["stripe", "axios", "axios-retry"]];
const CLIENTS: [&str; 7] =
    ["stripe (Python)", "stripe (Node)", "requests", "httpx", "fetch", "axios-retry", "curl"];
const TOKEN: &str = "sk_demo_acme";

/// One program that sends the cases of its clients.
struct Program {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Program {
    async fn send(&mut self, case: &Value) -> Value {
        self.input.write_all(format!("{case}\n").as_bytes()).await.unwrap();
        let line = self.output.next_line().await.unwrap().expect("the program ended");
        serde_json::from_str(&line).unwrap()
    }
}

/// Folder of the installed packages.
struct Installed(tempfile::TempDir);

impl Installed {
    /// Installs them; the error says what could not be had.
    fn new() -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let run = |program: &Path, args: &[&str]| {
            let output =
                Command::new(program).args(args).current_dir(dir.path()).stdin(Stdio::null()).output();
            let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                Ok(())
            } else {
                Err(format!("{} {args:?}: {said}", program.display()))
            }
        };
        run(Path::new("python3"), &["-m", "venv", "venv"])?;
        let pip: Vec<&str> = ["install", "--quiet"].iter().chain(PACKAGES[0]).copied().collect();
        run(&dir.path().join("venv/bin/pip"), &pip)?;
        let npm: Vec<&str> =
            ["install", "--silent", "--no-audit"].iter().chain(PACKAGES[1]).copied().collect();
        run(Path::new("npm"), &npm)?;
        for file in ["clients.py", "clients.mjs"] {
            std::fs::write(dir.path().join(file), text(&format!("tests/clients/{file}"))).unwrap();
        }
        Ok(Self(dir))
    }

    fn program(&self, client: &str, base: &str) -> Program {
        let (program, file) = match client {
            "stripe (Node)" | "fetch" | "axios-retry" => ("node".into(), "clients.mjs"),
            _ => (self.0.path().join("venv/bin/python"), "clients.py"),
        };
        let mut child = tokio::process::Command::new(program)
            .args([file, base])
            .current_dir(self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Program { _child: child, input, output }
    }
}

struct Stage {
    solo: Solo,
    installed: Installed,
}

/// The request of one case.
#[derive(Clone)]
struct Case {
    path: &'static str,
    key: String,
    token: &'static str,
    behave: Option<&'static str>,
    retries: u32,
}

impl Case {
    fn new(retries: u32) -> Self {
        Self { path: "/v1/charges", key: key("client"), token: TOKEN, behave: None, retries }
    }
}

impl Stage {
    async fn send(&self, client: &str, case: &Case) -> Value {
        if client == "curl" {
            return self.curl(case).await;
        }
        let Case { path, key, token, behave, retries } = case;
        let headers: BTreeMap<&str, &str> = behave.iter().map(|behave| ("Demo-Behave", *behave)).collect();
        let case = json!({
            "client": client, "path": path, "key": key, "token": token, "headers": headers, "retries": retries,
        });
        self.installed.program(client, &self.solo.public()).send(&case).await
    }

    async fn curl(&self, case: &Case) -> Value {
        let Case { path, key, token, behave, retries } = case;
        let mut command = tokio::process::Command::new("curl");
        // No /dev/null: curl truncates its output before it retries.
        command.args(["--silent", "--write-out", "%{http_code}", "--output"]);
        command.arg(self.installed.0.path().join("answer"));
        command.args(["--retry", &retries.to_string(), "--data", r#"{"amount":2000,"currency":"usd"}"#]);
        command.args(["--header", "Content-Type: application/json"]);
        command.args(["--header", &format!("Authorization: Bearer {token}")]);
        command.args(["--header", &format!("Idempotency-Key: {key}")]);
        if let Some(behave) = behave {
            command.args(["--header", &format!("Demo-Behave: {behave}")]);
        }
        let output = command.arg(format!("{}{path}", self.solo.public())).output().await.unwrap();
        let status = String::from_utf8_lossy(&output.stdout).parse::<u16>();
        json!({ "status": status.unwrap_or_else(|_| panic!("curl: {output:?}")) })
    }

    async fn state(&self, key: &str) -> Value {
        key_status(&self.solo.region, key).await["state"].clone()
    }
}

/// The result for a caller, in a few words.
fn said(told: &Value) -> String {
    let status = told["status"].as_u64().map_or_else(|| "nothing".to_owned(), |status| status.to_string());
    match told["threw"].as_str() {
        Some(threw) => format!("{threw} ({status})"),
        None => status,
    }
}

async fn stage() -> Result<Stage, String> {
    let installed = tokio::task::spawn_blocking(Installed::new).await.unwrap()?;
    let routes = [
        route("charges", &format!("{POLICY}recovery = \"probe\"\nprobe = \"/onceway/effects\"")),
        route("emails", &format!("{POLICY}recovery = \"rerun\"\nupstream = \"down\"")),
    ];
    let down = "[upstreams.down]\naddresses = [\"http://127.0.0.1:1\"]\n";
    let solo = Solo::start_with(&routes.concat(), None, |dir| add_lines(dir, down)).await;
    Ok(Stage { solo, installed })
}

/// One row of the table: what the client's caller gets when an answer was lost, while the first
/// request runs, and for a refusal.
async fn row(stage: &Stage, client: &str) -> [String; 4] {
    let first = Case::new(0);
    assert_eq!(stage.send(client, &first).await, json!({ "status": 201 }), "{client}");
    assert_eq!(stage.send(client, &first).await, json!({ "status": 201 }), "{client}: a replay");

    let lost = Case { behave: Some("drop-answer"), ..Case::new(4) };
    let after_loss = stage.send(client, &lost).await;
    assert_eq!(effects(&stage.solo.ledger, &lost.key), 1, "{client}: {after_loss}");

    let running = Case { behave: Some("slow=2s"), ..Case::new(5) };
    let first_of_two = Case { retries: 0, ..running.clone() };
    let (told, meanwhile) = tokio::join!(stage.send(client, &first_of_two), async {
        until("the key to run", async || stage.state(&running.key).await == "in-progress").await;
        stage.send(client, &running).await
    });
    assert_eq!((said(&told).as_str(), effects(&stage.solo.ledger, &running.key)), ("201", 1), "{client}");

    let mut refusals = Vec::new();
    for (case, status) in [
        (Case { key: "two words".to_owned(), ..Case::new(0) }, 400),
        (Case { path: "/v1/charges?other=1", ..first.clone() }, 400),
        (Case { token: "sk_nobody_knows", ..Case::new(0) }, 401),
        (Case { path: "/v1/refunds", ..Case::new(0) }, 404),
        (Case { path: "/v1/emails", ..Case::new(0) }, 502),
    ] {
        let told = stage.send(client, &case).await;
        assert_eq!(told["status"], status, "{client}: {told}");
        if client.starts_with("stripe") {
            assert!(told["threw"].is_string(), "{client} takes a {status} for an answer: {told}");
        }
        refusals.push(said(&told));
    }
    assert_eq!(effects(&stage.solo.ledger, &first.key), 1);
    [client.to_owned(), said(&after_loss), said(&meanwhile), refusals.join(", ")]
}

#[test]
fn clients_fail_loudly_and_none_makes_a_second_effect() {
    run(async {
        let stage = match stage().await {
            Ok(stage) => stage,
            Err(why) => return not_checked(&format!("clients of the registries: {why}")),
        };
        let mut table =
            "| client | answer lost | first still runs | 400, 400, 401, 404, 502 |\n|---|---|---|---|\n"
                .to_owned();
        for client in CLIENTS {
            table += &format!("| {} |\n", row(&stage, client).await.join(" | "));
        }
        stage.solo.region.act(Action::Kill, Part::Postgres).await.unwrap();
        for client in CLIENTS {
            let told = stage.send(client, &Case::new(0)).await;
            assert_eq!(told["status"], 503, "{client}: {told}");
            assert!(told["threw"].is_string() || !client.starts_with("stripe"), "{client}: {told}");
        }
        println!("{table}");
        assert!(text("docs/clients.md").contains(&table), "docs/clients.md has another table than:\n{table}");
    });
}
