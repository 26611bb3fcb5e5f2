//! Numbers from a seed: what a run of the proof draws, it draws again from the same seed.

/// One stream of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The stream of a seed that has this name.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, hash))
    }

    /// A number below another (splitmix64).
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }

    /// A number from one to another, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True so many times in a hundred.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
