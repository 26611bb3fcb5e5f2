//! Random numbers from a seed: the same seed, the same show.

/// Numbers that look random and are the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// A stream of numbers for one purpose, independent of all other streams of the seed.
    pub(crate) fn new(seed: u64, about: &str) -> Self {
        // FNV-1a: short, and good enough to tell purposes apart.
        let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(about.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    /// The next number below a bound (`SplitMix64`).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_and_matters_differ() {
        let throw = |seed, about| {
            let mut dice = Dice::new(seed, about);
            [(); 8].map(|()| dice.below(1000))
        };
        assert_eq!(throw(7, "a"), throw(7, "a"));
        assert_ne!(throw(7, "a"), throw(7, "b"));
        assert_ne!(throw(7, "a"), throw(8, "a"));
    }
}
