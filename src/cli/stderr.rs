//! Standard error for the log, as text or as JSON, chosen by `ONCEWAY_LOG` or the configuration.
//! Its reader may stand still, and the process goes on.
//!
//! Lines queue for one thread, which writes all of them at once: an error and what is before it
//! immediately, any other line 5 ms later at most. If the queue is full, the line is dropped and
//! counted; the log says so once the reader is back.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::process::Failure;
use crate::config::region::LogFormat;
use crate::config::values::log_filter;
use crate::ports::observe;
use crate::server::reload::Levels;

/// The variable with the filter of the log.
const VARIABLE: &str = "ONCEWAY_LOG";

/// Another layer beside the log, with a filter of its own.
type Beside = Box<dyn Layer<Registry> + Send + Sync>;

/// Sets logging up for this process, and `beside` with it. The returned [`Levels`] change the
/// filter later, unless `ONCEWAY_LOG` is set. Hold the returned [`Lines`] to the end, when the last
/// lines are written. The error: `ONCEWAY_LOG` cannot be read, or logging is set up already.
pub fn set_up(format: LogFormat, level: &str, beside: Option<Beside>) -> Result<(Levels, Lines), Failure> {
    let chosen = std::env::var(VARIABLE).ok().filter(|chosen| !chosen.trim().is_empty());
    let wanted = chosen.as_deref().unwrap_or(level);
    // The reader of the file has checked the file's level already.
    let filter = log_filter(wanted).map_err(|why| Failure::Bad(format!("{VARIABLE}: {why}")))?;
    let (filter, handle) = reload::Layer::new(filter);
    let failed = |error: &dyn Display| Failure::Failed(format!("cannot set logging up: {error}"));
    let written = Lines::to_stderr().map_err(|error| failed(&error))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(written.writer());
    let lines = match format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).with_filter(filter).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let layers: Vec<Beside> = beside.into_iter().chain([lines]).collect();
    let set_up = tracing_subscriber::registry().with(layers).try_init();
    set_up.map_err(|error| failed(&error))?;
    Ok((levels(chosen.is_some(), handle), written))
}

fn levels<S: Send + Sync + 'static>(is_chosen: bool, handle: Handle<EnvFilter, S>) -> Levels {
    Box::new(move |level| {
        if is_chosen {
            return Ok(());
        }
        let filter = log_filter(level)?;
        handle.reload(filter).map_err(|error| error.to_string())
    })
}

/// Most bytes in the queue: some seconds of a busy gateway's lines.
const MOST: usize = 4 << 20;
/// Time that a line waits for others, at most.
const GATHERS: Duration = Duration::from_millis(5);
/// Time that an ending process waits for its reader.
const AT_END: Duration = Duration::from_secs(1);

/// Destination of the lines. Dropping it lets the last ones be written, for at most one second.
pub struct Lines(Arc<Shared>);

struct Shared {
    to: File,
    most: usize,
    queue: Mutex<Queue>,
    /// Signals that the queue has a line.
    more: Condvar,
    /// Signals that the queue is empty and no line is being written.
    none: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    urgent: bool,
    lost: u64,
    /// True while the thread writes lines of the queue.
    writes: bool,
}

impl Lines {
    /// Writes to standard error. The error: it is closed, or no further thread can start.
    pub fn to_stderr() -> io::Result<Self> {
        Self::to(File::from(io::stderr().as_fd().try_clone_to_owned()?), MOST)
    }

    fn to(to: File, most: usize) -> io::Result<Self> {
        let queue = Mutex::default();
        let shared = Arc::new(Shared { to, most, queue, more: Condvar::new(), none: Condvar::new() });
        let waiting = shared.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || waiting.write_on())?;
        Ok(Self(shared))
    }

    pub fn writer(&self) -> impl for<'a> MakeWriter<'a> + Send + Sync + 'static {
        Writer(self.0.clone())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let queue = self.0.lock();
        let waits = |queue: &mut Queue| queue.writes || !queue.lines.is_empty();
        drop(self.0.none.wait_timeout_while(queue, AT_END, waits));
    }
}

struct Writer(Arc<Shared>);

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Hand<'a>;

    fn make_writer(&'a self) -> Hand<'a> {
        Hand { shared: &self.0, urgent: true }
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Hand<'a> {
        Hand { shared: &self.0, urgent: *of.level() == Level::ERROR }
    }
}

struct Hand<'a> {
    shared: &'a Shared,
    urgent: bool,
}

