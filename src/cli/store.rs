//! `onceway store init | check | reseed`: makes a region's store or prints its SQL, lists its
//! missing parts, follows a peer anew. `adapters::postgres::provision` does it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::process::{Failure, block_on, print};
use super::stderr;
use crate::adapters::postgres::address::{Address, BadAddress};
use crate::adapters::postgres::provision::{
    self, Hint, Line, Plan, Promotion, Report, Role, Script, Status, Whence,
};
use crate::config::provision::{Account, Provision, conninfo};
use crate::config::region::{LogFormat, Process};
use crate::config::secret::SecretSource;
use crate::config::{Config, span};
use crate::protocol::region::{Origin, RegionName};

/// Make the region's store: schema, roles, publication, and subscriptions to the other regions.
///
/// Safe to repeat and in any order of regions: it adds missing parts and changes nothing else.
/// While another region is not ready yet, its part is pending; with --wait it is tried again until
/// all is done.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway store init --config config/us-east.toml
  onceway store init --config config/us-east.toml --wait 60s
  onceway store init --config config/us-east.toml --dry-run      what would be made
  onceway store init --config config/us-east.toml --print >us-east.sql     for a DBA, who runs it with psql
  onceway store init --config config/us-east.toml --verifiers >us-east.verifiers     its passwords, as psql may send them

Needs [provision] in the region file: a role that may create others, and how to reach the other regions' Postgres.

Exit codes: 0 complete; 1 failed, or something needs a person; 2 wrong arguments or configuration; 3 something is pending.")]
pub struct Init {
    /// The region file.
    #[arg(long, env = "ONCEWAY_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Span to try again while something is pending.
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = span::parse)]
    wait: Duration,
    /// Show the existing parts and those that would be made; change nothing. Ends as with a --wait
    /// that is long enough: 0, or 1 if something needs a person.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON: region, complete, broken, parts with part, status and why, and hints with
    /// setting, is and recommended.
    #[arg(long)]
    json: bool,
    /// Print the SQL for psql instead of running it: nothing is asked of any server, and no secret
    /// is needed or shown. The SQL follows the files alone: only the command itself finds out that
    /// another region's store was replaced.
    #[arg(long, conflicts_with_all = ["wait", "dry_run", "json"])]
    print: bool,
    /// Print the psql variables that the script of --print needs to make roles with passwords: the
    /// SCRAM verifiers of the passwords in [provision]. A verifier lets its reader try passwords,
    /// so keep it as secret as a password.
    #[arg(long, conflicts_with_all = ["wait", "dry_run", "json", "print"])]
    verifiers: bool,
}

/// List the existing and the missing parts of the region's store; change nothing.
///
/// A Postgres setting that differs from the recommendation of deploy/postgres/onceway.conf is a
/// hint: it changes no exit code. If the server has a standby, this says which slots of the other
/// regions would survive its promotion. A slot that would survive and let its reader miss rows is
/// broken.
#[derive(Args)]
#[command(after_long_help = "\
Example:
  onceway store check --config config/us-east.toml

Exit codes: 0 complete; 1 failed, or something needs a person; 2 wrong arguments or configuration; 3 something is pending.")]
pub struct Check {
    /// The region file.
    #[arg(long, env = "ONCEWAY_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Print JSON: region, complete, broken, parts with part, status and why, hints with setting,
    /// is and recommended, and promotion with slot, survives and why.
    #[arg(long)]
    json: bool,
}

/// Follow a peer anew: its slot for this region was lost or is missing, or this store was promoted.
///
/// A slot is lost if it held back more WAL than the peer's max_slot_wal_keep_size allows, or if the
/// peer failed over to a standby. If this region failed over to one, the standby may lack rows of
/// every peer. Rows were lost on the way, and `store check` says so; until this was done the region
/// gains no keys. The peer's rows here stay readable throughout; then
/// everything is copied again. Safe while gateways run.
#[derive(Args)]
#[command(after_long_help = "\
Example:
  onceway store reseed --config config/us-east.toml --from eu-west --wait 10m

Exit codes: 0 copied; 1 failed, or the slot is well and there is nothing to repair; 2 wrong arguments or configuration; 3 the copy runs.")]
pub struct Reseed {
    /// The region file.
    #[arg(long, env = "ONCEWAY_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// The peer.
    #[arg(long, value_name = "REGION", value_parser = RegionName::parse)]
    from: RegionName,
    /// Span to wait for the copy.
    #[arg(long, value_name = "SPAN", default_value = "0s", value_parser = span::parse)]
    wait: Duration,
    /// Show if the slot is lost and the copy that would be made; change nothing. Ends as with a
    /// --wait that is long enough: 0, or 1 if there is nothing to repair.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON: region, complete, broken, parts with part, status and why, and hints with
    /// setting, is and recommended.
    #[arg(long)]
    json: bool,
}

/// Time between two tries.
const AGAIN: Duration = Duration::from_secs(1);

