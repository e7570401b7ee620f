//! Randomness that follows from a seed: dice for faults, and the bytes of names and tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hangar_pki::{Keys, PkiError, SystemKeys};

/// A die that is thrown by counting: the same calls in the same order see the same faults.
pub struct Die(AtomicU64);

impl Die {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(mix(seed))))
    }

    /// 0 to 999.
    pub fn throw(&self) -> u64 {
        mix(self.0.fetch_add(1, Ordering::Relaxed)) % 1000
    }
}

/// Random bytes that follow from a seed; keys that do not, since nothing is named after them.
pub struct SeededKeys(AtomicU64);

impl SeededKeys {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Keys for SeededKeys {
    fn key_pair(&self) -> Result<rcgen::KeyPair, PkiError> {
        SystemKeys.key_pair()
    }

    fn fill(&self, bytes: &mut [u8]) -> Result<(), PkiError> {
        for byte in bytes {
            let at = self.0.fetch_add(1, Ordering::Relaxed);
            *byte = (mix(at) & 0xff) as u8;
        }
        Ok(())
    }
}

/// splitmix64: a good mixture of a counter and a seed.
pub fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
