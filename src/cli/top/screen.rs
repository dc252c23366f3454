//! The terminal of `onceway top`: taken over whole, and given back as it was at every end of the
//! command, after a signal or a panic too.
//!
//! A thread of its own reads keys; every tenth of a second it checks if it must end.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Longest time until the thread that reads keys notices that it must end.
const LOOK: Duration = Duration::from_millis(100);

/// Wish of the person at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Leave,
    /// The same frame once more: the size changed, or a key asks for it.
    Redraw,
    /// Nothing, until the time of the next frame.
    Nothing,
}

pub struct Screen {
    asked: mpsc::UnboundedReceiver<Asked>,
    reads: Arc<AtomicBool>,
    reader: Option<std::thread::JoinHandle<()>>,
    signals: [Signal; 3],
}

impl Screen {
    /// Takes the terminal over. If it cannot be switched to raw mode, it is as it was.
    pub fn take() -> std::io::Result<Self> {
        let signals = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        terminal::enable_raw_mode()?;
        // A panic's message is for the screen that stays.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        let (into, asked) = mpsc::unbounded_channel();
        let reads = Arc::new(AtomicBool::new(true));
        let wanted = reads.clone();
        let reader = std::thread::spawn(move || {
            while wanted.load(Ordering::SeqCst) {
                let heard = match event::poll(LOOK) {
                    Ok(true) => event::read().map(|event| meant(&event)).unwrap_or(Some(Asked::Leave)),
                    Ok(false) => None,
                    // The terminal is gone.
                    Err(_) => Some(Asked::Leave),
                };
                if heard.is_some_and(|asked| into.send(asked).is_err() || asked == Asked::Leave) {
                    return;
                }
            }
        });
        let screen = Self { asked, reads, reader: Some(reader), signals };
        execute!(std::io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    pub fn size(&self) -> Option<(u16, u16)> {
        terminal::size().ok().filter(|(width, height)| *width > 0 && *height > 0)
    }

    /// The lines as they are written to the terminal: over the old ones, without a flicker.
    pub fn painted(lines: &[String]) -> String {
        let mut text = "\u{1b}[H".to_owned();
        for (number, line) in lines.iter().enumerate() {
            let line = line.trim_end_matches('\n');
            let end = if number + 1 == lines.len() { "\u{1b}[K\u{1b}[J" } else { "\u{1b}[K\r\n" };
            text.push_str(line);
            text.push_str(end);
        }
        text
    }

    pub async fn until(&mut self, due: Instant) -> Asked {
        let [interrupt, terminate, hangup] = &mut self.signals;
        tokio::select! {
            biased;
            _ = interrupt.recv() => Asked::Leave,
            _ = terminate.recv() => Asked::Leave,
            _ = hangup.recv() => Asked::Leave,
            asked = self.asked.recv() => asked.unwrap_or(Asked::Leave),
            () = tokio::time::sleep_until(due) => Asked::Nothing,
        }
    }

    /// Waits until the person wants to leave; any other wish comes with the next frame.
    pub async fn asked_to_leave(&mut self) {
        let ever = Duration::from_secs(86_400);
        while self.until(Instant::now() + ever).await != Asked::Leave {}
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.reads.store(false, Ordering::SeqCst);
        if let Some(reader) = self.reader.take() {
            // The thread only reads keys: its result does not matter.
            let _ = reader.join();
        }
        give_back();
    }
}

/// Gives the terminal back. It may run any number of times.
fn give_back() {
    // Nobody is left to report an error to.
    let _ = execute!(std::io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
    let _ = std::io::stdout().flush();
}

fn meant(event: &Event) -> Option<Asked> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Asked::Leave),
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Asked::Leave),
            _ => Some(Asked::Redraw),
        },
        Event::Resize(..) => Some(Asked::Redraw),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

    use super::{Asked, Screen, meant};

    #[test]
    fn keys_mean_what_the_help_says() {
        let key = |code, modifiers| Event::Key(KeyEvent::new(code, modifiers));
        assert_eq!(meant(&key(KeyCode::Char('q'), KeyModifiers::NONE)), Some(Asked::Leave));
        assert_eq!(meant(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Asked::Leave));
        assert_eq!(meant(&key(KeyCode::Char('c'), KeyModifiers::NONE)), Some(Asked::Redraw));
        assert_eq!(meant(&Event::Resize(10, 10)), Some(Asked::Redraw));
    }

    #[test]
    fn a_frame_is_painted_over_the_last_one() {
        let painted = Screen::painted(&["a\n".to_owned(), "b\n".to_owned()]);
        assert_eq!(painted, "\u{1b}[Ha\u{1b}[K\r\nb\u{1b}[K\u{1b}[J");
    }
}
