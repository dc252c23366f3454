//! The table of processes as `/proc` shows it. All functions block for a walk (about a
//! millisecond). A process that vanishes meanwhile is absent, never an error. Only processes are
//! signalled that a caller named, or that work in its folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow};
use procfs::process::{Process, all_processes};
use rustix::process::{Pid, Signal, kill_process};

use super::wait;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    Alive,
    /// Stopped by SIGSTOP (or a debugger).
    Stopped,
    /// Dead; perhaps a zombie that its parent has not waited for yet.
    Over,
}

#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub pid: Pid,
    /// Its parent's number; 0 for the first process and kernel threads.
    pub parent: i32,
    pub activity: Activity,
}

pub fn read(pid: Pid) -> Option<Entry> {
    entry(&Process::new(pid.as_raw_pid()).ok()?)
}

fn entry(process: &Process) -> Option<Entry> {
    let stat = process.stat().ok()?;
    let activity = match stat.state {
        'T' | 't' => Activity::Stopped,
        'Z' | 'X' | 'x' => Activity::Over,
        _ => Activity::Alive,
    };
    Some(Entry { pid: Pid::from_raw(process.pid)?, parent: stat.ppid, activity })
}

/// All processes that can be seen; none if there is no `/proc`.
fn all() -> impl Iterator<Item = Process> {
    all_processes().into_iter().flatten().flatten()
}

/// Every descendant of `root` (children, their children, ...), without `root` itself.
pub fn descendants(root: Pid) -> Vec<Entry> {
    let table: Vec<Entry> = all().filter_map(|process| entry(&process)).collect();
    let mut found: Vec<Entry> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for entry in table.iter().filter(|entry| entry.parent == parent.as_raw_pid()) {
            parents.push(entry.pid);
            found.push(*entry);
        }
    }
    found
}

/// Sends a signal, if the process is still there and may be signalled.
pub fn signal(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

/// Stops (SIGSTOP) `root` and all its descendants. Returns when two scans in a row have seen all of
/// them stopped: a fork that raced with one scan shows in the next. Blocks at most `bound`; then it
/// is an error, but the signals are sent.
pub fn stop_tree(root: Pid, bound: Duration) -> Result<()> {
    let mut quiet_scans = 0;
    wait::blocking_until(&format!("process {root:?} and its children to stop"), bound, || {
        let alive = |entry: &Entry| entry.activity == Activity::Alive;
        let moving: Vec<Entry> = read(root).into_iter().chain(descendants(root)).filter(alive).collect();
        quiet_scans = if moving.is_empty() { quiet_scans + 1 } else { 0 };
        // Parents first: a parent in `vfork` cannot stop before its child has gone on to `exec`. A
        // stopped child never does.
        let is_moving = |parent: i32| moving.iter().any(|entry| entry.pid.as_raw_pid() == parent);
        for entry in moving.iter().filter(|child| !is_moving(child.parent)) {
            signal(entry.pid, Signal::STOP);
        }
        quiet_scans >= 2
    })
}

/// Sends a signal to the whole tree. Children first, so that the parent finds them awake.
pub fn signal_tree(root: Pid, sent: Signal) {
    for entry in descendants(root) {
        signal(entry.pid, sent);
    }
    signal(root, sent);
}

/// Kills `root` and all its descendants, in about a second at most. The parent has to reap.
pub fn kill_tree(root: Pid) {
    // The stop comes first: a parent that cannot run cannot fork a child that the scan below would
    // miss. If a process cannot be stopped in time (it waits for the disk), the kill of the visible
    // ones is still right.
    let _ = stop_tree(root, Duration::from_secs(1));
    signal_tree(root, Signal::KILL);
}

/// Processes (never this one) that work in `dir` or below it and whose executable `is_ours`
/// accepts. `dir` must be absolute and free of symbolic links.
pub fn living_under(dir: &Path, is_ours: &dyn Fn(&Path) -> bool) -> Vec<Pid> {
    let works_there = |process: &Process| {
        process.cwd().is_ok_and(|cwd| without_deleted_mark(cwd).starts_with(dir))
            && process.exe().is_ok_and(|exe| is_ours(&without_deleted_mark(exe)))
    };
    let ourselves = rustix::process::getpid();
    let found = all().filter(works_there).filter_map(|process| Pid::from_raw(process.pid));
    found.filter(|pid| *pid != ourselves).collect()
}

/// Removes the mark that `/proc` adds to a file that was removed or replaced since.
fn without_deleted_mark(path: PathBuf) -> PathBuf {
    match path.to_str().and_then(|text| text.strip_suffix(" (deleted)")) {
        Some(kept) => PathBuf::from(kept),
        None => path,
    }
}

/// Kills every process of [`living_under`] until two scans in a row find none, or `bound`.
pub fn kill_all_under(dir: &Path, is_ours: &dyn Fn(&Path) -> bool, bound: Duration) -> Result<()> {
    let mut quiet_scans = 0;
    let mut found = Vec::new();
    let died = wait::blocking_until(&format!("the processes in {} to die", dir.display()), bound, || {
        found = living_under(dir, is_ours);
        quiet_scans = if found.is_empty() { quiet_scans + 1 } else { 0 };
        found.iter().for_each(|pid| signal(*pid, Signal::KILL));
        quiet_scans >= 2
    });
    died.map_err(|error| anyhow!("{error}: {found:?} live on"))
}

pub fn is_postgres(exe: &Path) -> bool {
    exe.file_name().is_some_and(|name| name == "postgres" || name == "postmaster")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(20);

    #[test]
    fn a_tree_is_stopped_continued_and_killed_whole() {
        let mut shell =
            std::process::Command::new("sh").args(["-c", "sleep 600 & sleep 600 & wait"]).spawn().unwrap();
        let root = Pid::from_child(&shell);
        wait::blocking_until("the shell's children", BOUND, || descendants(root).len() >= 2).unwrap();
        let children = descendants(root);
        stop_tree(root, BOUND).unwrap();
        assert_eq!(read(root).unwrap().activity, Activity::Stopped);
        assert!(descendants(root).iter().all(|entry| entry.activity == Activity::Stopped));
        signal_tree(root, Signal::CONT);
        let none_stopped = || descendants(root).iter().all(|entry| entry.activity != Activity::Stopped);
        wait::blocking_until("the children to go on", BOUND, none_stopped).unwrap();
        kill_tree(root);
        shell.wait().unwrap();
        for child in children {
            let over = || read(child.pid).is_none_or(|entry| entry.activity == Activity::Over);
            wait::blocking_until("a child to die", BOUND, over).unwrap();
        }
    }
}
