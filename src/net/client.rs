//! The verbs' way to the running gateway: the HTTP API over the control socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

/// The gateway answers within this, or is taken for unreachable.
const TIMEOUT: Duration = Duration::from_secs(10);
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Lets time pass before the gateway is asked again.
#[expect(clippy::disallowed_methods, reason = "a verb's process has nothing else to do meanwhile")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Status and body of the gateway's answer to `GET path`.
///
/// # Errors
/// No gateway answers on the socket.
pub fn get(socket: &Path, path: &str) -> io::Result<(u16, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(TIMEOUT, ask(socket, path))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s"))?
    })
}

async fn ask(socket: &Path, path: &str) -> io::Result<(u16, String)> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) =
        http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::get(path)
        .header(hyper::header::HOST, "localhost")
        .body(Empty::new())
        .map_err(io::Error::other)?;
    let asked = async {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let body =
            Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?;
        let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        // The connection must not end before the answer is whole.
        drop(sender);
        Ok((status, text))
    };
    let (answer, served) = tokio::join!(asked, connection);
    match answer {
        Ok(answer) => Ok(answer),
        Err(error) => Err(served.map_or_else(io::Error::other, |()| error)),
    }
}

/// The body of an answer, read as it comes.
#[derive(Debug)]
pub struct Body {
    runtime: tokio::runtime::Runtime,
    body: hyper::body::Incoming,
    /// The connection lives as long as it.
    _sender: http1::SendRequest<Empty<Bytes>>,
    rest: Bytes,
}

/// Asks `GET path`; answers the status and the body. There is no limit of time once the answer has begun.
///
/// # Errors
/// No gateway answers on the socket.
#[expect(
    clippy::disallowed_methods,
    reason = "a verb's process has this one connection, which its runtime drives"
)]
pub fn read(socket: &Path, path: &str) -> io::Result<(u16, Body)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (response, sender) = runtime.block_on(async {
        let stream = UnixStream::connect(socket).await?;
        let (mut sender, connection) =
            http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        let request = Request::get(path)
            .header(hyper::header::HOST, "localhost")
            .body(Empty::new())
            .map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        Ok::<_, io::Error>((response, sender))
    })?;
    let status = response.status().as_u16();
    Ok((status, Body { runtime, body: response.into_body(), _sender: sender, rest: Bytes::new() }))
}

impl io::Read for Body {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            let Some(frame) = self.runtime.block_on(self.body.frame()) else { return Ok(0) };
            self.rest = frame.map_err(io::Error::other)?.into_data().unwrap_or_default();
        }
        let len = out.len().min(self.rest.len());
        let now = self.rest.split_to(len);
        if let Some(to) = out.get_mut(..len) {
            to.copy_from_slice(&now);
        }
        Ok(len)
    }
}

/// Sends a request without a body and passes the answer on as it comes. Answers the status, and the whole body when
/// that is not 200. There is no limit of time once the answer has begun.
///
/// # Errors
/// No gateway answers on the socket, the answer breaks off, or `piece` fails.
pub fn stream(
    socket: &Path,
    method: &str,
    path: &str,
    piece: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<(u16, String)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = tokio::time::timeout(TIMEOUT, UnixStream::connect(socket))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s"))??;
        let (mut sender, connection) =
            http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(hyper::header::HOST, "localhost")
            .body(Empty::new())
            .map_err(io::Error::other)?;
        let asked = async {
            let mut response = sender.send_request(request).await.map_err(io::Error::other)?;
            let status = response.status().as_u16();
            let mut refusal = Vec::new();
            while let Some(frame) = response.body_mut().frame().await {
                let frame = frame.map_err(io::Error::other)?;
                let Some(data) = frame.data_ref() else { continue };
                if status == 200 {
                    piece(data)?;
                } else if refusal.len() < BODY_BYTES_MAX {
                    refusal.extend_from_slice(data);
                }
            }
            drop(sender);
            Ok((status, String::from_utf8_lossy(&refusal).into_owned()))
        };
        tokio::pin!(connection);
        tokio::pin!(asked);
        let mut ended = false;
        loop {
            tokio::select! {
                answer = &mut asked => return answer,
                served = &mut connection, if !ended => {
                    ended = true;
                    served.map_err(io::Error::other)?;
                }
            }
        }
    })
}
