//! `kubectl port-forward`: connections to a pod's address through streams.
//!
//! Flows: a pair of streams for each connection (`data` and `error`, by request) -> a TCP connection to the pod -> bytes both ways. Holds: what is
//! wrong with one connection is said on its stream `error` and ends that one alone.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::exec::beside;
use super::spdy::Stream;

/// Connects to a port of the pod.
pub type Connect = Arc<dyn Fn(u16) -> BoxFuture<'static, std::io::Result<TcpStream>> + Send + Sync>;

/// For a pod that is reached by its address.
pub(super) fn to_address(ip: Ipv4Addr) -> Connect {
    Arc::new(move |port| Box::pin(TcpStream::connect((ip, port))))
}

pub async fn serve(mut opened: mpsc::Receiver<Stream>, connect: Connect) {
    let mut halves: HashMap<String, Stream> = HashMap::new();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            stream = opened.recv() => {
                let Some(stream) = stream else { return };
                let request = stream.header("requestid").to_owned();
                match halves.remove(&request) {
                    None => drop(halves.insert(request, stream)),
                    Some(other) if other.header("streamtype") == "error" => {
                        connections.spawn(connection(connect.clone(), stream, other));
                    }
                    Some(other) => drop(connections.spawn(connection(connect.clone(), other, stream))),
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(connect: Connect, data: Stream, error: Stream) {
    if let Err(message) = forward(&connect, data).await {
        let _ = error.writer.write(message.as_bytes()).await;
    }
    error.writer.close().await;
}

async fn forward(connect: &Connect, mut data: Stream) -> Result<(), String> {
    let port = data.header("port").parse::<u16>().map_err(|_| "the stream has no port header".to_owned())?;
    let refused = |error: std::io::Error| format!("could not connect to port {port} of the pod: {error}");
    let connected = connect(port).await.map_err(refused);
    let mut stream = match connected {
        Ok(stream) => stream,
        Err(message) => {
            data.writer.close().await;
            return Err(message);
        }
    };
    let (mut from, mut to) = stream.split();
    let there = async {
        while let Some(bytes) = data.reader.recv().await {
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    let back = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count) = from.read(&mut buffer).await {
            if count == 0 || data.writer.write(&buffer[..count]).await.is_err() {
                break;
            }
        }
        data.writer.close().await;
    };
    // What the pod has to say ends the connection; the client may stop talking long before.
    beside(back, there).await;
    Ok(())
}
