//! Changes of examples: of bytes, and of documents, which stay documents.

use serde_json::{Map, Value, json};

/// splitmix64: small, fast, and the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound.max(1) as u64).unwrap_or_default()
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// What breaks arithmetic, parsers and assumptions.
fn odd(random: &mut Random) -> Value {
    const TEXTS: &[&str] = &[
        "",
        "0",
        "-1",
        "100%",
        "2147483647%",
        "-5%",
        "99999999999999999999%",
        "%",
        "v1.99999999999.0",
        "v1.28",
        "1.28.10",
        "10.0.0.0/0",
        "::/0",
        "255.255.255.255/32",
        "10.244.0.0/33",
        "10.0.0.1",
        "https://",
        "http://[::1",
        "2026-01-01T00:00:00Z",
        "-9999-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "1h",
        "-1h",
        "9223372036854775807s",
        "a/b/c",
        "ü\u{0}\u{202e}",
        "../../etc/passwd",
        "${X}",
        "{{ x }}",
        "\n",
        " ",
        "hangar.dev/x",
        "True",
        "null",
        "!!binary x",
        "&a *a",
        "- a",
        "18446744073709551615",
        "openstack:///x",
        "a=b,c",
        "AAAA",
        "LS0tLS1CRUdJTiA=",
    ];
    match random.below(12) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(i64::MAX),
        4 => json!(u64::MAX),
        5 => json!(i32::MAX),
        6 => json!(1.5e300),
        7 => json!([]),
        8 => json!({}),
        9 => json!("x".repeat(random.below(5_000))),
        _ => json!(random.pick(TEXTS)),
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// Calls `change` on one node, counted from the top.
fn at(value: &mut Value, left: &mut usize, change: &mut dyn FnMut(&mut Value)) -> bool {
    if *left == 0 {
        change(value);
        return true;
    }
    *left -= 1;
    match value {
        Value::Array(list) => list.iter_mut().any(|item| at(item, left, change)),
        Value::Object(map) => map.values_mut().any(|item| at(item, left, change)),
        _ => false,
    }
}

/// A document with a few places changed.
pub fn document(value: &Value, random: &mut Random) -> Value {
    let mut value = value.clone();
    for _ in 0..=random.below(5) {
        let (mut node, mut other) = (random.below(size(&value)), random.below(size(&value)));
        let (kind, odd, turn) = (random.below(6), odd(random), random.below(64));
        let mut found = Value::Null;
        at(&mut value.clone(), &mut other, &mut |place| found = place.clone());
        at(&mut value, &mut node, &mut |place| match (kind, &mut *place) {
            (0, Value::Object(map)) => {
                let name = map.keys().nth(turn % map.len().max(1)).cloned();
                drop(name.and_then(|name| map.remove(&name)));
            }
            (1, Value::Object(map)) => grow(map, turn, found.clone()),
            (1, Value::Array(list)) if !list.is_empty() => list.push(list[turn % list.len()].clone()),
            (2, Value::Array(list)) => list.reverse(),
            (3, place) => *place = found.clone(),
            (_, place) => *place = odd.clone(),
        });
        // What doubles again and again is another target's business.
        if size(&value) > 20_000 {
            break;
        }
    }
    value
}

fn grow(map: &mut Map<String, Value>, turn: usize, value: Value) {
    const NAMES: &[&str] = &[
        "spec",
        "status",
        "metadata",
        "replicas",
        "annotations",
        "deletionTimestamp",
        "ownerReferences",
        "conditions",
        "version",
        "x",
    ];
    map.insert(NAMES[turn % NAMES.len()].to_owned(), value);
}

/// Bytes that differ in a few places.
pub fn bytes(example: &[u8], random: &mut Random) -> Vec<u8> {
    const TOKENS: &[&[u8]] = &[
        b"\t",
        b": ",
        b"- ",
        b"[",
        b"{",
        b"]",
        b"}",
        b"&a ",
        b"*a",
        b"!!x ",
        b"|",
        b">-\n",
        b"---\n",
        b"...\n",
        b"\"",
        b"'",
        b"#",
        b"\0",
        b"\xff\xfe",
        b"\r\n",
        b"<<: *a",
        b"Content-Type: multipart/mixed; boundary=\"\"\n",
        b"--\n",
        b"99999999999999999999",
        b"-1",
        b"{{",
        b"%}",
    ];
    let mut bytes = example.to_vec();
    for _ in 0..=random.below(8) {
        let place = random.below(bytes.len() + 1);
        match random.below(6) {
            0 if random.below(4) == 0 => bytes.truncate(place),
            1 if place < bytes.len() => bytes[place] = random.next().to_le_bytes()[0],
            2 => drop(bytes.splice(place..place, random.pick(TOKENS).iter().copied())),
            3 => {
                let end = (place + random.below(40)).min(bytes.len());
                drop(bytes.drain(place..end));
            }
            4 => {
                let end = (place + random.below(80)).min(bytes.len());
                let part = bytes[place..end].to_vec();
                let to = random.below(bytes.len() + 1);
                drop(bytes.splice(to..to, part));
            }
            _ => {
                let many = random.pick(TOKENS).repeat(random.below(60));
                drop(bytes.splice(place..place, many));
            }
        }
    }
    bytes
}
