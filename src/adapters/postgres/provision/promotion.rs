//! Effect of a promoted standby of this server on the slots by which other regions follow it.
//!
//! A slot that is gone is noticed, and its reader is copied anew (docs/protocol.md#rule-29). One
//! that survives while its reader was ahead of the standby skips rows in silence. This file must
//! not change a slot, nor call one safe whose standby it cannot see.

use tokio_postgres::Client;

use super::super::names;
use super::plan::{Error, Plan, Promotion, Report, Status, get, query};
use crate::protocol::region::RegionName;

/// The first version whose standbys can keep logical slots by themselves.
const KEEPS_SLOTS: i32 = 17;

/// Settings of a server about its standbys, as far as they can be seen from it.
struct Standbys {
    /// Major version of the server.
    version: i32,
    /// Physical slots: one of each standby, perhaps one of an archive.
    slots: Vec<String>,
    /// Standbys that stream without a slot.
    without: i64,
    /// `synchronized_standby_slots`.
    waited_for: Vec<String>,
}

/// Reports the fate of each peer's slot, if a standby is seen.
pub(super) async fn check(client: &Client, plan: &Plan, report: &mut Report) -> Result<(), Error> {
    const WHAT: &str = "looking for standbys";
    // Older versions have neither the column nor the setting.
    let sql = "select current_setting('server_version_num')::int / 10000, \
                      array(select slot_name::text from pg_replication_slots where slot_type = 'physical' order by 1), \
                      (select count(*) from pg_stat_replication r where r.state in ('catchup', 'streaming') \
                          and not exists (select from pg_replication_slots s where s.active_pid = r.pid)), \
                      coalesce(current_setting('synchronized_standby_slots', true), '')";
    let rows = query(client, WHAT, sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let waited_for: String = get(row, WHAT, 3)?;
    let waited_for = waited_for.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect();
    let standbys = Standbys {
        version: get(row, WHAT, 0)?,
        slots: get(row, WHAT, 1)?,
        without: get(row, WHAT, 2)?,
        waited_for,
    };
    if standbys.slots.is_empty() && standbys.without == 0 {
        return Ok(());
    }
    for peer in plan.all.iter().map(|origin| &origin.region).filter(|region| **region != plan.me.region) {
        let slot = names::subscription(peer, &plan.me.region);
        let sql = "select coalesce((to_jsonb(s) ->> 'failover')::boolean, false) from pg_replication_slots s \
                    where s.slot_type = 'logical' and s.slot_name = $1";
        let rows = query(client, WHAT, sql, &[&slot]).await?;
        let Some(row) = rows.first() else { continue };
        match fate(&standbys, get(row, WHAT, 0)?, peer, &plan.me.region) {
            Ok((survives, why)) => report.promotion.push(Promotion { slot, survives, why }),
            Err(why) => report.add(format!("slot {slot}"), Status::Broken(why)),
        }
    }
    Ok(())
}

/// The fate of the slot of `reader`, which was made with or without `failover`: true if it is there
/// afterwards, and its reader goes on. An error if its reader may miss rows in silence.
fn fate(
    standbys: &Standbys,
    failover: bool,
    reader: &RegionName,
    me: &RegionName,
) -> Result<(bool, String), String> {
    let Standbys { version, slots, without, waited_for } = standbys;
    let reseed = format!("afterwards run `onceway store reseed --from {me}` in {reader}");
    if *version < KEEPS_SLOTS {
        return Ok((false, format!("Postgres {version} keeps none: {reseed}; let no tool copy the slot")));
    }
    if !failover {
        return Ok((false, format!("it is no failover slot: {reseed}")));
    }
    let unnamed: Vec<&str> =
        slots.iter().filter(|slot| !waited_for.contains(slot)).map(String::as_str).collect();
    let then = format!("so after a promotion {reader} could miss rows in silence");
    if !unnamed.is_empty() {
        let unnamed = unnamed.join(", ");
        return Err(format!(
            "it is a failover slot that does not wait for {unnamed}, {then}: name that in synchronized_standby_slots"
        ));
    }
    if *without > 0 {
        return Err(format!(
            "it is a failover slot, and a standby streams without a slot, {then}: give the standby a slot, and name that in synchronized_standby_slots"
        ));
    }
    Ok((true, "if the standby has it `synced`, neither `temporary` nor invalidated".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_survives_only_behind_the_standbys() {
        let (eu, us) = (RegionName::parse("eu-west").unwrap(), RegionName::parse("us-east").unwrap());
        for (version, failover, slots, without, waited_for, expected) in [
            (15, false, &["b"][..], 0, &[][..], "lost Postgres 15 keeps none"),
            (16, false, &["b"], 0, &[], "lost Postgres 16 keeps none"),
            (17, false, &["b"], 0, &["b"], "lost it is no failover slot"),
            (17, true, &["b"], 0, &["b"], "survives"),
            (18, true, &["b", "c"], 0, &["c", "b"], "survives"),
            (17, true, &["b"], 0, &[""], "skips it is a failover slot that does not wait for b,"),
            (
                17,
                true,
                &["b", "c", "d"],
                0,
                &["c"],
                "skips it is a failover slot that does not wait for b, d,",
            ),
            (17, true, &["b"], 1, &["b"], "skips it is a failover slot, and a standby streams without"),
            (17, true, &[], 1, &[], "skips it is a failover slot, and a standby streams without"),
        ] {
            let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let standbys = Standbys { version, slots: own(slots), without, waited_for: own(waited_for) };
            let (word, why) = match fate(&standbys, failover, &eu, &us) {
                Ok((survives, why)) => (if survives { "survives" } else { "lost" }, why),
                Err(why) => ("skips", why),
            };
            let said = format!("{word} {why}");
            assert!(
                said.starts_with(expected),
                "{version} {failover} {slots:?} {without} {waited_for:?}: {said}"
            );
            let advised = word != "lost" || said.contains("`onceway store reseed --from us-east` in eu-west");
            assert!(advised, "{said}");
        }
    }
}
