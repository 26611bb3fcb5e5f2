//! The provider as a process of its own: HTTP on the loopback, with connections that end without an answer.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::books::EffectRequest;
use super::desk::{Desk, ProviderAnswer};

/// The longest body of a call, in bytes.
const LONGEST: usize = 64 * 1024;

/// Answers until the process ends.
pub(crate) async fn serve(desk: Arc<Desk>, listener: TcpListener) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let desk = desk.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| respond(desk.clone(), request));
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            if let Err(error) = served {
                // On purpose, or because the engine was killed.
                tracing::debug!(%error, "a connection has ended");
            }
        });
    }
}

/// Why a call has no answer: its connection ends.
type Wrong = Box<dyn std::error::Error + Send + Sync>;

/// A call is processed even if its caller has died: only so can a call arrive too late.
async fn respond(desk: Arc<Desk>, request: Request<Incoming>) -> Result<Response<Body>, Wrong> {
    let looks_up = request.uri().path() == "/look-ups";
    let body = to_bytes(Body::new(request.into_body()), LONGEST).await?;
    let ask: EffectRequest = serde_json::from_slice(&body)?;
    let (status, text) = tokio::spawn(async move {
        if looks_up {
            return Ok((StatusCode::OK, serde_json::to_string(&desk.find(&ask)?)?));
        }
        match desk.effect(&ask).await? {
            ProviderAnswer::Done(number) => Ok((StatusCode::OK, number.to_string())),
            ProviderAnswer::Stale => Ok((StatusCode::CONFLICT, "a later try has been here".to_owned())),
            ProviderAnswer::Error => Ok((StatusCode::INTERNAL_SERVER_ERROR, "something is wrong".to_owned())),
            ProviderAnswer::Silence => Err(Wrong::from("the answer is lost on purpose")),
        }
    })
    .await??;
    Ok(Response::builder().status(status).body(Body::from(text))?)
}
