//! Numbers from a seed.

/// One stream of numbers that look random: the same seed gives the same ones again, on every machine (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5EED)
    }

    /// One of many streams of a seed, independent of all others.
    pub fn named(seed: u64, name: &str) -> Self {
        let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, hash))
    }

    /// Draws a random number of 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below this one; 0 if there is none.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    /// A number from one to another, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// The same for small numbers.
    pub fn some(&mut self, least: u32, most: u32) -> u32 {
        self.between(least.into(), most.into()) as u32
    }

    /// True in this number of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// True every other time.
    pub fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Dice;

    #[test]
    fn a_seed_gives_the_same_numbers_again_and_another_one_others() {
        let draw = |mut dice: Dice| [dice.number(), dice.number(), dice.number()];
        assert_eq!(draw(Dice::new(7)), draw(Dice::new(7)));
        assert_ne!(draw(Dice::new(7)), draw(Dice::new(8)));
        assert_ne!(draw(Dice::named(7, "kills")), draw(Dice::named(7, "starts")));
    }

    #[test]
    fn numbers_are_within_their_limits_and_reach_both() {
        let mut dice = Dice::new(1);
        let mut seen = [0; 4];
        for _ in 0..1_000 {
            seen[dice.some(0, 3) as usize] += 1;
        }
        assert!(seen.iter().all(|count| (150..350).contains(count)), "{seen:?}");
    }
}
