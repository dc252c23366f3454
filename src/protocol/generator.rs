//! Signs that a client makes keys badly: by counting, by the clock, or one for many requests.
//!
//! A key is seen as two digests and a number, never as text. Nothing is refused for these signs: a
//! counter is legal, and dangerous.

use std::collections::VecDeque;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::digest::Digest32;
use super::key::Key;
use super::key_policy::entropy_bits;
use super::time::Date;

worded! {
    /// A habit that sooner or later makes two effects share a key.
    Weakness;
    /// Its name in metrics and logs.
    name {
        /// Keys count up or down in small steps.
        Sequential = "sequential",
        /// Keys are, or contain, the time, and little else.
        ClockLike = "clock_like",
        /// One key was sent with several different requests.
        ManyBodies = "many_bodies",
    }
}

/// Number of keys of a tenant that are remembered.
const REMEMBERED: usize = 32;
/// Number of keys in a pattern that make a habit.
const HABIT: usize = 6;
/// Two numbers at most this far apart are neighbours of one counter.
const NEAR: u64 = 32;
/// Number of mismatched keys of a tenant that are remembered.
const MISMATCHED: usize = 8;
/// Number of requests that did not match, from which a key counts as used for many.
const MANY: usize = 3;
/// The distance up to which a time counts as now, in seconds: clocks are wrong, jobs are late.
const DAY: i64 = 86_400;
/// A clock-like key has less randomness than this beside its time.
const ENOUGH_BITS: u32 = 32;

/// Features of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signs {
    key: u64,
    counter: Option<Counter>,
    clock_like: bool,
}

/// The last number in a key, and everything around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    around: u64,
    number: u64,
}

impl Signs {
    /// Looks at a key that was sent at about `now`.
    pub fn of(key: &Key, now: Date) -> Self {
        let bytes = key.as_bytes();
        let runs = runs(bytes);
        Self { key: name(key), counter: counter(bytes, &runs), clock_like: clock_like(bytes, &runs, now) }
    }
}

fn name(key: &Key) -> u64 {
    xxh3_64(key.as_bytes())
}

/// The runs of digits, as ranges.
fn runs(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in (0..bytes.len()).filter(|at| bytes[*at].is_ascii_digit()) {
        match runs.last_mut() {
            Some((_, end)) if *end == at => *end += 1,
            Some(_) | None => runs.push((at, at + 1)),
        }
    }
    runs
}

fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}

fn counter(bytes: &[u8], runs: &[(usize, usize)]) -> Option<Counter> {
    let (start, end) = *runs.last()?;
    // As many digits as surely fit a u64.
    let start = start.max(end.saturating_sub(18));
    let around = xxh3_64_with_seed(&bytes[end..], xxh3_64(&bytes[..start]));
    Some(Counter { around, number: number(&bytes[start..end])? })
}

/// True if the key holds the time and beside it nothing random: words do not count. The time, at
/// most a day from `now`, is a unix time (of any unit, by its first ten digits) or a UTC date.
fn clock_like(bytes: &[u8], runs: &[(usize, usize)], now: Date) -> bool {
    let seconds = now.as_millis().div_euclid(1_000);
    let today = seconds.div_euclid(DAY);
    let days = [today - 1, today, today + 1].map(civil);
    let near = |digits: &[u8]| {
        let time = number(digits).and_then(|time| i64::try_from(time).ok());
        time.is_some_and(|time| (time - seconds).abs() <= DAY)
    };
    let dated = |text: &[u8]| {
        let date = text.get(..8).and_then(number).and_then(|date| i64::try_from(date).ok());
        date.is_some_and(|date| days.contains(&date))
    };
    let dashed = |text: &[u8]| {
        let [y, e, a, r, b'-', m, n, b'-', d, f, ..] = *text else { return false };
        dated(&[y, e, a, r, m, n, d, f])
    };
    let found = runs.iter().find_map(|&(start, end)| {
        let run = &bytes[start..end];
        if run.get(..10).is_some_and(near) || dated(run) {
            Some((start, end.min(start + 19)))
        } else {
            dashed(&bytes[start..]).then_some((start, start + 10))
        }
    });
    found.is_some_and(|(start, end)| {
        let rest = [&bytes[..start], b" ", &bytes[end..]].concat();
        let words = rest.split(|byte| !byte.is_ascii_alphanumeric());
        let random = words.filter(|word| !word.iter().all(u8::is_ascii_alphabetic));
        entropy_bits(&random.collect::<Vec<_>>().concat()) < ENOUGH_BITS
    })
}

