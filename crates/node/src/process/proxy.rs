//! A TCP listener that forwards to backends in turn.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const CONNECT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Who may be forwarded to, taken in turn.
#[derive(Debug, Default)]
pub(super) struct Backends {
    all: Mutex<Vec<SocketAddr>>,
    /// Networks that may connect; none are named if all may.
    sources: Mutex<Vec<IpNet>>,
    next: AtomicUsize,
}

impl Backends {
    pub fn set(&self, mut backends: Vec<SocketAddr>, sources: Vec<IpNet>) {
        backends.sort_unstable();
        if let Ok(mut all) = self.sources.lock() {
            *all = sources;
        }
        if let Ok(mut all) = self.all.lock() {
            *all = backends;
        }
    }

    fn admits(&self, client: IpAddr) -> bool {
        let sources = self.sources.lock().map(|sources| sources.clone()).unwrap_or_default();
        sources.is_empty() || sources.iter().any(|network| network.contains(&client))
    }

    /// All of them, beginning with the one whose turn it is.
    fn in_turn(&self) -> Vec<SocketAddr> {
        let mut all = self.all.lock().map(|all| all.clone()).unwrap_or_default();
        if !all.is_empty() {
            let first = self.next.fetch_add(1, Ordering::Relaxed) % all.len();
            all.rotate_left(first);
        }
        all
    }
}

/// A listener at work; dropped, it closes together with its connections.
pub(super) struct Proxy {
    pub backends: Arc<Backends>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn listen(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let backends = Arc::new(Backends::default());
        let task = tokio::spawn(serve(listener, backends.clone()));
        Ok(Self { backends, task })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, backends: Arc<Backends>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // A connection from elsewhere is closed without a word, as a packet filter would.
                Ok((_, from)) if !backends.admits(from.ip()) => {}
                Ok((client, _)) => {
                    connections.spawn(forward(client, backends.in_turn()));
                }
                // Out of files, most likely: others have to close theirs first.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Without a backend that answers, the connection is closed, which is what a client of a dead Service sees.
async fn forward(mut client: TcpStream, backends: Vec<SocketAddr>) {
    for backend in backends {
        if let Ok(Ok(mut server)) = tokio::time::timeout(CONNECT, TcpStream::connect(backend)).await {
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn says(word: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(word.as_bytes()).await.unwrap();
            }
        });
        address
    }

    async fn ask(address: SocketAddr) -> String {
        let mut text = String::new();
        let _ = TcpStream::connect(address).await.unwrap().read_to_string(&mut text).await;
        text
    }

    #[tokio::test]
    async fn backends_take_turns_and_dead_ones_are_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let backends = Arc::new(Backends::default());
        tokio::spawn(serve(listener, backends.clone()));
        assert_eq!(ask(address).await, "");
        let (a, b) = (says("a").await, says("b").await);
        backends.set(vec![a, b], vec![]);
        let mut heard = [ask(address).await, ask(address).await];
        heard.sort();
        assert_eq!(heard, ["a", "b"]);
        let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        backends.set(vec![dead, b], vec![]);
        assert_eq!([ask(address).await, ask(address).await], ["b", "b"]);
        backends.set(vec![b], vec!["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(ask(address).await, "", "this machine is not in 10.0.0.0/8");
        backends.set(vec![b], vec!["10.0.0.0/8".parse().unwrap(), "127.0.0.0/8".parse().unwrap()]);
        assert_eq!(ask(address).await, "b");
    }
}
