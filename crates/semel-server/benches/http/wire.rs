//! The leanest client that speaks HTTP/1.1: the processors are the server's, and a benchmark is not about its client.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::Anything;

/// One connection, used again and again.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) async fn connect(url: &str) -> Anything<Self> {
        let stream = TcpStream::connect(url.trim_start_matches("http://")).await?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::with_capacity(64 * 1024, stream)))
    }

    /// Sends a body; the status and the body of the answer.
    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Anything<(u16, String)> {
        let request = format!(
            "POST /api/v1{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.ask(&request).await
    }

    /// Asks for a path of the server; the status and the body of the answer.
    pub(crate) async fn get(&mut self, path: &str) -> Anything<(u16, String)> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).await
    }

    async fn ask(&mut self, request: &str) -> Anything<(u16, String)> {
        self.0.get_mut().write_all(request.as_bytes()).await?;
        let (mut line, mut status, mut length) = (String::new(), 0, 0);
        loop {
            line.clear();
            if self.0.read_line(&mut line).await? == 0 {
                return Err("the server has hung up".into());
            }
            match line.trim_end().split_once(' ') {
                None if line.trim_end().is_empty() => break,
                Some(("HTTP/1.1", rest)) => status = rest[..3].parse()?,
                Some(("content-length:", text)) => length = text.parse()?,
                _ => {}
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer).await?;
        Ok((status, String::from_utf8(answer)?))
    }
}
