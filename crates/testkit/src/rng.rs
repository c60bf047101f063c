//! The generators of random numbers: SplitMix64, and one for the purposes of a seed on top of it.
//!
//! Recorded failures and mutations name seeds. For a given seed the values of each generator must
//! never change.

/// The factor that separates the numbers combined with a seed.
const SEED_FACTOR: u64 = 0xD6E8_FEB8_6659_FD93;

/// SplitMix64: the state is the seed, and bounds are applied by remainder.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates a generator.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns an index below `bound`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// Returns `true` with a probability of `percent` in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Picks one element.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}

/// Returns a seed made of a seed and a number.
pub fn mix(seed: u64, number: u64) -> u64 {
    SplitMix64::new(seed ^ number.wrapping_mul(SEED_FACTOR)).next()
}

/// SplitMix64 for one purpose of a seed; bounds are applied by multiplication.
#[derive(Debug, Clone)]
pub struct Rng(SplitMix64);

impl Rng {
    /// Creates a generator for one purpose: different purposes of one seed are independent.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = SplitMix64::new(seed ^ purpose.wrapping_mul(SEED_FACTOR));
        rng.next();
        Self(rng)
    }

    /// Returns the next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Returns a number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns an index below `bound`; 0 when `bound` is 0.
    pub fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// Returns `true` with a probability of `percent` in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Picks one element.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.index(of.len()))
    }

    /// Returns random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_split_mix_do_not_change() {
        let mut rng = SplitMix64::new(1_234_567);
        let values = [0x599E_D017_FB08_FC85, 0x2C73_F084_5854_0FA5, 0x883E_BCE5_A3F2_7C77];
        assert_eq!(values.map(|_| rng.next()), values);
        let mut rng = SplitMix64::new(7);
        let percents = [87, 4, 46, 3, 74, 5];
        assert_eq!(percents.map(|_| rng.below(100)), percents);
        assert_eq!(mix(7, 3), 0x14E3_A7E0_6FCC_4E26);
    }

    #[test]
    fn values_of_a_purpose_do_not_change() {
        let mut rng = Rng::new(7, 3);
        let values = [0x4079_58E4_78D8_E3C6, 0x549A_C7D0_9501_2894, 0x0068_F5E8_3A9D_4850];
        assert_eq!(values.map(|_| rng.next()), values);
        let mut rng = Rng::new(7, 3);
        let percents = [25, 33, 0, 52, 97, 60];
        assert_eq!(percents.map(|_| rng.below(100)), percents);
        assert_eq!(Rng::new(7, 3).bytes(9)[..4], [0xC6, 0xE3, 0xD8, 0x78]);
    }
}
