//! The score that ranks the regions of an arc: weighted rendezvous hashing in integers.
//!
//! No region's score depends on another's: a change of one region moves only its own gains and
//! losses. This file must not use floating point: every node must compute the same bits, and libm's
//! logarithms differ in the last place between platforms.

use std::cmp::Ordering;

/// Bits after the point in [`log2`]'s result.
const FRACTION: u32 = 32;

/// A region's bid for an arc, the exact fraction `bits / weight`; the least is first.
///
/// A hash gives u in (0, 1] for each (arc, region). `-log2(u) / weight` is exponentially
/// distributed with rate `weight`. So a region is first with its weight's part of the sum.
#[derive(Clone, Copy, Debug)]
pub struct Score {
    /// `-log2(u)`, 32 bits after the point, at least 1 and at most 64 << 32.
    bits: u64,
    /// At least 1, at most [`Score::MAX_WEIGHT`].
    weight: u32,
}

impl Score {
    /// The greatest weight: with it the products of [`Score::rank`] stay below 2^52.
    pub const MAX_WEIGHT: u32 = 10_000;

    /// The score of a region that has this weight, at least 1, and drew this hash; u = hash / 2^64.
    pub fn new(hash: u64, weight: u32) -> Self {
        Self { bits: (64 << FRACTION) - log2(hash.max(1)), weight }
    }

    /// Compares two scores; less is better. Not `Ord`: equal fractions may have other parts.
    pub fn rank(&self, other: &Self) -> Ordering {
        (self.bits * u64::from(other.weight)).cmp(&(other.bits * u64::from(self.weight)))
    }
}

/// log2 of `x` (at least 1), rounded down, 32 bits after the point.
///
/// The textbook way: square the mantissa, note if it passed 2, halve it if so. Each round gives one
/// bit. Rounding down keeps it monotonic, and the error below one unit of the last place.
fn log2(x: u64) -> u64 {
    let whole = x.ilog2();
    let mut mantissa = x << (63 - whole);
    let mut log = u64::from(whole);
    // Not a range. A table has 65,536 rows of this, and unoptimized builds, which tests start by
    // the hundred, pay for each step of a range.
    let mut left = FRACTION;
    while left > 0 {
        left -= 1;
        let square = u128::from(mantissa) * u128::from(mantissa);
        let passed_two = (square >> 127) as u64;
        mantissa = (square >> (63 + passed_two)) as u64;
        log = (log << 1) | passed_two;
    }
    log
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: f64 = (1u64 << FRACTION) as f64;

    #[test]
    fn golden() {
        // python3: floor(log2(x) * 2**32) with 60 decimal digits (decimal.ln).
        let table = [
            (3, 6807362105),
            (10, 14267572527),
            (1000003, 85605453752),
            (9007199254740991, 227633266687),
            (11400714819323198485, 271896160629),
            (9223372036854775809, 270582939648),
            (18446744073709551615, 274877906943),
        ];
        let powers = (0..64_u32).map(|power| (1 << power, u64::from(power) << FRACTION));
        for (x, want) in powers.chain(table) {
            assert_eq!(log2(x), want, "log2({x})");
        }
    }

    #[test]
    fn scores_stay_in_range() {
        assert_eq!(Score::new(0, 1).bits, 64 << FRACTION);
        assert_eq!(Score::new(1, 1).bits, 64 << FRACTION);
        assert_eq!(Score::new(u64::MAX, 1).bits, 1);
        let (worst, best) = (Score::new(0, 1), Score::new(u64::MAX, Score::MAX_WEIGHT));
        assert_eq!((best.rank(&worst), worst.rank(&best)), (Ordering::Less, Ordering::Greater));
        assert_eq!(Score::new(1 << 63, 2).rank(&Score::new(1 << 62, 4)), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn the_logarithm_is_as_accurate_as_a_float(x in 1u64.., shift in 0u32..63) {
            let x = (x >> shift).max(1);
            let (ours, theirs) = (log2(x) as f64 / ONE, (x as f64).log2());
            // One unit of the last place, and a double's own error at 64.
            prop_assert!((ours - theirs).abs() <= 1.0 / ONE + 2e-14, "log2({}) = {} or {}", x, ours, theirs);
        }

        #[test]
        fn monotonic(a in 1u64.., b in 1u64.., shift in 0u32..63) {
            let (a, b) = ((a >> shift).max(1), (b >> shift).max(1));
            prop_assert_eq!(log2(a.min(b)) <= log2(a.max(b)), true);
        }

        #[test]
        fn scores_rank_like_their_fractions(a in any::<u64>(), b in any::<u64>(), v in 1u32..=10_000, w in 1u32..=10_000) {
            let score = |hash: u64, weight: u32| (64.0 - (hash.max(1) as f64).log2()) / f64::from(weight);
            let (left, right) = (score(a, v), score(b, w));
            prop_assume!((left - right).abs() > 1e-8);
            prop_assert_eq!(Score::new(a, v).rank(&Score::new(b, w)), left.total_cmp(&right));
        }
    }
}
