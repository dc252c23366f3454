//! One frame of `onceway top`: the gateways' reports, as JSON, or as lines that fit a terminal.
//!
//! In a narrow terminal the least useful columns go; in a low one lines at the end go.

use serde_json::{Value, json};

use super::super::authority;
use super::super::table::{Side, columns, list, word};
use super::sample::{GatewayState, Heard, Sample};

/// Verdicts that have a rate, each with its column.
const RATES: [(&str, &str); 5] = [
    ("settled", "settled/s"),
    ("replayed", "replayed/s"),
    ("refused", "refused/s"),
    ("in_doubt", "in doubt/s"),
    ("accepted", "accepted/s"),
];

pub struct Frame {
    pub said: Value,
}

impl Frame {
    /// Draws a sample; rates compare it with the sample before.
    pub fn of(now: &Sample, before: Option<&Sample>) -> Self {
        let gateways: Vec<Value> = now
            .gateways
            .iter()
            .enumerate()
            .map(|(number, heard)| gateway(number, heard, now, before))
            .collect();
        // The first gateway that answers speaks for the deployment.
        let speaker = now.gateways.iter().find_map(|heard| heard.said.as_ref().ok());
        let status = speaker.map_or(&Value::Null, |said| &said.status);
        let authority = &status["authority"];
        let regions = list(&authority["regions"]).iter();
        let regions: Vec<Value> = regions.map(|region| of_region(region, status)).collect();
        let said = json!({
            "region": status["region"], "epoch": authority["epoch"], "founded": authority["founded"],
            "mode": authority["mode"], "voters": authority["voters"], "pending": authority["pending"],
            "regions": regions, "opening": authority["opening"], "gateways": gateways,
        });
        Self { said }
    }

    pub fn is_silent(&self) -> bool {
        list(&self.said["gateways"]).iter().all(|gateway| !gateway["trouble"].is_null())
    }

    pub fn silence(&self) -> String {
        let all = list(&self.said["gateways"]).iter().map(|gateway| word(&gateway["trouble"]));
        all.collect::<Vec<_>>().join("; ")
    }

    /// At most `height` lines of at most `width` characters, each with its end.
    pub fn lines(&self, width: usize, height: usize) -> Vec<String> {
        let mut text = format!("{}\n\n", self.title());
        let regions = list(&self.said["regions"]).iter().map(region_row).collect();
        text.push_str(&fitting(&REGIONS, regions, width));
        let opening: Vec<String> = list(&self.said["opening"]).iter().map(authority::hindrance).collect();
        if !opening.is_empty() {
            text.push_str(&format!("\nkeys that {} has gained wait for\n", word(&self.said["region"])));
            text.extend(opening.iter().map(|line| format!("{line}\n")));
        }
        text.push('\n');
        let gateways = list(&self.said["gateways"]).iter().map(gateway_row).collect();
        text.push_str(&fitting(&GATEWAYS, gateways, width));
        for gateway in list(&self.said["gateways"]) {
            let of = word(&gateway["admin"]);
            let reasons = list(&gateway["reasons"])
                .iter()
                .chain(Some(&gateway["trouble"]).filter(|one| !one.is_null()));
            text.extend(reasons.map(|reason| format!("{of}: {}\n", word(reason))));
        }
        let mut lines: Vec<String> = text.lines().map(|line| cut(line, width)).collect();
        if lines.len() > height {
            let more = lines.len() - height + 1;
            lines.truncate(height.saturating_sub(1));
            lines.push(cut(&format!("… {more} more lines: make the terminal higher"), width));
        }
        lines.into_iter().map(|line| format!("{line}\n")).collect()
    }

    fn title(&self) -> String {
        let said = &self.said;
        if said["region"].is_null() {
            return "onceway top · no gateway answers · q quits".to_owned();
        }
        let epoch = match said["founded"].as_bool() {
            Some(false) => "NOT FOUNDED".to_owned(),
            Some(true) | None => format!("epoch {}", word(&said["epoch"])),
        };
        let pending = match said["pending"].is_null() {
            true => String::new(),
            false => format!(" · PENDING {}", word(&said["pending"])),
        };
        let (region, mode) = (word(&said["region"]), word(&said["mode"]));
        let voters = list(&said["voters"]).len();
        format!(
            "onceway top · seen by {region} · {epoch}{pending} · failover {mode} · {voters} voters · q quits"
        )
    }
}

