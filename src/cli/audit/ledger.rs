//! A provider's ledger: a CSV file in which each row is one effect.
//!
//! It may be large, so of each row only the place and a digest of the attempt's name are kept (25
//! bytes). A finding's text is read a second time. A row that cannot be read is an error.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::Args;
use csv::{ByteRecord, Reader, ReaderBuilder, Terminator};

use super::super::process::Failure;
use super::judge::Rule;
use crate::gateway::operator::instant;
use crate::protocol::digest::digest;
use crate::protocol::key::{Key, Syntax};

/// Most wrong rows that a message names; the rest is only counted.
const TOLD: usize = 10;
/// Longest row in bytes: an open quote swallows all rows behind it.
const LONGEST: usize = 1_000_000;
/// Default names of columns, best first, as [`plain`] writes them.
const KEYS: [&str; 2] = ["idempotency_key", "key"];
const REQUESTS: [&str; 2] = ["onceway_request_id", "request_id"];
const TENANTS: [&str; 2] = ["onceway_tenant", "tenant"];
const TIMES: [&str; 7] = ["at", "at_ms", "created_at", "created", "time", "timestamp", "date"];

/// Columns and format of the file.
#[derive(Args, Clone, Debug, Default)]
pub struct Layout {
    /// The column with the idempotency key [default: idempotency_key or key]
    #[arg(long, value_name = "NAME")]
    pub key_column: Option<String>,
    /// The column with the request id [default: onceway_request_id or request_id]
    #[arg(long, value_name = "NAME")]
    pub request_column: Option<String>,
    /// The column with the tenant [default: onceway_tenant or tenant]
    #[arg(long, value_name = "NAME", conflicts_with = "tenant")]
    pub tenant_column: Option<String>,
    /// The ledger is this tenant's; only its keys are compared.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// The column with the time of the effect, for --from and --until [default: at, created_at,
    /// created, time, timestamp or date]
    #[arg(long, value_name = "NAME")]
    pub time_column: Option<String>,
    /// True if times are needed: then a column must have them.
    #[arg(skip)]
    pub timed: bool,
    /// Character between cells.
    #[arg(skip)]
    pub delimiter: u8,
}

#[derive(Clone, Debug)]
struct Columns {
    key: Option<usize>,
    request: Option<usize>,
    tenant: Option<usize>,
    of: Option<String>,
    time: Option<usize>,
}

/// Digest of an attempt's name, long enough that no two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name([u8; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    name: Name,
    line: u64,
}

const SEEN: u8 = 1;
const DATED: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The tenant; empty if the row names a request only.
    pub tenant: String,
    /// The key; empty if the row names none.
    pub key: String,
    /// The request; empty if the row names none.
    pub request: String,
    time: Option<i64>,
}

/// Rows of one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Their lines, in order.
    pub lines: Vec<u64>,
    /// True if one of them lies in the selected time.
    pub dated: bool,
}

#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    delimiter: u8,
    columns: Columns,
    marks: Vec<Mark>,
    /// Two flags of each mark: asked for, and in the selected time.
    flags: Vec<u8>,
    /// Rows that name neither key nor request: effects that onceway did not ask for by key.
    pub unnamed: u64,
}

impl Ledger {
    /// Reads the file once. The error: it cannot be read, a column is missing, or rows are wrong,
    /// with their lines.
    pub fn read(path: &Path, layout: &Layout, rule: &Rule) -> Result<Ledger, Failure> {
        let mut reader = open(path, layout.delimiter)?;
        let columns = Columns::find(&header(path, &mut reader)?, layout)?;
        let (mut rows, mut unnamed, mut wrong) = (Vec::new(), 0, Wrong::default());
        for_each(reader, |line, record| match record.and_then(|record| columns.effect(record)) {
            Ok(effect) => match effect.name() {
                Some(name) => {
                    let dated = effect.time.is_none_or(|at| rule.covers(at));
                    rows.push((Mark { name, line }, if dated { DATED } else { 0 }));
                }
                None => unnamed += 1,
            },
            Err(why) => wrong.add(line, &why),
        });
        wrong.end(path)?;
        rows.sort_unstable();
        let (marks, flags) = rows.into_iter().unzip();
        Ok(Ledger { path: path.to_owned(), delimiter: layout.delimiter, columns, marks, flags, unnamed })
    }

    /// Number of rows that name a key or a request.
    pub fn rows(&self) -> usize {
        self.marks.len()
    }

    /// Number of these rows that were asked for so far.
    pub fn matched(&self) -> usize {
        self.flags.iter().filter(|flags| **flags & SEEN != 0).count()
    }

