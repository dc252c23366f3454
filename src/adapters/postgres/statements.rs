//! The SQL of one region: the files of `sql/` with the names of its own leaves filled in.
//!
//! `names` makes every name from validated names.

use super::names;
use crate::protocol::region::Origin;

const WHOLE: [&str; 2] = ["r.answer_headers, r.answer_body", "r.answer_coding, r.answer_length"];
/// Columns of an answer without body and headers (version 1 of their coding, and none). Pages of
/// many rows use them, since a body may be long.
const LIGHT: [&str; 2] = [
    "case when r.state = 4 then '\\x01'::bytea end as answer_headers, null::bytea as answer_body",
    "0::smallint as answer_coding, null::int as answer_length",
];
/// Condition: a row is not the one of its origin that counts.
const OUTDONE: &str = include_str!("sql/outdone.sql");
/// Expiry of a key that is kept for ever: `protocol::lifetime::NEVER`, for people.
const NEVER: &str = "9999-12-31 23:59:59+00";
/// The same in observed time, which can be added to.
const NEVER_MS: &str = "1000000000000000000";
/// The store's observed time, at the least: what is judged is judged by it.
const NOW: &str = "(select b.observed_ms from {heartbeats} b)";
/// The store's observed time, at the most: what begins in a statement counts from it. It is read
/// when the statement begins, which is no earlier than the moment from which the asker counts.
const START: &str = "(select b.observed_ms + b.step_ms from {heartbeats} b)";
/// The end of a row's stored life in this store's observed time. Of a replicated row it is not
/// before the end in its origin's observed time, of which its last heartbeat tells.
const ENDS: &str = include_str!("sql/ends.sql");
const LIFETIME_COLUMNS: &str = "expires_at, due_ms, tombstone_ms, route, path, principal, recovery";
const CLAIM_TYPES: &str = "text, bytea, bigint, uuid, uuid, bytea, bytea, bigint, bigint, bigint, bigint, text, text, bytea, text[], bigint, integer";
const ACCEPT_TYPES: &str = "bigint, boolean, bytea";
const RECLAIM_TYPES: &str = "integer, bigint, integer, uuid, jsonb";
/// Result of the claim routines: a verdict and the columns of `columns.sql`.
const RETURNED: &str = "verdict text, origin text, state smallint, epoch bigint, attempt int, nonce uuid, fp_raw bytea, \
    fp_canonical bytea, over jsonb, risk text[], request_id uuid, doubt_status smallint, answer_status smallint, \
    answer_headers bytea, answer_body bytea, hold_left_ms bigint, settled_age_ms bigint, expires_ms bigint, expired boolean, \
    answer_coding smallint, answer_length int, principal bytea, accepted boolean, doubted int, settle_ms bigint, recovery int";

/// Makes the struct of these statements. Each of `files` is the file of that name in `sql/`.
macro_rules! statements {
    ($me:ident, files: $($file:ident)*, others: $($name:ident = $text:expr;)*) => {
        pub(super) struct Statements {
            $(pub(super) $file: String,)*
            $(pub(super) $name: String,)*
        }

        impl Statements {
            pub(super) fn new($me: &Origin) -> Self {
                Self {
                    $($file: fill(include_str!(concat!("sql/", stringify!($file), ".sql")), $me),)*
                    $($name: fill($text, $me),)*
                }
            }

            #[cfg(test)]
            fn all(self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($file), self.$file),)* $((stringify!($name), self.$name),)*]
            }
        }
    };
}

