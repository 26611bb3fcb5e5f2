//! A line to a database server on which some words are no statement.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::site::Site;

/// The site as it is reached over a line that spoils the last letter of these words.
pub(super) async fn spoilt(site: &Site, words: &'static str) -> Site {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let line = listener.local_addr().expect("it is bound").to_string();
    let (server, url) = (site.host().to_owned(), site.url.replacen(site.host(), &line, 1));
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let server = server.clone();
            tokio::spawn(async move {
                let Ok(far) = TcpStream::connect(server).await else { return };
                let ((asked, mut answers), (mut from, to)) = (near.into_split(), far.into_split());
                tokio::select! {
                    () = carry(asked, to, words) => {}
                    // A client that has gone away needs no more answers.
                    ended = tokio::io::copy(&mut from, &mut answers) => drop(ended),
                }
            });
        }
    });
    Site { url, ..site.clone() }
}

/// Carries what is asked, until one end closes the connection.
async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, words: &str) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if let Some(at) = buffer[..read].windows(words.len()).position(|part| part == words.as_bytes()) {
            buffer[at + words.len() - 1] = b'?';
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
