//! `onceway top`: regions, leases, windows and rates, live in a terminal.
//!
//! The words are those of `onceway status`. It goes on while gateways do not answer: a gateway that
//! fails is told, and fails nothing here, because people look for such a gateway.

mod frame;
mod screen;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::Instant;

use super::http::{By, Target};
use super::process::{Failure, block_on, complain, print_on, tell};
use super::table::printable;
use crate::config::span;
use crate::ports::observe;
use frame::Frame;
use screen::{Asked, Screen};

/// Columns of a frame, if the terminal's size is unknown.
const WIDTH: u16 = 80;
/// Rows of a frame, if the terminal's size is unknown.
const HEIGHT: u16 = 24;

/// Answer "what is going on just now?", live: owners, leases, lag, running windows, rates, keys in
/// doubt.
///
/// The first gateway reports the regions as it sees them; each gateway is listed with its lease and
/// its rates. A gateway that does not answer is shown as such, and asked again. Press q to quit.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway top                                                    the demo's first region
  onceway top --admin http://127.0.0.1:7402 --admin http://127.0.0.1:7412 --admin http://127.0.0.1:7422
  onceway top --once                                             one frame as text, for scripts; rates over one interval
  onceway top --once --json | jq '.gateways[].answers_per_second'

Where stdout is no terminal it behaves as with --once, and says so on stderr. Rates are differences of /metrics, per second.

Exit codes: 0 left, or the frame was printed; 1 with --once: no gateway answers, or the terminal failed; 2 wrong arguments.")]
pub struct Top {
    /// A gateway's admin listener; may be repeated.
    #[arg(long, env = "ONCEWAY_ADMIN", value_name = "URL", default_value = "http://127.0.0.1:7402")]
    admin: Vec<String>,
    #[command(flatten)]
    by: By,
    /// Time between two frames.
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Print one frame and end.
    #[arg(long)]
    once: bool,
    /// Print the frame as JSON; with --once.
    #[arg(long, requires = "once")]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let read = span::parse(text)?;
    match (Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&read) {
        true => Ok(read),
        false => Err("write 100ms to 1h".to_owned()),
    }
}

impl Top {
    pub fn run(&self) -> Result<(), Failure> {
        let targets: Vec<Target> =
            self.admin.iter().map(|admin| self.by.target(admin)).collect::<Result<_, _>>()?;
        if self.once || !std::io::stdout().is_terminal() {
            if !self.once {
                complain("onceway: stdout is no terminal: one frame, as with --once");
            }
            return block_on(self.once(&targets));
        }
        block_on(self.live(&targets))
    }

    async fn once(&self, targets: &[Target]) -> Result<(), Failure> {
        let first = Sample::take(targets).await;
        tokio::time::sleep_until(Instant::now() + self.interval).await;
        let frame = Frame::of(&Sample::take(targets).await, Some(&first));
        // A script's frame is not cut: a script searches it.
        let whole = frame.lines(usize::from(u16::MAX), usize::from(u16::MAX)).concat();
        tell(self.json, frame.as_json(), &whole)?;
        if frame.is_silent() { Err(Failure::Failed(frame.silence())) } else { Ok(()) }
    }

    async fn live(&self, targets: &[Target]) -> Result<(), Failure> {
        let mut screen = Screen::take()?;
        let mut before: Option<Sample> = None;
        loop {
            let due = Instant::now() + self.interval;
            // A person who wants to leave does not wait for a silent gateway.
            let now = tokio::select! {
                biased;
                () = screen.asked_to_leave() => return Ok(()),
                sample = Sample::take(targets) => sample,
            };
            let frame = Frame::of(&now, before.as_ref());
            before = Some(now);
            loop {
                let (width, height) = screen.size().unwrap_or((WIDTH, HEIGHT));
                let lines = frame.lines(usize::from(width), usize::from(height));
                if !print_on(&Screen::painted(&lines))? {
                    return Ok(());
                }
                match screen.until(due).await {
                    Asked::Leave => return Ok(()),
                    Asked::Redraw => {}
                    Asked::Nothing => break,
                }
            }
        }
    }
}

/// Time limit of one gateway; a slower one counts as silent in this frame.
const WITHIN: Duration = Duration::from_secs(3);

/// The gateways' reports at one moment: their status, and the metrics for the rates.
pub struct Sample {
    pub at: Instant,
    /// Each gateway that was asked, in the order of the arguments.
    pub gateways: Vec<Heard>,
}

pub struct Heard {
    pub admin: String,
    /// Its report, or the reason why it has none.
    pub said: Result<GatewayState, String>,
}

pub struct GatewayState {
    pub status: Value,
    /// Keyed requests that it answered since its start, by verdict.
    pub answers: BTreeMap<String, f64>,
    pub doubts: Option<f64>,
}

impl Sample {
    async fn take(targets: &[Target]) -> Self {
        let ask = |target: Target| async move {
            let heard = tokio::time::timeout(WITHIN, ask(&target)).await;
            heard.unwrap_or_else(|_late| Err("it does not answer in time".to_owned()))
        };
        let asked: Vec<_> = targets.iter().map(|target| tokio::spawn(ask(target.clone()))).collect();
        let mut gateways = Vec::new();
        for (target, asked) in targets.iter().zip(asked) {
            let said = asked.await.unwrap_or_else(|error| Err(error.to_string()));
            gateways.push(Heard { admin: target.base.clone(), said });
        }
        Self { at: Instant::now(), gateways }
    }
}

async fn ask(target: &Target) -> Result<GatewayState, String> {
    let why = |error: anyhow::Error| printable(&format!("{error:#}"));
    let status = target.fetch("/v1/status").await.map_err(why)?;
    let status = serde_json::from_slice(&status).map_err(|_| "it answered no JSON".to_owned())?;
    let page = target.fetch("/metrics").await.map_err(why)?;
    let page = String::from_utf8_lossy(&page);
    let doubts = series(&page, observe::DOUBTS).map(|(_, value)| value).reduce(|a, b| a + b);
    Ok(GatewayState { status, answers: by(&page, observe::ANSWERS, "verdict"), doubts })
}

/// The sums of a metric's series by one of its labels.
fn by(page: &str, metric: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (labels, value) in series(page, metric) {
        let at = format!("{label}=\"");
        let found = labels.split_once(&at).and_then(|(_, rest)| rest.split_once('"'));
        let name = found.map(|(name, _)| printable(name)).unwrap_or_default();
        *sums.entry(name).or_default() += value;
    }
    sums
}

/// The series of one metric in Prometheus' text: labels verbatim, and the value.
fn series<'a>(page: &'a str, metric: &str) -> impl Iterator<Item = (&'a str, f64)> {
    page.lines().filter_map(move |line| {
        let rest = line.strip_prefix(metric)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.split_whitespace().next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::{by, series};

    #[test]
    fn metrics_are_added_up_by_label() {
        let page = "# TYPE x counter\nx{a=\"1\",verdict=\"settled\"} 3\nx{a=\"2\",verdict=\"settled\"} 4\n\
                    x{a=\"}\",verdict=\"replayed\"} 1\nx_more{verdict=\"settled\"} 9\ny 2.5\n";
        let sums = by(page, "x", "verdict");
        assert_eq!(
            sums.into_iter().collect::<Vec<_>>(),
            [("replayed".to_owned(), 1.0), ("settled".to_owned(), 7.0)]
        );
        assert_eq!(series(page, "y").collect::<Vec<_>>(), [("", 2.5)]);
    }
}