statements! {
    me,
    files:
        claim settle_many reclaim accept job_finish job_put_off job_bury job_erase job_one job_list job_load
        job_held gate gate_open keep_views views acceptor set_acceptor lodged void lodge_answer
        reap_escrows heartbeats remember recall excerpt journal journal_of_many
        findings doubles keys_after enlist subscriptions slots settle release doubt standing
        look_up_one look_up_many approve set_gate beat job_revive job_discard reap open_claims
        doubts unlist live_keys foreign delist rule settle_by_hand release_by_hand note runs_at_risk
        traces journal_doubles late histories lodge convert rows_of latest_of restore import reap_imports stood_in,
    others:
        job_take = concat!(include_str!("sql/job_take.sql"), include_str!("sql/job_taken.sql"));
        job_take_by_turns =
            concat!(include_str!("sql/job_take_by_turns.sql"), include_str!("sql/job_taken.sql"));
        comb = concat!(include_str!("sql/comb.sql"), include_str!("sql/shared.sql"));
        at_risk = concat!(include_str!("sql/at_risk.sql"), include_str!("sql/shared.sql"));
        claim_many = &claiming(include_str!("sql/claim_many.sql"), &OF_MANY).replace("{nothing}", &nothing());
        stand_in = &claiming(include_str!("sql/stand_in.sql"), &NUMBERED);
}

pub(super) fn routines(me: &Origin) -> String {
    let [claim, reclaim, accept] = routine_signatures();
    fill(&claiming(include_str!("sql/routines.sql"), &[]), me)
        .replace("{returned}", RETURNED)
        .replace("{claim_signature}", &claim)
        .replace("{reclaim_signature}", &reclaim)
        .replace("{accept_signature}", &accept)
}

pub(super) fn routine_signatures() -> [String; 3] {
    [
        format!("onceway.claim({CLAIM_TYPES})"),
        format!("onceway.reclaim({CLAIM_TYPES}, {RECLAIM_TYPES})"),
        format!("onceway.accept({CLAIM_TYPES}, {RECLAIM_TYPES}, {ACCEPT_TYPES})"),
    ]
}

/// The arguments of the claim routines, and the parameters that a statement has in their place.
const NUMBERED: [(&str, &str); 11] = [
    ("p_tenant", "$1"),
    ("p_key", "$2"),
    ("p_promised_ms", "$9::bigint"),
    ("p_skew_ms", "$10::bigint"),
    ("p_tombstone_ms", "$11::bigint"),
    ("p_route", "$12"),
    ("p_path", "$13"),
    ("p_principal", "$14"),
    // Its outcome is known: 0 is `park`.
    ("p_recovery", "0"),
    ("p_attempt", "$16::int"),
    ("p_over", "$20::jsonb"),
];

/// The same in a statement about many keys.
const OF_MANY: [(&str, &str); 7] = [
    ("p_promised_ms", "a.promised_ms"),
    ("p_skew_ms", "a.skew_ms"),
    ("p_tombstone_ms", "a.tombstone_ms"),
    ("p_route", "a.route"),
    ("p_path", "a.path"),
    ("p_principal", "a.principal"),
    ("p_recovery", "a.recovery"),
];

/// A null for each column that a claim routine returns.
fn nothing() -> String {
    let null =
        |column: &str| column.trim().split_once(' ').map(|(name, kind)| format!("null::{kind} as {name}"));
    RETURNED.split(',').filter_map(null).collect::<Vec<_>>().join(", ")
}

/// Fills in the parts of every claim on known rows, with its arguments by these names.
fn claiming(template: &str, arguments: &[(&str, &str)]) -> String {
    let named = |piece: &str| {
        arguments
            .iter()
            .fold(piece.trim_end().to_owned(), |piece, (name, number)| piece.replace(name, number))
    };
    // `protocol::record::next_attempt`, where at most `{known}` attempts were known.
    let next = |known: &str| named(&include_str!("sql/next_attempt.sql").replace("{known}", known));
    template
        // Each row of another origin is superseded knowingly, or nothing came of it.
        .replace("{others_yield}", &named(include_str!("sql/others_yield.sql")))
        // Earlier superseded rows stay superseded, beside those that the new claim names.
        .replace("{over_kept}", &named(include_str!("sql/over_kept.sql")))
        // `protocol::record::doubted`: attempts that may have happened.
        .replace("{doubted}", &named(include_str!("sql/doubted.sql")))
        .replace("{next_attempt}", &next("p_attempt"))
        .replace("{first_attempt}", &next("0"))
        .replace("{lifetime_columns}", LIFETIME_COLUMNS)
        // The key's life as a claim writes it, in the order of `LIFETIME_COLUMNS`.
        .replace("{lifetime}", &named(include_str!("sql/lifetime.sql")))
}