/// A day as the number `YYYYMMDD`, from days since 1970-01-01 (Howard Hinnant's civil_from_days).
fn civil(days: i64) -> i64 {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    10_000 * year + 100 * month + day
}

/// Memory of a tenant's keys: the newest few. A retry is no new key.
#[derive(Clone, Debug, Default)]
pub struct Habits {
    seen: VecDeque<Signs>,
    mismatched: VecDeque<(u64, Vec<Digest32>)>,
}

impl Habits {
    /// Records a key, and returns the habit that it is part of.
    pub fn see(&mut self, signs: Signs) -> Option<Weakness> {
        if self.seen.iter().any(|seen| seen.key == signs.key) {
            return None;
        }
        let near = |one: &Counter, other: &Counter| {
            one.around == other.around && one.number.abs_diff(other.number) <= NEAR
        };
        let neighbours = signs.counter.map_or(0, |counter| {
            self.seen.iter().filter_map(|seen| seen.counter).filter(|seen| near(seen, &counter)).count()
        });
        let by_clock = self.seen.iter().filter(|seen| seen.clock_like).count();
        if self.seen.len() == REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back(signs);
        if signs.clock_like {
            // A time counts up, too: only the more specific habit is reported.
            (by_clock + 1 >= HABIT).then_some(Weakness::ClockLike)
        } else {
            (neighbours + 1 >= HABIT).then_some(Weakness::Sequential)
        }
    }

