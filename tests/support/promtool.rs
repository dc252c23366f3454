//! Finds Prometheus' `promtool` and the server beside it: the file in `ONCEWAY_PROMTOOL`; else the
//! search path; else Debian's package `prometheus`, downloaded and unpacked below the target
//! folder. It is not installed: its installation would start a server.

use super::*;
use std::env;

const ENV_FILE: &str = "ONCEWAY_PROMTOOL";
const HOW_TO_GET_IT: &str = "promtool is needed: install Debian's package `prometheus` (`apt-get install --no-install-recommends prometheus`) or the \
                             release of https://prometheus.io/download, or name the program in ONCEWAY_PROMTOOL";

static PROMTOOL: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).join("promtool");
    existing(&fetched).or_else(|| fetch(&fetched)).ok_or(HOW_TO_GET_IT.into())
});

/// An error is all that it said. If it is not available, that is said ([`not_checked`]).
pub fn promtool(folder: &Path, words: &[&str]) -> Result<(), String> {
    let program = match &*PROMTOOL {
        Ok(program) => program,
        Err(why) => {
            not_checked(&format!("promtool {}. {why}", words.join(" ")));
            return Ok(());
        }
    };
    let output = Command::new(program).args(words).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}. {HOW_TO_GET_IT}", program.display()));
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// The server beside `promtool`; `None` if it is not available, which is said.
pub fn server() -> Option<PathBuf> {
    let beside = PROMTOOL.as_ref().map(|program| program.with_file_name("prometheus"));
    let why = match beside {
        Ok(server) if server.is_file() => return Some(server),
        Ok(server) => format!("there is no {}. {HOW_TO_GET_IT}", server.display()),
        Err(why) => why.clone(),
    };
    not_checked(&why);
    None
}

pub fn is_there() -> bool {
    PROMTOOL.is_ok()
}

/// The existing program. A named one counts even if it does not work.
fn existing(fetched: &Path) -> Option<PathBuf> {
    if let Some(named) = env::var_os(ENV_FILE) {
        return Some(named.into());
    }
    installed("promtool").or_else(|| Some(inside(fetched)).filter(|file| file.is_file()))
}

fn inside(package: &Path) -> PathBuf {
    package.join("usr/bin/promtool")
}

/// Downloads and unpacks the package; `None` if that is not possible.
fn fetch(to: &Path) -> Option<PathBuf> {
    eprintln!(
        "onceway: no promtool found; fetching the package `prometheus` with apt-get (it is unpacked, not installed)"
    );
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).ok()?;
    let run = |program: &str, words: &[&str]| {
        let status =
            Command::new(program).args(words).current_dir(scratch.path()).stdout(std::io::stderr()).status();
        status.is_ok_and(|status| status.success()).then_some(())
    };
    let download = || run("apt-get", &["download", "prometheus"]);
    // A fresh machine's package lists are empty or stale: then an update is needed.
    download().or_else(|| run("apt-get", &["update"]).and_then(|()| download()))?;
    let file = fs::read_dir(scratch.path())
        .ok()?
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|end| end == "deb"))?;
    run("dpkg-deb", &["-x", file.path().to_str()?, "unpacked"])?;
    // Whole or not at all, even if another process does the same.
    if fs::rename(scratch.path().join("unpacked"), to).is_err() && !inside(to).is_file() {
        return None;
    }
    Some(inside(to)).filter(|program| program.is_file())
}
