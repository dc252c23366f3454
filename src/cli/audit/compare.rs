//! `onceway audit compare`: differences between a provider's ledger and onceway.
//!
//! The ledger is read first, as digests. Then onceway's keys come page by page and take their rows
//! off it. So neither side is held in memory as text.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::super::http::Admin;
use super::super::process::{Failure, print, tell};
use super::super::table::{list, printable};
use super::export::{PAGE, behind, broke_off};
use super::judge::{Known, Rule, Verdict};
use super::ledger::{Effect, Found, Layout, Ledger};

/// Lines of the ledger that a finding names.
const LINES: usize = 10;

/// Compare a provider's ledger (a CSV file, each row one effect) with onceway's records, and print
/// missing, extra and double effects.
///
/// `missing`: onceway holds a settled effect that the ledger does not have. `extra`: the ledger has
/// an effect of a key that onceway does not know, or knows as released or refused: nothing
/// happened. `double`: the ledger has more than one effect of a key. Keys in doubt are listed with
/// the ledger's answer, `happened` or `not-found`; they are no differences: `onceway key settle` or
/// `release` ends them.
#[derive(Args)]
#[command(after_long_help = "\
Rows match by tenant and key; rows without a key by the request id that onceway sent as Onceway-Request-Id. The upstream gets
the client's own key, so that is what a provider's ledger should hold; it may be kept in quotes, as the header was sent. Rows
that name neither are counted and left out.

The ledger should begin a little before --from and end a little after --until: then what lies at the edges is found. Take it
after the export would show everything: an effect of the last seconds may not be in a copy yet (how far behind copies are is
told). A key is forgotten after its retention and its tombstone's life (30 days more, unless the route says otherwise): older
rows of the ledger would be extra, so say --from. Keys past their retention are not judged, but for doubles.

Exit codes: 0 no difference, 1 differences, 2 the ledger or the arguments are wrong, 3 the gateway could not be asked.

Examples:
  onceway audit compare provider.csv --tenant acme
  onceway audit compare ledger.csv --key-column 'Idempotency Key' --tenant-column account --route charges --json
  onceway audit compare january.csv --from 2026-01-01 --until 2026-02-01 --time-column created")]
pub struct Compare {
    /// The provider's ledger: CSV with a header.
    #[arg(value_name = "PROVIDER.csv")]
    ledger: PathBuf,
    #[command(flatten)]
    gateway: Admin,
    /// Print JSON, one object on each line, the summary last.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    layout: Layout,
    #[command(flatten)]
    rule: Rule,
    /// Character between cells.
    #[arg(long, value_name = "CHAR", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"\\t" | b"tab" => Ok(b'\t'),
        [byte] if byte.is_ascii() && *byte != b'"' => Ok(*byte),
        _ => Err("write one ASCII character, or tab".to_owned()),
    }
}

#[derive(Default)]
struct Comparison {
    json: bool,
    counts: BTreeMap<&'static str, u64>,
    keys: u64,
    copies: Value,
    region: Value,
}

impl Compare {
    pub fn run(&self) -> Result<(), Failure> {
        let rule = Rule { tenant: self.layout.tenant.clone(), ..self.rule.clone() };
        if rule.from.zip(rule.until).is_some_and(|(from, until)| from >= until) {
            return Err(Failure::Bad("--from is not before --until".to_owned()));
        }
        let timed = rule.from.is_some() || rule.until.is_some() || self.layout.time_column.is_some();
        let layout = Layout { timed, delimiter: self.delimiter, ..self.layout.clone() };
        let mut ledger = Ledger::read(&self.ledger, &layout, &rule)?;
        let mut comparison = Comparison { json: self.json, ..Comparison::default() };
        let walked =
            self.gateway.pages(PAGE, |page| comparison.page(page, &rule, &mut ledger).map(|()| true));
        walked.map_err(broke_off)?;
        ledger.rest(|effect, found| comparison.unknown(&effect, &found))?;
        comparison.end(&ledger)
    }
}

impl Comparison {
    /// Takes the keys of a page off the ledger.
    fn page(&mut self, page: &Value, rule: &Rule, ledger: &mut Ledger) -> Result<(), Failure> {
        self.copies = page["copies"].clone();
        self.region = page["region"].clone();
        for known in Known::grouped(list(&page["entries"])) {
            self.keys += 1;
            let found = ledger.take(&known.tenant, &known.key, known.requests());
            let verdict = known.verdict(found.lines.len(), found.dated, rule);
            self.count(verdict);
            if let Some(kind) = shown(verdict) {
                let named = (&*known.tenant, &*known.key, "");
                self.say(kind, named, &found.lines, &known.describe(), &known.entries)?;
            }
        }
        Ok(())
    }