    /// The rows of a key, by its name or by one of its requests. They count as asked for from now
    /// on.
    pub fn take<'a>(&mut self, tenant: &str, key: &str, requests: impl Iterator<Item = &'a str>) -> Found {
        let names: BTreeSet<Name> =
            [of_key(tenant, key)].into_iter().chain(requests.map(of_request)).collect();
        let places: Vec<usize> = names.into_iter().flat_map(|name| self.places(name)).collect();
        places.iter().for_each(|at| self.flags[*at] |= SEEN);
        self.found(places)
    }

    fn places(&self, name: Name) -> Range<usize> {
        let place =
            |after: fn(&Name, &Name) -> bool| self.marks.partition_point(|mark| after(&mark.name, &name));
        place(Name::lt)..place(Name::le)
    }

    fn found(&self, places: impl IntoIterator<Item = usize>) -> Found {
        let mut found = Found::default();
        for at in places {
            found.lines.push(self.marks[at].line);
            found.dated |= self.flags[at] & DATED != 0;
        }
        found.lines.sort_unstable();
        found
    }

    /// Hands the rows not asked for to `each`, by attempt, in the order of the file. Reads the file
    /// again for their text. The error: the file changed meanwhile, or an error of `each`.
    pub fn rest(&self, mut each: impl FnMut(Effect, Found) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut groups: Vec<(u64, usize)> = Vec::new();
        for (at, (mark, flags)) in self.marks.iter().zip(&self.flags).enumerate() {
            let begins = at.checked_sub(1).is_none_or(|before| self.marks[before].name != mark.name);
            if begins && flags & SEEN == 0 {
                groups.push((mark.line, at));
            }
        }
        groups.sort_unstable();
        let mut groups = groups.into_iter().peekable();
        let (mut ended, mut changed) = (Ok(()), false);
        let mut reader = open(&self.path, self.delimiter)?;
        header(&self.path, &mut reader)?;
        for_each(reader, |line, record| {
            let Some((_, at)) = groups.next_if(|(first, _)| *first == line) else { return };
            let Some(mark) = self.marks.get(at) else { return };
            match record.and_then(|record| self.columns.effect(record)) {
                Ok(effect) if effect.name() == Some(mark.name) && ended.is_ok() => {
                    ended = each(effect, self.found(self.places(mark.name)));
                }
                Ok(_) | Err(_) => changed |= ended.is_ok(),
            }
        });
        ended?;
        if changed || groups.next().is_some() {
            return Err(Failure::Bad(format!("{} changed while it was read", self.path.display())));
        }
        Ok(())
    }
}

impl Effect {
    /// The name of its attempt: its key, else its request. `None`: onceway was not asked for it.
    fn name(&self) -> Option<Name> {
        match (self.key.as_str(), self.request.as_str()) {
            ("", "") => None,
            ("", request) => Some(of_request(request)),
            (key, _) => Some(of_key(&self.tenant, key)),
        }
    }
}

fn of_key(tenant: &str, key: &str) -> Name {
    shortened("onceway/compare/key/1", &[tenant.as_bytes(), key.as_bytes()])
}

fn of_request(request: &str) -> Name {
    shortened("onceway/compare/request/1", &[request.as_bytes()])
}

fn shortened(domain: &'static str, parts: &[&[u8]]) -> Name {
    let whole = digest(domain, parts);
    Name(std::array::from_fn(|at| whole.as_bytes()[at]))
}

impl Columns {
    fn find(header: &[String], layout: &Layout) -> Result<Columns, Failure> {
        let all = header.join(", ");
        let place = |name: &str| header.iter().position(|cell| plain(cell) == plain(name));
        let column = |flag: &str, named: &Option<String>, usual: &[&str]| match named {
            Some(name) => match place(name) {
                Some(at) => Ok(Some(at)),
                None => {
                    Err(Failure::Bad(format!("{flag} {name}: the ledger has no such column; it has {all}")))
                }
            },
            None => Ok(usual.iter().find_map(|name| place(name))),
        };
        let tenants: &[&str] = if layout.tenant.is_some() { &[] } else { &TENANTS };
        let columns = Columns {
            key: column("--key-column", &layout.key_column, &KEYS)?,
            request: column("--request-column", &layout.request_column, &REQUESTS)?,
            tenant: column("--tenant-column", &layout.tenant_column, tenants)?,
            of: layout.tenant.clone(),
            time: column("--time-column", &layout.time_column, &TIMES)?.filter(|_| layout.timed),
        };
        let missing = |what: &str, flag: &str| {
            let why = format!("no column is {what}: name it with {flag}; the ledger has {all}");
            Err(Failure::Bad(why))
        };
        match columns {
            Columns { key: None, request: None, .. } => {
                missing("the idempotency key or the request id", "--key-column or --request-column")
            }
            Columns { key: Some(_), tenant: None, of: None, .. } => missing(
                "the tenant (two tenants may use the same key)",
                "--tenant-column, or say whose ledger it is with --tenant",
            ),
            Columns { time: None, .. } if layout.timed => missing("the time of the effect", "--time-column"),
            columns => Ok(columns),
        }
    }

