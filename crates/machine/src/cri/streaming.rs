//! Exec and port-forward: the kubelet gets an address, the API server's connection comes there.
//!
//! Holds: an address is good for one connection, and listens for the kubelet alone, on the guest's loopback.

use std::collections::BTreeMap;
use std::io::Result;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hangar_node::process::runtime::{
    Body, Connect, EXEC, ExecRequest, PORT_FORWARD, serve_exec, serve_forward, text_response, upgraded,
};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::process::Command;

use super::new_id;
use crate::network::NetNamespace;

/// What was asked for and has not come yet.
pub enum Session {
    Exec(ExecRequest, Box<dyn FnOnce() -> std::result::Result<Command, String> + Send>),
    Forward(Connect),
}

#[derive(Clone)]
pub struct Streams {
    address: SocketAddr,
    waiting: Arc<Mutex<BTreeMap<String, Session>>>,
}

impl Streams {
    pub fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let streams = Self { address: listener.local_addr()?, waiting: Arc::default() };
        let serving = streams.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        Ok(streams)
    }

    /// Where the connection is to come.
    pub fn expect(&self, session: Session) -> Result<String> {
        let token = new_id()?;
        let url = format!("http://{}/{token}", self.address);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(token, session);
        Ok(url)
    }

    async fn serve(self, stream: TcpStream) {
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let streams = self.clone();
            async move { Ok::<_, std::convert::Infallible>(streams.answer(request)) }
        });
        let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        // The kubelet sees for itself that the connection broke.
        let _ = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
    }

    fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let token = request.uri().path().trim_matches('/').to_owned();
        match self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&token) {
            Some(Session::Exec(wanted, command)) => {
                upgraded(request, EXEC, move |opened| serve_exec(opened, wanted, command()))
            }
            Some(Session::Forward(connect)) => {
                upgraded(request, PORT_FORWARD, move |opened| serve_forward(opened, connect))
            }
            None => text_response(StatusCode::NOT_FOUND, "nobody asked for this"),
        }
    }
}

/// Connections to a pod are made inside of its network, where it may listen on loopback alone.
pub fn inside(namespace: Option<PathBuf>) -> Connect {
    Arc::new(move |port| {
        let namespace = namespace.clone();
        Box::pin(async move {
            let to = SocketAddr::from(([127, 0, 0, 1], port));
            let Some(path) = namespace else { return TcpStream::connect(to).await };
            let made = tokio::task::spawn_blocking(move || {
                NetNamespace::open(path)?.inside(|| {
                    let flags = rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK;
                    let (family, kind) = (rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM);
                    Ok(rustix::net::socket_with(family, kind, flags, None)?)
                })
            });
            let socket = made.await.map_err(std::io::Error::other)??;
            TcpSocket::from_std_stream(socket.into()).connect(to).await
        })
    })
}
