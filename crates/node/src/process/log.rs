//! What a process says goes to a file that stays small: at a size it becomes `NAME.1`, and what was there before goes away.

use std::path::{Path, PathBuf};

use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

/// Size at which a log is turned over.
pub const LIMIT: u64 = 10 * 1024 * 1024;

/// An append-only file that is turned over at a size, with one older file kept beside it.
pub struct RotatingLog {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
}

impl RotatingLog {
    pub async fn open(path: &Path, limit: u64) -> std::io::Result<Self> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).await?;
        }
        let file = append(path).await?;
        let size = file.metadata().await?.len();
        Ok(Self { path: path.to_owned(), file, size, limit })
    }

    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.size > 0 && self.size + bytes.len() as u64 > self.limit {
            self.file.flush().await?;
            fs::rename(&self.path, older(&self.path)).await?;
            self.file = append(&self.path).await?;
            self.size = 0;
        }
        self.file.write_all(bytes).await?;
        self.file.flush().await?;
        self.size += bytes.len() as u64;
        Ok(())
    }
}

/// Where the part before the last turn lies.
pub fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    PathBuf::from(name)
}

/// Whether lines are kept as they come, or with the time and the stream that they came on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Raw,
    Timestamped,
}

/// Copies two pipes into one log until both end. A log that cannot be written must not block its process, so reading goes on.
pub async fn collect(
    mut log: RotatingLog,
    out: impl AsyncRead + Unpin,
    err: impl AsyncRead + Unpin,
    log_format: LogFormat,
) {
    let (mut out, mut err) = (Pipe::new(out, "stdout", log_format), Pipe::new(err, "stderr", log_format));
    let mut broken = false;
    while out.open || err.open {
        let bytes = tokio::select! {
            bytes = out.next(), if out.open => bytes,
            bytes = err.next(), if err.open => bytes,
        };
        let written = log.write(&bytes).await;
        // Said once, not for every line: on a full disk that would fill what is left.
        if let (Err(error), false) = (&written, broken) {
            tracing::warn!(path = %log.path.display(), %error, "could not write a log");
        }
        broken = written.is_err();
    }
}

/// A line without an end is kept in parts of this size, as container runtimes do.
const LONGEST_LINE: usize = 16 * 1024;

struct Pipe<R> {
    from: R,
    name: &'static str,
    log_format: LogFormat,
    open: bool,
    buffer: Vec<u8>,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    fn new(from: R, name: &'static str, log_format: LogFormat) -> Self {
        Self { from, name, log_format, open: true, buffer: vec![0; 8192], begun: vec![] }
    }

    /// What is to be written next. Safe to drop: only the read waits.
    async fn next(&mut self) -> Vec<u8> {
        let count = self.from.read(&mut self.buffer).await.unwrap_or(0);
        self.open = count > 0;
        let bytes = &self.buffer[..count];
        if self.log_format == LogFormat::Raw {
            return bytes.to_vec();
        }
        self.begun.extend(bytes);
        let text = std::mem::take(&mut self.begun);
        let mut written = vec![];
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            match line.strip_suffix(b"\n") {
                Some(words) => stamp(&mut written, self.name, "F", words),
                None if !self.open || line.len() >= LONGEST_LINE => stamp(&mut written, self.name, "P", line),
                None => self.begun = line.to_vec(),
            }
        }
        written
    }
}

fn stamp(out: &mut Vec<u8>, stream: &str, tag: &str, words: &[u8]) {
    out.extend(format!("{} {stream} {tag} ", jiff::Timestamp::now()).as_bytes());
    out.extend(words);
    out.push(b'\n');
}

/// Time, whether its end came with it, and words of a line that was kept with them.
pub fn timestamped_line(line: &[u8]) -> Option<(&str, bool, &[u8])> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let stream = parts.next()?;
    let whole = parts.next()? == b"F";
    let known = [&b"stdout"[..], b"stderr"].contains(&stream) && time.ends_with('Z');
    known.then_some((time, whole, parts.next()?))
}

/// The last lines of a log, for an error that has to say what the process said.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

async fn append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_log_is_turned_over_and_one_older_file_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("etcd.log");
        let mut log = RotatingLog::open(&path, 10).await.unwrap();
        for line in ["first\n", "second\n", "third\n"] {
            log.write(line.as_bytes()).await.unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "third\n");
        assert_eq!(std::fs::read_to_string(older(&path)).unwrap(), "second\n");
    }

    #[tokio::test]
    async fn both_pipes_arrive_and_the_tail_is_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.log");
        let log = RotatingLog::open(&path, LIMIT).await.unwrap();
        collect(log, &b"one\n"[..], &b"two\n"[..], LogFormat::Raw).await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("one\n") && text.contains("two\n"));
        assert_eq!(tail(&path, 1).lines().count(), 1);
    }

    #[tokio::test]
    async fn lines_are_kept_with_their_time_and_a_last_one_without_end_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.log");
        let log = RotatingLog::open(&path, LIMIT).await.unwrap();
        collect(log, &b"one\ntwo\nhalf"[..], &b""[..], LogFormat::Timestamped).await;
        let text = std::fs::read(&path).unwrap();
        let lines = text.split_inclusive(|byte| *byte == b'\n').map(|line| timestamped_line(line).unwrap());
        let found: Vec<_> = lines.map(|(_, whole, words)| (whole, words.to_vec())).collect();
        assert_eq!(found, [(true, b"one".to_vec()), (true, b"two".to_vec()), (false, b"half".to_vec())]);
        assert_eq!(timestamped_line(b"just words of a log\n"), None);
    }
}
