//! The body of an HTTP answer: whole, or pieces as a query finds them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::series_thread::Piece;

/// See the module's head.
#[derive(Debug)]
pub(super) enum AnswerBody {
    Whole(Option<Bytes>),
    Pieces {
        first: Option<Vec<u8>>,
        rest: mpsc::Receiver<Piece>,
        /// Its place among the queries at once.
        _place: OwnedSemaphorePermit,
    },
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces { first, rest, .. } => {
                if let Some(first) = first.take() {
                    return Poll::Ready(Some(Ok(Frame::data(first.into()))));
                }
                rest.poll_recv(context).map(|piece| {
                    // An answer that breaks off must not look whole.
                    piece.map(|piece| {
                        piece
                            .map(|bytes| Frame::data(bytes.into()))
                            .map_err(|failure| io::Error::other(failure.why))
                    })
                })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Pieces { .. } => SizeHint::default(),
        }
    }
}
