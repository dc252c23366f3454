//! Judges a run by the histories of keys, the ledger and the stores together.
//! `load` and `prober` bring the histories, `cluster_sql` the stores' lists, `schedule` the
//! audits' lists; this file fills the `report`. No double, answer or reply is excused beyond the
//! exceptions written here.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

use super::ask::{Exchange, Received};
use super::load::{CLASSES, End, KeyLife, Recovery};
use super::report::Report;
use crate::cluster_sql::Noted;
use crate::ledger::Totals;

const MOST_NAMED: usize = 12;

/// Replies that a drill allows, beside the upstream's answers.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Only a planned move is under way: allows 503 `moving` with `Retry-After: 1`, and 409.
    pub only_moving: bool,
    /// Regions, by number, whose clients may lose a connection or get no answer.
    pub harmed: BTreeSet<usize>,
    /// Not even keys that the stores list may have more than one effect.
    pub no_double_at_all: bool,
}

impl Allowed {
    fn objects(&self, exchange: &Exchange) -> bool {
        let Received::Answer(answer) = &exchange.received else {
            return !self.harmed.contains(&exchange.via);
        };
        if exchange.received.success().is_some() {
            return false;
        }
        let (status, code) = (answer.status, answer.code.as_str());
        if self.only_moving {
            let moving = (status, code) == (503, "moving") && answer.retry_after == "1";
            return !(moving || status == 409 && matches!(code, "in-progress" | "outcome-unknown"));
        }
        let refused = match status {
            409 => "in-progress outcome-unknown",
            503 => {
                "home-unavailable moving not-authoritative store-unavailable gateway-outdated escrow-unavailable stopping"
            }
            504 => "outcome-unknown",
            _ => "",
        };
        !refused.split(' ').any(|allowed| !code.is_empty() && allowed == code)
    }
}

pub struct Remains<'a> {
    /// The histories, those of probes included.
    pub lives: &'a [KeyLife],
    pub totals: &'a [Totals],
    pub noted: &'a BTreeMap<String, Noted>,
    /// Lists of all regions' audits, by key; true if the key ran twice, or perhaps did.
    pub audited: &'a BTreeMap<String, bool>,
    pub mark: &'a str,
    pub start: Instant,
}

pub fn judge(report: &mut Report, allowed: &Allowed, remains: &Remains<'_>) {
    let Remains { lives, totals, noted, audited, mark, start: _ } = remains;
    let effects: BTreeMap<&str, &Totals> = totals
        .iter()
        .filter(|total| total.key.starts_with(mark))
        .map(|total| (total.key.as_str(), total))
        .collect();
    let classes: BTreeMap<&str, usize> = lives.iter().map(|life| (life.key.as_str(), life.class)).collect();
    report.keys = classes.len() as u64;
    report.listed = noted.values().filter(|noted| noted.is_listed()).count() as u64;
    for (key, class) in &classes {
        let found = (noted.get(*key), audited.get(*key).copied());
        count_effects(report, allowed, (key, *class), effects.get(key).copied(), found);
    }
    let hidden = noted.iter().filter(|(key, noted)| noted.at_risk && !audited.contains_key(*key)).count();
    if hidden > 0 {
        report.broke(format!("{hidden} keys ran at risk, by the stores, and no audit lists them"));
    }
    for total in effects.values().filter(|total| !classes.contains_key(total.key.as_str())) {
        report.broke(format!("the ledger has an effect of key {}, which no history knows", total.key));
    }
    answers(report, remains, &effects);
    replies(report, allowed, remains);
    for life in *lives {
        let word = match &life.end {
            End::Definite => "definite".to_owned(),
            End::InDoubt => "in doubt".to_owned(),
            End::Without(word) => {
                let key = &life.key;
                report.broken.push(format!("key {key} has no end, its last word was {word}"));
                format!("without end: {word}")
            }
        };
        *report.ends.entry(word).or_default() += 1;
    }
    let more = report.broken.len().saturating_sub(MOST_NAMED);
    report.broken.truncate(MOST_NAMED);
    report.broken.extend((more > 0).then(|| format!("and {more} more")));
}

