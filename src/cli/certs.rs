//! `onceway certs`: an authority and a certificate per region, for deployments without their own.
//!
//! Neighbours: `adapters::identity` makes and writes them. It must not overwrite a file.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::{Failure, print};
use crate::adapters::identity;
use crate::protocol::region::RegionName;

/// Make an authority and one certificate per region, with which regions know each other.
///
/// Writes ca.pem, ca.key and for each region REGION.pem and REGION.key. Where ca.key is there already, as for a region that is added later,
/// that authority signs. Give each region's machines ca.pem and its own two
/// files, nothing else: whoever has ca.key can be any region. Files that are there already are never overwritten.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway certs --out certificates --region us-east eu-west ap-south
  onceway certs --out certificates --region sa-east                     one more, under the same authority

Region certificates are valid for two years, the authority for ten. No region may be called ca.

Exit codes: 0 made; 1 a file is there already, or could not be read or written; 2 wrong arguments.")]
pub struct Certs {
    /// The folder to write into; made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The regions, as in ring.toml.
    #[arg(long = "region", required = true, num_args = 1.., value_name = "NAME")]
    regions: Vec<String>,
    /// Say which files would be made, and make none. Ends with 1 if one is there already.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON: dir, authority (made, or there already) and files.
    #[arg(long)]
    json: bool,
}

impl Certs {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        let parse = |name: &String| {
            RegionName::parse(name).map_err(|error| Failure::Bad(format!("--region {name:?}: {error}")))
        };
        let mut regions: Vec<RegionName> = self.regions.iter().map(parse).collect::<Result<_, _>>()?;
        regions.sort();
        if regions.iter().any(|name| name.as_str() == "ca") {
            let why =
                "--region ca: ca.pem and ca.key are the authority's own files: give the region another name";
            return Err(Failure::Bad(why.to_owned()));
        }
        if let Some(twice) = regions.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Failure::Bad(format!("--region {} is given twice: name each once", twice[0])));
        }
        let is_there = self.out.join("ca.key").exists();
        if self.dry_run {
            return self.rehearse(&regions, is_there);
        }
        std::fs::create_dir_all(&self.out)
            .map_err(|error| Failure::Failed(format!("cannot make {}: {error}", self.out.display())))?;
        if is_there {
            identity::add(&self.out, &regions).map_err(Failure::failed)?;
        } else {
            let made = identity::generate(&regions).map_err(Failure::failed)?;
            made.write(&self.out).map_err(Failure::failed)?;
        }
        self.tell(&regions, is_there)
    }

    fn tell(&self, regions: &[RegionName], is_there: bool) -> Result<(), Failure> {
        let dir = self.out.display();
        let names: Vec<&str> = regions.iter().map(RegionName::as_str).collect();
        let names = names.join(", ");
        match (self.json, is_there) {
            (true, _) => print(&self.as_json(regions, is_there)),
            (false, true) => print(&format!(
                "{dir}: NAME.pem and NAME.key for {names}, signed by the authority that was there\n"
            )),
            (false, false) => print(&format!(
                "{dir}: ca.pem, and NAME.pem and NAME.key for {names}\nkeep {dir}/ca.key off the regions' machines: who has it can be any region\n"
            )),
        }
    }

    /// The files that are made.
    fn files(regions: &[RegionName], is_there: bool) -> Vec<String> {
        let authority = ["ca.pem", "ca.key"].map(str::to_owned).into_iter().filter(|_| !is_there);
        let own = regions.iter().flat_map(|name| [format!("{name}.pem"), format!("{name}.key")]);
        authority.chain(own).collect()
    }

    fn as_json(&self, regions: &[RegionName], is_there: bool) -> String {
        let authority = if is_there { "there already" } else { "made" };
        let mut said =
            json!({ "dir": self.out, "authority": authority, "files": Self::files(regions, is_there) });
        if self.dry_run {
            said["dry_run"] = true.into();
        }
        format!("{said}\n")
    }

    fn rehearse(&self, regions: &[RegionName], is_there: bool) -> Result<(), Failure> {
        let files = Self::files(regions, is_there);
        if let Some(taken) = files.iter().map(|file| self.out.join(file)).find(|file| file.exists()) {
            return Err(Failure::Failed(format!(
                "{} is there already: files are never overwritten",
                taken.display()
            )));
        }
        match self.json {
            true => print(&self.as_json(regions, is_there)),
            false => print(&format!(
                "would make in {}: {}\nNothing was changed.\n",
                self.out.display(),
                files.join(", ")
            )),
        }
    }
}
