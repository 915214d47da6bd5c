//! Class basic: publishing, consuming and acknowledging messages. Section 1.8. A content (header and body frames) follows
//! publish, return, deliver and get-ok.

use super::*;

methods! {
    /// A method of class basic.
    class 60, Method<'a>;

    /// Bounds what is delivered and not acknowledged; 0 is no bound.
    10 Qos {
        prefetch_size: u32,
        prefetch_count: u16,
        /// For the channel as a whole, not for each new consumer.
        global: bool,
    }

    /// It was done.
    11 QosOk {}

    /// Starts a consumer. An empty tag asks the server for one.
    20 Consume<'a> {
        [u16]
        queue: &'a str,
        consumer_tag: &'a str,
        no_local: bool,
        /// Deliveries count as acknowledged when they are sent.
        no_ack: bool,
        exclusive: bool,
        no_wait: bool,
        arguments: FieldTable<'a>,
    }

    /// The consumer's tag.
    21 ConsumeOk<'a> {
        consumer_tag: &'a str,
    }

    /// Ends a consumer; from the server: its queue is gone.
    30 Cancel<'a> {
        consumer_tag: &'a str,
        no_wait: bool,
    }

    /// It has ended.
    31 CancelOk<'a> {
        consumer_tag: &'a str,
    }

    /// Publishes the content that follows.
    40 Publish<'a> {
        [u16]
        exchange: ShortString<'a>,
        routing_key: ShortString<'a>,
        /// Return it if no queue takes it.
        mandatory: bool,
        /// Return it if no consumer takes it at once.
        immediate: bool,
    }

    /// Returns the content that follows, which could not be routed.
    50 Return<'a> {
        reply_code: u16,
        reply_text: ShortString<'a>,
        exchange: ShortString<'a>,
        routing_key: ShortString<'a>,
    }

    /// Delivers the content that follows to a consumer.
    60 Deliver<'a> {
        consumer_tag: ShortString<'a>,
        delivery_tag: u64,
        redelivered: bool,
        exchange: ShortString<'a>,
        routing_key: ShortString<'a>,
    }

    /// Asks for one message.
    70 Get<'a> {
        [u16]
        queue: &'a str,
        no_ack: bool,
    }

    /// The content that follows is it.
    71 GetOk<'a> {
        delivery_tag: u64,
        redelivered: bool,
        exchange: ShortString<'a>,
        routing_key: ShortString<'a>,
        /// Messages left that are ready.
        message_count: u32,
    }

    /// There is none.
    72 GetEmpty {
        [&str]
    }

    /// The consumer is done with a delivery; from the server: a publish is safe.
    80 Ack {
        /// 0 with `multiple`: all so far.
        delivery_tag: u64,
        /// And all before it.
        multiple: bool,
    }

    /// The consumer refuses a delivery.
    90 Reject {
        delivery_tag: u64,
        requeue: bool,
    }

    /// Redelivers what is not acknowledged, without a reply.
    100 RecoverAsync {
        requeue: bool,
    }

    /// Redelivers what is not acknowledged.
    110 Recover {
        requeue: bool,
    }

    /// It was done.
    111 RecoverOk {}

    /// The consumer refuses deliveries; from the server: a publish was not taken. RabbitMQ's extension.
    120 Nack {
        delivery_tag: u64,
        /// And all before it.
        multiple: bool,
        requeue: bool,
    }
}

impl Method<'_> {
    /// Whether a content header follows on the channel.
    #[must_use]
    pub const fn has_content(&self) -> bool {
        match self {
            Self::Publish(_) | Self::Return(_) | Self::Deliver(_) | Self::GetOk(_) => true,
            Self::Qos(_)
            | Self::QosOk(_)
            | Self::Consume(_)
            | Self::ConsumeOk(_)
            | Self::Cancel(_)
            | Self::CancelOk(_)
            | Self::Get(_)
            | Self::GetEmpty(_)
            | Self::Ack(_)
            | Self::Reject(_)
            | Self::RecoverAsync(_)
            | Self::Recover(_)
            | Self::RecoverOk(_)
            | Self::Nack(_) => false,
        }
    }
}
