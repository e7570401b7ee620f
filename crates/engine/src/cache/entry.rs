//! One object of the cache: open for whoever reads it, packed when nobody did for a while.
//!
//! Holds: packed or open, it is the same object. An open Deployment takes 60 KiB, most of it for the nodes of its maps; packed it is one: and most
//! clusters are at rest most of the time.

use std::sync::Arc;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use hangar_api::Object;

use crate::queue::Group;

pub(super) struct Entry {
    pub uid: String,
    pub version: u64,
    /// The cluster that it belongs to.
    pub group: Option<Group>,
    form: Form,
    /// Somebody read it since [`Entry::rest`] was last asked.
    used: bool,
}

enum Form {
    Open(Arc<Object>),
    Packed(Box<[u8]>),
}

impl Entry {
    pub fn new(object: Arc<Object>, group: Option<Group>) -> Self {
        Self { uid: object.uid().to_owned(), version: version(&object), group, form: Form::Open(object), used: true }
    }

    pub fn is_packed(&self) -> bool {
        matches!(self.form, Form::Packed(_))
    }

    /// The object, which stays open until it has not been used for a while.
    pub fn open(&mut self, packer: &mut Packer) -> Option<Arc<Object>> {
        self.used = true;
        match &self.form {
            Form::Open(object) => Some(object.clone()),
            Form::Packed(bytes) => {
                let object = Arc::new(packer.unpack(bytes)?);
                self.form = Form::Open(object.clone());
                Some(object)
            }
        }
    }

    /// Packs it if nobody has used it since the last time and nobody holds it; whether it is packed now.
    pub fn rest(&mut self, packer: &mut Packer) -> bool {
        let used = std::mem::take(&mut self.used);
        match &self.form {
            Form::Packed(_) => true,
            Form::Open(object) if used || Arc::strong_count(object) > 1 => false,
            Form::Open(object) => match packer.pack(object) {
                Some(bytes) => {
                    self.form = Form::Packed(bytes);
                    true
                }
                None => false,
            },
        }
    }
}

/// Resource versions are numbers since Kubernetes promises it (KEP 5504), and always were with etcd.
pub(super) fn version(object: &Object) -> u64 {
    object.resource_version().parse().unwrap_or(0)
}

/// Packs and unpacks; what that needs is made once, as it is larger than most objects.
pub(super) struct Packer {
    compress: Compress,
    decompress: Decompress,
    text: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Self {
        Self { compress: Compress::new(Compression::fast(), false), decompress: Decompress::new(false), text: vec![] }
    }
}

impl Packer {
    /// The length of the text, and the packed text.
    fn pack(&mut self, object: &Object) -> Option<Box<[u8]>> {
        self.text.clear();
        serde_json::to_writer(&mut self.text, &object.0).ok()?;
        let length = u32::try_from(self.text.len()).ok()?;
        // What cannot be made shorter grows by a few bytes for each 16 KiB.
        let mut packed = Vec::with_capacity(self.text.len() + self.text.len() / 1000 + 64);
        packed.extend(length.to_le_bytes());
        self.compress.reset();
        let status = self.compress.compress_vec(&self.text, &mut packed, FlushCompress::Finish).ok()?;
        (status == Status::StreamEnd).then(|| packed.into_boxed_slice())
    }

    fn unpack(&mut self, packed: &[u8]) -> Option<Object> {
        let (length, packed) = packed.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        self.text.clear();
        self.text.reserve(length + 1);
        self.decompress.reset(false);
        let end = self.decompress.decompress_vec(packed, &mut self.text, FlushDecompress::Finish);
        let object = serde_json::from_slice(&self.text);
        match (end, object) {
            (Ok(Status::StreamEnd), Ok(object)) => Some(Object(object)),
            (end, object) => {
                let error = object.err().map(|error| error.to_string());
                tracing::error!(?end, error, "an object of the cache cannot be read any more: this is a bug in Hangar");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Arc<Object> {
        let metadata = json!({ "name": "a", "uid": "u", "resourceVersion": "12" });
        Arc::new(Object(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { "a": "YQ==" },
            "numbers": [0, -1, 18_446_744_073_709_551_615_u64, 1.5, null, true], "text": "ä\n\u{1F600}",
        })))
    }

    #[test]
    fn an_object_is_the_same_after_it_was_packed() {
        let (mut entry, mut packer) = (Entry::new(object(), None), Packer::default());
        assert!(!entry.rest(&mut packer), "it is new");
        assert!(entry.rest(&mut packer));
        assert_eq!((entry.uid.as_str(), entry.version), ("u", 12));
        assert_eq!(entry.open(&mut packer).unwrap(), object());
        assert!(!entry.rest(&mut packer), "it was used since");
        assert!(entry.rest(&mut packer));
    }

    #[test]
    fn objects_of_every_size_are_packed_one_after_the_other() {
        let mut packer = Packer::default();
        // Text that cannot be made shorter, from a simple generator.
        let noise = |length: usize| -> String {
            let numbers =
                std::iter::successors(Some(1_u64), |last| Some(last.wrapping_mul(6_364_136_223_846_793_005) + 1));
            numbers.take(length).map(|number| char::from(b' ' + 1 + (number >> 58) as u8 % 60)).collect()
        };
        for length in [0, 1, 15, 1_000, 16_384, 70_000, 1_500_000, 3] {
            let mut object = Object::clone(&object());
            object.0["data"]["noise"] = noise(length).into();
            let packed = packer.pack(&object).unwrap();
            assert_eq!(packer.unpack(&packed), Some(object), "{length}");
        }
        assert_eq!(packer.unpack(b"nonsense"), None);
    }

    #[test]
    fn what_somebody_holds_stays_open() {
        let (mut entry, mut packer) = (Entry::new(object(), None), Packer::default());
        let held = entry.open(&mut packer).unwrap();
        entry.rest(&mut packer);
        assert!(!entry.rest(&mut packer));
        drop(held);
        assert!(entry.rest(&mut packer));
    }
}
