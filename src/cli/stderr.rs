//! Standard error for the log: its reader may stand still, and the process goes on.
//!
//! A line is written at once if that does not block, so that a killed process has written its last
//! lines. Otherwise it queues for a thread that waits for the reader. If the queue is full, the
//! line is dropped and counted; the log says so once the reader is back. A file is always written
//! at once: a disk that stands still blocks the caller. It must not change the order of lines, nor
//! drop a line while there is room.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ports::observe;

/// Bytes that a pipe takes whole and without blocking, if it takes anything (PIPE_BUF).
const AT_ONCE: usize = 4_096;
/// Most bytes in the queue: some seconds of a busy gateway's lines.
const MOST: usize = 4 << 20;
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
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines dropped since the last report.
    lost: u64,
    /// True while the thread writes a line of the queue.
    writes: bool,
}

impl Lines {
    /// Writes to standard error.
    ///
    /// # Errors
    /// Standard error is closed, or no further thread can start.
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

    /// Another writer of the same lines.
    pub fn writer(&self) -> impl for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static {
        let shared = self.0.clone();
        move || Hand(shared.clone())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let queue = self.0.lock();
        let waits = |queue: &mut Queue| queue.writes || !queue.lines.is_empty();
        drop(self.0.none.wait_timeout_while(queue, AT_END, waits));
    }
}

struct Hand(Arc<Shared>);

impl Write for Hand {
    /// Takes a whole line: a log writes each by one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.line(line);
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

    fn line(&self, line: &[u8]) {
        let mut queue = self.lock();
        if queue.lines.is_empty() && !queue.writes && line.len() <= AT_ONCE && self.takes() {
            // A failed write is ignored: nobody is left to report it to.
            drop((&self.to).write_all(line));
        } else if queue.bytes + line.len() <= self.most {
            queue.bytes += line.len();
            queue.lines.push_back(line.to_vec());
            self.more.notify_one();
        } else {
            queue.lost += 1;
            metrics::counter!(observe::LOG_DROPPED).increment(1);
        }
    }

    /// True if a write would not block. One that fails does not.
    fn takes(&self) -> bool {
        let mut asked = [PollFd::new(&self.to, PollFlags::OUT)];
        poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Writes the queue's lines, and waits for their reader.
    fn write_on(&self) {
        loop {
            let mut queue = self.lock();
            let Some(line) = queue.lines.pop_front() else {
                queue.writes = false;
                self.none.notify_all();
                drop(self.more.wait_while(queue, |queue| queue.lines.is_empty()));
                continue;
            };
            (queue.bytes, queue.writes) = (queue.bytes - line.len(), true);
            drop(queue);
            drop((&self.to).write_all(&line));
            self.tell();
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

    /// Room for forty lines beside the pipe's own 64 KiB. The last one of its pages need not be
    /// full.
    const ROOM: usize = 40 * 512;
    /// Number of lines that always find room.
    const SURELY: usize = 15 * 8 + 40;

    fn lines() -> (Lines, BufReader<PipeReader>) {
        let (reader, writer) = pipe().unwrap();
        (Lines::to(File::from(OwnedFd::from(writer)), ROOM).unwrap(), BufReader::new(reader))
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
    fn what_is_written_is_there_at_once() {
        let (lines, mut reader) = lines();
        for number in 0..3 {
            lines.0.line(line(number).as_bytes());
            assert!(!lines.0.lock().writes, "no thread has it");
        }
        assert_eq!(numbers(&mut reader, 3), [0, 1, 2]);
    }

    /// Fails unless these are the first lines, then later ones, in order. Some lines may be missing
    /// in between: they were dropped before there was room again.
    fn in_order(numbers: &[usize], contiguous: usize) {
        assert_eq!(numbers[..contiguous], (0..contiguous).collect::<Vec<_>>());
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    }

    #[test]
    fn a_reader_that_stands_still_holds_nobody_up_and_gets_what_there_was_room_for_in_order() {
        let (lines, mut reader) = lines();
        for number in 0..1_000 {
            lines.0.line(line(number).as_bytes());
        }
        let lost = usize::try_from(lines.0.lock().lost).unwrap();
        assert!((800..=1_000 - SURELY).contains(&lost), "{lost}");
        in_order(&numbers(&mut reader, 1_000 - lost), SURELY);
    }

    #[test]
    fn what_is_lost_is_counted_and_told_of_once() {
        let (lines, reader) = lines();
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            for number in 0..1_000 {
                lines.0.line(line(number).as_bytes());
            }
        });
        let lost = lines.0.lock().lost;
        let counted = format!("onceway_log_lines_dropped_total {lost}\n");
        assert!(lost > 0 && recorder.handle().render().contains(&counted), "{lost}");
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = told.clone();
        let written = move || Told(seen.clone());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(written).finish();
        tracing::subscriber::with_default(subscriber, || {
            lines.0.tell();
            assert_eq!(lines.0.lock().lost, lost, "there are lines before that");
            lines.0.lock().lines.clear();
            (lines.0.tell(), lines.0.tell())
        });
        let told = String::from_utf8(told.lock().unwrap().clone()).unwrap();
        assert_eq!(told.matches(&format!("nobody read standard error lost={lost}")).count(), 1, "{told}");
        assert_eq!((told.lines().count(), lines.0.lock().lost), (1, 0), "{told}");
        drop(reader);
    }

    /// Output of a subscriber.
    struct Told(Arc<Mutex<Vec<u8>>>);

    impl Write for Told {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_last_lines_are_written_before_the_end_if_somebody_reads_them() {
        let (lines, mut reader) = lines();
        for number in 0..SURELY {
            lines.0.line(line(number).as_bytes());
        }
        let reading = thread::spawn(move || numbers(&mut reader, SURELY));
        let shared = lines.0.clone();
        drop(lines);
        assert!(shared.lock().lines.is_empty(), "its end waited");
        in_order(&reading.join().unwrap(), SURELY);
    }

    #[test]
    fn a_reader_that_is_gone_is_no_trouble() {
        let (lines, reader) = lines();
        drop(reader);
        for number in 0..1_000 {
            lines.0.line(line(number).as_bytes());
        }
        assert_eq!(lines.0.lock().lost, 0, "nobody is waited for");
    }
}
