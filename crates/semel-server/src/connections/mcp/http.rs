//! The client of streamable HTTP, which notices that a server does not know a session any more.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use reqwest::Client;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::session::MESSAGE;

/// Whether an error is about the session, and not about the call.
pub(super) fn is_about_session(error: &ErrorData) -> bool {
    let text = error.message.to_ascii_lowercase();
    ["session", "not initialized"].iter().any(|word| text.contains(word))
}

/// A client for which an error that belongs to no call says whether the call was read.
///
/// The protocol wants the status 404 for a session that the server does not know, and rmcp then begins another one and sends the call
/// again. Servers answer 400, with an error of JSON-RPC. If that has the id of the call, [`super::session`] looks into it. If it has
/// none, the server has not read the call; rmcp would wait for its answer for ever.
#[derive(Clone, Debug)]
pub(super) struct SessionClient(pub(super) Client);

type SessionAnswer<T> = Result<T, StreamableHttpError<reqwest::Error>>;
type Headers = HashMap<HeaderName, HeaderValue>;

impl StreamableHttpClient for SessionClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
    ) -> SessionAnswer<StreamableHttpPostResponse> {
        self.post_message_with_max_sse_event_size(uri, message, session, token, headers, MESSAGE).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> SessionAnswer<StreamableHttpPostResponse> {
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        let in_session = session.is_some();
        let posted =
            self.0.post_message_with_max_sse_event_size(uri, message, session, token, headers, most).await?;
        match posted {
            StreamableHttpPostResponse::Json(JsonRpcMessage::Error(refused), _)
                if is_request && refused.id.is_none() =>
            {
                if in_session && is_about_session(&refused.error) {
                    return Err(StreamableHttpError::SessionExpired);
                }
                let why = format!("{}: {}", refused.error.code.0, refused.error.message);
                Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(why)))
            }
            answer => Ok(answer),
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: Headers,
    ) -> SessionAnswer<()> {
        self.0.delete_session(uri, session, token, headers).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
    ) -> SessionAnswer<BoxStream<'static, Result<Sse, SseError>>> {
        self.get_stream_with_max_sse_event_size(uri, session, last, token, headers, MESSAGE).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: Headers,
        most: usize,
    ) -> SessionAnswer<BoxStream<'static, Result<Sse, SseError>>> {
        self.0.get_stream_with_max_sse_event_size(uri, session, last, token, headers, most).await
    }
}
