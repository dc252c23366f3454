//! Reads the product's own audit after a run: every region's list of keys that ran at risk.
//!
//! `verdict` compares it with the stores' own lists and with the ledger. This file asks as an
//! operator does. It must not ask before every region is home: until then an audit knows less.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::region::Region;
use onceway_client::Ask;

const PATIENCE: Duration = Duration::from_secs(10);
/// Most entries of one page.
const PAGE: usize = 1_000;

/// Adds the keys that begin with `mark` and are listed by this region's audit. The value is true if
/// the audit says that the key ran twice, or perhaps did.
pub async fn add(keys: &mut BTreeMap<String, bool>, region: &Region, mark: &str) -> Result<()> {
    let mut after = String::new();
    loop {
        let url = format!("{}/v1/audit?limit={PAGE}{after}", region.admin());
        let answer = Ask::get(url).send(PATIENCE).await?;
        ensure!(answer.status == 200, "the audit of {} was answered {}", region.name, answer.text());
        let page = answer.json();
        let runs = page["runs"].as_array().context("an audit lists runs")?;
        for run in runs {
            let key = run["key"].as_str().context("a run has a key")?;
            if key.starts_with(mark) {
                *keys.entry(key.to_owned()).or_default() |= run["verdict"] != "clean";
            }
        }
        let Some(last) = runs.last().filter(|_| page["more"] == true) else { return Ok(()) };
        let text = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
        after = format!("&after={}%2F{}", text("tenant"), text("key"));
    }
}