/// A region as the speaking gateway sees it, with its report of the peer, and the longest window
/// that it waits for.
fn of_region(region: &Value, status: &Value) -> Value {
    let name = region["name"].as_str().unwrap_or_default();
    let peer = &status["peers"][name];
    let is_me = status["region"] == region["name"];
    let window = list(&status["authority"]["opening"]).iter().filter(|one| one["region"] == region["name"]);
    let window = window.filter_map(|one| one["left_ms"].as_u64()).max();
    json!({
        "name": name, "standing": region["standing"], "share": region["share"], "since_epoch": region["since_epoch"],
        "this_one": is_me, "up": if is_me { json!(true) } else { peer["up"].clone() }, "lag_ms": peer["lag_ms"],
        "lag_max_ms": peer["lag_max_ms"], "rtt_ms": peer["rtt_ms"], "window_left_ms": window,
        "upstream_failing": region["upstream_failing"],
    })
}

fn gateway(number: usize, heard: &Heard, now: &Sample, before: Option<&Sample>) -> Value {
    let said = match &heard.said {
        Ok(said) => said,
        Err(why) => return json!({ "admin": heard.admin, "trouble": why }),
    };
    let earlier =
        before.and_then(|before| Some((before.at, before.gateways.get(number)?.said.as_ref().ok()?)));
    let rate = |verdict: Option<&str>| {
        let (at, earlier) = earlier?;
        let seconds = (now.at - at).as_secs_f64();
        let grown = count(said, verdict) - count(earlier, verdict);
        // A gateway that restarted counts from 0.
        (seconds > 0.0 && grown >= 0.0).then_some(grown / seconds)
    };
    let status = &said.status;
    let rates: serde_json::Map<String, Value> =
        RATES.iter().map(|(verdict, _)| ((*verdict).to_owned(), json!(rate(Some(verdict))))).collect();
    json!({
        "admin": heard.admin, "trouble": null, "region": status["region"], "ready": status["readiness"]["ready"],
        "serves": status["readiness"]["serves"], "reasons": status["readiness"]["reasons"],
        "store_open": status["store"]["open"], "lease_held": status["authority"]["lease"]["held"],
        "lease_left_ms": status["authority"]["lease"]["left_ms"], "in_flight": status["in_flight"],
        "doubts": said.doubts, "answers_per_second": rate(None), "per_second": rates,
    })
}

fn count(said: &GatewayState, verdict: Option<&str>) -> f64 {
    let counted = said.answers.iter().filter(|(name, _)| verdict.is_none_or(|verdict| verdict == *name));
    counted.map(|(_, count)| count).sum()
}

