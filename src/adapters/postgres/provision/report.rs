//! What provisioning found and did, as lines for people.
//!
//! Neighbours: every step of `provision` adds lines, `cli` and `fleet` print them. It must not hold passwords or connection strings.

use std::fmt;

/// How one part of a store stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it has to be.
    Fine,
    /// Was missing or different; made so now.
    Changed,
    /// Not there yet, and why; running init (again) is all it needs.
    Pending(String),
    /// Wrong, and what a person has to do: init will not repair it.
    Broken(String),
}

/// One part of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The part.
    pub what: String,
    /// How it stands.
    pub status: Status,
}

/// A setting of the server that is not as `deploy/postgres/onceway.conf` recommends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Which.
    pub setting: String,
    /// What it is.
    pub is: String,
    /// What is recommended.
    pub recommended: &'static str,
}

/// All parts of a store, in the order they were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The parts.
    pub lines: Vec<Line>,
    /// What might be better; nothing waits for it.
    pub hints: Vec<Hint>,
}

impl Report {
    /// Whether nothing is pending or broken.
    pub fn is_complete(&self) -> bool {
        self.lines.iter().all(|line| match line.status {
            Status::Fine | Status::Changed => true,
            Status::Pending(_) | Status::Broken(_) => false,
        })
    }

    /// Whether something is broken, so that repeating init is of no use.
    pub fn is_broken(&self) -> bool {
        self.lines.iter().any(|line| match line.status {
            Status::Broken(_) => true,
            Status::Fine | Status::Changed | Status::Pending(_) => false,
        })
    }

    /// How many parts were changed.
    pub fn changes(&self) -> usize {
        self.lines.iter().filter(|line| line.status == Status::Changed).count()
    }

    pub(super) fn add(&mut self, what: impl Into<String>, status: Status) {
        self.lines.push(Line { what: what.into(), status });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            match &line.status {
                Status::Fine => writeln!(out, "ok       {}", line.what)?,
                Status::Changed => writeln!(out, "changed  {}", line.what)?,
                Status::Pending(why) => writeln!(out, "pending  {}: {why}", line.what)?,
                Status::Broken(why) => writeln!(out, "broken   {}: {why}", line.what)?,
            }
        }
        for Hint { setting, is, recommended } in &self.hints {
            writeln!(
                out,
                "hint     {setting} = {is}: deploy/postgres/onceway.conf recommends {recommended}, and says why"
            )?;
        }
        Ok(())
    }
}
