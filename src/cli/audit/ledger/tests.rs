//! Tests of a provider's ledger: accepted rows, and refused ones by line.

use std::path::PathBuf;

use super::*;

fn rule() -> Rule {
    Rule { effects: 200..=399, routes: Vec::new(), tenant: None, from: None, until: None }
}

/// A file that is deleted with the test.
struct Csv(tempfile::TempDir);

impl Csv {
    fn new(text: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ledger.csv"), text).unwrap();
        Self(dir)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("ledger.csv")
    }

    fn read(&self, layout: &Layout) -> Result<Ledger, Failure> {
        Ledger::read(&self.path(), &Layout { delimiter: b',', ..layout.clone() }, &rule())
    }
}

fn read_error(read: Result<Ledger, Failure>) -> String {
    match read {
        Err(Failure::Bad(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn take(ledger: &mut Ledger, key: &str) -> Vec<u64> {
    ledger.take("acme", key, std::iter::empty()).lines
}

fn rest(ledger: &Ledger) -> Vec<(String, Vec<u64>)> {
    let mut all = Vec::new();
    ledger
        .rest(|effect, found| {
            all.push((effect.key, found.lines));
            Ok(())
        })
        .unwrap();
    all
}

#[test]
fn a_ledger_groups_rows_by_key_in_file_order() {
    let text = "id,Idempotency-Key,Tenant\n1,b,acme\n2,a,acme\n3,z,acme\n4,b,acme\n5,a,globex\n6,z,acme\n7,c,acme\n8,,acme\n";
    let csv = Csv::new(text.as_bytes());
    let mut ledger = csv.read(&Layout::default()).unwrap();
    assert_eq!((ledger.rows(), ledger.unnamed, ledger.matched()), (7, 1, 0));
    assert_eq!(take(&mut ledger, "a"), [3]);
    assert_eq!(take(&mut ledger, "b"), [2, 5]);
    assert!(take(&mut ledger, "absent").is_empty());
    assert_eq!(ledger.matched(), 3);
    assert_eq!(
        rest(&ledger),
        [("z".to_owned(), vec![4, 7]), ("a".to_owned(), vec![6]), ("c".to_owned(), vec![8])]
    );
}

#[test]
fn files_are_written_in_many_ways() {
    // A byte order mark, line ends of Windows, blanks, a blank line, missing cells, too many cells,
    // and the header as it was sent.
    let text = "\u{feff}key , tenant,note\r\n k1 ,acme\r\n\r\n\"k,2\",acme,x,y\r\n\"\"\"k3\"\"\",acme,\"a\r\nb\"\r\nk4,acme,";
    let csv = Csv::new(text.as_bytes());
    let mut ledger = csv.read(&Layout::default()).unwrap();
    let lines = ["k1", "k,2", "k3", "k4"].map(|key| take(&mut ledger, key));
    assert_eq!(lines, [vec![2], vec![4], vec![5], vec![7]]);
    let csv = Csv::new(b"key;x\nk1;1\n");
    let layout = Layout { tenant: Some("acme".to_owned()), delimiter: b';', ..Layout::default() };
    let mut ledger = Ledger::read(&csv.path(), &layout, &rule()).unwrap();
    assert_eq!(take(&mut ledger, "k1"), [2]);
}

#[test]
fn rows_without_a_key_match_by_request() {
    let csv = Csv::new(b"key,tenant,request_id\n,,req_1\nk,acme,req_2\n,,\n");
    let mut ledger = csv.read(&Layout::default()).unwrap();
    assert_eq!(ledger.unnamed, 1);
    let found = ledger.take("acme", "k", ["req_1", "req_1", "req_9"].into_iter());
    assert_eq!(found.lines, [2, 3]);
    assert_eq!(rest(&ledger), []);
    let csv = Csv::new(b"request_id\nreq_1\n");
    assert_eq!(csv.read(&Layout::default()).unwrap().rows(), 1, "a request names its tenant");
}

#[test]
fn wrong_rows_are_told_by_line_and_nothing_is_compared() {
    let text =
        b"tenant,key,at\nacme,k1,2026-01-01\nacme\n,k2,2026-01-01\nacme,k3,soon\nacme,\xff,2026-01-01\n";
    let csv = Csv::new(text);
    let layout = Layout { timed: true, ..Layout::default() };
    let error = read_error(csv.read(&layout));
    for part in [
        "line 3: the row has 1 cells, the key would be cell 2",
        "line 4: key \"k2\" has no tenant",
        "line 5: \"soon\" is no time",
        "line 6: the key is not UTF-8",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let mut many = String::from("key,tenant\n");
    many.push_str(&"k,\n".repeat(30));
    let error = read_error(Csv::new(many.as_bytes()).read(&Layout::default()));
    assert!(error.contains("line 11:") && error.contains("and 20 lines more"), "{error}");
    let open = format!("key,tenant\nk1,\"acme\n{}k3,\"acme\"\n", "k2,acme\n".repeat(200_000));
    let error = read_error(Csv::new(open.as_bytes()).read(&Layout::default()));
    assert!(error.contains("line 2: the row has more than a megabyte"), "{error}");
    let open = format!("key,tenant\nk1,\"acme\n{}", "k2,acme\n".repeat(200_000));
    let error = read_error(Csv::new(open.as_bytes()).read(&Layout::default()));
    assert!(error.contains("line 2: a quote is not closed"), "{error}");
}

#[test]
fn missing_columns_are_reported_beside_the_present_ones() {
    let csv = Csv::new(b"id,amount\n1,2\n");
    let error = read_error(csv.read(&Layout::default()));
    assert!(error.contains("--key-column") && error.contains("id, amount"), "{error}");
    let named = Layout { key_column: Some("ref".to_owned()), ..Layout::default() };
    assert!(read_error(csv.read(&named)).contains("--key-column ref: the ledger has no such column"));
    let csv = Csv::new(b"key,amount\nk,2\n");
    assert!(read_error(csv.read(&Layout::default())).contains("two tenants may use the same key"));
    let of = Layout { tenant: Some("acme".to_owned()), ..Layout::default() };
    assert_eq!(csv.read(&of).unwrap().rows(), 1);
    assert!(read_error(csv.read(&Layout { timed: true, ..of })).contains("--time-column"));
    assert!(read_error(Csv::new(b"").read(&Layout::default())).contains("is empty"));
    let gone = PathBuf::from("no-such-ledger.csv");
    assert!(
        read_error(Ledger::read(&gone, &Layout { delimiter: b',', ..Layout::default() }, &rule()))
            .contains("cannot be read")
    );
}

#[test]
fn rows_outside_the_time_that_is_asked_for_are_marked() {
    let csv = Csv::new(b"key,tenant,at\nold,acme,1970-01-01\nnew,acme,1970-01-03\nboth,acme,1970-01-01\nboth,acme,1970-01-03\n");
    let layout = Layout { timed: true, delimiter: b',', ..Layout::default() };
    let rule = Rule { from: Some(86_400_000), ..rule() };
    let mut ledger = Ledger::read(&csv.path(), &layout, &rule).unwrap();
    let dated = ["old", "new", "both"].map(|key| ledger.take("acme", key, std::iter::empty()).dated);
    assert_eq!(dated, [false, true, true]);
}

#[test]
fn a_file_that_changes_meanwhile_is_noticed() {
    let csv = Csv::new(b"key,tenant\nk1,acme\nk2,acme\n");
    let ledger = csv.read(&Layout::default()).unwrap();
    std::fs::write(csv.path(), b"key,tenant\nk1,acme\nk3,acme\n").unwrap();
    let ended = ledger.rest(|_, _| Ok(()));
    assert!(matches!(ended, Err(Failure::Bad(why)) if why.contains("changed while it was read")));
}
