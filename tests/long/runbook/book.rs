//! The runbook as text: its sections and their commands; and a desk, where a shell runs each line
//! with the files that it names: `config` and `certificates` are those of the fleet.
//!
//! The player of a section names the replacements of addresses, names and numbers.

use crate::support::documents::text;
use crate::support::*;
use onceway_lab::cluster::SUPERUSER;
use tokio::process::Command;

const WITHIN: Duration = Duration::from_secs(150);

const ACTS: &str = "break-glass, jobs retry, key release, key settle, protocol raise, region drain, region rebuild, \
                    region resume, ring apply, store reseed, takeover";
/// Acts that are a dry run without --yes.
const MEANT: [&str; 2] = ["protocol raise", "ring apply"];
/// The number of tries of a dry run that another epoch interrupts.
const TRIES: usize = 3;

/// The sections, each with the lines of its blocks; those before the first section under "".
pub struct Book {
    sections: Vec<(String, Vec<String>)>,
    prose: String,
}

impl Book {
    pub fn read() -> Self {
        let text = text("deploy/RUNBOOK.md");
        let (mut sections, mut prose) = (Vec::new(), String::new());
        for (number, section) in text.split("\n## ").enumerate() {
            let title = if number == 0 { "" } else { section.lines().next().unwrap() };
            let mut lines = Vec::new();
            for (part, block) in section.split("```").enumerate() {
                match part % 2 {
                    0 => prose.push_str(block),
                    _ => {
                        let block = block.strip_prefix("sh\n").expect("every block is one of commands");
                        lines.extend(block.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
                    }
                }
            }
            sections.push((title.to_owned(), lines));
        }
        Self { sections, prose }
    }

    pub fn titles(&self) -> Vec<&str> {
        self.sections.iter().map(|(title, _)| title.as_str()).filter(|title| !title.is_empty()).collect()
    }

    pub fn lines(&self) -> impl Iterator<Item = &String> {
        self.sections.iter().flat_map(|(_, lines)| lines)
    }

    fn of(&self, title: &str) -> Vec<String> {
        let found = self.sections.iter().find(|(name, _)| name == title);
        found.unwrap_or_else(|| panic!("the runbook has no section {title:?}")).1.clone()
    }

    /// Whole commands between backticks: more than one word, the first of which is a program.
    pub fn spans(&self) -> Vec<String> {
        const PROGRAMS: [&str; 7] =
            ["onceway", "kubectl", "systemctl", "openssl", "psql", "curl", "terraform"];
        let spans = self.prose.split('`').skip(1).step_by(2);
        let spans = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
        let program = |span: &String| span.split_once(' ').is_some_and(|(name, _)| PROGRAMS.contains(&name));
        spans.filter(program).collect()
    }
}

pub struct Desk {
    book: Book,
    dir: PathBuf,
    admin: String,
}

impl Desk {
    pub fn set_up(fleet: &Deployment) -> Self {
        let dir = fleet.dir().join("desk");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink(fleet.dir(), dir.join("config")).unwrap();
        std::os::unix::fs::symlink(fleet.dir().join("certificates"), dir.join("certificates")).unwrap();
        Self { book: Book::read(), dir, admin: fleet.regions[0].admin() }
    }

    /// The lines before the first section set variables: each is run with a command that uses it.
    pub async fn preamble(&self, region: &Region) {
        let mut lines = self.open("");
        lines.there(region);
        // Only these lines lead to the gateway.
        lines.at = "http://127.0.0.1:1".to_owned();
        lines.env.remove("PGSERVICE");
        let address = lines.next("export ONCEWAY_ADMIN=");
        lines.shell(&format!("{address}\nonceway status")).await.ends(&[0]).shows(region.name.as_str());

        let token = lines.next("export ONCEWAY_ADMIN_TOKEN_FILE=");
        let with_token = format!("{address}\n{token}\nonceway status");
        lines.shell(&with_token).await.ends(&[2]).shows("secrets/admin-token");
        fs::create_dir(self.dir.join("secrets")).unwrap();
        fs::write(self.dir.join("secrets/admin-token"), "a-token-that-nobody-asks-for").unwrap();
        lines.shell(&with_token).await.ends(&[0]);

        // The fleet's files have values: here one variable has to reach the command.
        let file = format!("config/{}.toml", region.name);
        fs::write(self.dir.join("environment"), "").unwrap();
        fs::write(self.dir.join("provision"), format!("FILE={file}\n")).unwrap();
        lines.put("/etc/onceway/environment", "./environment");
        lines.put("/etc/onceway/provision", "./provision");
        lines.put("/etc/onceway/region.toml", "$FILE");
        lines.well("(set -a; . ", &[]).await;

        let service = lines.next("export PGSERVICE=onceway ");
        lines.shell(&format!("{service}\npsql --command 'select 41 + 1'")).await.ends(&[0]).shows("42");
        lines.end();
    }

