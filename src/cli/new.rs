//! `onceway new`: writes the files of a deployment, and overwrites none.
//!
//! `config/single` is what it writes for one region, but for what is drawn or given.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::process::{Failure, tell};
use crate::adapters::issue;
use crate::adapters::upstream::Base;
use crate::config::secret::{database_url, no_password_in_url};
use crate::gateway::credentials::digest;
use crate::protocol::region::RegionName;

const REGION: &str = include_str!("../../config/single/us-east.toml");
const RING: &str = include_str!("../../config/single/ring.toml");
const ROUTES: &str = include_str!("../../config/single/routes.toml");
const CREDENTIALS: &str = include_str!("../../config/single/credentials.toml");

/// Values of the files that are given or drawn.
const NAME: &str = "us-east";
const STORE: &str = "url = \"postgres://postgres@127.0.0.1:5432/onceway\"";
const UPSTREAM: &str = "http://127.0.0.1:3000";
const SEED: &str = "0x6f6e636577617921";
const TOKEN: &str = "23a90990ec63f7e3265be137fa53442e66e899b143d578f3a6d05a4e05e78c67";
const LISTEN: &str =
    "# Where it listens.\n# Other regions would need peer = \"0.0.0.0:7403\" here, and a [peer].\n";
const INIT: &str = "# A Postgres database of its own, 15 or newer.\n# With `onceway serve --init` this role makes the tables.\n";
const ADMIN: &str = "# For operators: health, metrics, status, /console.\nadmin = \"127.0.0.1:7402\"\n";

/// Write the files of a new deployment: one region in front of your service, or several.
///
/// The seed of the ring and the token of the first tenant are drawn; the token is shown once. The
/// files are yours to change: each says what stands in it.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway new gateway                                       in front of http://127.0.0.1:3000
  onceway new gateway --upstream http://127.0.0.1:8080 --store postgres://me@127.0.0.1:5432/onceway
  onceway new gateway --regions us-east,eu-west,ap-south    a file for each region, and certificates

Then, for one region: `onceway serve --config gateway/us-east.toml --init`. Without a Postgres at hand: `onceway sample-postgres`.

Exit codes: 0 written; 1 a file could not be written; 2 wrong arguments, or the folder has such files already.")]
pub struct New {
    /// The folder, which is made if it is not there.
    dir: PathBuf,
    /// Address of your service.
    #[arg(long, value_name = "URL", default_value = UPSTREAM)]
    upstream: String,
    /// URL of a Postgres database of its own. One with a password goes into a file that only you
    /// may read.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The regions, the first one first.
    #[arg(long, value_name = "NAMES", default_value = NAME, value_delimiter = ',', value_parser = RegionName::parse)]
    regions: Vec<RegionName>,
    /// Print JSON: files, tenant and token.
    #[arg(long)]
    json: bool,
}

/// A file to write, and whether only its owner may read it.
type File = (PathBuf, String, bool);

impl New {
    pub fn run(&self) -> Result<(), Failure> {
        let Self { dir, regions, store, .. } = self;
        if regions.len() > 1 && store.is_some() {
            return Err(Failure::Bad(
                "--store is for one region: each has a Postgres of its own, to be written into its file"
                    .to_owned(),
            ));
        }
        let twice = regions.iter().enumerate().find(|(at, name)| regions[..*at].contains(name));
        if let Some((_, name)) = twice {
            return Err(Failure::Bad(format!("--regions names {name} twice")));
        }
        Base::parse(&self.upstream)
            .map_err(|why| Failure::Bad(format!("--upstream {:?}: {why}", self.upstream)))?;
        let token = format!("sk_{}", drawn::<24>()?);
        let files = self.files(&token)?;
        let certificates = dir.join("certificates");
        let certified = Some(&certificates).filter(|_| regions.len() > 1);
        let taken = files.iter().map(|(path, ..)| path).chain(certified).find(|path| path.exists());
        if let Some(path) = taken {
            return Err(Failure::Bad(format!("{} is there already: name another folder", path.display())));
        }
        fs::create_dir_all(dir).map_err(|error| Failure::Failed(format!("{}: {error}", dir.display())))?;
        for (path, text, secret) in &files {
            let mut open = fs::OpenOptions::new();
            let opened =
                open.write(true).create_new(true).mode(if *secret { 0o600 } else { 0o644 }).open(path);
            let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))?;
        }
        if regions.len() > 1 {
            fs::create_dir(&certificates)?;
            issue::generate(regions)?.write(&certificates)?;
        }
        let paths: Vec<_> = files.iter().map(|(path, ..)| path).collect();
        let said = json!({ "files": paths, "tenant": "acme", "token": token });
        tell(self.json, &said, &self.summarize(&files, &token))
    }

    fn files(&self, token: &str) -> Result<Vec<File>, Failure> {
        let Self { dir, regions, .. } = self;
        let digits = hex(&digest(token.as_bytes()));
        let seed = RING.replace(SEED, &format!("0x{}", drawn::<8>()?));
        let (head, _) = seed.split_once("[[region]]").unwrap_or((&seed, ""));
        let list = regions.iter().map(|name| format!("[[region]]\nname = \"{name}\"\nweight = 1\n"));
        let ring = format!("{head}{}{}", list.collect::<Vec<_>>().join("\n"), failover(regions.len()));
        let mut files = vec![
            (dir.join("ring.toml"), ring, false),
            (dir.join("routes.toml"), ROUTES.to_owned(), false),
            (dir.join("credentials.toml"), CREDENTIALS.replace(TOKEN, &digits), false),
        ];
        let store = match &self.store {
            None => STORE.to_owned(),
            Some(url) => {
                database_url(url).map_err(|why| Failure::Bad(format!("--store {why}")))?;
                match no_password_in_url(url) {
                    Ok(()) => format!("url = {url:?}"),
                    Err(_) => {
                        files.push((dir.join("store-url"), format!("{url}\n"), true));
                        "url_file = \"store-url\"".to_owned()
                    }
                }
            }
        };
        for me in regions {
            let file = REGION
                .replace(NAME, me.as_str())
                .replace(&format!("config/{me}.toml"), "config/us-east.toml")
                .replace(STORE, &store)
                .replace(&format!("{UPSTREAM:?}"), &format!("{:?}", self.upstream));
            files.push((dir.join(format!("{me}.toml")), among(regions, me, file), false));
        }
        Ok(files)
    }

    fn summarize(&self, files: &[File], token: &str) -> String {
        let Self { dir, regions, upstream, .. } = self;
        let names: Vec<String> = files.iter().map(|(path, ..)| format!("  {}\n", path.display())).collect();
        let first = dir.join(format!("{}.toml", regions[0]));
        let next = match regions.len() {
            1 => format!(
                "  onceway serve --config {} --init\n  curl -H 'Authorization: Bearer {token}' http://127.0.0.1:7401/\n",
                first.display()
            ),
            _ => format!(
                "  write each region's addresses into its file, then `onceway check {}` says what is missing\n",
                first.display()
            ),
        };
        format!(
            "wrote, in front of {upstream}:\n{}\nThe token of tenant acme, shown only now: {token}\n\nNext:\n{next}",
            names.concat()
        )
    }
}

