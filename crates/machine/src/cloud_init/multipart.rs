//! MIME multipart messages, as far as user-data has them: headers, a boundary, parts that may be encoded or nested.

use super::{UserDataError, decoded, unpacked};

/// How deep parts may be in parts.
const DEEPEST: usize = 8;

/// Types whose parts say by their first line what they are.
const SNIFFED: [&str; 4] = ["", "text/plain", "text/x-not-multipart", "text/x-pre-include"];
const PACKED: [&str; 6] = [
    "application/gzip",
    "application/gzip-compressed",
    "application/gzipped",
    "application/x-compress",
    "application/x-compressed",
    "application/x-gzip",
];

/// One part: what it says it is (nothing if its first line decides) and its content.
pub(super) type Part = (String, Vec<u8>);

/// Every part, in order; a message that is not multipart is one part.
pub(super) fn parts(message: &[u8]) -> Result<Vec<Part>, UserDataError> {
    // cloud-init looks for this near the beginning, wherever it stands.
    let head = &message[..message.len().min(4096)];
    if !String::from_utf8_lossy(head).to_ascii_lowercase().contains("mime-version:") {
        return Ok(vec![(String::new(), message.to_vec())]);
    }
    let text = std::str::from_utf8(message).map_err(|_| UserDataError::NotText)?;
    let mut found = vec![];
    walk(text, DEEPEST, &mut found)?;
    Ok(found)
}

fn walk(text: &str, deeper: usize, found: &mut Vec<Part>) -> Result<(), UserDataError> {
    let (headers, body) = split(text);
    let kind = header(&headers, "content-type").unwrap_or_default();
    if kind.to_ascii_lowercase().starts_with("multipart/") && deeper > 0 {
        let Some(boundary) = parameter(&kind, "boundary") else { return Ok(()) };
        for part in between(body, &boundary) {
            walk(&part, deeper - 1, found)?;
        }
        return Ok(());
    }
    let encoding = header(&headers, "content-transfer-encoding").unwrap_or_default().to_ascii_lowercase();
    let bytes = match encoding.as_str() {
        "base64" => decoded(body, "a part of user-data")?,
        "quoted-printable" => unquoted(body),
        _ => body.as_bytes().to_vec(),
    };
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let packed = PACKED.contains(&kind.as_str());
    let bytes = if packed { unpacked(&bytes, "a part of user-data")? } else { bytes };
    // Parts without content say nothing, and cloud-init skips them.
    if !bytes.iter().all(u8::is_ascii_whitespace) {
        let sniffed = packed || SNIFFED.contains(&kind.as_str());
        found.push((if sniffed { String::new() } else { kind }, bytes));
    }
    Ok(())
}

/// Headers up to the first empty line; continued lines are joined.
fn split(text: &str) -> (Vec<(String, String)>, &str) {
    let mut headers: Vec<(String, String)> = vec![];
    let mut rest = text;
    while let Some((line, after)) = rest.split_once('\n') {
        let line = line.trim_end_matches('\r');
        rest = after;
        if line.is_empty() {
            break;
        }
        match (line.starts_with([' ', '\t']), headers.last_mut(), line.split_once(':')) {
            (true, Some((_, value)), _) => value.push_str(&format!(" {}", line.trim())),
            (_, _, Some((name, value))) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            // Such as the line that mail programs put in front of everything.
            _ => {}
        }
    }
    (headers, rest)
}

fn header(headers: &[(String, String)], name: &str) -> Option<String> {
    headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn parameter(value: &str, name: &str) -> Option<String> {
    value.split(';').skip(1).find_map(|part| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"').to_owned())
    })
}

fn between(body: &str, boundary: &str) -> Vec<String> {
    let (open, close) = (format!("--{boundary}"), format!("--{boundary}--"));
    let mut parts: Vec<String> = vec![];
    let mut inside = false;
    for line in body.split_inclusive('\n') {
        let bare = line.trim_end();
        if bare == close {
            break;
        }
        if bare == open {
            parts.push(String::new());
            inside = true;
        } else if let (true, Some(part)) = (inside, parts.last_mut()) {
            part.push_str(line);
        }
    }
    // The line break in front of a boundary belongs to the boundary.
    let cut = |part: &String| part.strip_suffix("\r\n").or(part.strip_suffix('\n')).unwrap_or(part).to_owned();
    parts.iter().map(cut).collect()
}

fn unquoted(text: &str) -> Vec<u8> {
    let text = text.replace("=\r\n", "").replace("=\n", "");
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'=', Some(byte)) => {
                decoded.push(byte);
                at += 3;
            }
            (byte, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_and_encoded_parts_come_out_in_order() {
        let message = "From nobody\nContent-Type: multipart/mixed;\n boundary=\"out\"\nMIME-Version: 1.0\n\nignored\n--out\nContent-Type: text/plain\n\none\n--out\nContent-Type: multipart/mixed; boundary=in\n\n--in\nContent-Transfer-Encoding: quoted-printable\n\ntw=6F=\n!\n--in--\n--out\n\n\n--out--\nignored\n";
        let found: Vec<String> =
            parts(message.as_bytes()).unwrap().into_iter().map(|part| String::from_utf8(part.1).unwrap()).collect();
        assert_eq!(found, ["one", "two!"]);
        assert_eq!(parts(b"#cloud-config\n").unwrap(), [(String::new(), b"#cloud-config\n".to_vec())]);
        assert!(parts(b"MIME-Version: 1.0\nContent-Type: multipart/mixed\n\n--x\n").unwrap().is_empty());
    }
}
