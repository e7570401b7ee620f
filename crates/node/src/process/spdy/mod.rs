//! SPDY/3.1 from the side of a server: the protocol by which an API server asks a kubelet for exec and port-forward.
//!
//! Flows: frames in -> streams that the client opened; bytes written to a stream -> frames out. Holds: a stream that nobody reads any more
//! does not hold up the others; when the connection ends, every stream ends. There is no flow control: neither side of Kubernetes has it.

mod frame;
mod headers;

use std::collections::HashMap;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use frame::Frame;
pub use headers::Headers;

/// Pieces that may wait for a reader; then the connection waits.
const WAITING: usize = 64;
const PIECE: usize = 16 * 1024;

/// A stream that the client opened.
pub struct Stream {
    pub headers: Headers,
    pub reader: mpsc::Receiver<Bytes>,
    pub writer: Writer,
}

impl Stream {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// Our half of a stream.
#[derive(Clone)]
pub struct Writer {
    id: u32,
    frames: mpsc::Sender<Vec<u8>>,
}

impl Writer {
    /// Fails only when the connection is gone, and then there is nobody to tell.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), ()> {
        for piece in bytes.chunks(PIECE) {
            self.frames.send(frame::data(self.id, piece, 0)).await.map_err(drop)?;
        }
        Ok(())
    }

    pub async fn close(&self) {
        let _ = self.frames.send(frame::data(self.id, &[], frame::FIN)).await;
    }
}

/// Serves a connection until it ends; streams arrive at the receiver.
pub fn serve<Io>(io: Io, tasks: &mut JoinSet<()>) -> mpsc::Receiver<Stream>
where
    Io: AsyncRead + AsyncWrite + Send + 'static,
{
    let (from, to) = tokio::io::split(io);
    let (frames, outgoing) = mpsc::channel(WAITING);
    let (streams, opened) = mpsc::channel(WAITING);
    tasks.spawn(write_all(to, outgoing));
    tasks.spawn(async move {
        if let Err(error) = read_all(from, frames, streams).await {
            tracing::debug!(error, "a stream connection failed");
        }
    });
    opened
}

async fn write_all(mut to: impl AsyncWrite + Unpin, mut outgoing: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = outgoing.recv().await {
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

async fn read_all(
    mut from: impl AsyncRead + Unpin,
    frames: mpsc::Sender<Vec<u8>>,
    streams: mpsc::Sender<Stream>,
) -> Result<(), String> {
    let (mut inflate, mut deflate) = (headers::Inflate::default(), headers::Deflate::new()?);
    let mut open: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    while let Some(next) = frame::read(&mut from).await.map_err(|error| error.to_string())? {
        match next {
            Frame::Data { stream, flags, bytes } => {
                if let Some(reader) = open.get(&stream).filter(|_| !bytes.is_empty()) {
                    let _ = reader.send(bytes.into()).await;
                }
                if flags & frame::FIN != 0 {
                    open.remove(&stream);
                }
            }
            Frame::Control { kind: frame::SYN_STREAM, flags, body } => {
                let (id, block) = frame::opened(&body).ok_or("a stream was opened without a number")?;
                let headers = inflate.read(block)?;
                let (arrive, reader) = mpsc::channel(WAITING);
                if flags & frame::FIN == 0 {
                    open.insert(id, arrive);
                }
                let answer = frame::reply(id, &deflate.write(&Headers::new())?);
                let gone = |_| "nobody is left".to_owned();
                frames.send(answer).await.map_err(|_| "the client is gone".to_owned())?;
                let writer = Writer { id, frames: frames.clone() };
                streams.send(Stream { headers, reader, writer }).await.map_err(gone)?;
            }
            Frame::Control { kind: frame::RST_STREAM, body, .. } => {
                frame::stream_of(&body).and_then(|id| open.remove(&id));
            }
            Frame::Control { kind: frame::PING, body, .. } => {
                let _ = frames.send(frame::control(frame::PING, &body)).await;
            }
            Frame::Control { kind: frame::GOAWAY, .. } => return Ok(()),
            // Settings and windows: there is nothing to set.
            Frame::Control { .. } => {}
        }
    }
    Ok(())
}
