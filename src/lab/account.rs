//! The unprivileged account for Postgres when onceway runs as root: `initdb` and `postgres` refuse
//! root.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Accounts tried in this order: the distribution's own, then the one that owns nothing.
const CANDIDATES: [&str; 2] = ["postgres", "nobody"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

impl Account {
    /// Finds the account for Postgres; none if onceway is not root. Errors when it is, and the
    /// machine has neither a `postgres` nor a `nobody` account. Blocks for one small file.
    pub fn for_postgres() -> Result<Option<Account>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd")
            .context("cannot read /etc/passwd to find an unprivileged account")?;
        let account = CANDIDATES.iter().find_map(|name| parse_passwd(&passwd, name)).context(
            "Postgres refuses to run as root and there is no account `postgres` or `nobody`: run onceway as an ordinary user",
        )?;
        Ok(Some(account))
    }

    /// Hands a file or folder to the account that runs Postgres, if it is another one.
    pub fn own(account: Option<&Account>, path: &Path) -> Result<()> {
        let Some(account) = account else { return Ok(()) };
        chown(path, Some(account.uid), Some(account.gid))
            .with_context(|| format!("cannot hand {} to Postgres", path.display()))
    }

    /// Checks that this account can walk through every parent of `path`; errors name the folder.
    pub fn check_can_reach(&self, path: &Path) -> Result<()> {
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            let meta = fs::metadata(parent)
                .with_context(|| format!("cannot look at folder {}", parent.display()))?;
            let bit = if meta.uid() == self.uid {
                0o100
            } else if meta.gid() == self.gid {
                0o010
            } else {
                0o001
            };
            if meta.mode() & bit == 0 {
                bail!(
                    "folder {} cannot be entered by account `{}`, which runs Postgres: choose another data folder or `chmod o+x` it",
                    parent.display(),
                    self.name
                );
            }
        }
        Ok(())
    }
}

fn parse_passwd(passwd: &str, wanted: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| *name == wanted)?;
        let (_password, uid, gid) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Account { name: name.to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgresql:x:7:8::/:/bin/false\npostgres:x:101:104:,,,:/var/lib:/bin/bash\n";
        let found = parse_passwd(passwd, "postgres").unwrap();
        assert_eq!((found.uid, found.gid), (101, 104));
        assert_eq!(parse_passwd(passwd, "nobody"), None);
    }

    #[test]
    fn a_closed_parent_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let closed = dir.path().join("closed");
        fs::create_dir(&closed).unwrap();
        let stranger = Account { name: "stranger".into(), uid: 54_321, gid: 54_321 };
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        stranger.check_can_reach(&closed.join("data")).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        let error = stranger.check_can_reach(&closed.join("data")).unwrap_err().to_string();
        assert!(error.contains(closed.to_str().unwrap()) && error.contains("stranger"), "{error}");
    }
}
