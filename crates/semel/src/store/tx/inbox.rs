//! Inboxes: messages that have arrived and are not consumed.

use std::future::Future;

use crate::clock::Time;
use crate::error::Result;
use crate::rules::deliver::Unconsumed;
use crate::rules::entry::Message;

/// A message in an inbox, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InboxRow {
    pub(crate) num: i64,
    pub(crate) arrival: u64,
    pub(crate) at: Time,
    pub(crate) text: String,
}

/// A message as stored.
pub(crate) fn message_text(message: &Message) -> String {
    serde_json::to_string(message).expect("messages are plain data with text keys")
}

/// Rows of inboxes in one transaction.
pub(crate) trait InboxRows: Send {
    /// Puts a message into the inbox of a run that has not ended, and makes it due if it waits. Gives the message's
    /// number; none if the run has ended.
    fn arrive(&mut self, num: i64, message: &Message) -> impl Future<Output = Result<Option<u64>>> + Send;
    /// What is in some runs' inboxes from a number on, in order of arrival: nothing after the message that exceeds
    /// `bytes`.
    fn inboxes(
        &mut self,
        nums: &[i64],
        from: u64,
        bytes: usize,
    ) -> impl Future<Output = Result<Vec<InboxRow>>> + Send;
    /// How much is in a run's inbox. Its values are not read.
    fn unconsumed(&mut self, num: i64) -> impl Future<Output = Result<Unconsumed>> + Send;
    /// Which of these messages are in a run's inbox.
    fn arrived(&mut self, num: i64, arrivals: &[u64]) -> impl Future<Output = Result<Vec<u64>>> + Send;
    /// Takes a message out; false if it is not there.
    fn consume(&mut self, num: i64, arrival: u64) -> impl Future<Output = Result<bool>> + Send;
    /// Takes messages out. A backend may do it in one go.
    fn consume_all(&mut self, num: i64, arrivals: &[u64]) -> impl Future<Output = Result<()>> + Send {
        async move {
            for arrival in arrivals {
                self.consume(num, *arrival).await?;
            }
            Ok(())
        }
    }
}
