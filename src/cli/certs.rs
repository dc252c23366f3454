//! `onceway certs`: an authority and a certificate per region, for deployments without their own.
//! `adapters::issue` makes, writes and revokes them.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::process::{Failure, tell};
use crate::adapters::issue::{self, Purpose};
use crate::protocol::region::RegionName;

/// Make an authority and one certificate per region, by which regions know each other.
///
/// Writes ca.pem, ca.key and, for each region or witness NAME, NAME.pem and NAME.key. If ca.key
/// exists, as for a region that is added later, that authority signs. Give each region's machines
/// ca.pem and its own two files, nothing else: with ca.key a machine can pose as any region.
/// Existing files are never overwritten.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_long_help = "\
Examples:
  onceway certs --out certificates --region us-east eu-west ap-south
  onceway certs --out certificates --region sa-east                     one more, under the same authority
  onceway certs --out certificates --witness witness-1                  of a witness: it answers and never asks
  onceway certs revoke sa-east --out certificates                       it left: nobody hears it any more

Region certificates are valid for two years, the authority for ten. No region may be called ca.

Exit codes: 0 made; 1 a file is there already, or could not be read or written; 2 wrong arguments."
)]
pub struct Certs {
    #[command(subcommand)]
    act: Option<Act>,
    /// The folder to write into; made if it does not exist, for its owner alone.
    #[arg(long, required = true, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The regions, as in ring.toml.
    #[arg(long = "region", required_unless_present = "witnesses", num_args = 1.., value_name = "NAME")]
    regions: Vec<String>,
    /// The witnesses, as in ring.toml. Their certificates are for servers only: no region takes one
    /// for a client.
    #[arg(long = "witness", num_args = 1.., value_name = "NAME")]
    witnesses: Vec<String>,
    /// List the files that would be made, and make none. Ends with 1 if one exists already.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON: dir, authority (made, or there already) and files.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Act {
    Revoke(Revoke),
}

/// Revoke the certificates of a region or witness that left: no region accepts them any more.
///
/// Puts a revocation list behind the authority's certificate in DIR/ca.pem, in place of an earlier
/// list, whose entries stay on it. Give every region and witness the new ca.pem. Gateways read it
/// again within seconds, refuse the certificate at new connections, and answer nothing on open
/// ones.
#[derive(Args)]
#[command(after_long_help = "\
Example:
  onceway certs revoke sa-east --out certificates
  onceway certs revoke eu-west --out certificates --certificate old/eu-west.pem     its key was stolen, and it has another one

Exit codes: 0 revoked; 1 a file is not there, or is another one's; 2 wrong arguments.")]
struct Revoke {
    /// The region or witness.
    #[arg(value_name = "NAME", value_parser = RegionName::parse)]
    name: RegionName,
    /// The folder with ca.pem, ca.key and NAME.pem.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Instead of NAME.pem: a certificate of it that is still valid, such as one of before a
    /// rotation; repeat it for each.
    #[arg(long = "certificate", value_name = "FILE")]
    certificates: Vec<PathBuf>,
    /// Say how many certificates would be revoked, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON: file, and how many certificates are revoked in it.
    #[arg(long)]
    json: bool,
}

impl Revoke {
    fn run(&self) -> Result<(), Failure> {
        let Self { name, out, certificates, dry_run, json } = self;
        let revoked = match dry_run {
            true => issue::revocation(out, name, certificates)?.0,
            false => issue::revoke(out, name, certificates)?,
        };
        let file = out.join("ca.pem");
        let said = json!({ "file": file, "revoked": revoked, "dry_run": dry_run });
        let file = file.display();
        let text = match dry_run {
            true => format!("{file}: {revoked} certificates would be revoked\nNothing was changed.\n"),
            false => format!(
                "{file}: {name} is revoked ({revoked} certificates are); put this file in place in every region and at every witness\n"
            ),
        };
        tell(*json, &said, &text)
    }
}

impl Certs {
    pub fn run(&self) -> Result<(), Failure> {
        match (&self.act, &self.out) {
            (Some(Act::Revoke(revoke)), _) => revoke.run(),
            (None, Some(out)) => self.make(out),
            (None, None) => Err(Failure::Bad("--out DIR: say where the files go".to_owned())),
        }
    }

    fn make(&self, out: &Path) -> Result<(), Failure> {
        let regions = parsed("--region", &self.regions)?;
        let witnesses = parsed("--witness", &self.witnesses)?;
        let mut names: Vec<RegionName> = regions.iter().chain(&witnesses).cloned().collect();
        names.sort();
        if names.iter().any(|name| name.as_str() == "ca") {
            let why =
                "--region ca: ca.pem and ca.key are the authority's own files: give the region another name";
            return Err(Failure::Bad(why.to_owned()));
        }
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Failure::Bad(format!("--region {} is given twice: name each once", twice[0])));
        }
        let is_there = out.join("ca.key").exists();
        let files = files(&names, is_there);
        let authority = if is_there { "there already" } else { "made" };
        let mut said = json!({ "dir": out, "authority": authority, "files": files });
        let dir = out.display();
        if self.dry_run {
            if let Some(taken) = files.iter().map(|file| out.join(file)).find(|file| file.exists()) {
                let taken = taken.display();
                return Err(Failure::Failed(format!(
                    "{taken} is there already: files are never overwritten"
                )));
            }
            said["dry_run"] = true.into();
            let text = format!("would make in {dir}: {}\nNothing was changed.\n", files.join(", "));
            return tell(self.json, &said, &text);
        }
        // Only the owner may read: with these keys a machine can pose as any region.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(out)
            .map_err(|error| Failure::Failed(format!("cannot make {dir}: {error}")))?;
        if !is_there {
            issue::generate(&[])?.write(out)?;
        }
        issue::add(out, &regions, Purpose::Region)?;
        issue::add(out, &witnesses, Purpose::Witness)?;
        let names: Vec<&str> = names.iter().map(RegionName::as_str).collect();
        let names = names.join(", ");
        let text = match is_there {
            true => {
                format!("{dir}: NAME.pem and NAME.key for {names}, signed by the authority that was there\n")
            }
            false => format!(
                "{dir}: ca.pem, and NAME.pem and NAME.key for {names}\nkeep {dir}/ca.key off the regions' machines: who has it can be any region\n"
            ),
        };
        tell(self.json, &said, &text)
    }
}

fn files(regions: &[RegionName], is_there: bool) -> Vec<String> {
    let authority = ["ca.pem", "ca.key"].map(str::to_owned).into_iter().filter(|_| !is_there);
    let own = regions.iter().flat_map(|name| [format!("{name}.pem"), format!("{name}.key")]);
    authority.chain(own).collect()
}

fn parsed(option: &str, names: &[String]) -> Result<Vec<RegionName>, Failure> {
    let parse = |name: &String| {
        RegionName::parse(name).map_err(|error| Failure::Bad(format!("{option} {name:?}: {error}")))
    };
    let mut names: Vec<RegionName> = names.iter().map(parse).collect::<Result<_, _>>()?;
    names.sort();
    Ok(names)
}
