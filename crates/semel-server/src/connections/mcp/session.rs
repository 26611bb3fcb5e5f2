//! A conversation with an MCP server, which all calls of a connection share.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use reqwest::Url;
use rmcp::model::{CallToolRequestParams, CallToolResponse, RequestMetaObject};
use rmcp::service::{ClientInitializeError, RunningService, ServiceError, serve_client};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};
use rmcp::{RoleClient, model::ContentBlock};
use serde_json::{Map, Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader, ReadBuf};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;

use super::Redactor;
use crate::connections::route::Route;
use crate::models::Offer;

/// Maximum time in which a server has to introduce itself.
const BEGIN: Duration = Duration::from_secs(30);
/// Maximum size of one message of a server, in bytes: twice what can be recorded.
const MESSAGE: usize = 2 * crate::connections::ANSWER;
/// Maximum length of a line that a program writes to its log, in bytes.
const LOG_LINE: u64 = 1_024;
/// How many of the last lines of a program's log an error tells.
const LOG_LINES: usize = 5;
/// Member of `_meta` that has the effect key.
const KEY: &str = "semel/effect-key";

/// How a server is reached.
#[derive(Debug)]
pub(super) enum McpWay {
    /// It is a program that is started here.
    Program(ServerProgram),
    /// It is called over streamable HTTP.
    Http { url: Url, route: Box<Route> },
}

/// A program that the operator has named. It is started without a shell, and sees the named environment only.
pub(super) struct ServerProgram {
    pub(super) command: Vec<String>,
    pub(super) folder: Option<PathBuf>,
    pub(super) environment: HashMap<String, String>,
    pub(super) redactor: Redactor,
}

impl fmt::Debug for ServerProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServerProgram").field(&self.command.first()).finish()
    }
}

/// What a tool has given.
#[derive(Clone, Debug, PartialEq)]
pub struct McpResult {
    /// `{text, output?, content?}`: the texts, the structured result, and what is no text.
    pub value: Json,
    /// The texts of the result, joined.
    pub text: String,
    /// Whether the tool says that it has failed.
    pub is_error: bool,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpFailed {
    /// The server was not reached: nothing took place.
    NotSent(String),
    /// The server has answered with an error: the tool was not carried out.
    Refused(String),
    /// The call was sent, and its outcome is not known.
    Lost(String),
}

impl McpFailed {
    /// What happened, as a sentence.
    pub fn message(&self) -> &str {
        match self {
            Self::NotSent(why) | Self::Refused(why) | Self::Lost(why) => why,
        }
    }
}

/// A conversation with a server.
pub(super) struct Session {
    service: RunningService<RoleClient, ()>,
    /// The program, which ends with the session.
    _child: Option<Child>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

impl Session {
    /// Begins a conversation; the error says why that is not possible.
    pub(super) async fn begin(way: &McpWay) -> Result<Self, String> {
        match way {
            McpWay::Program(program) => Self::start(program).await,
            McpWay::Http { url, route } => {
                let headers =
                    route.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
                let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                    .custom_headers(headers)
                    .max_sse_event_size(MESSAGE);
                let transport = StreamableHttpClientTransport::with_client(route.client.clone(), config);
                let service = introduced(serve_client((), transport)).await?;
                Ok(Self { service, _child: None })
            }
        }
    }