impl Write for Hand<'_> {
    /// Takes a whole line: a log writes each by one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.shared.line(line, self.urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, line: &[u8], urgent: bool) {
        let mut queue = self.lock();
        if queue.lines.len() + line.len() > self.most {
            queue.lost += 1;
            metrics::counter!(observe::LOG_DROPPED).increment(1);
            return;
        }
        let wakes = queue.lines.is_empty() || urgent;
        queue.lines.extend_from_slice(line);
        queue.urgent |= urgent;
        if wakes {
            self.more.notify_one();
        }
    }

    /// Writes what gathers, and waits for its reader.
    fn write_on(&self) {
        let mut taken = Vec::new();
        loop {
            let queue = self.lock();
            let queue = self.more.wait_while(queue, |queue| queue.lines.is_empty());
            let queue = queue.unwrap_or_else(PoisonError::into_inner);
            let gathered = self.more.wait_timeout_while(queue, GATHERS, |queue| !queue.urgent);
            let (mut queue, _late) = gathered.unwrap_or_else(PoisonError::into_inner);
            (queue.urgent, queue.writes) = (false, true);
            std::mem::swap(&mut queue.lines, &mut taken);
            drop(queue);
            // A failed write is ignored: nobody is left to report it to.
            drop((&self.to).write_all(&taken));
            taken.clear();
            self.tell();
            let mut queue = self.lock();
            queue.writes = false;
            self.none.notify_all();
        }
    }

    /// Reports the number of lost lines, once nothing is left to write before that.
    fn tell(&self) {
        let mut queue = self.lock();
        if queue.lines.is_empty() && queue.lost > 0 {
            let lost = std::mem::take(&mut queue.lost);
            drop(queue);
            tracing::warn!(lost, "lines of the log were lost: nobody read standard error");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, PipeReader, pipe};
    use std::os::fd::OwnedFd;

    use super::*;

    /// Number of lines that there is room for.
    const ROOM: usize = 200;

    fn lines() -> (Lines, BufReader<PipeReader>) {
        let (reader, writer) = pipe().unwrap();
        (Lines::to(File::from(OwnedFd::from(writer)), ROOM * 512).unwrap(), BufReader::new(reader))
    }

    /// A thread that writes a line which the pipe has no room for, of zeros.
    fn stuck() -> (Lines, BufReader<PipeReader>) {
        let (lines, reader) = lines();
        lines.0.line(("0".repeat(90_000) + "\n").as_bytes(), true);
        while !lines.0.lock().writes {
            thread::yield_now();
        }
        (lines, reader)
    }

    /// A line of 512 bytes with its number.
    fn line(number: usize) -> String {
        format!("{number:0511}\n")
    }

    fn numbers(reader: &mut BufReader<PipeReader>, count: usize) -> Vec<usize> {
        let one = |_| {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            line.trim_end().parse().unwrap()
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn lines_gather_and_an_error_takes_along_what_was_before() {
        let (lines, mut reader) = lines();
        for number in 0..3 {
            lines.0.line(line(number).as_bytes(), number == 2);
        }
        assert_eq!(numbers(&mut reader, 3), [0, 1, 2]);
        lines.0.line(line(3).as_bytes(), false);
        assert_eq!(numbers(&mut reader, 1), [3], "nobody has to come after it");
    }

    #[test]
    fn a_stalled_log_reader_blocks_nobody() {
        let (lines, mut reader) = stuck();
        for number in 1..=1_000 {
            lines.0.line(line(number).as_bytes(), number % 7 == 0);
        }
        assert_eq!(lines.0.lock().lost, 1_000 - ROOM as u64);
        assert_eq!(numbers(&mut reader, ROOM + 1), (0..=ROOM).collect::<Vec<_>>());
    }

    #[test]
    fn lost_log_lines_are_counted_and_reported_once() {
        let (lines, reader) = stuck();
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            for number in 0..1_000 {
                lines.0.line(line(number).as_bytes(), false);
            }
        });
        let lost = lines.0.lock().lost;
        let counted = format!("onceway_log_lines_dropped_total {lost}\n");
        assert!(lost > 0 && recorder.handle().render().contains(&counted), "{lost}");
        let output = Arc::new(Mutex::new(Vec::new()));
        let seen = output.clone();
        let written = move || Captured(seen.clone());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(written).finish();
        tracing::subscriber::with_default(subscriber, || {
            lines.0.tell();
            assert_eq!(lines.0.lock().lost, lost, "there are lines before that");
            lines.0.lock().lines.clear();
            (lines.0.tell(), lines.0.tell())
        });
        let output = String::from_utf8(output.lock().unwrap().clone()).unwrap();
        assert_eq!(output.matches(&format!("nobody read standard error lost={lost}")).count(), 1, "{output}");
        assert_eq!((output.lines().count(), lines.0.lock().lost), (1, 0), "{output}");
        drop(reader);
    }

    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_last_log_lines_reach_a_reader() {
        let (lines, mut reader) = lines();
        for number in 0..ROOM {
            lines.0.line(line(number).as_bytes(), false);
        }
        let reading = thread::spawn(move || numbers(&mut reader, ROOM));
        let shared = lines.0.clone();
        drop(lines);
        assert!(shared.lock().lines.is_empty(), "its end waited");
        assert_eq!(reading.join().unwrap(), (0..ROOM).collect::<Vec<_>>());
    }

    #[test]
    fn a_reader_that_is_gone_is_no_trouble() {
        let (lines, reader) = lines();
        drop(reader);
        for number in 0..5 * ROOM {
            lines.0.line(line(number).as_bytes(), true);
            while lines.0.lock().lines.len() > ROOM * 256 {
                thread::yield_now();
            }
        }
        assert_eq!(lines.0.lock().lost, 0, "nobody is waited for");
    }
}
