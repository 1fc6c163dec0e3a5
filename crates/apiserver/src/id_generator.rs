//! Generates uids, tokens and `generateName` suffixes from one seed.

use parking_lot::Mutex;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::fmt::Write as _;

/// The alphabet of apimachinery's `rand.String`, which spells no words.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The same seed and the same sequence of requests give the same values.
#[derive(Debug)]
pub struct IdGenerator {
    rng: Mutex<ChaCha8Rng>,
}

impl IdGenerator {
    pub fn seeded(seed: u64) -> Self {
        Self { rng: Mutex::new(ChaCha8Rng::seed_from_u64(seed)) }
    }

    /// A version 4 UUID.
    pub fn uid(&self) -> String {
        let mut bytes: [u8; 16] = self.draw();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let mut text = String::with_capacity(36);
        for (index, byte) in bytes.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// The five characters appended to `generateName`.
    pub fn suffix(&self) -> String {
        let bytes: [u8; 5] = self.draw();
        bytes
            .iter()
            .map(|byte| char::from(SUFFIX_ALPHABET[usize::from(*byte) % SUFFIX_ALPHABET.len()]))
            .collect()
    }

    /// Random bytes, for secrets.
    pub fn draw<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.rng.lock().fill_bytes(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_uids() {
        let (one, two) = (IdGenerator::seeded(7), IdGenerator::seeded(7));
        assert_eq!(one.uid(), two.uid());
        assert_eq!(one.suffix(), two.suffix());
        assert_ne!(one.uid(), one.uid());
        assert_ne!(IdGenerator::seeded(8).uid(), IdGenerator::seeded(7).uid());
    }

    #[test]
    fn uid_is_a_version_4_uuid() {
        let uid = IdGenerator::seeded(1).uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(&uid[14..15], "4");
        assert!("89ab".contains(&uid[19..20]), "{uid}");
    }
}
