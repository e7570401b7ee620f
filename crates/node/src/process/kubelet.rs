//! What the API server asks a kubelet for when someone says `kubectl logs`: the words of a container, over HTTPS.
//!
//! Holds: only clients with a certificate of the plane's authority are served.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::ResourceExt as _;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{KubeletTls, Node, NodeError};

/// Where kubelets listen; another one is taken if this one is not free.
const PORT: u16 = 10250;
const LOOK_AGAIN: Duration = Duration::from_millis(300);

type Body = BoxBody<Bytes, std::io::Error>;

/// Listens, and returns the port, if the node was given certificates.
pub(super) async fn start(node: &Arc<Node>, tasks: &mut JoinSet<()>) -> Result<Option<u16>, NodeError> {
    let Some(tls) = &node.options.kubelet else { return Ok(None) };
    let acceptor = acceptor(tls).map_err(NodeError::Kubelet)?;
    let listener = match TcpListener::bind((node.options.address, PORT)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((node.options.address, 0)).await,
    };
    let failed = |error: std::io::Error| NodeError::Kubelet(error.to_string());
    let listener = listener.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let node = node.clone();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(node.clone(), acceptor.clone(), stream));
                },
                Some(_) = connections.join_next() => {}
            }
        }
    });
    Ok(Some(port))
}

async fn connection(node: Arc<Node>, acceptor: TlsAcceptor, stream: tokio::net::TcpStream) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = hyper::service::service_fn(move |request| {
        let node = node.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(&node, &request).await) }
    });
    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a log connection broke");
    }
}

fn acceptor(tls: &KubeletTls) -> Result<TlsAcceptor, String> {
    let pem = |path: &Path, error: rustls_pki_types::pem::Error| format!("{}: {error}", path.display());
    let certificate = CertificateDer::from_pem_file(&tls.certificate).map_err(|error| pem(&tls.certificate, error))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| pem(&tls.key, error))?;
    let ca = CertificateDer::from_pem_file(&tls.client_ca).map_err(|error| pem(&tls.client_ca, error))?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca).map_err(|error| error.to_string())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let clients = clients.build().map_err(|error| error.to_string())?;
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?.with_client_cert_verifier(clients);
    let config = config.with_single_cert(vec![certificate], key).map_err(|error| error.to_string())?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn answer(node: &Arc<Node>, request: &Request<Incoming>) -> Response<Body> {
    let parts: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let ["containerLogs", namespace, name, container] = parts[..] else {
        return said(
            StatusCode::NOT_FOUND,
            "pods that run as processes have logs, and no exec, attach or port-forward",
        );
    };
    let Some(pod) = node.watched.pods.get(namespace, name) else {
        return said(StatusCode::NOT_FOUND, &format!("pod {namespace}/{name} does not run on this node"));
    };
    let wish = Wish::read(request.uri().query().unwrap_or_default());
    let directory = node.options.pods_dir.join(pod.uid().unwrap_or_default()).join(container);
    let Some(log) = log_of(&directory, wish.previous) else {
        return said(
            StatusCode::BAD_REQUEST,
            &format!("container {container} of pod {name} has not said anything yet"),
        );
    };
    let text = [
        tokio::fs::read(super::log::older(&log)).await.unwrap_or_default(),
        tokio::fs::read(&log).await.unwrap_or_default(),
    ];
    let seen = text[1].len() as u64;
    let first = Bytes::from(wish.cut(&text.concat()).to_vec());
    if !wish.follow || wish.previous {
        return plain(StatusCode::OK, first);
    }
    let uid = pod.uid();
    let still_there = {
        let (node, namespace, name) = (node.clone(), namespace.to_owned(), name.to_owned());
        move || node.watched.pods.get(&namespace, &name).is_some_and(|pod| pod.uid() == uid)
    };
    let stream = futures::stream::once(async move { first }).chain(growth(log, seen, still_there));
    let body = BodyExt::boxed(StreamBody::new(stream.map(|bytes| Ok(Frame::data(bytes)))));
    Response::new(body)
}

/// What is added to a file, until the pod is gone or the container has another log.
fn growth(
    log: PathBuf,
    seen: u64,
    still_there: impl Fn() -> bool + Send + Sync + 'static,
) -> impl futures::Stream<Item = Bytes> + Send + Sync {
    futures::stream::unfold((log, seen, still_there), |(log, seen, still_there)| async move {
        loop {
            let read = read_from(log.clone(), seen).await;
            if let Some(bytes) = read.filter(|bytes| !bytes.is_empty()) {
                let seen = seen + bytes.len() as u64;
                return Some((bytes, (log, seen, still_there)));
            }
            let newest = log.parent().and_then(|directory| log_of(directory, false));
            if !still_there() || newest.as_ref() != Some(&log) {
                return None;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    })
}

async fn read_from(log: PathBuf, seen: u64) -> Option<Bytes> {
    let mut file = tokio::fs::File::open(log).await.ok()?;
    file.seek(std::io::SeekFrom::Start(seen)).await.ok()?;
    let mut bytes = vec![];
    file.take(1 << 20).read_to_end(&mut bytes).await.ok()?;
    Some(bytes.into())
}

/// The newest log of a container, or the one before.
fn log_of(directory: &Path, previous: bool) -> Option<PathBuf> {
    let entries = directory.read_dir().ok()?.flatten();
    let mut numbers: Vec<u64> =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()).collect();
    numbers.sort_unstable();
    let number = numbers.iter().rev().nth(usize::from(previous))?;
    Some(directory.join(format!("{number}.log")))
}

#[derive(Debug, Default, PartialEq)]
struct Wish {
    follow: bool,
    previous: bool,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
}

impl Wish {
    fn read(query: &str) -> Self {
        let mut wish = Wish::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "follow" => wish.follow = value == "true",
                "previous" => wish.previous = value == "true",
                "tailLines" => wish.tail_lines = value.parse().ok(),
                "limitBytes" => wish.limit_bytes = value.parse().ok(),
                _ => {}
            }
        }
        wish
    }

    fn cut<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let mut text = text;
        if let Some(lines) = self.tail_lines {
            let body = text.strip_suffix(b"\n").unwrap_or(text);
            let mut breaks = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
            text = match lines {
                0 => &[],
                lines => &text[breaks.nth(lines - 1).unwrap_or(0)..],
            };
        }
        &text[..self.limit_bytes.unwrap_or(text.len()).min(text.len())]
    }
}

fn said(status: StatusCode, message: &str) -> Response<Body> {
    plain(status, Bytes::from(message.to_owned()))
}

fn plain(status: StatusCode, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_cut_by_lines_and_bytes() {
        let rows = [
            ("", "a\nb\nc\n"),
            ("tailLines=1", "c\n"),
            ("tailLines=2&follow=true", "b\nc\n"),
            ("tailLines=9", "a\nb\nc\n"),
            ("tailLines=0", ""),
            ("limitBytes=3", "a\nb"),
        ];
        for (query, expected) in rows {
            assert_eq!(Wish::read(query).cut(b"a\nb\nc\n"), expected.as_bytes(), "{query}");
        }
    }
}
