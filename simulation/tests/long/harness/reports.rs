//! `sweep`, `compare` and `report` as their users have them: their figures, their refusals, and the
//! same bytes again.
//!
//! The figures are of one directed scenario, in which only waiting matters: rows of the lost region
//! wait elsewhere behind a large transaction.

use std::fs;
use std::process::Output;

use serde_json::Value;

use super::{Folder, err, onceway_sim, out};

/// A region is lost while its rows of five seconds wait for fifteen more; each key is sent again.
const DIRECTED: [(&str, &str); 8] = [
    ("title = \"a region dies", "title = \"<b>a region</b> dies"),
    ("length = \"60s\"", "length = \"45s\""),
    ("rate = 1.5\nagain = 20", "rate = 1.5\nagain = 100"),
    ("rate = 1.5\nagain = 20", "rate = 1.5\nagain = 100"),
    ("rate = 2\nagain = 20", "rate = 2\nagain = 100"),
    ("region = \"any\"", "region = \"us-east\""),
    (
        "lasts = \"25s\"\n",
        "lasts = \"25s\"\n\n[[fault]]\nkind = \"big-transaction\"\nregion = \"us-east\"\nat = \"10s\"\nlasts = \"20s\"\n",
    ),
    ("every = \"4s\"", "every = \"1h\""),
];

/// Runs `onceway-sim` with these words, in which `%` is the folder.
fn sim(words: &str, folder: &Folder) -> Output {
    let folder = folder.0.display().to_string();
    let words: Vec<String> = words.split(' ').map(|word| word.replace('%', &folder)).collect();
    onceway_sim(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn played(words: &str, folder: &Folder) -> Value {
    let played = sim(words, folder);
    assert_eq!((played.status.code(), err(&played).as_str()), (Some(0), ""), "{}", out(&played));
    serde_json::from_str(&out(&played)).unwrap()
}

/// The name of each point, and a count of its keys.
fn keys(study: &Value, what: &str) -> Vec<(String, u64)> {
    let rows = study["rows"].as_array().unwrap().iter();
    rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row["figures"]["keys"][what].as_u64().unwrap()))
        .collect()
}

fn of(counts: &[(String, u64)], name: &str) -> u64 {
    counts.iter().find(|(known, _)| known.contains(name)).unwrap().1
}

#[test]
fn waiting_longer_doubles_fewer_keys_and_escrow_none() {
    let folder = Folder::new("sweep");
    folder.scenario("region-loss", &DIRECTED);
    let sweep = "sweep %/region-loss.toml --count 1 --json --vary failover.multiple=0";
    let study = played(&format!("{sweep},3 --vary route.escrow=off,claim"), &folder);
    let doubles = keys(&study, "doubles");
    let [hasty, patient] = ["failover.multiple=0 route.escrow=off", "failover.multiple=3 route.escrow=off"]
        .map(|name| of(&doubles, name));
    assert!(hasty >= 5 && patient * 3 <= hasty, "{doubles:?}");
    for multiple in ["0", "3"] {
        assert_eq!(of(&doubles, &format!("multiple={multiple} route.escrow=claim")), 0, "{doubles:?}");
    }
    // Each double is in a journal, and broke no invariant.
    assert_eq!(keys(&study, "doubles_listed"), doubles);
    let rows = study["rows"].as_array().unwrap();
    let unsafe_ones = rows.iter().map(|row| row["needs_unsafe_multiple"].as_bool().unwrap());
    assert_eq!(unsafe_ones.collect::<Vec<_>>(), [true, true, false, false]);
    let without = |row: &Value| row["figures"]["without_service"]["p50_ms"].as_u64().unwrap();
    assert!(without(&rows[2]) > without(&rows[0]) + 5_000, "{rows:?}");
    let again = played(&format!("{sweep} --vary route.escrow=off"), &folder);
    assert_eq!(again["rows"][0], rows[0], "the same seed, in another process and beside other points");
}

#[test]
fn a_comparison_shows_doubles_only_without_waiting() {
    let folder = Folder::new("compare");
    folder.scenario("region-loss", &DIRECTED);
    let study = played("compare %/region-loss.toml --count 1 --json", &folder);
    let doubles = keys(&study, "doubles");
    let [hasty, waiting] = ["failover.multiple=0", "failover.multiple=3"].map(|name| of(&doubles, name));
    assert!(hasty >= 1 && waiting == 0, "{doubles:?}");
    assert_eq!((of(&doubles, "escrow=claim"), of(&doubles, "escrow=claim+answer")), (0, 0), "{doubles:?}");
    let begun = keys(&study, "begun");
    assert!(
        begun.len() == 6 && begun.iter().all(|(_, count)| *count == begun[0].1),
        "the same keys: {begun:?}"
    );
}

#[test]
fn a_report_is_one_reproducible_self_contained_page() {
    let folder = Folder::new("report");
    folder.scenario("region-loss", &DIRECTED);
    let asked = "report %/region-loss.toml --count 1 --vary failover.multiple=0,2 --out";
    let written = sim(&format!("{asked} %/a.html --json %/a.json"), &folder);
    assert_eq!((written.status.code(), err(&written).as_str()), (Some(0), ""));
    let again = sim(&format!("{asked} %/b.html --json -"), &folder);
    let [page, data, other] =
        ["a.html", "a.json", "b.html"].map(|name| fs::read_to_string(folder.0.join(name)).unwrap());
    let terminal = out(&written);
    assert!(page == other && out(&again) == format!("{data}\n"), "two processes, the same bytes");
    assert!(page.contains("&lt;b&gt;a region&lt;/b&gt; dies") && page.contains("big-transaction at us-east"));
    let report: Value = serde_json::from_str(&data).unwrap();
    assert_eq!(report["study"]["rows"].as_array().map(Vec::len), Some(6), "both are there, each point once");
    for text in [&page, &terminal] {
        assert!(
            text.contains("onceway failover.multiple=2") && text.contains("route.escrow=claim"),
            "{terminal}"
        );
    }
}

#[test]
fn everything_that_is_wrong_with_what_is_varied_is_said() {
    let folder = Folder::new("varied");
    let refused = sim(
        "sweep region-loss --vary failover.multiple=0,many,2 --vary failover \
                       --vary failover.lease=1ms,3s --vary failover.multiple=4",
        &folder,
    );
    assert_eq!((refused.status.code(), out(&refused).as_str()), (Some(2), ""));
    let said = err(&refused);
    for what in [
        "--vary \"failover\"",
        "(failover.lease=1ms)",
        "(failover.multiple=many)",
        "failover.multiple is varied twice",
    ] {
        assert!(said.lines().any(|line| line.contains(what)), "{what}, in\n{said}");
    }
    assert!(said.lines().count() <= 8, "each once:\n{said}");
    for words in ["sweep nowhere", "compare nowhere", "report region-loss --vary route.escrow=maybe"] {
        assert_eq!(sim(words, &folder).status.code(), Some(2), "{words}");
    }
    let usual = played("sweep region-loss --count 1 --json --set length=20s", &folder);
    assert_eq!(usual["rows"].as_array().unwrap().len(), 5, "the multiples, if nothing is named");
    let values = (1..24).map(|value: u32| value.to_string()).collect::<Vec<_>>().join(",");
    let many = sim(&format!("sweep region-loss --vary a={values} --vary b={values}"), &folder);
    assert!(err(&many).contains("529 combinations, more than 500"), "{}", err(&many));
}
