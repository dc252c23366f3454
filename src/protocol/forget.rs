//! The right to forget: one rule for everything that forgets (docs/protocol.md#rule-43).
//!
//! A key is forgotten when its life is over by the database's clock. That clock may be wrong, so
//! lives are judged by *observed* time ([`Observed`]). Every method of a port that forgets asks for
//! a [`MayForget`]. This file must not read a clock.

use std::time::Duration;

use super::plant::{Plant, removed};
use super::suspect::ClockWatch;
use super::time::{Date, Drift, Moment};

/// Number of leads that are kept one by one. Beyond that the oldest two count as one, as long as
/// the longer of both.
const MOST_LEADS: usize = 32;

/// The right to forget keys that were due by a date. Only [`may_forget`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayForget {
    until: Date,
    ahead: Duration,
}

impl MayForget {
    /// The date of the database's clock until which something may be due, whatever that clock
    /// shows.
    pub fn until(self) -> Date {
        self.until
    }

    /// True if a life is over that began so long ago by the database's clock.
    pub fn is_over(self, ago: Duration, life: Duration) -> bool {
        ago.saturating_sub(self.ahead) > life
    }
}

/// Gives the right to forget at `now`, if the clock is trusted and if the difference to the
/// observed time is known.
pub fn may_forget(watch: &ClockWatch, ahead: Option<Duration>, now: Moment) -> Option<MayForget> {
    if removed(Plant::MayForget) {
        return Some(MayForget { until: Date(i64::MAX / 2_000), ahead: Duration::ZERO });
    }
    let ahead = ahead?;
    if watch.suspect_for(now).is_some() {
        return None;
    }
    let until = watch.latest(now)?.as_millis().saturating_sub(millis(ahead));
    Some(MayForget { until: Date(until), ahead })
}

/// A span by which the database's clock moved ahead although no gateway saw that time pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// The length of the span.
    pub by: Duration,
    /// The end of its effect, in observed time: no key from before the lead is remembered any more.
    pub until: Duration,
}

/// A promised life of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promised {
    /// The length, tombstone included; `None`: for ever.
    pub life: Option<Duration>,
    /// The last promise of it, in observed time.
    pub last: Duration,
}

/// The time that passed at one store, as its gateways saw it. The store keeps it, as processes come
/// and go.
///
/// The database's clock may step, be years behind and set right, or run while no gateway watches
/// it. If it moves ahead more than the time that gateways saw pass, the difference is a [`Lead`]. A
/// lead is taken off until every key promised before it has lived its whole life. A clock that was
/// set right therefore expires nothing early, and needs no confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The date of the database's clock when this was written.
    pub at: Date,
    /// The time observed so far.
    pub total: Duration,
    /// The leads that are still taken off the clock, oldest first.
    pub leads: Vec<Lead>,
    /// All lives that a remembered key may have been promised.
    pub lives: Vec<Promised>,
}

impl Observed {
    /// The observed time of a store that no gateway has watched yet.
    pub fn first(at: Date) -> Self {
        Self { at, total: Duration::ZERO, leads: Vec::new(), lives: Vec::new() }
    }

    /// The observed time at a later look. `since` is the longest time since the last write, by the
    /// looker's own boot clock; `None`: nobody watched. `promised` are the lives that keys are
    /// promised from now on.
    pub fn next(
        &self,
        at: Date,
        since: Option<Duration>,
        promised: &[Option<Duration>],
        drift: Drift,
    ) -> Self {
        let moved = at.as_millis().saturating_sub(self.at.as_millis());
        let (ahead, back) = (span(moved), span(moved.saturating_neg()));
        let passed = since.map_or(Duration::ZERO, |since| ahead.min(drift.judge(since)));
        let total = self.total + passed;
        let known = self.lives.iter().copied();
        let older = known.filter(|known| !promised.contains(&known.life) && !known.is_over(total));
        let mut lives: Vec<Promised> = older.collect();
        lives.extend(promised.iter().map(|life| Promised { life: *life, last: total }));
        let mut next = Self { at, total, leads: self.leads.clone(), lives };
        next.leads.retain(|lead| lead.until > total);
        next.leads_by(ahead.saturating_sub(passed));
        next.takes_back(back);
        next
    }

    /// The sum of the leads that still count: the database's clock is ahead of observed time by it.
    pub fn ahead(&self) -> Duration {
        self.leads.iter().map(|lead| lead.by).sum()
    }

    /// The longest life of a key that may still be remembered; `None`: for ever.
    pub fn longest_life(&self) -> Option<Duration> {
        self.lives.iter().try_fold(Duration::ZERO, |longest, known| Some(longest.max(known.life?)))
    }