    /// Reports a row of the ledger that no key of onceway took.
    fn unknown(&mut self, effect: &Effect, found: &Found) -> Result<(), Failure> {
        if !found.dated {
            return Ok(());
        }
        let verdict = if found.lines.len() > 1 { Verdict::Double } else { Verdict::Extra };
        self.count(verdict);
        let named = (effect.tenant.as_str(), effect.key.as_str(), effect.request.as_str());
        self.say(shown(verdict).unwrap_or_default(), named, &found.lines, "not known to onceway", &[])
    }

    fn count(&mut self, verdict: Verdict) {
        *self.counts.entry(verdict.word()).or_default() += 1;
    }

    fn say(
        &self,
        kind: &str,
        (tenant, key, request): (&str, &str, &str),
        lines: &[u64],
        described: &str,
        entries: &[Value],
    ) -> Result<(), Failure> {
        if self.json {
            let request = (!request.is_empty()).then_some(request);
            let finding = json!({
                "finding": kind, "tenant": tenant, "key": key, "request_id": request, "effects": lines.len(),
                "lines": lines.iter().take(LINES).collect::<Vec<_>>(), "known": described, "entries": entries,
            });
            return print(&format!("{finding}\n"));
        }
        let named = if key.is_empty() { request } else { key };
        let there = match lines {
            [] => "not in the ledger".to_owned(),
            [line] => format!("line {line}"),
            lines => {
                let first: Vec<String> = lines.iter().take(LINES).map(ToString::to_string).collect();
                let more = if lines.len() > LINES { ", ..." } else { "" };
                format!("{} effects, lines {}{more}", lines.len(), first.join(", "))
            }
        };
        let [tenant, named, described] = [tenant, named, described].map(printable);
        print(&format!("{kind:<9}  {tenant}  {named}  {there}: {described}\n"))
    }

    /// Prints the summary, and returns the exit code.
    fn end(self, ledger: &Ledger) -> Result<(), Failure> {
        let count = |kind: &str| self.counts.get(kind).copied().unwrap_or(0);
        let (rows, matched, unnamed) = (ledger.rows(), ledger.matched(), ledger.unnamed);
        let differences = count("missing") + count("extra") + count("double");
        let said = json!({ "summary": {
            "region": self.region, "copies": self.copies, "keys": self.keys, "rows": rows, "matched_rows": matched,
            "rows_without_key": unnamed, "missing": count("missing"), "extra": count("extra"), "double": count("double"),
            "in_doubt_happened": count("happened"), "in_doubt_not_found": count("not-found"), "running": count("running"),
            "past_retention": count("forgotten"), "differences": differences,
        }});
        let text = format!(
            "{rows} rows of the ledger ({matched} of known keys), {} keys here: {} missing, {} extra, {} double\n\
             in doubt: {} happened, {} not found; running {}, past retention {}; rows without a key or request: {unnamed}\n{}\n",
            self.keys,
            count("missing"),
            count("extra"),
            count("double"),
            count("happened"),
            count("not-found"),
            count("running"),
            count("forgotten"),
            behind(&self.copies)
        );
        tell(self.json, &said, &text)?;
        let hint = match matched == 0 && rows > 0 && self.keys > 0 {
            true => "; no row is of a known key: are these the right columns, and the right tenant?",
            false => "",
        };
        match differences {
            0 => Ok(()),
            1 => Err(Failure::Failed(format!("1 difference{hint}"))),
            count => Err(Failure::Failed(format!("{count} differences{hint}"))),
        }
    }
}

/// The word of a finding; `None` if it is only counted.
fn shown(verdict: Verdict) -> Option<&'static str> {
    let is_only_counted = matches!(verdict, Verdict::Agrees | Verdict::Running | Verdict::Forgotten);
    (!is_only_counted).then(|| verdict.word())
}

#[cfg(test)]
mod tests {
    use super::delimiter;

    #[test]
    fn a_delimiter_is_one_character_or_a_tab() {
        assert_eq!((delimiter(";"), delimiter("tab")), (Ok(b';'), Ok(b'\t')));
        for bad in ["", ";;", "\"", "ü"] {
            assert!(delimiter(bad).is_err(), "{bad}");
        }
    }
}
