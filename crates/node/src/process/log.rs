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

/// Copies two pipes into one log until both end. A log that cannot be written must not block its process, so reading goes on.
pub async fn collect(mut log: RotatingLog, out: impl AsyncRead + Unpin, err: impl AsyncRead + Unpin) {
    let (mut out, mut err) = (out, err);
    let (mut out_buffer, mut err_buffer) = (vec![0; 8192], vec![0; 8192]);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        let bytes = tokio::select! {
            read = out.read(&mut out_buffer), if out_open => match read {
                Ok(n) if n > 0 => &out_buffer[..n],
                _ => { out_open = false; continue }
            },
            read = err.read(&mut err_buffer), if err_open => match read {
                Ok(n) if n > 0 => &err_buffer[..n],
                _ => { err_open = false; continue }
            },
        };
        if let Err(error) = log.write(bytes).await {
            tracing::warn!(path = %log.path.display(), %error, "could not write a log");
        }
    }
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
        collect(log, &b"one\n"[..], &b"two\n"[..]).await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("one\n") && text.contains("two\n"));
        assert_eq!(tail(&path, 1).lines().count(), 1);
    }
}