    fn leads_by(&mut self, by: Duration) {
        // Keys that are kept for ever end by no clock.
        let longest = self.lives.iter().filter_map(|known| known.life).max().unwrap_or_default();
        if by.is_zero() || removed(Plant::ObservedTime) {
            return;
        }
        self.leads.push(Lead { by, until: self.total + longest });
        if self.leads.len() > MOST_LEADS {
            let oldest = self.leads.remove(0);
            self.leads[0].by += oldest.by;
            self.leads[0].until = self.leads[0].until.max(oldest.until);
        }
    }

    /// Takes a step back of the clock off the newest leads.
    fn takes_back(&mut self, mut back: Duration) {
        while let Some(newest) = self.leads.last_mut() {
            let less = newest.by.min(back);
            newest.by -= less;
            back -= less;
            if !newest.by.is_zero() {
                return;
            }
            self.leads.pop();
        }
    }
}

impl Promised {
    fn is_over(&self, total: Duration) -> bool {
        self.life.is_some_and(|life| total.saturating_sub(self.last) > life)
    }
}

fn span(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::examples::at;
    use crate::suspect::Reading;

    const DRIFT: Drift = Drift { ppm: 1_000, margin: Duration::from_millis(50) };
    const HOUR: Duration = Duration::from_secs(3_600);
    const DAY: Duration = Duration::from_secs(86_400);
    const YEARS: i64 = 6 * 365 * 86_400_000;

    fn watch(date: i64) -> ClockWatch {
        let mut watch = ClockWatch::new(DRIFT, Duration::from_secs(30));
        watch.heard(Reading { date: Date(date), asked: at(100), answered: at(101) });
        watch
    }

    /// Looks an hour apart.
    fn hours(mut observed: Observed, hours: u64) -> Observed {
        for _ in 0..hours {
            let next = Date(observed.at.as_millis() + 3_600_000);
            observed = observed.next(next, Some(HOUR), &[Some(DAY)], DRIFT);
        }
        observed
    }

    #[test]
    fn nothing_may_be_forgotten_by_a_clock_that_is_not_known_or_suspect() {
        let mut watch = watch(1_000_000);
        assert_eq!(may_forget(&watch, None, at(200)), None, "nobody knows how far it is ahead");
        let permit = may_forget(&watch, Some(HOUR), at(200)).unwrap();
        assert_eq!(permit.until(), Date(1_000_000 + 100 + 51 - 3_600_000));
        assert!(permit.is_over(DAY + HOUR * 2, DAY) && !permit.is_over(DAY + HOUR, DAY));
        watch.saw(Date(9_000_000), at(201));
        assert_eq!(may_forget(&watch, Some(Duration::ZERO), at(202)), None, "it stepped");
        let unfed = ClockWatch::new(DRIFT, HOUR);
        assert_eq!(may_forget(&unfed, Some(Duration::ZERO), at(200)), None);
    }

    #[test]
    fn a_clock_that_was_years_behind_and_is_set_right_ends_no_life_early() {
        let before = hours(Observed::first(Date(0)), 5);
        assert_eq!((before.ahead(), before.total), (Duration::ZERO, HOUR * 5));
        let right = before.next(
            Date(before.at.as_millis() + YEARS),
            Some(Duration::from_secs(5)),
            &[Some(DAY)],
            DRIFT,
        );
        assert!(right.ahead().as_millis() as i64 > YEARS - 5_100 && right.total < HOUR * 5 + HOUR);
        assert!(before.leads.is_empty() && before.lives.len() == 1, "nothing grows by itself");
        assert_eq!(hours(right.clone(), 23).ahead(), right.ahead(), "keys of before live still");
        assert_eq!(hours(right, 25).ahead(), Duration::ZERO, "none of them does");
    }

    #[test]
    fn time_that_nobody_watched_counts_for_nothing() {
        let before = hours(Observed::first(Date(0)), 5);
        let later = before.next(Date(before.at.as_millis() + 3_600_000), None, &[Some(DAY)], DRIFT);
        assert_eq!((later.ahead(), later.total), (HOUR, HOUR * 5));
    }

    #[test]
    fn a_step_that_is_taken_back_is_gone_and_no_more_than_that() {
        let step = |observed: &Observed, millis: i64| {
            observed.next(
                Date(observed.at.as_millis() + millis),
                Some(Duration::ZERO),
                &[Some(DAY)],
                Drift { ppm: 0, margin: Duration::ZERO },
            )
        };
        let ahead = step(&hours(Observed::first(Date(0)), 5), YEARS);
        assert_eq!(step(&ahead, -YEARS).ahead(), Duration::ZERO);
        assert_eq!(step(&ahead, -YEARS + 1_000).ahead(), Duration::from_secs(1));
        let two = step(&step(&Observed::first(Date(0)), 10_000), 10_000);
        assert_eq!(step(&two, -15_000).ahead(), Duration::from_secs(5), "of the older lead as well");
        let back = step(&hours(Observed::first(Date(0)), 5), -YEARS);
        assert_eq!(back.ahead(), Duration::ZERO);
        let ahead = step(&back, YEARS).ahead().as_millis() as i64;
        assert_eq!(ahead, YEARS, "what was made meanwhile is as young");
    }

    #[test]
    fn a_life_that_was_promised_counts_until_its_last_key_is_gone() {
        let long = Observed::first(Date(0)).next(Date(0), None, &[Some(DAY * 2)], DRIFT);
        let short = |observed: &Observed, hours: i64| {
            let next = Date(observed.at.as_millis() + hours * 3_600_000);
            observed.next(next, Some(HOUR * hours as u32), &[Some(HOUR)], DRIFT)
        };
        let lowered = short(&long, 1);
        assert_eq!(lowered.longest_life(), Some(DAY * 2));
        assert_eq!(short(&lowered, 46).longest_life(), Some(DAY * 2));
        assert_eq!(short(&lowered, 48).longest_life(), Some(HOUR));
        let ever = lowered.next(lowered.at, None, &[Some(HOUR), None], DRIFT);
        assert_eq!(short(&ever, 9_999).longest_life(), None);
        // A lead lasts as long as the keys that do end.
        let stepped = ever.next(Date(ever.at.as_millis() + YEARS), None, &[Some(HOUR), None], DRIFT);
        assert_eq!(short(&stepped, 1).ahead().as_millis() as i64, YEARS);
        assert_eq!(short(&short(&stepped, 9), 49).ahead(), Duration::ZERO);
    }

    #[test]
    fn a_life_and_a_lead_end_to_the_millisecond() {
        let exact = Drift { ppm: 0, margin: Duration::ZERO };
        let later = |observed: &Observed, passed: Duration, by: Duration, life: Duration| {
            let date = Date(observed.at.as_millis() + millis(passed + by));
            observed.next(date, Some(passed), &[Some(life)], exact)
        };
        let first = later(&Observed::first(Date(0)), HOUR, HOUR, DAY);
        let day = later(&first, DAY, Duration::ZERO, HOUR);
        assert_eq!(day.longest_life(), Some(DAY), "its last key is remembered this very moment");
        assert_eq!(day.ahead(), Duration::ZERO, "and all that the lead was added to are over");
        assert_eq!(later(&first, DAY - HOUR, Duration::ZERO, HOUR).ahead(), HOUR);
        let after = later(&day, Duration::from_millis(1), Duration::ZERO, HOUR);
        assert_eq!(after.longest_life(), Some(HOUR));
    }

    #[test]
    fn leads_are_few_and_none_is_lost() {
        let mut observed = Observed::first(Date(0));
        for leads in 1..=MOST_LEADS + 9 {
            let date = Date(observed.at.as_millis() + 1_000);
            observed = observed.next(date, None, &[Some(DAY)], DRIFT);
            assert_eq!(observed.leads.len(), leads.min(MOST_LEADS));
            assert_eq!(observed.ahead(), Duration::from_secs(leads as u64));
        }
    }

    proptest! {
        /// The clock, less its leads, never runs faster than time, whatever the clock does.
        #[test]
        fn the_observed_clock_never_outruns_time(
            steps in proptest::collection::vec((0_u64..100_000, -1_000_000_i64..1_000_000, any::<bool>()), 1..60)
        ) {
            let mut observed = Observed::first(Date(10_000_000));
            let shows = |observed: &Observed| observed.at.as_millis() - observed.ahead().as_millis() as i64;
            // The clock less its leads at each look, and the time that had passed.
            let (mut looks, mut passed) = (vec![(10_000_000, 0_i64)], 0_i64);
            let exact = Drift { ppm: 0, margin: Duration::ZERO };
            for (span, step, watched) in steps {
                let date = Date(observed.at.as_millis() + span as i64 + step);
                let since = watched.then(|| Duration::from_millis(span));
                observed = observed.next(date, since, &[Some(DAY * 400)], exact);
                passed += span as i64;
                // A row that was made at any of them, by the date that the clock showed then.
                for (made, then) in &looks {
                    prop_assert!(shows(&observed) - made <= passed - then);
                }
                looks.push((observed.at.as_millis(), passed));
            }
        }
    }
}