impl Init {
    pub fn run(&self) -> Result<(), Failure> {
        if self.verifiers {
            return print(&Wanted::read(&self.config)?.verifiers()?);
        }
        if self.print {
            return print(&provision::script(&Wanted::read(&self.config)?.script()?));
        }
        let plan = Wanted::read(&self.config)?.plan()?;
        if self.dry_run {
            return tell(&plan, &block_on(provision::check(&plan))?, self.json, true);
        }
        tell(&plan, &block_on(complete(&plan, self.wait))?, self.json, false)
    }
}

/// Makes missing parts, again and again while something is pending and time is left.
async fn complete(plan: &Plan, wait: Duration) -> Result<Report, Failure> {
    let until = tokio::time::Instant::now() + wait;
    loop {
        let report = provision::init(plan).await?;
        let now = tokio::time::Instant::now();
        if report.is_complete() || report.is_broken() || now >= until {
            return Ok(report);
        }
        tokio::time::sleep_until(until.min(now + AGAIN)).await;
    }
}

impl Reseed {
    pub fn run(&self) -> Result<(), Failure> {
        let plan = Wanted::read(&self.config)?.plan()?;
        if self.dry_run {
            let found = block_on(provision::rehearse_reseed(&plan, &self.from))?;
            return tell(&plan, &found, self.json, true);
        }
        let report = block_on(async {
            let report = provision::reseed(&plan, &self.from).await?;
            if self.wait.is_zero() { Ok(report) } else { complete(&plan, self.wait).await }
        })?;
        tell(&plan, &report, self.json, false)
    }
}

impl Check {
    pub fn run(&self) -> Result<(), Failure> {
        let plan = Wanted::read(&self.config)?.plan()?;
        tell(&plan, &block_on(provision::check(&plan))?, self.json, false)
    }
}

fn tell(plan: &Plan, report: &Report, as_json: bool, dry_run: bool) -> Result<(), Failure> {
    match (as_json, dry_run) {
        (true, _) => print(&format!("{}\n", object(plan, report, dry_run)))?,
        (false, true) if report.is_complete() || report.is_broken() => {
            print(&format!("{report}\nNothing was changed.\n"))?;
        }
        (false, true) => print(&format!(
            "{report}\nwhat is pending would be made, once the other regions are ready\n\nNothing was changed.\n"
        ))?,
        (false, false) => print(&report.to_string())?,
    }
    if report.is_broken() {
        Err(Failure::Failed("the store needs a person: see the lines marked broken".to_owned()))
    } else if report.is_complete() || dry_run {
        // Pending parts are those that the act makes, or waits for.
        Ok(())
    } else {
        Err(Failure::Incomplete(
            "something is pending: run `onceway store init` again, or with --wait 60s".to_owned(),
        ))
    }
}

fn object(plan: &Plan, report: &Report, dry_run: bool) -> Value {
    let part = |line: &Line| {
        let (status, why) = match &line.status {
            Status::Fine => ("ok", None),
            Status::Changed => ("changed", None),
            Status::Pending(why) => ("pending", Some(why)),
            Status::Broken(why) => ("broken", Some(why)),
        };
        json!({ "part": line.what, "status": status, "why": why })
    };
    let hint =
        |hint: &Hint| json!({ "setting": hint.setting, "is": hint.is, "recommended": hint.recommended });
    let promotion = |Promotion { slot, survives, why }: &Promotion| json!({ "slot": slot, "survives": survives, "why": why });
    let parts: Vec<Value> = report.lines.iter().map(part).collect();
    let hints: Vec<Value> = report.hints.iter().map(hint).collect();
    let promotion: Vec<Value> = report.promotion.iter().map(promotion).collect();
    let mut said = json!({
        "region": plan.me.region.as_str(), "complete": report.is_complete(), "broken": report.is_broken(), "parts": parts,
        "hints": hints, "promotion": promotion,
    });
    if dry_run {
        said["dry_run"] = true.into();
    }
    said
}

/// Makes the store of a gateway that is about to serve, and says so in one line. Without
/// `[provision]` the gateway's own role makes it, in a deployment of one region.
pub(super) async fn make(file: &Path, config: &Config) -> Result<(), Failure> {
    let plan = match &config.process.provision {
        Some(provision) => Wanted { file, config: config.clone(), provision: provision.clone() }.plan()?,
        None => of_one(file, config)?,
    };
    let report = provision::init(&plan).await?;
    if report.is_broken() {
        return Err(Failure::Failed(format!(
            "{report}the store needs a person: see the lines marked broken"
        )));
    }
    tracing::info!(region = %plan.me, complete = report.is_complete(), changed = report.changes(), "the store is made");
    Ok(())
}

