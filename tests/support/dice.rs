//! The choices of a seeded run, which draw from nothing but the seed.

/// The choices of one run, all from its seed (splitmix64).
pub struct Dice(u64);

impl Dice {
    /// The choices of one part of a run, which do not depend on the other parts.
    pub fn of(seed: u64, part: u64) -> Dice {
        let mut dice = Dice(seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03));
        dice.roll();
        dice
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).expect("below a usize")
    }
}

/// The seed of this run: `ONCEWAY_SEED`, or a fresh one. It is printed.
pub fn seed() -> u64 {
    let asked =
        std::env::var("ONCEWAY_SEED").ok().map(|text| text.parse().expect("ONCEWAY_SEED is a number"));
    let seed = asked.unwrap_or_else(|| u64::from(std::process::id()) << 20 ^ 0x5eed);
    println!("ONCEWAY_SEED={seed}");
    seed
}