    async fn start(program: &ServerProgram) -> Result<Self, String> {
        let (name, arguments) = program.command.split_first().ok_or("the connection has no program")?;
        let mut command = Command::new(name);
        command.args(arguments).env_clear().envs(&program.environment).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(folder) = &program.folder {
            command.current_dir(folder);
        }
        let mut child =
            command.spawn().map_err(|error| format!("the program {name} cannot be started: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("the program {name} has no input and output"));
        };
        let log =
            child.stderr.take().map(|log| ProgramLog::follow(log, name.clone(), program.redactor.clone()));
        let transport = (LineLimit { inner: output, line: 0 }, input);
        match introduced(serve_client((), transport)).await {
            Ok(service) => Ok(Self { service, _child: Some(child) }),
            Err(why) => {
                let said = match log {
                    Some(log) => log.last().await,
                    None => String::new(),
                };
                Err(format!("the program {name} is no MCP server: {why}{said}"))
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    pub(super) async fn tools(&self) -> Result<Vec<Offer>, McpFailed> {
        let tools = self.service.peer().list_all_tools().await.map_err(|error| failed(&error))?;
        let offer = |tool: rmcp::model::Tool| Offer {
            about: tool.description.as_deref().or(tool.title.as_deref()).unwrap_or_default().to_owned(),
            input: Json::Object(tool.input_schema.as_ref().clone()),
            name: tool.name.into_owned(),
        };
        Ok(tools.into_iter().map(offer).collect())
    }

    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Json>,
        key: &str,
    ) -> Result<McpResult, McpFailed> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let mut meta = RequestMetaObject::new();
        meta.insert(KEY.to_owned(), json!(key));
        params.meta = Some(meta);
        match self.service.peer().call_tool_once(params).await {
            Ok(CallToolResponse::Complete(result)) => Ok(read(&result)),
            Ok(_) => Err(McpFailed::Lost(
                "the tool asks for more input, or goes on as a task; neither is supported".to_owned(),
            )),
            Err(error) => Err(failed(&error)),
        }
    }
}

async fn introduced(
    serving: impl Future<Output = Result<RunningService<RoleClient, ()>, ClientInitializeError>>,
) -> Result<RunningService<RoleClient, ()>, String> {
    match tokio::time::timeout(BEGIN, serving).await {
        Ok(Ok(service)) => Ok(service),
        Ok(Err(error)) => Err(causes(&error)),
        Err(_) => Err(format!("it has not introduced itself within {BEGIN:?}")),
    }
}

/// An error with its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn read(result: &rmcp::model::CallToolResult) -> McpResult {
    let texts: Vec<&str> =
        result.content.iter().filter_map(|block| block.as_text()).map(|text| text.text.as_str()).collect();
    let text = texts.join("\n");
    let others: Vec<&ContentBlock> =
        result.content.iter().filter(|block| block.as_text().is_none()).collect();
    let mut value = Map::new();
    value.insert("text".to_owned(), json!(text));
    if let Some(output) = &result.structured_content {
        value.insert("output".to_owned(), output.clone());
    }
    if !others.is_empty() {
        value.insert("content".to_owned(), json!(others));
    }
    McpResult { value: Json::Object(value), text, is_error: result.is_error.unwrap_or(false) }
}

/// What an error says about the call.
fn failed(error: &ServiceError) -> McpFailed {
    match error {
        ServiceError::McpError(error) => {
            McpFailed::Refused(format!("the server answers {}: {}", error.code.0, error.message))
        }
        ServiceError::TransportSend(sent) if was_not_sent(&*sent.error) => McpFailed::NotSent(causes(error)),
        _ => McpFailed::Lost(causes(error)),
    }
}

/// Whether an error of the transport says that the server has not got the call.
fn was_not_sent(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            match error {
                StreamableHttpError::Client(error) => {
                    return error.is_connect() || error.is_builder() || error.is_dns();
                }
                // The server answers before it looks at the call.
                StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
                    return true;
                }
                StreamableHttpError::HttpStatus(status) => return status.status == 429,
                _ => {}
            }
        }
        next = error.source();
    }
    false
}

/// Bounds the length of a message: one that is longer ends the conversation.
struct LineLimit<R> {
    inner: R,
    /// Bytes since the last end of a line.
    line: usize,
}

impl<R: AsyncRead + Unpin> AsyncRead for LineLimit<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let read = &buffer.filled()[before..];
        self.line = match read.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => read.len() - end - 1,
            None => self.line + read.len(),
        };
        if self.line > MESSAGE {
            return Poll::Ready(Err(io::Error::other(format!("a message has more than {MESSAGE} bytes"))));
        }
        Poll::Ready(Ok(()))
    }
}

/// How long the log of a program that could not be used is read further: what it says comes beside its end.
const LAST_WORDS: Duration = Duration::from_secs(1);

// Nothing is left half done by a panic while it is held.
fn held(lines: &Mutex<Vec<String>>) -> std::sync::MutexGuard<'_, Vec<String>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a program writes to its log.
struct ProgramLog {
    lines: Arc<Mutex<Vec<String>>>,
    /// Ends with the log.
    following: JoinHandle<()>,
}

impl ProgramLog {
    fn follow(log: ChildStderr, program: String, redactor: Redactor) -> Self {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = lines.clone();
        let following = tokio::spawn(async move {
            let mut log = BufReader::new(log);
            let mut line = Vec::new();
            while let Ok(1..) = (&mut log).take(LOG_LINE).read_until(b'\n', &mut line).await {
                let text = redactor.text(String::from_utf8_lossy(&line).trim_end());
                tracing::debug!(%program, line = %text, "an MCP server writes to its log");
                let mut kept = held(&kept);
                if kept.len() == LOG_LINES {
                    kept.remove(0);
                }
                kept.push(text);
                line.clear();
            }
        });
        Self { lines, following }
    }

    /// The last lines of a program that ends, as the end of a sentence. A program that goes on is waited for shortly.
    async fn last(mut self) -> String {
        let ended = tokio::time::timeout(LAST_WORDS, &mut self.following).await;
        if ended.is_err() {
            tracing::debug!("an MCP server that could not be used goes on");
        }
        let lines = held(&self.lines);
        if lines.is_empty() { String::new() } else { format!("; its log ends with: {}", lines.join(" | ")) }
    }
}
