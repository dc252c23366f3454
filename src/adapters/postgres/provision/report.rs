//! Findings and changes of provisioning, as lines for people.
//!
//! Every step of `provision` adds lines; `cli` and `fleet` print them. This file must not hold
//! passwords or connection strings.

use std::fmt;

/// State of one part of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it has to be.
    Fine,
    /// Was missing or different, and was repaired now.
    Changed,
    /// Missing, with the reason. Running init (again) is all that it needs.
    Pending(String),
    /// Wrong, with the step for a person: init will not repair it.
    Broken(String),
}

/// One part of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The part.
    pub what: String,
    /// State of the part.
    pub status: Status,
}

/// A setting of the server that differs from the recommendation of `deploy/postgres/onceway.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Name of the setting.
    pub setting: String,
    /// Present value.
    pub is: String,
    /// Recommended value.
    pub recommended: &'static str,
}

/// Fate of a slot of this store if a standby of its server is promoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// Name of the slot.
    pub slot: String,
    /// True if its reader goes on afterwards and misses no row.
    pub survives: bool,
    /// Condition, or the step for a person.
    pub why: String,
}

/// All parts of a store, in the order in which they were looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The parts.
    pub lines: Vec<Line>,
    /// Possible improvements. Nothing waits for them.
    pub hints: Vec<Hint>,
    /// Peers' slots, if the server has a standby. Nothing waits for them.
    pub promotion: Vec<Promotion>,
}

impl Report {
    /// True if nothing is pending or broken.
    pub fn is_complete(&self) -> bool {
        self.lines.iter().all(|line| match line.status {
            Status::Fine | Status::Changed => true,
            Status::Pending(_) | Status::Broken(_) => false,
        })
    }

    /// True if something is broken, so that repeating init is useless.
    pub fn is_broken(&self) -> bool {
        self.lines.iter().any(|line| match line.status {
            Status::Broken(_) => true,
            Status::Fine | Status::Changed | Status::Pending(_) => false,
        })
    }

    /// Number of parts that were changed.
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
        for Promotion { slot, survives, why } in &self.promotion {
            let fate = if *survives { "would survive" } else { "would be lost" };
            writeln!(out, "standby  a promotion: {slot} {fate}: {why}")?;
        }
        Ok(())
    }
}
