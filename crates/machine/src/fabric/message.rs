//! Messages over a Unix socket: a length, that many bytes of JSON, and at most one open file along with them.

use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Read as _, Result, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// User-data has at most 64 KiB; the rest is small.
const LONGEST: usize = 4 << 20;

pub fn send<T: Serialize>(stream: &UnixStream, message: &T, file: Option<&OwnedFd>) -> Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let length = u32::try_from(bytes.len()).map_err(Error::other)?.to_be_bytes();
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let sent = sendmsg(stream, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
    (&*stream).write_all(&length[sent..])?;
    (&*stream).write_all(&bytes)
}

pub fn receive<T: DeserializeOwned>(stream: &UnixStream) -> Result<(T, Option<OwnedFd>)> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut length)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file = files.flatten().next();
    (&*stream).read_exact(&mut length[got.bytes..])?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(Error::other(format!("a message of {length} bytes is too long")));
    }
    let mut bytes = vec![0; length];
    (&*stream).read_exact(&mut bytes)?;
    Ok((serde_json::from_slice(&bytes)?, file))
}

/// Unix sockets have names of at most 107 bytes, and homes may lie deep: the directory is named by its number.
fn short(directory: &Path) -> Result<(std::fs::File, std::path::PathBuf)> {
    use std::os::fd::AsRawFd as _;
    let opened = std::fs::File::open(directory)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd());
    Ok((opened, path.into()))
}

const SOCKET: &str = "fabric.sock";

pub fn listen(directory: &Path) -> Result<UnixListener> {
    let (_opened, path) = short(directory)?;
    if let Err(error) = std::fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    UnixListener::bind(path)
}

pub fn connect(directory: &Path) -> Result<UnixStream> {
    let (_opened, path) = short(directory)?;
    UnixStream::connect(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_carries_an_open_file() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let listener = listen(&deep).unwrap();
        let (read, write) = std::io::pipe().unwrap();
        let client = connect(&deep).unwrap();
        send(&client, &vec![1, 2], Some(&write.into())).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (numbers, file): (Vec<i32>, _) = receive(&server).unwrap();
        assert_eq!(numbers, [1, 2]);
        std::fs::File::from(file.unwrap()).write_all(b"through").unwrap();
        let mut text = String::new();
        (&read).take(7).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        drop(client);
        assert!(receive::<Vec<i32>>(&server).is_err());
    }
}