    fn effect(&self, record: &ByteRecord) -> Result<Effect, String> {
        if record.as_slice().len() > LONGEST {
            return Err("the row has more than a megabyte: is a quote not closed?".to_owned());
        }
        let key = unquoted(&self.cell(record, self.key, "the key")?);
        let request = self.cell(record, self.request, "the request id")?;
        let tenant = match (&self.of, key.is_empty()) {
            (_, true) => String::new(),
            (Some(of), false) => of.clone(),
            (None, false) => self.cell(record, self.tenant, "the tenant")?,
        };
        if tenant.is_empty() && !key.is_empty() {
            return Err(format!("key {key:?} has no tenant"));
        }
        let time = match self.cell(record, self.time, "the time")?.as_str() {
            "" => None,
            text => Some(instant::parse(text).ok_or_else(|| {
                format!(
                    "{text:?} is no time: RFC 3339, a day, or seconds or milliseconds since 1970 are read"
                )
            })?),
        };
        Ok(Effect { tenant, key, request, time })
    }

    /// The text of a cell; empty if the column does not exist.
    fn cell(&self, record: &ByteRecord, at: Option<usize>, what: &str) -> Result<String, String> {
        let Some(at) = at else { return Ok(String::new()) };
        let cell = record
            .get(at)
            .ok_or_else(|| format!("the row has {} cells, {what} would be cell {}", record.len(), at + 1))?;
        match std::str::from_utf8(cell) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(_) => Err(format!("{what} is not UTF-8")),
        }
    }
}

/// The key itself, also from a header kept as it was sent: a string in quotes (RFC 8941).
fn unquoted(cell: &str) -> String {
    match cell.starts_with('"') {
        true => match Key::from_header_values(&[cell.as_bytes()], Syntax::Lenient) {
            Ok(key) => key.as_str().to_owned(),
            Err(_) => cell.to_owned(),
        },
        false => cell.to_owned(),
    }
}

/// A column's name in the form for comparisons.
fn plain(name: &str) -> String {
    name.trim().to_lowercase().replace(['-', ' ', '.'], "_")
}

/// A file whose last line always ends.
type Text = std::io::Chain<BufReader<File>, &'static [u8]>;

/// Rows may have fewer or more cells than the header: only the needed cells must exist. A row ends
/// with a line feed, and a carriage return before it counts as a blank. So lines are counted
/// exactly, on files of every system.
fn open(path: &Path, delimiter: u8) -> Result<Reader<Text>, Failure> {
    let file = File::open(path)
        .map_err(|error| Failure::Bad(format!("{} cannot be read: {error}", path.display())))?;
    let text = BufReader::with_capacity(1 << 20, file).chain(&b"\n"[..]);
    let mut builder = ReaderBuilder::new();
    builder.delimiter(delimiter).terminator(Terminator::Any(b'\n')).flexible(true).has_headers(false);
    Ok(builder.from_reader(text))
}

fn header<R: Read>(path: &Path, reader: &mut Reader<R>) -> Result<Vec<String>, Failure> {
    let mut first = ByteRecord::new();
    let there = loop {
        let there = reader.read_byte_record(&mut first);
        let there = there.map_err(|error| Failure::Bad(format!("{}: {error}", path.display())))?;
        if !there || !is_blank(&first) {
            break there;
        }
    };
    if !there {
        return Err(Failure::Bad(format!("{} is empty: a header names the columns", path.display())));
    }
    let text = |cell: &[u8]| String::from_utf8_lossy(cell).trim_start_matches('\u{feff}').trim().to_owned();
    Ok(first.iter().map(text).collect())
}

fn is_blank(record: &ByteRecord) -> bool {
    record.len() <= 1 && record.as_slice().trim_ascii().is_empty()
}

/// Hands each row behind the header to `each`, with the line on which it begins.
fn for_each<R: Read>(mut reader: Reader<R>, mut each: impl FnMut(u64, Result<&ByteRecord, String>)) {
    let mut record = ByteRecord::new();
    loop {
        let before = reader.position().line();
        let read = reader.read_byte_record(&mut record);
        // The reader is now behind the row's own line feed and those inside its quotes.
        let inside = record.as_slice().iter().filter(|byte| **byte == b'\n').count() as u64;
        let line = reader.position().line().saturating_sub(1 + inside);
        match read {
            Ok(true) if is_blank(&record) => {}
            // The line feed that should have ended the row is inside its quotes.
            Ok(true) if line < before => each(before, Err("a quote is not closed".to_owned())),
            Ok(true) => each(line, Ok(&record)),
            Ok(false) => return,
            Err(error) => {
                each(line, Err(error.to_string()));
                // A file that cannot be read any further ends here.
                if error.is_io_error() {
                    return;
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct Wrong {
    listed: Vec<String>,
    more: u64,
}

impl Wrong {
    fn add(&mut self, line: u64, why: &str) {
        if self.listed.len() < TOLD {
            self.listed.push(format!("  line {line}: {why}"));
        } else {
            self.more += 1;
        }
    }

    fn end(self, path: &Path) -> Result<(), Failure> {
        if self.listed.is_empty() {
            return Ok(());
        }
        let mut text = format!("{} cannot be compared:\n{}", path.display(), self.listed.join("\n"));
        if self.more > 0 {
            text.push_str(&format!("\n  and {} lines more", self.more));
        }
        Err(Failure::Bad(text))
    }
}

#[cfg(test)]
mod tests;
