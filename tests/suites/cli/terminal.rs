//! `onceway top` as scripts and as people run it: one frame as text, and a terminal that is
//! restored afterwards.
//!
//! `src/cli/top` has tests of a frame's content. The terminal is a pseudo terminal of the kernel.

use crate::cli::register::{admin, at};
use crate::cli::{command, err, out, report};
use crate::support::*;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, channel};

/// The status of a deployment of two regions, one of which is lost.
pub fn one_lost() -> Value {
    let region = |name: &str, standing: &str| json!({ "name": name, "standing": standing, "since_epoch": 4, "share": 0.5, "mark": 9 });
    json!({
        "region": "us-east", "in_flight": 1, "readiness": { "ready": true, "serves": true, "reasons": [] },
        "peers": { "eu-west": { "up": false, "lag_ms": 812.0, "lag_max_ms": 900.0, "rtt_ms": 61.2 } },
        "authority": {
            "epoch": 8, "founded": true, "mode": "manual", "lease": { "held": true, "left_ms": 8_400 }, "pending": null,
            "voters": ["us-east", "eu-west", "ap-south"],
            "regions": [region("us-east", "serving"), region("eu-west", "lost")],
            "opening": [{ "what": "window", "region": "eu-west", "text": "the window runs", "left_ms": 1_500, "needs_operator": false }],
        },
    })
}

#[test]
fn top_prints_one_frame_for_scripts() {
    let (address, _) = admin(one_lost(), (200, json!({})));
    let once = at(&address, &["top", "--once", "--interval", "100ms"]);
    assert_eq!((once.status.code(), err(&once).as_str()), (Some(0), ""));
    has(&out(&once), &["seen by us-east · epoch 8", "LOST", "window: 1.5 s left: the window runs", "8.4 s"]);
    assert!(!out(&once).contains('\u{1b}'), "plain text");
    let gateway = &report(&at(&address, &["top", "--once", "--interval", "100ms", "--json"]))["gateways"][0];
    assert_eq!((&gateway["doubts"], &gateway["per_second"]["settled"]), (&json!(2.0), &json!(0.0)));
    // Without a terminal: the same, and stderr says so.
    let piped = at(&address, &["top", "--interval", "100ms"]);
    assert_eq!((piped.status.code(), out(&piped)), (Some(0), out(&once)));
    assert!(err(&piped).contains("stdout is no terminal"), "{}", err(&piped));
    let half = at(&address, &["top", "--once", "--interval", "100ms", "--admin", "http://127.0.0.1:1"]);
    assert_eq!(half.status.code(), Some(0), "one of two answers");
    assert!(out(&half).contains("SILENT"), "{}", out(&half));
}

struct Terminal {
    master: OwnedFd,
    slave: File,
    top: Child,
    painted: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn start(address: &str, columns: u16, rows: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        tcsetwinsize(&slave, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let mut command = command(&["top", "--interval", "100ms", "--admin", address]);
        let end = || Stdio::from(slave.try_clone().unwrap());
        let top = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let mut reader = File::from(master.try_clone().unwrap());
        let (into, painted) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count) = reader.read(&mut bytes) {
                if into.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { master, slave, top, painted, seen: String::new() }
    }

    fn until(&mut self, part: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.seen.contains(part) {
            let left = end.saturating_duration_since(Instant::now());
            let bytes =
                self.painted.recv_timeout(left).unwrap_or_else(|_| panic!("no {part:?} in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    /// True if lines are edited and keys shown, as a shell wants it.
    fn is_cooked(&self) -> bool {
        tcgetattr(&self.slave)
            .unwrap()
            .local_modes
            .contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    fn ended(mut self) -> ExitStatus {
        self.until("\u{1b}[?1049l");
        let status = self.top.wait().unwrap();
        assert!(self.seen.contains("\u{1b}[?25h"), "the cursor is shown again");
        assert!(self.is_cooked(), "raw mode is over");
        status
    }
}

#[test]
fn q_quits_top_and_restores_the_terminal() {
    let (address, _) = admin(one_lost(), (200, json!({})));
    let mut terminal = Terminal::start(&address, 80, 24);
    terminal.until("\u{1b}[?1049h");
    terminal.until("window: 1.5 s left");
    terminal.until("settled/s");
    assert!(!terminal.is_cooked(), "it reads keys one by one");
    rustix::io::write(&terminal.master, b"q").unwrap();
    assert_eq!(terminal.ended().code(), Some(0));
}

#[test]
fn a_signal_restores_even_a_narrow_terminal() {
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut terminal = Terminal::start("http://127.0.0.1:1", 30, 8);
        terminal.until("no gateway");
        rustix::process::kill_process(rustix::process::Pid::from_child(&terminal.top), signal).unwrap();
        assert_eq!(terminal.ended().code(), Some(0));
    }
}