/// True if people learn that the key may have run twice. On a `rerun` route, one region alone may
/// have run it twice, which is allowed: a listed key is enough there.
fn is_reported(class: Recovery, noted: Option<&Noted>, audited: Option<bool>) -> bool {
    let shown = match class {
        Recovery::Rerun { .. } => audited.is_some(),
        Recovery::Probe | Recovery::Park => audited == Some(true),
    };
    shown && noted.is_some_and(Noted::is_listed)
}

fn count_effects(
    report: &mut Report,
    allowed: &Allowed,
    (key, number): (&str, usize),
    total: Option<&Totals>,
    (noted, audited): (Option<&Noted>, Option<bool>),
) {
    let class = CLASSES[number];
    let counts = report.classes.entry(class.name).or_default();
    counts.keys += 1;
    let effects = total.map_or(0, |total| total.effects);
    counts.effects += effects;
    if effects < 2 {
        return;
    }
    counts.doubles += 1;
    let listed = is_reported(class.recovery, noted, audited);
    let by_rerun = matches!(class.recovery, Recovery::Rerun { .. }) && noted.is_some_and(|noted| noted.again);
    counts.doubles_listed += u64::from(listed);
    counts.doubles_by_rerun += u64::from(by_rerun && !listed);
    let regions = total.map(|total| total.regions.join(" and ")).unwrap_or_default();
    let what = format!("key {key} ({}) had {effects} effects, in {regions}", class.name);
    if class.escrow {
        report.broke(format!("{what}, though its claim was lodged first"));
    } else if allowed.no_double_at_all {
        report.broke(what);
    } else if !listed && !by_rerun {
        report.broke(format!("{what}, and it is not listed: stores {noted:?}, audits {audited:?}"));
    }
}

fn answers(report: &mut Report, remains: &Remains<'_>, effects: &BTreeMap<&str, &Totals>) {
    for life in remains.lives {
        let mut bodies: Vec<u64> =
            life.exchanges.iter().filter_map(|exchange| Some(exchange.received.success()?.body)).collect();
        if !bodies.is_empty() && !effects.contains_key(life.key.as_str()) {
            report.answers_without_effect += 1;
            report.broke(format!("key {} was answered, and the ledger has no effect of it", life.key));
        }
        bodies.sort_unstable();
        bodies.dedup();
        if bodies.len() > 1 {
            report.answers_changed += 1;
            if !remains.noted.get(&life.key).is_some_and(Noted::is_listed) {
                report.broke(format!("key {} was given {} different answers", life.key, bodies.len()));
            }
        }
    }
}