fn among(regions: &[RegionName], me: &RegionName, file: String) -> String {
    let others: Vec<&RegionName> = regions.iter().filter(|name| *name != me).collect();
    if others.is_empty() {
        return file;
    }
    let address = |name: &&RegionName| format!("{name} = \"{name}.example.com:7403\"\n");
    let publisher = |name: &&RegionName| {
        format!(
            "{name} = \"host={name}.example.com port=5432 user=onceway_replication dbname=onceway sslmode=require\"\n"
        )
    };
    let addresses: String = others.iter().map(address).collect();
    let publishers: String = others.iter().map(publisher).collect();
    let file = file
        .replace("a deployment of one region", "several regions")
        .replace(INIT, "# The region's own Postgres database, 15 or newer.\n")
        .replace(STORE, "url = \"postgres://onceway_gateway@127.0.0.1:5432/onceway\"")
        .replace(LISTEN, "# Where it listens.\n")
        .replace(ADMIN, &format!("{ADMIN}# For other regions, by mutual TLS.\npeer = \"0.0.0.0:7403\"\n"));
    format!(
        "{file}
# The certificate that other regions know this one by, and where they are.
[peer]
certificate = \"certificates/{me}.pem\"
key = \"certificates/{me}.key\"
ca = \"certificates/ca.pem\"

[peer.addresses]
{addresses}
# For `onceway store init`: a role that may make others, and how this region's Postgres reaches the
# other ones. Each needs wal_level = logical.
[provision]
admin_url = \"postgres://postgres@127.0.0.1:5432/onceway\"

[provision.publishers]
{publishers}"
    )
}

/// The part of a ring file that two regions need: without a witness they have no majority.
fn failover(regions: usize) -> &'static str {
    if regions == 2 { "\n[failover]\nmode = \"manual\" # with a [[witness]]: \"automatic\"\n" } else { "" }
}

fn drawn<const BYTES: usize>() -> Result<String, Failure> {
    let mut bytes = [0_u8; BYTES];
    rand::TryRng::try_fill_bytes(&mut rand::rngs::SysRng, &mut bytes)?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_contain_every_replaced_value() {
        for (text, values) in [
            (REGION, &[NAME, STORE, UPSTREAM, LISTEN, INIT, ADMIN][..]),
            (RING, &[SEED, "[[region]]"]),
            (CREDENTIALS, &[TOKEN]),
        ] {
            values.iter().for_each(|value| assert!(text.contains(value), "{value}"));
        }
        let dir = PathBuf::from("x");
        let regions = vec![RegionName::parse(NAME).unwrap()];
        let new = New { dir: dir.clone(), upstream: UPSTREAM.into(), store: None, regions, json: false };
        let files = new.files("sk_example_acme").unwrap();
        let text = |name: &str| files.iter().find(|(path, ..)| *path == dir.join(name)).unwrap().1.clone();
        let drawn = text("ring.toml");
        let seed = drawn.lines().find_map(|line| line.strip_prefix("seed = ")).unwrap();
        assert_eq!(drawn.replace(seed, SEED), RING);
        assert_eq!((text("routes.toml").as_str(), text("credentials.toml").as_str()), (ROUTES, CREDENTIALS));
        assert_eq!(text("us-east.toml"), REGION);
    }
}