    pub fn open(&self, title: &str) -> Section<'_> {
        let lines = self.book.of(title).into_iter();
        let (title, at) = (title.to_owned(), self.admin.clone());
        Section { desk: self, title, lines, at, env: BTreeMap::new(), put: Vec::new() }
    }
}

pub struct Section<'a> {
    desk: &'a Desk,
    title: String,
    lines: std::vec::IntoIter<String>,
    at: String,
    env: BTreeMap<&'static str, String>,
    put: Vec<(String, String)>,
}

pub struct CommandOutput {
    line: String,
    code: Option<i32>,
    pub text: String,
}

impl<'a> Section<'a> {
    pub fn desk(&self) -> &'a Desk {
        self.desk
    }

    /// Sends commands to this gateway from now on, unless the line names one.
    pub fn ask(&mut self, region: &Region) {
        self.at = region.admin();
    }

    /// Lets the example's address and psql's service be this region's from now on.
    pub fn there(&mut self, region: &Region) {
        self.put.retain(|(from, _)| from != "http://127.0.0.1:7402");
        self.put.push(("http://127.0.0.1:7402".to_owned(), region.admin()));
        let (port, database) = (region.cluster.port(), onceway_lab::files::DATABASE);
        let service =
            format!("[onceway]\nhost=127.0.0.1\nport={port}\nuser={SUPERUSER}\ndbname={database}\n");
        let file = self.desk.dir.join("pg_service.conf");
        fs::write(&file, service).unwrap();
        self.env.insert("PGSERVICEFILE", file.display().to_string());
        self.env.insert("PGSERVICE", "onceway".to_owned());
    }

    /// Replaces the example by the real value from now on.
    pub fn put(&mut self, example: &str, real: impl Into<String>) {
        self.put.retain(|(from, _)| from != example);
        self.put.push((example.to_owned(), real.into()));
    }

    fn next(&mut self, begins: &str) -> String {
        let line = self.lines.next().unwrap_or_else(|| panic!("{}: no line {begins:?}", self.title));
        assert!(line.starts_with(begins), "{}: the next line is {line:?}, not {begins:?}", self.title);
        self.put.iter().fold(line, |line, (from, to)| line.replace(from, to))
    }

    /// Runs the next line. An act is rehearsed first, and must end as its dry run.
    pub async fn run(&mut self, begins: &str) -> CommandOutput {
        let line = self.next(begins);
        let rehearsed = self.rehearse(&line).await;
        let said = self.shell(&line).await;
        let as_rehearsed = rehearsed.is_none_or(|code| code == said.code);
        assert!(as_rehearsed, "{line}: its dry run ended with {rehearsed:?}: {}", said.text);
        said
    }

    pub async fn well(&mut self, begins: &str, parts: &[&str]) -> CommandOutput {
        let said = self.run(begins).await;
        parts.iter().fold(said.ends(&[0]), |said, part| said.shows(part));
        said
    }

    /// The exit code of an act's dry run, which must not change the view; `None` if it is no act.
    async fn rehearse(&self, line: &str) -> Option<Option<i32>> {
        let bare = line.split(" #").next().unwrap_or_default().trim_end();
        let is_act = ACTS.split(", ").any(|act| bare.starts_with(&format!("onceway {act} ")));
        let is_meant = bare.contains("--yes") || !MEANT.iter().any(|act| bare.contains(act));
        if !is_act || bare.contains("--dry-run") || !is_meant {
            return None;
        }
        let rehearsal = format!("{} --dry-run", bare.replace(" --yes", ""));
        // A dry run that changes something does so each time, a region that comes home once.
        for _ in 0..TRIES {
            let before = self.epoch().await;
            let said = self.shell(&rehearsal).await;
            said.ends(&[0, 1, 3]).hides("is drained: epoch").hides("in force: epoch");
            if said.code != Some(0) || self.epoch().await == before {
                return Some(said.code);
            }
        }
        panic!("{line}: its dry run changed the epoch, {TRIES} times");
    }

    async fn epoch(&self) -> Option<u64> {
        let status = onceway_client::Ask::get(format!("{}/v1/status", self.at));
        status.send(Duration::from_secs(5)).await.ok()?.json()["epoch"].as_u64()
    }

    /// Runs the next line for each region at once: each waits for what the others make.
    pub async fn run_everywhere(&mut self, begins: &str, region: &str, others: &[&str]) {
        let line = self.next(begins);
        let of = |other: &&str| line.replace(&format!("/{region}.toml"), &format!("/{other}.toml"));
        let lines: Vec<String> = std::iter::once(line.clone()).chain(others.iter().map(of)).collect();
        self.at_once(&lines).await;
    }

    /// Runs the next two lines at the same time, and the second one for another region, too.
    pub async fn run_both(&mut self, begins: &str, second: &str, other: &str) {
        let (one, two) = (self.next(begins), self.next(second));
        let three = two.replace("/us-east.toml", &format!("/{other}.toml"));
        self.at_once(&[one, two, three]).await;
    }

    async fn at_once(&self, lines: &[String]) {
        let one = async |number: usize| {
            if let Some(line) = lines.get(number) {
                self.shell(line).await.ends(&[0]);
            }
        };
        tokio::join!(one(0), one(1), one(2), one(3));
    }

    /// Runs the next line until it ends with 0: the runbook says to run again if it ends with 3. An
    /// act is rehearsed before, also until that ends with 0. The obstacle may pass between the two,
    /// so the dry run may say "not yet" and the act still succeed.
    pub async fn run_again(&mut self, begins: &str) -> CommandOutput {
        let line = self.next(begins);
        until(&format!("the dry run of {line}"), async || match self.rehearse(&line).await {
            None | Some(Some(0)) => true,
            Some(Some(3)) => false,
            Some(code) => panic!("{line}: its dry run ended with {code:?}"),
        })
        .await;
        self.again(&line, &[3]).await
    }

    async fn again(&self, line: &str, not_yet: &[i32]) -> CommandOutput {
        found(line, async || {
            let said = self.shell(line).await;
            let code = said.code.unwrap_or(-1);
            assert!(code == 0 || not_yet.contains(&code), "{line}: {code}: {}", said.text);
            (code == 0).then_some(said)
        })
        .await
    }

    /// Runs the next line, a plan, and the lines after it, which apply it to the epoch that it
    /// names in place of the example's. A region's own act may raise the epoch meanwhile: then it
    /// plans again, as the refusal says. Returns the plan.
    pub async fn plan_and_apply(&mut self, example: &str) -> CommandOutput {
        let plan = self.next("onceway ring plan");
        let mut applies = Vec::new();
        while self.lines.as_slice().first().is_some_and(|line| line.starts_with("onceway ring apply")) {
            applies.push(self.next("onceway ring apply"));
        }
        found(&format!("{applies:?} to be in force"), async || {
            let planned = self.shell(&plan).await;
            let (_, rest) = planned.ends(&[0]).text.split_once("compared with epoch ")?;
            let epoch: String = rest.chars().take_while(char::is_ascii_digit).collect();
            for line in &applies {
                let line = line.replace(example, &format!("--expect-epoch {epoch}"));
                self.rehearse(&line).await;
                if self.shell(&line).await.ends(&[0, 1, 3]).code != Some(0) {
                    return None;
                }
            }
            Some(planned)
        })
        .await
    }

    /// Runs the next line until its output has this part, like a person who looks again.
    pub async fn run_until(&mut self, begins: &str, part: &str) -> CommandOutput {
        self.run_until_all(begins, &[part]).await
    }

    pub async fn run_until_all(&mut self, begins: &str, parts: &[&str]) -> CommandOutput {
        let line = self.next(begins);
        found(&format!("{line} to show {parts:?}"), async || {
            let said = self.shell(&line).await;
            parts.iter().all(|part| said.text.contains(part)).then_some(said)
        })
        .await
    }

    async fn shell(&self, line: &str) -> CommandOutput {
        let programs = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{programs}", program().parent().unwrap().display());
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(&self.desk.dir).env("PATH", path).env("USER", "runbook");
        command.env("ONCEWAY_ADMIN", &self.at).env_remove("ONCEWAY_CONFIG").env_remove("ONCEWAY_RING");
        command.env_remove("ONCEWAY_ADMIN_TOKEN_FILE").envs(&self.env).kill_on_drop(true);
        let output = tokio::time::timeout(WITHIN, command.output()).await;
        let output = output.unwrap_or_else(|_| panic!("{}: {line} takes too long", self.title)).unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        CommandOutput { line: line.to_owned(), code: output.status.code(), text }
    }

    pub fn end(mut self) {
        assert_eq!(self.lines.next(), None, "{}: a line was not run", self.title);
    }
}

impl CommandOutput {
    pub fn ends(&self, codes: &[i32]) -> &Self {
        let Self { line, code, text } = self;
        assert!(code.is_some_and(|code| codes.contains(&code)), "{line}: {code:?}: {text}");
        self
    }

    pub fn shows(&self, part: &str) -> &Self {
        assert!(self.text.contains(part), "{}: no {part:?} in\n{}", self.line, self.text);
        self
    }

    pub fn hides(&self, part: &str) -> &Self {
        assert!(!self.text.contains(part), "{}: {part:?} in\n{}", self.line, self.text);
        self
    }
}

pub async fn metric(region: &Region, series: &str, value: &str) {
    let line = format!("{series} {value}");
    until(&format!("{line} at {}", region.name), async || {
        let page = Ask::get(format!("{}/metrics", region.admin())).send(Duration::from_secs(5)).await;
        page.is_ok_and(|page| page.text().lines().any(|one| one == line))
    })
    .await;
}
