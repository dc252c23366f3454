//! The mutant that runs: one number from the environment, compared at every site.
//!
//! The tool puts this file into the mutated tree as `crate::mutant`, and has it here for its tests.
//! `ONCEWAY_MUTANT` is the number of the mutant; 0 or nothing stands for none.
//! `ONCEWAY_MUTANT_TRACE` names a file for traces: one line when a thread first reaches a site.
//! This file must not need anything but std. Without a mutant it must not change the original.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fs::File;
use std::io::Write as _;
use std::sync::LazyLock;
use std::time::SystemTime;

static MUTANT: LazyLock<u32> = LazyLock::new(|| {
    std::env::var("ONCEWAY_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
});

static TRACE: LazyLock<Option<File>> = LazyLock::new(|| {
    let path = std::env::var_os("ONCEWAY_MUTANT_TRACE")?;
    File::options().create(true).append(true).open(path).ok()
});

thread_local! {
    /// True for each site, by number, that this thread reached.
    static REACHED: RefCell<Vec<bool>> = const { RefCell::new(Vec::new()) };
}

/// True if this mutant runs. Traces the site if a trace is wanted.
#[inline]
pub fn is(number: u32) -> bool {
    if let Some(file) = &*TRACE {
        reached(number, file);
    }
    *MUTANT == number
}

/// Writes one line per thread and site: milliseconds since 1970, the site, the thread's name.
fn reached(number: u32, mut file: &File) {
    let place = number as usize;
    let again = REACHED.try_with(|reached| {
        let Ok(mut reached) = reached.try_borrow_mut() else { return false };
        if reached.len() <= place {
            reached.resize(place + 1, false);
        }
        std::mem::replace(&mut reached[place], true)
    });
    if again == Ok(true) {
        return;
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let thread = std::thread::current();
    // One write per line: lines stay whole although processes share the file.
    let line = format!("{since} {number} {}\n", thread.name().unwrap_or("-"));
    let _ = file.write_all(line.as_bytes());
}

/// `a < b`, or `a <= b` in the mutant.
pub fn less<T: PartialOrd + ?Sized>(number: u32, a: &T, b: &T) -> bool {
    if is(number) { a <= b } else { a < b }
}

/// `a <= b`, or `a < b` in the mutant.
pub fn at_most<T: PartialOrd + ?Sized>(number: u32, a: &T, b: &T) -> bool {
    if is(number) { a < b } else { a <= b }
}

/// `a > b`, or `a >= b` in the mutant.
pub fn more<T: PartialOrd + ?Sized>(number: u32, a: &T, b: &T) -> bool {
    if is(number) { a >= b } else { a > b }
}

/// `a >= b`, or `a > b` in the mutant.
pub fn at_least<T: PartialOrd + ?Sized>(number: u32, a: &T, b: &T) -> bool {
    if is(number) { a > b } else { a >= b }
}

/// The larger, or the smaller in the mutant.
pub fn max<T: Ord>(number: u32, a: T, b: T) -> T {
    if is(number) { a.min(b) } else { a.max(b) }
}

/// The smaller, or the larger in the mutant.
pub fn min<T: Ord>(number: u32, a: T, b: T) -> T {
    if is(number) { a.max(b) } else { a.min(b) }
}

/// The largest item, or the smallest in the mutant.
pub fn largest<I: Iterator<Item: Ord>>(number: u32, items: I) -> Option<I::Item> {
    if is(number) { items.min() } else { items.max() }
}

/// The smallest item, or the largest in the mutant.
pub fn smallest<I: Iterator<Item: Ord>>(number: u32, items: I) -> Option<I::Item> {
    if is(number) { items.max() } else { items.min() }
}

/// The statement of the running mutant. A site in SQL stands between the comments `/*<7*/` and
/// `/*7>instead*/`.
pub fn sql(text: &str) -> Cow<'_, str> {
    for (at, open) in text.match_indices("/*<") {
        let number = text[at + open.len()..].split("*/").next().and_then(|digits| digits.parse().ok());
        if number.is_some_and(is) {
            return Cow::Owned(replaced(text, *MUTANT));
        }
    }
    Cow::Borrowed(text)
}

/// The text with this site's replacement at each of its marks.
pub fn replaced(text: &str, number: u32) -> String {
    let (open, close) = (format!("/*<{number}*/"), format!("/*{number}>"));
    let mut rest = text;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once(&open) {
        let (_, after) = after.split_once(&close).unwrap_or(("", after));
        let (instead, after) = after.split_once("*/").unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(instead);
        rest = after;
    }
    out + rest
}
