//! A TCP listener that forwards: to backends in turn, or to those that the server name of a TLS client leads to.
//!
//! Holds: what is forwarded is never changed, a ClientHello that was read is passed on as it came; rules may be replaced at any time and
//! count for connections that are opened afterwards.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::client_hello;
use super::sni::Table;

const CONNECT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Who may be forwarded to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pool {
    backends: Vec<SocketAddr>,
    /// Whether a client stays with one backend as long as that one is there.
    sticky: bool,
}

impl Pool {
    pub fn new(mut backends: Vec<SocketAddr>, sticky: bool) -> Self {
        backends.sort_unstable();
        backends.dedup();
        Self { backends, sticky }
    }

    /// All of them, beginning with the one whose turn it is, or with the client's own.
    fn in_turn(&self, turn: usize, client: IpAddr) -> Vec<SocketAddr> {
        let mut all = self.backends.clone();
        if self.sticky {
            // The order of one backend among the others does not depend on which others there are.
            all.sort_by_key(|backend| {
                let mut hasher = DefaultHasher::new();
                (client, backend).hash(&mut hasher);
                hasher.finish()
            });
        } else if !all.is_empty() {
            let first = turn % all.len();
            all.rotate_left(first);
        }
        all
    }
}

/// How a backend is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    Any(Pool),
    ByName(Table),
}

/// What a listener does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    pub way: Way,
    /// Networks that may connect; none are named if all may.
    pub sources: Vec<IpNet>,
}

impl Rules {
    fn admits(&self, client: IpAddr) -> bool {
        self.sources.is_empty() || self.sources.iter().any(|network| network.contains(&client))
    }
}

type Current = Arc<Mutex<Arc<Rules>>>;

/// A listener at work; dropped, it closes together with its connections.
pub(super) struct Proxy {
    rules: Current,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn listen(address: SocketAddr, rules: Rules) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let rules: Current = Arc::new(Mutex::new(Arc::new(rules)));
        let task = tokio::spawn(serve(listener, rules.clone()));
        Ok(Self { rules, task })
    }

    pub fn set(&self, rules: Rules) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, rules: Current) {
    let mut connections = JoinSet::new();
    let mut turn = 0_usize;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let rules = rules.lock().unwrap_or_else(PoisonError::into_inner).clone();
                match accepted {
                    // A connection from elsewhere is closed without a word, as a packet filter would.
                    Ok((_, from)) if !rules.admits(from.ip()) => {}
                    Ok((client, from)) => {
                        connections.spawn(forward(client, from.ip(), rules, turn));
                        turn = turn.wrapping_add(1);
                    }
                    // Out of files, most likely: others have to close theirs first.
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Without a backend that answers, the connection is closed, which is what a client of a dead Service sees.
async fn forward(mut client: TcpStream, from: IpAddr, rules: Arc<Rules>, turn: usize) {
    let (backends, first) = match &rules.way {
        Way::Any(pool) => (pool.in_turn(turn, from), vec![]),
        Way::ByName(table) => {
            let Some(hello) = client_hello::read(&mut client).await else { return };
            match table.find(hello.name.as_deref()) {
                Some(split) => (split.pick(turn).map(|pool| pool.in_turn(turn, from)).unwrap_or_default(), hello.bytes),
                None => return client_hello::unrecognized_name(&mut client).await,
            }
        }
    };
    for backend in backends {
        if let Ok(Ok(mut server)) = tokio::time::timeout(CONNECT, TcpStream::connect(backend)).await {
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            if server.write_all(&first).await.is_ok() {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

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

    fn rules(backends: Vec<SocketAddr>, sources: &[&str]) -> Rules {
        let sources = sources.iter().map(|source| source.parse().unwrap()).collect();
        Rules { way: Way::Any(Pool::new(backends, false)), sources }
    }

    #[tokio::test]
    async fn backends_take_turns_and_dead_ones_are_passed_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let current: Current = Arc::new(Mutex::new(Arc::new(rules(vec![], &[]))));
        let task = tokio::spawn(serve(listener, current.clone()));
        let proxy = Proxy { rules: current, task };
        assert_eq!(ask(address).await, "");
        let (a, b) = (says("a").await, says("b").await);
        proxy.set(rules(vec![a, b], &[]));
        let mut heard = [ask(address).await, ask(address).await];
        heard.sort();
        assert_eq!(heard, ["a", "b"]);
        // Taken, so that nobody else gets it, and not listened on.
        let dead = tokio::net::TcpSocket::new_v4().unwrap();
        dead.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        proxy.set(rules(vec![dead.local_addr().unwrap(), b], &[]));
        assert_eq!([ask(address).await, ask(address).await], ["b", "b"]);
        proxy.set(rules(vec![b], &["10.0.0.0/8"]));
        assert_eq!(ask(address).await, "", "this machine is not in 10.0.0.0/8");
        proxy.set(rules(vec![b], &["10.0.0.0/8", "127.0.0.0/8"]));
        assert_eq!(ask(address).await, "b");
    }

    #[test]
    fn a_client_stays_with_its_backend_while_others_come_and_go() {
        let address = |n: u16| SocketAddr::from(([127, 0, 0, 1], n));
        let client: IpAddr = "127.0.0.7".parse().unwrap();
        let own = Pool::new((1..=4).map(address).collect(), true).in_turn(0, client)[0];
        for turn in 0..4 {
            let other = (1..=4).map(address).find(|other| *other != own).unwrap();
            let fewer = Pool::new((1..=4).map(address).filter(|one| *one != other).collect(), true);
            assert_eq!(fewer.in_turn(turn, client)[0], own);
        }
        let without = Pool::new((1..=4).map(address).filter(|one| *one != own).collect(), true);
        assert_ne!(without.in_turn(0, client)[0], own);
    }
}
