//! Seeded randomness with the shapes that wire tests want. The seed is the whole of a run.

/// Generator of one run.
pub struct Random(gatewayd::random::Random);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(gatewayd::random::Random::new(seed))
    }

    pub const fn number(&mut self) -> u64 {
        self.0.next()
    }

    /// 0 to `bound - 1`.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % u64::try_from(bound).unwrap()).unwrap()
    }

    pub fn byte(&mut self) -> u8 {
        self.number().to_be_bytes()[0]
    }

    pub fn coin(&mut self) -> bool {
        self.number() & 1 == 1
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.byte()).collect()
    }

    /// A length that is mostly small and now and then crosses a length prefix.
    pub fn length(&mut self) -> usize {
        match self.below(20) {
            0 => 0,
            1 => self.below(20_000),
            2 => 120 + self.below(20),
            _ => self.below(40),
        }
    }
}

/// Seed of a run: `name` in the environment, else `default`.
pub fn seed(name: &str, default: u64) -> u64 {
    std::env::vars()
        .find(|(key, _)| key == name)
        .map_or(default, |(_, value)| value.parse().expect("the seed is a whole number"))
}
