//! Header blocks of SPDY/3: pairs with lengths, through one zlib stream for each direction that begins with the protocol's dictionary.
//!
//! Holds: the streams live as long as the connection, so every block must pass through, also of streams that nobody wants.

use std::collections::BTreeMap;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};

/// Words that the protocol expects in headers (appendix of its specification).
const DICTIONARY: &[u8] = include_bytes!("dictionary.bin");
/// Far above what any client of a kubelet sends.
const LONGEST: usize = 64 * 1024;

pub type Headers = BTreeMap<String, String>;

/// Reads blocks.
pub struct Inflate(Decompress);

impl Default for Inflate {
    fn default() -> Self {
        Self(Decompress::new(true))
    }
}

impl Inflate {
    pub fn read(&mut self, block: &[u8]) -> Result<Headers, String> {
        let mut plain = Vec::with_capacity(4096);
        let mut at = 0;
        while at < block.len() || plain.len() == plain.capacity() {
            if plain.len() == plain.capacity() {
                plain.reserve(4096);
            }
            let before = self.0.total_in();
            let answer = self.0.decompress_vec(&block[at..], &mut plain, FlushDecompress::Sync);
            at += usize::try_from(self.0.total_in() - before).unwrap_or(0);
            match answer {
                Ok(flate2::Status::BufError) => break,
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(DICTIONARY).map_err(|error| error.to_string())?;
                }
                Err(error) => return Err(error.to_string()),
            }
            if plain.len() > LONGEST {
                return Err("the headers are too long".into());
            }
        }
        pairs(&plain).ok_or_else(|| "the headers are cut off".to_owned())
    }
}

fn pairs(mut plain: &[u8]) -> Option<Headers> {
    let count = number(&mut plain)?;
    let mut headers = Headers::new();
    for _ in 0..count {
        let name = word(&mut plain)?.to_lowercase();
        let value = word(&mut plain)?;
        headers.insert(name, value);
    }
    Some(headers)
}

fn number(plain: &mut &[u8]) -> Option<usize> {
    let (first, rest) = plain.split_first_chunk::<4>()?;
    *plain = rest;
    usize::try_from(u32::from_be_bytes(*first)).ok()
}

fn word(plain: &mut &[u8]) -> Option<String> {
    let length = number(plain)?;
    let (first, rest) = plain.split_at_checked(length)?;
    *plain = rest;
    String::from_utf8(first.to_vec()).ok()
}

/// Writes blocks.
pub struct Deflate(Compress);

impl Deflate {
    pub fn new() -> Result<Self, String> {
        let mut compress = Compress::new(Compression::fast(), true);
        compress.set_dictionary(DICTIONARY).map_err(|error| error.to_string())?;
        Ok(Self(compress))
    }

    pub fn write(&mut self, headers: &Headers) -> Result<Vec<u8>, String> {
        let mut plain = length(headers.len()).to_vec();
        for (name, value) in headers {
            for text in [name, value] {
                plain.extend(length(text.len()));
                plain.extend(text.as_bytes());
            }
        }
        let mut block = Vec::with_capacity(plain.len() + 256);
        self.0.compress_vec(&plain, &mut block, FlushCompress::Sync).map_err(|error| error.to_string())?;
        Ok(block)
    }
}

fn length(value: usize) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_pass_through_one_stream_in_each_direction() {
        let (mut write, mut read) = (Deflate::new().unwrap(), Inflate::default());
        for kind in ["stdin", "stdout", "error"] {
            let headers = Headers::from([("streamtype".into(), kind.into()), ("port".into(), "8080".into())]);
            let block = write.write(&headers).unwrap();
            assert_eq!(read.read(&block).unwrap(), headers);
        }
        assert_eq!(read.read(&write.write(&Headers::new()).unwrap()).unwrap(), Headers::new());
    }

    #[test]
    fn garbage_is_refused() {
        for block in [&b"garbage"[..], &[0x78, 0xbb], &[]] {
            assert!(Inflate::default().read(block).is_err(), "{block:?}");
        }
    }
}