fn replies(report: &mut Report, allowed: &Allowed, remains: &Remains<'_>) {
    let lived =
        remains.lives.iter().flat_map(|life| life.exchanges.iter().map(|exchange| (&life.key, exchange)));
    let mut unexpected = 0_u64;
    for (key, exchange) in lived {
        *report.replies.entry(exchange.received.word()).or_default() += 1;
        if allowed.objects(exchange) {
            unexpected += 1;
            if report.unexpected.len() < MOST_NAMED {
                let at = (exchange.done - remains.start).as_secs_f64();
                let after = exchange
                    .received
                    .answer()
                    .map(|answer| format!(" by {}, Retry-After {:?}", answer.by, answer.retry_after));
                let (word, after) = (exchange.received.word(), after.unwrap_or_default());
                let via = exchange.via;
                report.unexpected.push(format!("{at:7.3} s {key} via region {via}: {word}{after}"));
            }
        }
    }
    if unexpected > 0 {
        report.broke(format!("{unexpected} replies that this drill does not allow"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::ask::Answered;
    use super::*;

    fn answer(status: u16, code: &str) -> Received {
        let (code, retry_after, body) = (code.into(), "1".into(), u64::from(status));
        Received::Answer(Answered { status, code, retry_after, body, ..Answered::default() })
    }

    fn exchange(received: Received) -> Exchange {
        let now = Instant::now();
        Exchange { via: 0, sent: now, done: now, received }
    }

    fn life(class: usize, got: Vec<Received>, end: End) -> KeyLife {
        KeyLife { end, ..KeyLife::begun("m-k".into(), class, got.into_iter().map(exchange).collect()) }
    }

    fn judged(allowed: &Allowed, life: KeyLife, effects: u64, noted: Option<Noted>) -> Report {
        let audited = noted.as_ref().is_some_and(Noted::is_listed).then_some(true);
        audit(allowed, life, effects, noted, audited)
    }

    fn audit(
        allowed: &Allowed,
        life: KeyLife,
        effects: u64,
        noted: Option<Noted>,
        audited: Option<bool>,
    ) -> Report {
        let mut report = Report::default();
        let totals = Totals { key: "m-k".into(), tenant: "acme".into(), effects, regions: vec!["eu".into()] };
        let totals: Vec<Totals> = (effects > 0).then_some(totals).into_iter().collect();
        let noted = noted.map(|noted| ("m-k".to_owned(), noted)).into_iter().collect();
        let audited = audited.map(|audited| ("m-k".to_owned(), audited)).into_iter().collect();
        let (lives, totals, start) = (&[life][..], &totals[..], Instant::now());
        let remains = Remains { lives, totals, noted: &noted, audited: &audited, mark: "m-", start };
        judge(&mut report, allowed, &remains);
        report
    }

    #[test]
    fn a_double_needs_an_excuse_and_escrow_has_none() {
        let (usual, listed) = (Allowed::default(), Noted { at_risk: true, ..Noted::default() });
        let again = Noted { again: true, ..Noted::default() };
        let of = |class, noted| {
            judged(&usual, life(class, vec![answer(201, "")], End::Definite), 2, noted).broken.len()
        };
        let with = |class| of(class, Some(listed.clone()));
        assert_eq!((with(0), with(1), with(3)), (1, 0, 0));
        assert_eq!((of(0, None), of(1, None), of(3, None)), (1, 1, 1));
        assert_eq!((of(1, Some(again.clone())), of(3, Some(again.clone()))), (1, 0));
        let strict = Allowed { no_double_at_all: true, ..Allowed::default() };
        let found = judged(&strict, life(3, vec![answer(201, "")], End::Definite), 2, Some(again));
        assert_eq!(found.broken.len(), 1);
    }

    #[test]
    fn the_audit_lists_every_double_in_the_stores() {
        let (usual, listed) = (Allowed::default(), Noted { at_risk: true, ..Noted::default() });
        let of = |class, effects, audited| {
            let life = life(class, vec![answer(201, "")], End::Definite);
            audit(&usual, life, effects, Some(listed.clone()), audited).broken.len()
        };
        assert_eq!((of(2, 1, Some(false)), of(2, 1, None)), (0, 1));
        // A double that is shown as clean is not shown.
        assert_eq!((of(2, 2, Some(true)), of(2, 2, Some(false)), of(3, 2, Some(false))), (0, 1, 0));
    }

    #[test]
    fn answers_have_effects_and_stay() {
        let usual = Allowed::default();
        let found = judged(&usual, life(1, vec![answer(201, "")], End::Definite), 0, None);
        assert_eq!((found.answers_without_effect, found.broken.len()), (1, 1));
        let found = judged(&usual, life(1, vec![answer(201, ""), answer(200, "")], End::Definite), 1, None);
        assert_eq!((found.answers_changed, found.broken.len()), (1, 1));
        let found = judged(&usual, life(1, vec![answer(201, ""), answer(201, "")], End::Definite), 1, None);
        assert!(found.broken.is_empty(), "{:?}", found.broken);
    }

    #[test]
    fn replies_are_held_against_what_the_drill_allows() {
        let (usual, moving) = (Allowed::default(), Allowed { only_moving: true, ..Allowed::default() });
        let harmed = Allowed { harmed: [0].into(), ..Allowed::default() };
        for (got, with_usual, with_moving, with_harmed) in [
            (answer(503, "home-unavailable"), 0, 1, 0),
            (answer(503, "moving"), 0, 0, 0),
            (answer(409, "in-progress"), 0, 0, 0),
            (answer(422, "key-reused"), 1, 1, 1),
            (answer(500, ""), 1, 1, 1),
            (Received::Late, 1, 1, 0),
            (Received::Nobody, 1, 1, 0),
        ] {
            let of =
                |allowed| judged(allowed, life(1, vec![got.clone()], End::InDoubt), 0, None).broken.len();
            let held = (of(&usual), of(&moving), of(&harmed));
            assert_eq!(held, (with_usual, with_moving, with_harmed), "{got:?}");
        }
    }

    #[test]
    fn a_key_without_an_end_is_named() {
        let found =
            judged(&Allowed::default(), life(1, Vec::new(), End::Without("no answer".into())), 0, None);
        assert_eq!(found.broken, ["key m-k has no end, its last word was no answer"]);
    }
}
