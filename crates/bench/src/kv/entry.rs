//! The keys and values of the benchmark: each value says which key it belongs to.

use esker_disk::BLOCK_BYTES;

use super::store_arguments::{KeyOrder, KvBenchArguments};

/// Makes keys and values by number.
#[derive(Debug, Clone, Copy)]
pub struct Entries {
    keys: u64,
    key_size: usize,
    size: usize,
    order: KeyOrder,
}

/// The next keys of one caller.
#[derive(Debug)]
pub struct Sequence {
    state: u64,
    next: u64,
    step: u64,
}

impl Entries {
    pub fn new(arguments: &KvBenchArguments) -> Self {
        Self {
            keys: arguments.keys,
            key_size: arguments.key_size as usize,
            size: arguments.size as usize,
            order: arguments.order,
        }
    }

    /// The keys that one of several callers uses.
    pub fn sequence(&self, caller: u32, callers: u32) -> Sequence {
        let state =
            0x9e37_79b9_7f4a_7c15 ^ (u64::from(caller) + 1).wrapping_mul(0xd134_2543_de82_ef95);
        Sequence { state, next: u64::from(caller), step: u64::from(callers) }
    }

    pub fn next(&self, sequence: &mut Sequence) -> u64 {
        match self.order {
            KeyOrder::Seq => {
                let n = sequence.next % self.keys;
                sequence.next += sequence.step;
                n
            }
            KeyOrder::Random => {
                let mut x = sequence.state;
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                sequence.state = x;
                ((u128::from(x) * u128::from(self.keys)) >> 64) as u64
            }
        }
    }

    /// The number of different keys.
    pub fn count(&self) -> u64 {
        self.keys
    }

    /// The bytes of the blocks that hold a record of the log with one entry, on average.
    pub fn read_bytes(&self) -> usize {
        // Of the record and the put in it, about.
        const HEADER_BYTES: usize = 40;
        let len = self.key_size + self.size + HEADER_BYTES;
        // It begins anywhere in a block.
        (1 + (len + BLOCK_BYTES / 2 - 1) / BLOCK_BYTES) * BLOCK_BYTES
    }

    /// Writes the key with this number.
    pub fn key<'a>(&self, n: u64, memory: &'a mut Vec<u8>) -> &'a [u8] {
        memory.resize(self.key_size, 0);
        let at = self.key_size - 8;
        memory[at..].copy_from_slice(&n.to_be_bytes());
        memory
    }

    /// Writes a value of the key with this number.
    pub fn value<'a>(&self, n: u64, memory: &'a mut Vec<u8>) -> &'a [u8] {
        memory.resize(self.size, 0xa5);
        memory[..8].copy_from_slice(&n.to_le_bytes());
        memory
    }

    /// Whether the value belongs to the key.
    pub fn matches(&self, key: &[u8], value: &[u8]) -> bool {
        let number = key.last_chunk::<8>().map(|n| u64::from_be_bytes(*n));
        let stored = value.first_chunk::<8>().map(|n| u64::from_le_bytes(*n));
        number.is_some()
            && number == stored
            && (key.len(), value.len()) == (self.key_size, self.size)
            && value[8..].iter().all(|byte| *byte == 0xa5)
    }

    pub fn bytes(&self) -> u64 {
        (self.key_size + self.size) as u64
    }
}
