//! Frames of SPDY/3.1, as many of them as clients of a kubelet use.

use tokio::io::{AsyncRead, AsyncReadExt as _};

const VERSION: u16 = 3;
/// Clients send pieces of a few kilobytes.
const LARGEST: usize = 4 << 20;

pub const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
pub const RST_STREAM: u16 = 3;
pub const PING: u16 = 6;
pub const GOAWAY: u16 = 7;
/// The last piece of a stream.
pub const FIN: u8 = 1;

pub enum Frame {
    Data { stream: u32, flags: u8, bytes: Vec<u8> },
    Control { kind: u16, flags: u8, body: Vec<u8> },
}

/// The next frame, or nothing at the end of the connection.
pub async fn read(io: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Frame>> {
    let mut head = [0; 8];
    match io.read_exact(&mut head).await {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let flags = head[4];
    let size = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
    if size > LARGEST {
        return Err(std::io::Error::other("a frame is too large"));
    }
    let mut body = vec![0; size];
    io.read_exact(&mut body).await?;
    let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    if first >> 31 == 0 {
        return Ok(Some(Frame::Data { stream: first, flags, bytes: body }));
    }
    if (first >> 16) & 0x7fff != u32::from(VERSION) {
        return Err(std::io::Error::other("this is not version 3 of the protocol"));
    }
    Ok(Some(Frame::Control { kind: (first & 0xffff) as u16, flags, body }))
}

/// Number and header block of a SYN_STREAM.
pub fn opened(body: &[u8]) -> Option<(u32, &[u8])> {
    let (id, rest) = body.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*id) & 0x7fff_ffff, rest.get(6..)?))
}

pub fn stream_of(body: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*body.first_chunk::<4>()?) & 0x7fff_ffff)
}

pub fn data(stream: u32, bytes: &[u8], flags: u8) -> Vec<u8> {
    assemble(stream, flags, bytes)
}

pub fn reply(stream: u32, block: &[u8]) -> Vec<u8> {
    control(SYN_REPLY, &[&stream.to_be_bytes()[..], block].concat())
}

pub fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    assemble(1 << 31 | u32::from(VERSION) << 16 | u32::from(kind), 0, body)
}

fn assemble(first: u32, flags: u8, body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    [&first.to_be_bytes()[..], &[flags], &size[1..], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_as_they_were_written() {
        let bytes = [data(7, b"hello", FIN), control(PING, &[0, 0, 0, 1])].concat();
        let mut io = &bytes[..];
        let Some(Frame::Data { stream: 7, flags: FIN, bytes }) = read(&mut io).await.unwrap() else { panic!() };
        assert_eq!(bytes, b"hello");
        let Some(Frame::Control { kind: PING, body, .. }) = read(&mut io).await.unwrap() else { panic!() };
        assert_eq!(body, [0, 0, 0, 1]);
        assert!(read(&mut io).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_is_no_frame_is_an_error() {
        let (wrong, huge, cut) =
            ([0x80, 2, 0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0xff, 0xff, 0xff], [0, 0, 0, 1, 0, 0, 0, 9]);
        for bytes in [wrong, huge, cut] {
            assert!(read(&mut &bytes[..]).await.is_err());
        }
    }
}
