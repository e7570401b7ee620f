//! How many bytes are below a prefix, a page at a time.
//!
//! Holds: etcd cannot tell without giving the values away, so pages are as long as makes a few mebibytes, by the size of what came before; any member is asked, whether
//! it leads or not, since the last second does not matter.

use super::wire::{Range, RangeAnswer};
use super::{Etcd, EtcdError, end_of};
use crate::data_store_usage::UsagePage;

/// Of the first request; no value is larger than 1.5 MiB.
const FIRST: i64 = 32;
const LONGEST: i64 = 2_000;
const WANTED_BYTES: u64 = 4 << 20;

impl Etcd {
    /// From a key on, until enough was read for one page.
    pub async fn usage(&self, prefix: &str, from: &[u8]) -> Result<UsagePage, EtcdError> {
        let (mut page, mut keys, mut limit) = (UsagePage::default(), 0, FIRST);
        let mut from = from.to_vec();
        loop {
            let request = Range { key: from, range_end: end_of(prefix), limit, serializable: true, ..Range::default() };
            let answer: RangeAnswer = self.call("KV/Range", &request).await?;
            keys += answer.pairs.len() as u64;
            page.bytes += answer.pairs.iter().map(|pair| (pair.key.len() + pair.value.len()) as u64).sum::<u64>();
            let Some(last) = answer.pairs.last().filter(|_| answer.more) else { return Ok(page) };
            // The next key after it.
            from = [&last.key[..], &[0]].concat();
            if page.bytes >= WANTED_BYTES {
                page.next = Some(from);
                return Ok(page);
            }
            let average = (page.bytes / keys.max(1)).max(1);
            limit = i64::try_from(WANTED_BYTES / average).unwrap_or(LONGEST).clamp(FIRST, LONGEST);
        }
    }
}
