//! The first words of a TLS client: which server it wants, and the bytes in which it said so.
//!
//! Holds: nothing is answered to a hello that can be read, so the server behind can still do the whole handshake.

use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A client that takes longer has nothing to say.
const PATIENCE: Duration = Duration::from_secs(10);
/// Several times what the largest clients send.
const LARGEST: usize = 64 * 1024;
/// A fatal alert of number 112, in a record of its own.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

pub(super) struct ClientHello {
    /// Small letters; nothing if the client named no server or an address.
    pub name: Option<String>,
    /// What was read so far, to be passed on.
    pub bytes: Vec<u8>,
}

/// Reads until the hello is complete. None: it is no TLS client, or it said nothing in time.
pub(super) async fn read(client: &mut TcpStream) -> Option<ClientHello> {
    tokio::time::timeout(PATIENCE, complete(client)).await.ok()?
}

async fn complete(client: &mut TcpStream) -> Option<ClientHello> {
    let (mut acceptor, mut bytes) = (Acceptor::default(), Vec::with_capacity(2048));
    loop {
        let known = bytes.len();
        if known > LARGEST || client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let mut new = &bytes[known..];
        while !new.is_empty() {
            acceptor.read_tls(&mut new).ok()?;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                return Some(ClientHello { name, bytes });
            }
            Ok(None) => {}
            Err((_, mut alert)) => {
                let mut words = vec![];
                if alert.write_all(&mut words).is_ok() {
                    let _ = client.write_all(&words).await;
                }
                return None;
            }
        }
    }
}

/// What a server says that does not know the name.
pub(super) async fn unrecognized_name(client: &mut TcpStream) {
    let _ = client.write_all(&UNRECOGNIZED_NAME).await;
    let _ = client.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::ClientConnection;
    use tokio::net::TcpListener;

    use super::*;

    fn client(name: &str) -> ClientConnection {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        ClientConnection::new(Arc::new(config), name.to_owned().try_into().unwrap()).unwrap()
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn the_name_is_read_from_a_hello_in_pieces_and_the_bytes_are_kept() {
        for (asked, name) in [("API.example.com", Some("api.example.com")), ("127.0.0.1", None)] {
            let mut hello = vec![];
            client(asked).write_tls(&mut hello).unwrap();
            let (mut near, mut far) = pair().await;
            let sent = hello.clone();
            let sender = tokio::spawn(async move {
                for piece in sent.chunks(100) {
                    near.write_all(piece).await.unwrap();
                }
                near
            });
            let read = read(&mut far).await.unwrap();
            assert_eq!((read.name.as_deref(), read.bytes), (name, hello));
            drop(sender.await.unwrap());
        }
    }

    #[tokio::test]
    async fn what_is_not_tls_is_refused_with_an_alert_and_an_unknown_name_as_well() {
        let (mut near, mut far) = pair().await;
        near.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(read(&mut far).await.is_none());

        let (mut near, mut far) = pair().await;
        unrecognized_name(&mut far).await;
        drop(far);
        let mut heard = vec![];
        near.read_to_end(&mut heard).await.unwrap();
        let mut session = client("api.example.com");
        session.write_tls(&mut vec![]).unwrap();
        session.read_tls(&mut heard.as_slice()).unwrap();
        let refused = session.process_new_packets().unwrap_err();
        assert_eq!(refused, rustls::Error::AlertReceived(rustls::AlertDescription::UnrecognisedName));
    }
}
