//! `kubectl logs`: what a container said, from its log files.
//!
//! Flows: lines as they are kept (time, stream, whole or not, text) -> those that were asked for -> text, and what is added later if somebody
//! follows. Holds: a line is shown when it is complete; a log that is turned over in between is read on from the new file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::Node;
use super::upgrade::{Body, response, text_response};

const POLL_INTERVAL: Duration = Duration::from_millis(300);

pub(super) async fn answer(
    node: &Arc<Node>,
    namespace: &str,
    name: &str,
    container: &str,
    query: &str,
) -> Response<Body> {
    let Some(pod) = node.watched.pods.get(namespace, name) else {
        return text_response(StatusCode::NOT_FOUND, &format!("pod {namespace}/{name} does not run on this node"));
    };
    let options = match LogOptions::read(query, Timestamp::now()) {
        Ok(options) => options,
        Err(message) => return text_response(StatusCode::BAD_REQUEST, &message),
    };
    let directory = node.options.pods_dir.join(pod.uid().unwrap_or_default()).join(container);
    let Some(log) = log_of(&directory, options.previous) else {
        let message = format!("container {container} of pod {name} has no log yet");
        return text_response(StatusCode::BAD_REQUEST, &message);
    };
    let text = [
        tokio::fs::read(super::log::older(&log)).await.unwrap_or_default(),
        tokio::fs::read(&log).await.unwrap_or_default(),
    ];
    let seen = complete(&text[1]).len() as u64;
    let first = Bytes::from(options.cut(&text.concat()));
    if !options.follow || options.previous {
        return response(StatusCode::OK, first);
    }
    let uid = pod.uid();
    let still_there = {
        let (node, namespace, name) = (node.clone(), namespace.to_owned(), name.to_owned());
        move || node.watched.pods.get(&namespace, &name).is_some_and(|pod| pod.uid() == uid)
    };
    let added = growth(log, seen, still_there).map(move |bytes| Bytes::from(options.show(&bytes)));
    let stream = futures::stream::once(async move { first }).chain(added);
    Response::new(BodyExt::boxed(StreamBody::new(stream.map(|bytes| Ok(Frame::data(bytes))))))
}

/// The last words of a container, for its status.
pub(super) fn last_lines(log: &Path, lines: usize) -> String {
    let options = LogOptions { tail_lines: Some(lines), ..LogOptions::default() };
    let text = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&options.cut(&text)).trim_end().to_owned()
}

/// Whole lines that are added to a file, until the pod is gone or the container has another log.
fn growth(
    log: PathBuf,
    seen: u64,
    still_there: impl Fn() -> bool + Send + Sync + 'static,
) -> impl futures::Stream<Item = Bytes> + Send + Sync {
    futures::stream::unfold((log, seen, still_there), |(log, mut seen, still_there)| async move {
        loop {
            let size = tokio::fs::metadata(&log).await.map_or(0, |file| file.len());
            if size < seen {
                seen = 0;
            }
            let read = read_from(log.clone(), seen).await.unwrap_or_default();
            let whole = Bytes::copy_from_slice(complete(&read));
            if !whole.is_empty() {
                let seen = seen + whole.len() as u64;
                return Some((whole, (log, seen, still_there)));
            }
            let newest = log.parent().and_then(|directory| log_of(directory, false));
            if !still_there() || newest.as_ref() != Some(&log) {
                return None;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
}

async fn read_from(log: PathBuf, seen: u64) -> Option<Vec<u8>> {
    let mut file = tokio::fs::File::open(log).await.ok()?;
    file.seek(std::io::SeekFrom::Start(seen)).await.ok()?;
    let mut bytes = vec![];
    file.take(1 << 20).read_to_end(&mut bytes).await.ok()?;
    Some(bytes)
}

/// Up to the last end of a line.
fn complete(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &text[..end]
}

/// The newest log of a container, or the one before.
fn log_of(directory: &Path, previous: bool) -> Option<PathBuf> {
    let entries = directory.read_dir().ok()?.flatten();
    let mut numbers: Vec<u64> =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()).collect();
    numbers.sort_unstable();
    let number = numbers.iter().rev().nth(usize::from(previous))?;
    Some(directory.join(format!("{number}.log")))
}

#[derive(Debug, Default, PartialEq)]
struct LogOptions {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since: Option<Timestamp>,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
}

impl LogOptions {
    fn read(query: &str, now: Timestamp) -> Result<Self, String> {
        let mut options = LogOptions::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let number = || value.parse::<i64>().map_err(|_| format!("{name}={value} is not a number"));
            match &*name {
                "follow" => options.follow = value == "true",
                "previous" => options.previous = value == "true",
                "timestamps" => options.timestamps = value == "true",
                "tailLines" => options.tail_lines = usize::try_from(number()?).ok(),
                "limitBytes" => options.limit_bytes = usize::try_from(number()?).ok(),
                "sinceSeconds" => options.since = now.checked_sub(jiff::SignedDuration::from_secs(number()?)).ok(),
                "sinceTime" => {
                    options.since = Some(value.parse().map_err(|_| format!("sinceTime={value} is not a time"))?);
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// What is to be shown of everything that was said so far.
    fn cut(&self, text: &[u8]) -> Vec<u8> {
        let mut lines: Vec<&[u8]> = complete(text).split_inclusive(|byte| *byte == b'\n').collect();
        if let Some(count) = self.tail_lines {
            lines.drain(..lines.len().saturating_sub(count));
        }
        let mut shown = self.show(&lines.concat());
        shown.truncate(self.limit_bytes.unwrap_or(usize::MAX));
        shown
    }

    fn show(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len());
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let Some((time, whole, words)) = super::log::timestamped_line(line) else {
                out.extend(line);
                continue;
            };
            if self.since.is_some_and(|since| time.parse::<Timestamp>().is_ok_and(|time| time < since)) {
                continue;
            }
            if self.timestamps {
                out.extend(time.as_bytes());
                out.push(b' ');
            }
            out.extend(words);
            if whole {
                out.push(b'\n');
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: &[u8] =
        b"2026-01-01T00:00:01Z stdout F a\n2026-01-01T00:00:02Z stderr F b\n2026-01-01T00:00:03Z stdout F c\nhalf";

    #[test]
    fn the_end_of_a_log_is_cut_by_lines_bytes_and_time() {
        let now: Timestamp = "2026-01-01T00:00:04Z".parse().unwrap();
        let rows = [
            ("", "a\nb\nc\n"),
            ("tailLines=1", "c\n"),
            ("tailLines=2&follow=true", "b\nc\n"),
            ("tailLines=9", "a\nb\nc\n"),
            ("tailLines=0", ""),
            ("limitBytes=3", "a\nb"),
            ("sinceSeconds=2", "b\nc\n"),
            ("sinceTime=2026-01-01T00%3A00%3A03Z&timestamps=true", "2026-01-01T00:00:03Z c\n"),
        ];
        for (query, expected) in rows {
            let shown = LogOptions::read(query, now).unwrap().cut(KEPT);
            assert_eq!(String::from_utf8(shown).unwrap(), expected, "{query}");
        }
        assert!(LogOptions::read("sinceSeconds=soon", now).is_err());
    }
}