    /// Records that a key was sent with another request than its first; returns the habit, if any.
    pub fn mismatch(&mut self, key: &Key, asked: Digest32) -> Option<Weakness> {
        let key = name(key);
        let known = self.mismatched.iter().position(|(seen, _)| *seen == key);
        let (_, mut others) = known.and_then(|at| self.mismatched.remove(at)).unwrap_or((key, Vec::new()));
        if others.len() < MANY && !others.contains(&asked) {
            others.push(asked);
        }
        let many = others.len() >= MANY;
        if self.mismatched.len() == MISMATCHED {
            self.mismatched.pop_front();
        }
        self.mismatched.push_back((key, others));
        many.then_some(Weakness::ManyBodies)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fingerprint::raw;

    /// 2026-11-21 09:30:00 UTC.
    const NOW: Date = Date(1_795_253_400_000);

    /// The habit reported for each key, recorded one after the other, a second apart.
    fn said(keys: impl IntoIterator<Item = String>) -> Vec<Option<Weakness>> {
        let mut habits = Habits::default();
        let at = |second: usize| Date(NOW.0 + 1_000 * second as i64);
        let see =
            |(second, key): (usize, String)| habits.see(Signs::of(&Key::parse(&key).unwrap(), at(second)));
        keys.into_iter().enumerate().map(see).collect()
    }

    fn last(keys: impl IntoIterator<Item = String>) -> Option<Weakness> {
        said(keys).pop().unwrap()
    }

    /// Hashes, so that every run has the same random numbers.
    fn random(seed: u64) -> u128 {
        u128::from(xxh3_64_with_seed(b"", 2 * seed)) << 64 | u128::from(xxh3_64_with_seed(b"", 2 * seed + 1))
    }

    fn uuid(bits: u128, version: char) -> String {
        let hex = format!("{bits:032x}");
        format!("{}-{}-{version}{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
    }

    fn v7(millis: i64, seed: u64) -> String {
        uuid((millis as u128) << 80 | random(seed) >> 48, '7')
    }

    #[test]
    fn counters_are_found_from_the_sixth_key_on() {
        let keys = (998..1_010).map(|number| format!("order-{number}"));
        let found = said(keys);
        assert!(found[..5].iter().all(Option::is_none), "{found:?}");
        assert!(found[5..].iter().all(|said| *said == Some(Weakness::Sequential)), "{found:?}");
    }

    #[test]
    fn counters_are_found_in_any_order_and_surroundings() {
        let sequential = Some(Weakness::Sequential);
        assert_eq!(last((1..9).map(|number| number.to_string())), sequential);
        assert_eq!(last((1..9).map(|number| format!("{:08}", 900 - number))), sequential);
        assert_eq!(last((1..9).map(|number| format!("pay_{}_acme", 40 + 5 * number))), sequential);
        assert_eq!(last((0..9).map(|number| format!("00000000-0000-4000-8000-{number:012}"))), sequential);
        assert_eq!(last([5, 3, 8, 1, 9, 2].map(|number| format!("n{number}"))), sequential);
        // Counters among many random keys are still found.
        let mixed = (0..24).map(|at| if at % 4 == 3 { format!("job-{at}") } else { uuid(random(at), '4') });
        assert_eq!(last(mixed), sequential);
    }

    #[test]
    fn times_are_found_in_every_unit_and_form() {
        let clock_like = Some(Weakness::ClockLike);
        let forms: [fn(i64) -> String; 8] = [
            |millis| (millis / 1_000).to_string(),
            |millis| (millis + 137).to_string(),
            |millis| (millis * 1_000 + 4_711).to_string(),
            |millis| (millis * 1_000_000 + 123_456_789).to_string(),
            |millis| format!("checkout-session-create-{millis}"),
            |millis| format!("{millis}-{}", millis / 1_000 % 97),
            |millis| format!("20261121{:06}", millis / 1_000 % 86_400),
            |millis| format!("2026-11-21T09:30:{:02}", millis / 1_000 % 60),
        ];
        for form in forms {
            let keys = (0..8).map(|second| form(NOW.0 + second * 1_000));
            assert_eq!(last(keys), clock_like, "{}", form(NOW.0));
        }
    }

    #[test]
    fn good_generators_are_not_suspected() {
        for (what, make) in [
            ("v4", (|seed| uuid(random(seed), '4')) as fn(u64) -> String),
            ("v7, a second apart", |seed| v7(NOW.0 + 1_000 * seed as i64, seed)),
            ("v7, in one millisecond", |seed| v7(NOW.0, seed)),
            ("hex", |seed| format!("{:032x}", random(seed))),
            ("64 random bits in decimal", |seed| format!("{}", random(seed) as u64)),
            ("a date and randomness", |seed| format!("2026-11-21-{:016x}", random(seed) as u64)),
            ("a time and a UUID", |seed| format!("{}-{}", NOW.0 + seed as i64, uuid(random(seed), '4'))),
            ("a digest of an order", |seed| format!("order-{:016x}", random(seed) as u64)),
        ] {
            let found = said((0..5_000).map(make));
            assert!(found.iter().all(Option::is_none), "{what}: {:?}", found.iter().flatten().next());
        }
    }

    #[test]
    fn retries_and_old_dates_are_no_habit() {
        assert_eq!(last((0..50).map(|_| "1795253400".to_owned())), None);
        assert_eq!(last((0..50).map(|at| format!("order-{}", at % 5))), None);
        let all = last((0..50).map(|day| format!("2024{:02}{:02}-{}", day % 12 + 1, day % 28 + 1, day * 99)));
        assert_eq!(all, None);
    }

    #[test]
    fn a_key_on_many_bodies_is_found_at_the_third() {
        let key = |text: &str| Key::parse(text).unwrap();
        let body = |text: &str| raw("POST", "/", text.as_bytes());
        let mut habits = Habits::default();
        assert_eq!(habits.mismatch(&key("k"), body("1")), None);
        assert_eq!(habits.mismatch(&key("k"), body("1")), None);
        assert_eq!(habits.mismatch(&key("k"), body("2")), None);
        assert_eq!(habits.mismatch(&key("other"), body("3")), None);
        assert_eq!(habits.mismatch(&key("k"), body("2")), None);
        assert_eq!(habits.mismatch(&key("k"), body("3")), Some(Weakness::ManyBodies));
        assert_eq!(habits.mismatch(&key("k"), body("1")), Some(Weakness::ManyBodies));
    }

    #[test]
    fn the_memory_of_key_habits_is_bounded() {
        let mut habits = Habits::default();
        for seed in 0..1_000 {
            let key = Key::parse(&uuid(random(seed), '4')).unwrap();
            habits.see(Signs::of(&key, NOW));
            for body in 0..9_u8 {
                habits.mismatch(&key, raw("POST", "/", &[body]));
            }
        }
        assert_eq!((habits.seen.len(), habits.mismatched.len()), (REMEMBERED, MISMATCHED));
        assert!(habits.mismatched.iter().all(|(_, others)| others.len() == MANY));
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, date) in [
            (0, 19_700_101),
            (-1, 19_691_231),
            (11_016, 20_000_229),
            (20_778, 20_261_121),
            (20_819, 20_270_101),
        ] {
            assert_eq!(civil(days), date);
        }
    }

    proptest! {
        #[test]
        fn any_key_can_be_looked_at(text in "[!-~]{1,255}", millis: i64) {
            Signs::of(&Key::parse(&text).unwrap(), Date(millis / 2));
        }
    }
}
