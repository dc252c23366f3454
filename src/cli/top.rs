//! `onceway top`: regions, leases, windows and rates, live in a terminal.
//!
//! The words are those of `onceway status`. It goes on while gateways do not answer.

mod frame;
mod sample;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use super::http::{By, Target};
use super::process::{Failure, block_on, complain, print_on, tell};
use crate::config::span;
use frame::Frame;
use sample::Sample;
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
        tell(self.json, &frame.said, &whole)?;
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