/// The end of a replicated row's life, tombstone included, as an imported row has it.
pub(super) fn kept_until(me: &Origin) -> String {
    fill("least({r_ends} + case r.state when 5 then 0 else r.tombstone_ms end, {never_ms})", me)
}

pub(super) fn leaves(origin: &Origin) -> String {
    fill(include_str!("sql/leaf.sql"), origin)
}

fn fill(template: &str, origin: &Origin) -> String {
    let columns = |[answer, coding]: [&str; 2]| {
        let columns = include_str!("sql/columns.sql").trim_end();
        columns.replace("{answer}", answer).replace("{coding}", coding)
    };
    // Another row superseded a row knowingly.
    let superseded =
        |row, by| include_str!("sql/superseded.sql").trim_end().replace("{row}", row).replace("{by}", by);
    let of = |piece: &str, row| piece.trim_end().replace("{row}", row);
    // Of a replicated and an imported row the later one counts.
    let audited = include_str!("sql/audited.sql").trim_end().replace("{outdone}", &of(OUTDONE, "r"));
    template
        .replace("{columns}", &columns(WHOLE))
        .replace("{light}", &columns(LIGHT))
        // The journal's columns of the answer of a row `o`, without the body.
        .replace("{other_answer}", include_str!("sql/other_answer.sql").trim_end())
        // Everything of a row that another region hands over, in place of an earlier copy.
        .replace("{copied}", include_str!("sql/copied.sql").trim_end())
        // Nothing answers for an open row `o`: no origin has a final row, and no row superseded it.
        .replace("{unanswered}", include_str!("sql/unanswered.sql").trim_end())
        // Columns of a row `r` as evidence of a double: `protocol::double::Trace`.
        .replace("{evidence}", include_str!("sql/evidence.sql").trim_end())
        .replace("{outdone}", &of(OUTDONE, "o"))
        .replace("{due_outdone}", &of(OUTDONE, "d"))
        .replace("{due_superseded}", &superseded("d", "o"))
        .replace("{audited}", &audited)
        .replace("{other_named}", &superseded("o", "s"))
        .replace("{own_named}", &superseded("s", "o"))
        .replace("{r_ends}", &of(ENDS, "r"))
        .replace("{ends}", &of(ENDS, "o"))
        .replace("{now}", NOW)
        .replace("{start}", START)
        .replace("{never_ms}", NEVER_MS)
        .replace("{never}", NEVER)
        .replace("{records}", &names::records(origin))
        .replace("{heartbeats}", &names::heartbeats(origin))
        .replace("{origin}", &origin.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All statements with a region's names in them.
    fn texts() -> Vec<(&'static str, String)> {
        let me = Origin::parse("eu-west-1#1").unwrap();
        let mut all = Statements::new(&me).all();
        all.extend([("routines", routines(&me)), ("leaves", leaves(&me))]);
        all
    }

    /// Every statement that writes and relies on the gate locks it: a plain read of the gate may be
    /// older than a change under way.
    ///
    /// The routines read it plainly for the reply. The statement that replaces the acceptor says
    /// why it does not lock the gate.
    #[test]
    fn statements_that_rely_on_the_gate_lock_it() {
        for (name, text) in texts().into_iter().filter(|(name, _)| *name != "set_acceptor") {
            let writes = ["insert into", "update ", "delete from"].iter().any(|word| text.contains(word));
            let plain = text.replace("perform from onceway.gate", "").contains("from onceway.gate");
            assert!(!writes || !plain, "{name}: {text}");
        }
    }

    #[test]
    fn every_placeholder_is_filled() {
        for (name, text) in texts() {
            let open = text.replace("'{}'", "");
            assert!(!open.contains('{') && !open.contains('}'), "{name}: {open}");
        }
    }
}
