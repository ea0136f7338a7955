//! The Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), and the shuffle of NumPy's `RandomState`.

/// Words of state.
const WORDS: usize = 624;
const MIDDLE: usize = 397;

pub(crate) struct MersenneTwister {
    state: [u32; WORDS],
    next: usize,
}

impl MersenneTwister {
    /// The generator of `numpy.random.RandomState(seed)`.
    pub(crate) fn new(seed: u32) -> MersenneTwister {
        let mut state = [seed; WORDS];
        for word in 1..WORDS {
            let before = state[word - 1];
            state[word] = 1_812_433_253u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(word as u32);
        }
        MersenneTwister { state, next: WORDS }
    }

    fn twist(&mut self) {
        for word in 0..WORDS {
            let joined = (self.state[word] & 0x8000_0000) | (self.state[(word + 1) % WORDS] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[word] = self.state[(word + MIDDLE) % WORDS] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// A uniform integer from 0 to `most`, by rejection of larger numbers with as many bits.
    fn up_to(&mut self, most: u32) -> u32 {
        let mask = u32::MAX.checked_shr(most.leading_zeros()).unwrap_or(0);
        loop {
            let drawn = self.next_u32() & mask;
            if drawn <= most {
                return drawn;
            }
        }
    }

    /// Fisher–Yates: swaps each item, from the last, with one up to itself. At most 2³² items.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.up_to(u32::try_from(last).unwrap_or(u32::MAX));
            items.swap(last, other as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_match_the_published_outputs() {
        // The first outputs of the authors' mt19937ar.c for the seed 5489, its default; the 10 000th is in the C++
        // standard ([rand.predef]).
        let mut twister = MersenneTwister::new(5489);
        assert_eq!(twister.next_u32(), 3_499_211_612);
        let last = (1..10_000).map(|_| twister.next_u32()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