/// A column: its head, its side, and its rank for removal if there is no room. 0 stays.
type Column = (&'static str, Side, u8);

const REGIONS: [Column; 8] = [
    ("region", Side::Left, 0),
    ("standing", Side::Left, 0),
    ("owns", Side::Right, 1),
    ("up", Side::Left, 2),
    ("lag", Side::Right, 3),
    ("window", Side::Right, 1),
    ("lag max", Side::Right, 5),
    ("rtt", Side::Right, 4),
];

fn region_row(region: &Value) -> Vec<String> {
    let up = if region["this_one"] == true { "(this one)".to_owned() } else { word(&region["up"]) };
    let upstream = if region["upstream_failing"] == true { ", upstream FAILS" } else { "" };
    let standing = if region["standing"] == "lost" { "LOST".to_owned() } else { word(&region["standing"]) };
    let share = region["share"].as_f64().map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let ms = |name: &str| region[name].as_f64().map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
    let window = authority::seconds(&region["window_left_ms"]);
    let [lag, lag_max, rtt] = ["lag_ms", "lag_max_ms", "rtt_ms"].map(ms);
    vec![word(&region["name"]), format!("{standing}{upstream}"), share, up, lag, window, lag_max, rtt]
}

const GATEWAYS: [Column; 12] = [
    ("gateway", Side::Left, 4),
    ("region", Side::Left, 0),
    ("runs keys", Side::Left, 0),
    ("lease", Side::Right, 0),
    ("in flight", Side::Right, 3),
    ("in doubt", Side::Right, 1),
    ("answers/s", Side::Right, 1),
    ("settled/s", Side::Right, 2),
    ("replayed/s", Side::Right, 5),
    ("refused/s", Side::Right, 6),
    ("in doubt/s", Side::Right, 8),
    ("accepted/s", Side::Right, 9),
];

fn gateway_row(gateway: &Value) -> Vec<String> {
    let admin = word(&gateway["admin"]);
    let bare = admin.trim_start_matches("http://").to_owned();
    if !gateway["trouble"].is_null() {
        return vec![bare, "-".to_owned(), "SILENT".to_owned()];
    }
    let lease = match gateway["lease_held"].as_bool() {
        Some(true) => authority::seconds(&gateway["lease_left_ms"]),
        Some(false) => "NOT HELD".to_owned(),
        None => "-".to_owned(),
    };
    let number = |value: &Value| value.as_f64().map_or("-".to_owned(), |number| format!("{number:.0}"));
    let rate = |value: &Value| value.as_f64().map_or("-".to_owned(), |rate| format!("{rate:.1}"));
    let mut row = vec![bare, word(&gateway["region"]), word(&gateway["serves"]), lease];
    row.extend([number(&gateway["in_flight"]), number(&gateway["doubts"])]);
    row.push(rate(&gateway["answers_per_second"]));
    row.extend(RATES.iter().map(|(verdict, _)| rate(&gateway["per_second"][verdict])));
    row
}

/// The rows under their heads, without the columns that do not fit.
fn fitting(heads: &[Column], rows: Vec<Vec<String>>, width: usize) -> String {
    let mut kept: Vec<usize> = (0..heads.len()).collect();
    loop {
        let head = kept.iter().map(|index| heads[*index].0.to_owned()).collect();
        let cells = rows
            .iter()
            .map(|row| kept.iter().map(|index| row.get(*index).cloned().unwrap_or_default()).collect());
        let table: Vec<Vec<String>> = std::iter::once(head).chain(cells).collect();
        let sides: Vec<Side> = kept.iter().map(|index| heads[*index].1).collect();
        let text = columns(&sides, &table);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let least =
            kept.iter().copied().filter(|index| heads[*index].2 > 0).max_by_key(|index| heads[*index].2);
        match least {
            Some(least) if widest > width => kept.retain(|index| *index != least),
            Some(_) | None => return text,
        }
    }
}

fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::Instant;

    use super::super::sample::{GatewayState, Heard, Sample};
    use super::Frame;

    fn sample(at: Instant, settled: f64) -> Sample {
        let status = json!({
            "region": "us-east", "in_flight": 4, "readiness": { "ready": true, "serves": true, "reasons": [] },
            "store": { "open": true },
            "authority": {
                "epoch": 8, "founded": true, "mode": "automatic", "lease": { "held": true, "left_ms": 8_400 },
                "voters": ["a", "b", "c"], "pending": null,
                "regions": [
                    { "name": "eu-west", "standing": "lost", "since_epoch": 8, "share": 0.0 },
                    { "name": "us-east", "standing": "serving", "since_epoch": 1, "share": 0.666 },
                ],
                "opening": [{ "what": "window", "region": "eu-west", "text": "the window after the loss of eu-west runs",
                    "left_ms": 1_250, "needs_operator": false }],
            },
            "peers": { "eu-west": { "up": false, "lag_ms": 812.0, "lag_max_ms": 900.0, "rtt_ms": 61.2 } },
        });
        let answers = BTreeMap::from([("settled".to_owned(), settled), ("replayed".to_owned(), 10.0)]);
        let gateways = vec![
            Heard {
                admin: "http://127.0.0.1:7402".to_owned(),
                said: Ok(GatewayState { status, answers, doubts: Some(3.0) }),
            },
            Heard {
                admin: "http://127.0.0.1:7412".to_owned(),
                said: Err("it does not \u{1b}answer".to_owned()),
            },
        ];
        Sample { at, gateways }
    }

    fn frame() -> Frame {
        let start = Instant::now();
        Frame::of(&sample(start + Duration::from_secs(2), 130.0), Some(&sample(start, 100.0)))
    }

    #[test]
    fn a_takeover_is_seen_in_one_frame() {
        let text = frame().lines(200, 60).concat();
        for part in [
            "seen by us-east · epoch 8 · failover automatic · 3 voters",
            "LOST",
            "1.2 s",
            "the window after the loss of eu-west runs",
            "812 ms",
            "15.0",
            "127.0.0.1:7412  -        SILENT",
            "7412: it does not  answer",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(!frame().is_silent());
        assert_eq!(frame().said["gateways"][0]["per_second"]["settled"], 15.0);
        assert_eq!(frame().said["regions"][0]["window_left_ms"], 1_250);
        let first = Frame::of(&sample(Instant::now(), 5.0), None);
        assert!(first.said["gateways"][0]["answers_per_second"].is_null(), "a first frame has no rates");
    }

    #[test]
    fn a_frame_fits_its_terminal() {
        for (width, height) in [(80, 24), (60, 20), (40, 12), (20, 5), (1, 1)] {
            let lines = frame().lines(width, height);
            assert!(lines.len() <= height, "{} lines in {height}", lines.len());
            let widest = lines.iter().map(|line| line.trim_end_matches('\n').chars().count()).max().unwrap();
            assert!(widest <= width, "{widest} in {width}");
        }
        let text = frame().lines(80, 24).concat();
        for kept in ["standing", "window", "lease", "in doubt", "settled/s"] {
            assert!(text.contains(kept), "{kept:?} is kept at 80 columns:\n{text}");
        }
        assert!(frame().lines(80, 6).concat().contains("more lines"));
        assert!(frame().lines(45, 24).concat().contains("LOST"), "the standing stays");
    }
}
