//! What an API server asks a kubelet for, over HTTPS: logs, exec, port-forward.
//!
//! Flows: request -> the pod and the container that it names -> words, or a connection that becomes streams. Holds: only clients with a
//! certificate of the plane's authority are served, and only what the API server allows them ([`super::kubelet_authorizer`]).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hangar_pki::Subject;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::ResourceExt as _;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::kubelet_authorizer::Authorizer;
use super::upgrade::{Body, EXEC, PORT_FORWARD, text_response, upgraded};
use super::{KubeletTls, Node, NodeError, container_logs, exec, forward};

const HANDSHAKE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
const MOST_CONNECTIONS: usize = 1_000;

const NO_ATTACH: &str =
    "attach is not supported, containers run as processes with closed input: use `kubectl logs -f` or `kubectl exec`";

/// Listens, and returns the port, if the node was given certificates.
pub(super) async fn start(node: &Arc<Node>, tasks: &mut JoinSet<()>) -> Result<Option<u16>, NodeError> {
    let Some(tls) = &node.options.kubelet else { return Ok(None) };
    acceptor(tls).map_err(NodeError::Kubelet)?;
    let failed = |error: std::io::Error| NodeError::Kubelet(error.to_string());
    let ports = [tls.port, 0].map(|port| SocketAddr::from((node.options.address, port)));
    let listener = TcpListener::bind(&ports[..]).await.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let (node, tls) = (node.clone(), tls.clone());
    let authorizer = Authorizer::new(node.client.clone(), &node.options.name);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    // More than kubectl users open; each may be a session that lasts.
                    Ok(_) if connections.len() >= MOST_CONNECTIONS => {}
                    Ok((stream, _)) => {
                        // Read for each, so that a renewed certificate counts at once; whoever asks for logs does so seldom.
                        match acceptor(&tls) {
                            Ok(acceptor) => {
                                drop(connections.spawn(connection(node.clone(), acceptor, authorizer.clone(), stream)));
                            }
                            Err(error) => tracing::warn!(error, "the kubelet's certificate cannot be used"),
                        }
                    }
                    // Out of files, most likely: others have to close theirs first.
                    Err(_) => tokio::time::sleep(PAUSE).await,
                },
                Some(_) = connections.join_next() => {}
            }
        }
    });
    Ok(Some(port))
}

async fn connection(node: Arc<Node>, acceptor: TlsAcceptor, authorizer: Authorizer, stream: tokio::net::TcpStream) {
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let Some(who) = certificate.and_then(|certificate| Subject::of(certificate).ok()) else { return };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (node, authorizer, who) = (node.clone(), authorizer.clone(), who.clone());
        async move {
            let answer = if authorizer.allows(&who, request.method()).await {
                answer(&node, request).await
            } else {
                let message = format!("{} may not use nodes/proxy of {}", who.common_name, node.options.name);
                text_response(StatusCode::FORBIDDEN, &message)
            };
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    if let Err(error) = server.serve_connection_with_upgrades(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection from the API server failed");
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

async fn answer(node: &Arc<Node>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().trim_matches('/').to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    match path.split('/').collect::<Vec<_>>()[..] {
        ["healthz"] => text_response(StatusCode::OK, "ok"),
        ["containerLogs", namespace, name, container] => {
            container_logs::answer(node, namespace, name, container, &query).await
        }
        ["exec", namespace, name, container] | ["exec", namespace, name, _, container] => {
            exec_in(node, request, namespace, name, container, &query)
        }
        ["portForward", namespace, name] | ["portForward", namespace, name, _] => {
            port_forward(node, request, namespace, name)
        }
        ["attach", ..] => upgraded(request, EXEC, |opened| exec::refuse(opened, NO_ATTACH)),
        _ => text_response(StatusCode::NOT_FOUND, "only logs, exec and port-forward are supported"),
    }
}

fn exec_in(
    node: &Arc<Node>,
    request: Request<Incoming>,
    namespace: &str,
    name: &str,
    container: &str,
    query: &str,
) -> Response<Body> {
    let pod = node.watched.pods.get(namespace, name).and_then(|pod| pod.uid());
    let Some(context) = pod.and_then(|uid| node.exec_contexts.get(&uid, container)) else {
        let message = format!("container {container} of pod {namespace}/{name} is not running on this node");
        return text_response(StatusCode::NOT_FOUND, &message);
    };
    let wanted = exec::ExecRequest::read(query);
    let command = context.command(&node.isolation, &wanted.command);
    upgraded(request, EXEC, move |opened| exec::serve(opened, wanted, command))
}

fn port_forward(node: &Arc<Node>, request: Request<Incoming>, namespace: &str, name: &str) -> Response<Body> {
    let pod = node.watched.pods.get(namespace, name);
    let ip = pod.and_then(|pod| pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok());
    let Some(ip) = ip else {
        return text_response(StatusCode::NOT_FOUND, &format!("pod {namespace}/{name} has no address on this node"));
    };
    upgraded(request, PORT_FORWARD, move |opened| forward::serve(opened, forward::to_address(ip)))
}
