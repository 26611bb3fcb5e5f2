//! Connections: how many, how long they may say nothing, and how they end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::{Error, Stop};
use crate::config::{Config, Limits, Tls};

/// The head of a request in bytes: room for long tokens and keys, not for more. HTTP/1 reads bodies through the same buffer.
const HEAD: usize = 64 * 1024;
/// Headers of a request.
const HEADERS: usize = 100;
/// Requests at once on one HTTP/2 connection: each can hold a body in memory.
const STREAMS: u32 = 256;
/// An HTTP/2 connection whose other end has gone is noticed after this long.
const PING: Duration = Duration::from_secs(30);
/// What a pause after a failed accept is for: it fails because there are no more files, and some must close first.
const NO_FILES: Duration = Duration::from_millis(100);

/// Connections at once on the port of operations: those of a few collectors and health checks.
const OPERATIONS: u32 = 64;

/// An open port.
pub(super) struct Listener {
    socket: TcpListener,
    doors: Arc<Doors>,
    most: u32,
}

/// What all connections share.
struct Doors {
    tls: Option<TlsAcceptor>,
    builder: Builder<TokioExecutor>,
    header_timeout: Duration,
    stop: Stop,
}

impl Listener {
    pub(super) async fn bind(config: &Config, stop: Stop) -> Result<Self, Error> {
        let most = config.limits.connections;
        Self::bind_to(config.listen, config, config.tls.as_ref(), most, stop).await
    }

    /// The port of operations: connections of its own, and no TLS on loopback, where certificates name no one.
    pub(super) async fn bind_operations(
        address: SocketAddr,
        config: &Config,
        stop: Stop,
    ) -> Result<Self, Error> {
        let tls = config.tls.as_ref().filter(|_| !address.ip().is_loopback());
        Self::bind_to(address, config, tls, OPERATIONS, stop).await
    }

    async fn bind_to(
        address: SocketAddr,
        config: &Config,
        tls: Option<&Tls>,
        most: u32,
        stop: Stop,
    ) -> Result<Self, Error> {
        let tls = tls.map(super::tls::acceptor).transpose()?;
        let socket = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
        let (builder, header_timeout) = (builder(&config.limits), config.limits.header_timeout);
        let doors = Arc::new(Doors { tls, builder, header_timeout, stop });
        Ok(Self { socket, doors, most })
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Serves until the order to stop; then those that are open have `drain` to end.
    pub(super) async fn serve(self, router: Router, drain: Duration) {
        let mut connections = JoinSet::new();
        let room = Arc::new(Semaphore::new(self.most as usize));
        loop {
            tokio::select! {
                biased;
                () = self.doors.stop.ordered() => break,
                Some(_) = connections.join_next() => {}
                (accepted, permit) = self.next(&room) => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(self.doors.clone().connect(stream, router.clone(), permit));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(NO_FILES).await;
                    }
                },
            }
        }
        let ended = self.see_off(&mut connections, &router, &room);
        if tokio::time::timeout(drain, ended).await.is_err() {
            tracing::warn!(open = connections.len(), "connections did not end in time and are closed");
            connections.shutdown().await;
        }
    }

    /// Waits until all connections have ended. New connections are still answered meanwhile: that this server is not ready.
    async fn see_off(&self, connections: &mut JoinSet<()>, router: &Router, room: &Arc<Semaphore>) {
        let mut late = JoinSet::new();
        loop {
            tokio::select! {
                ended = connections.join_next() => if ended.is_none() {
                    return;
                },
                (accepted, permit) = self.next(room) => if let Ok((stream, _)) = accepted {
                    late.spawn(self.doors.clone().connect(stream, router.clone(), permit));
                },
            }
        }
    }

    /// The next connection, as soon as there is room for it.
    async fn next(
        &self,
        room: &Arc<Semaphore>,
    ) -> (io::Result<(TcpStream, SocketAddr)>, OwnedSemaphorePermit) {
        let permit = room.clone().acquire_owned().await.expect("it is never closed");
        (self.socket.accept().await, permit)
    }
}

fn builder(limits: &Limits) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(HEADERS)
        .max_buf_size(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD as u32)
        .keep_alive_interval(PING)
        .keep_alive_timeout(limits.header_timeout);
    builder
}

impl Doors {
    async fn connect(self: Arc<Self>, stream: TcpStream, router: Router, _permit: OwnedSemaphorePermit) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection was closed at once");
            return;
        }
        let Some(tls) = &self.tls else { return self.talk(TokioIo::new(stream), router).await };
        match tokio::time::timeout(self.header_timeout, tls.accept(stream)).await {
            Ok(Ok(stream)) => self.talk(TokioIo::new(stream), router).await,
            Ok(Err(error)) => tracing::debug!(%error, "no handshake"),
            Err(_) => tracing::debug!("a handshake took too long"),
        }
    }

    async fn talk<I: Read + Write + Unpin + Send + 'static>(&self, io: I, router: Router) {
        let asked = Arc::new(AtomicBool::new(false));
        let service = hyper::service::service_fn({
            let (asked, stop) = (asked.clone(), self.stop.clone());
            move |request: Request<Incoming>| {
                asked.store(true, Ordering::Relaxed);
                answer(request, router.clone(), stop.clone())
            }
        });
        let mut connection = pin!(self.builder.serve_connection(io, service));
        // Which version of HTTP it is, hyper finds out before its own timer runs: so a first request is waited for here.
        let mut first = pin!(tokio::time::sleep(self.header_timeout));
        // A connection made after the order gets one request.
        let (mut waits, mut stopping) = (true, self.stop.is_ordered());
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection has ended");
                    }
                    return;
                }
                () = &mut first, if waits => {
                    waits = false;
                    if !asked.load(Ordering::Relaxed) {
                        return tracing::debug!("an idle connection is closed");
                    }
                }
                () = self.stop.ordered(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

async fn answer(request: Request<Incoming>, router: Router, stop: Stop) -> Result<Response, Infallible> {
    let version = request.version();
    let mut response = router.oneshot(request).await?;
    // HTTP/2 says so in its own way.
    if stop.is_ordered() && version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}
