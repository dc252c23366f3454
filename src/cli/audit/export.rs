//! `onceway audit export`: everything that a region knows of its keys, as CSV or as JSON lines.
//!
//! `gateway::operator::export` is the contract of the JSON. One page is held in memory at a time.

use clap::Args;
use serde_json::Value;

use super::super::http::Admin;
use super::super::process::{Failure, complain, print_on};
use super::super::table::list;
use crate::gateway::operator::instant::stamp;

/// Keys in one page.
pub const PAGE: &str = "/v1/audit/export?limit=500";

/// The fields of the JSON that are the columns of the CSV, where `_ms` becomes `_at`.
const FIELDS: &str = "tenant key key_state kind origin region epoch attempt request_id state status at_ms settled_ms expires_ms \
                      route path risk over accepted source actor note";

fn column(field: &str) -> String {
    match field.strip_suffix("_ms") {
        Some("at") => "at".to_owned(),
        Some(moment) => format!("{moment}_at"),
        None => field.to_owned(),
    }
}

/// Print everything that onceway knows of each key's attempts, as CSV. One row for each region's
/// record and for each entry of the journal.
///
/// Rows replicate: one region knows all of them, as far as its copies have come. The lag of the
/// copies is printed on stderr at the end. A key that changes meanwhile is shown in its state
/// before or after.
#[derive(Args)]
#[command(after_long_help = "\
Columns: tenant, key, key_state (what all records of the key mean together: settled, released, in-doubt, in-progress, expired,
absent), kind (record, or the journal's late, double, settled-by-hand, released-by-hand), origin, region, epoch, attempt,
request_id (as the upstream was told), state, status, at (claimed, or journalled), settled_at, expires_at, route, path, risk
(lost regions that may have run it too), over (attempts that it knowingly superseded), accepted, source (own, replicated,
imported), actor, note. Dates are RFC 3339 in UTC by the clock of the region that wrote the row; with --json they are
milliseconds since 1970, named at_ms and so on.

Exit codes: 0 all of it was printed, 3 it broke off.

Examples:
  onceway audit export > onceway.csv
  onceway audit export --json | jq -c 'select(.key_state == \"in-doubt\")'")]
pub struct Export {
    #[command(flatten)]
    gateway: Admin,
    /// Print JSON, one object on each line.
    #[arg(long)]
    json: bool,
    /// Print the keys of this tenant only.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

impl Export {
    pub fn run(&self) -> Result<(), Failure> {
        if !self.json {
            print_on(&csv([FIELDS.split(' ').map(column).collect()])?)?;
        }
        let mut copies = Value::Null;
        let walked = self.gateway.pages(PAGE, |page| {
            copies = page["copies"].clone();
            let wanted = |entry: &&Value| self.tenant.as_ref().is_none_or(|name| entry["tenant"] == **name);
            let entries = list(&page["entries"]).iter().filter(wanted);
            let text = match self.json {
                true => entries.map(|entry| format!("{entry}\n")).collect(),
                false => csv(entries.map(row))?,
            };
            print_on(&text)
        });
        walked.map_err(broke_off)?;
        complain(&behind(&copies));
        Ok(())
    }
}

/// Marks a failure as incomplete: the output so far is not all.
pub fn broke_off(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(why) => Failure::Incomplete(format!("it broke off: {why}")),
        other => other,
    }
}

/// The lag of the copies of other regions' rows, in one line.
pub fn behind(copies: &Value) -> String {
    let one = |copy: &Value| {
        let region = copy["region"].as_str().unwrap_or_default();
        let lag = match copy["lag_ms"].as_f64() {
            Some(lag) => format!("at most {:.1} s behind", lag / 1_000.0),
            None => "never measured".to_owned(),
        };
        match copy["up"] == true {
            true => format!("{region} {lag}"),
            false => format!("{region} does not answer: what never left it is missing ({lag})"),
        }
    };
    let all: Vec<String> = list(copies).iter().map(one).collect();
    match all.is_empty() {
        true => "no other region".to_owned(),
        false => format!("copies of other regions' rows: {}", all.join(", ")),
    }
}

fn row(entry: &Value) -> Vec<String> {
    FIELDS.split(' ').map(|field| cell(field, &entry[field])).collect()
}

fn cell(field: &str, value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if field.ends_with("_ms") => number.as_i64().map(stamp).unwrap_or_default(),
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(";"),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

fn csv(rows: impl IntoIterator<Item = Vec<String>>) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.write_record(&row)?;
    }
    let bytes = writer.into_inner().map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(String::from_utf8(bytes)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{behind, csv, row};

    #[test]
    fn an_entry_is_a_row_that_a_csv_reader_gives_back() {
        let entry = json!({
            "tenant": "acme", "key": "a \"b\",\nc", "key_state": "settled", "kind": "record", "origin": "eu#1", "region": "eu",
            "epoch": 3, "attempt": 1, "request_id": "req_1", "state": "settled", "status": 201, "at_ms": 0, "settled_ms": 1_500,
            "expires_ms": null, "route": "charges", "path": "/v1/charges", "risk": ["us", "ap"], "over": ["us#1 2.1"],
            "accepted": false, "source": "own", "actor": null, "note": null,
        });
        let text = csv([row(&entry)]).unwrap();
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        let back = reader.records().next().unwrap().unwrap();
        let cells: Vec<&str> = back.iter().collect();
        assert_eq!((cells[1], cells[10], cells[11]), ("a \"b\",\nc", "201", "1970-01-01T00:00:00.000Z"));
        assert_eq!((cells[12], cells[13], cells[16]), ("1970-01-01T00:00:01.500Z", "", "us;ap"));
    }

    #[test]
    fn copies_that_are_behind_are_told() {
        let copies = json!([
            { "region": "eu", "up": true, "lag_ms": 120.0, "heard_ms_ago": 3 },
            { "region": "ap", "up": false, "lag_ms": 61_000.0, "heard_ms_ago": 70_000 },
        ]);
        let text = behind(&copies);
        assert!(text.contains("eu at most 0.1 s behind") && text.contains("ap does not answer"), "{text}");
        assert_eq!(behind(&json!([])), "no other region");
    }
}