fn of_one(file: &Path, config: &Config) -> Result<Plan, Failure> {
    if config.shared.ring.regions().len() > 1 {
        return Err(bad(file, "has no [provision], which a ring of several regions needs to make the store"));
    }
    let Process { store, .. } = &config.process;
    let me = Origin { region: config.me.clone(), generation: store.generation };
    let admin: Address =
        store.url.reveal().parse().map_err(|why: BadAddress| bad(file, &format!("[store]: {why}")))?;
    Ok(Plan {
        all: vec![me.clone()],
        me,
        deployment: config.shared.deployment.clone(),
        gateway_role: Role { name: admin.role().to_owned(), password: None },
        replication_role: None,
        admin,
        subscribe: Vec::new(),
        publishers_ca: None,
        migrations: provision::MIGRATIONS,
    })
}

/// The region's store as its files demand it. Provisioning finds out the generations of other
/// regions' stores.
struct Wanted<'a> {
    file: &'a Path,
    config: Config,
    provision: Provision,
}

impl<'a> Wanted<'a> {
    fn read(file: &'a Path) -> Result<Self, Failure> {
        let config = Config::load_for_command(file)?;
        // The command logs less than any pipe takes, so no line waits to be written at the end.
        drop(stderr::set_up(LogFormat::Text, "info", None)?);
        let written = config.process.provision.clone();
        let provision =
            written.ok_or_else(|| bad(file, "has no [provision]: say there how to make the store"))?;
        Ok(Self { file, config, provision })
    }

    fn me(&self) -> Origin {
        Origin { region: self.config.me.clone(), generation: self.config.process.store.generation }
    }

    fn origin(&self, name: &RegionName) -> Result<Origin, Failure> {
        if *name == self.config.me {
            return Ok(self.me());
        }
        let origin = self.config.shared.view().origin(name);
        origin.ok_or_else(|| bad(self.file, &format!("{name} is not in the ring")))
    }

    fn all(&self) -> Result<Vec<Origin>, Failure> {
        self.config.shared.view().members().keys().map(|name| self.origin(name)).collect()
    }

    fn plan(&self) -> Result<Plan, Failure> {
        let Self { file, config, provision } = self;
        let environment = |name: &str| std::env::var(name).ok();
        let role = |Account { role, password }: &Account| -> Result<Role, Failure> {
            Ok(Role { name: role.clone(), password: self.password(password)? })
        };
        let authorities = provision.publishers_ca.as_deref();
        let subscribe = provision.publishers.iter().map(|(name, source)| {
            let found = source.resolve(&environment, |text| conninfo(text, authorities));
            let found = found.map_err(|why| bad(file, &format!("[provision.publishers]: {name}: {why}")))?;
            Ok((self.origin(name)?, found.reveal().to_owned()))
        });
        let admin = self.secret(&provision.admin_url)?.parse();
        Ok(Plan {
            me: self.me(),
            all: self.all()?,
            deployment: config.shared.deployment.clone(),
            gateway_role: role(&provision.gateway)?,
            replication_role: Some(role(&provision.replication)?),
            admin: admin
                .map_err(|why: BadAddress| bad(file, &format!("[provision]: the admin URL: {why}")))?,
            subscribe: subscribe.collect::<Result<_, Failure>>()?,
            publishers_ca: provision.publishers_ca.clone(),
            migrations: provision::MIGRATIONS,
        })
    }

    fn verifiers(&self) -> Result<String, Failure> {
        let Provision { gateway, replication, .. } = &self.provision;
        let (gateway, replication) =
            (self.password(&gateway.password)?, self.password(&replication.password)?);
        Ok(provision::verifiers(gateway.as_deref(), replication.as_deref()))
    }

    fn secret(&self, source: &SecretSource) -> Result<String, Failure> {
        let found = source.resolve(&|name: &str| std::env::var(name).ok(), |_| Ok(()));
        let found = found.map_err(|why| bad(self.file, &format!("[provision]: {why}")))?;
        Ok(found.reveal().to_owned())
    }

    fn password(&self, source: &Option<SecretSource>) -> Result<Option<String>, Failure> {
        source.as_ref().map(|source| self.secret(source)).transpose()
    }

    fn script(&self) -> Result<Script, Failure> {
        let whence = |source: &SecretSource| match source {
            SecretSource::Written(open) => Whence::Written(open.reveal().to_owned()),
            SecretSource::Variable(name) => Whence::Variable(name.clone()),
            SecretSource::File(path) => Whence::File(path.clone()),
        };
        let role = |Account { role, password }: &Account| (role.clone(), password.is_some());
        let subscribe = self.provision.publishers.iter();
        let subscribe = subscribe.map(|(name, source)| Ok((self.origin(name)?, whence(source))));
        Ok(Script {
            me: self.me(),
            all: self.all()?,
            deployment: self.config.shared.deployment.clone(),
            gateway_role: role(&self.provision.gateway),
            replication_role: role(&self.provision.replication),
            subscribe: subscribe.collect::<Result<_, Failure>>()?,
        })
    }
}

fn bad(file: &Path, what: &str) -> Failure {
    Failure::Bad(format!("{}: {what}", file.display()))
}
