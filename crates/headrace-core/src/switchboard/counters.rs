//! What the switchboard counts. A name is a Prometheus name without prefix, label included.

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $($(#[$doc])* $variant,)* }

        /// By [`Counter`].
        const NAMES: &[&str] = &[$($name,)*];
    };
}

counters! {
    /// Bytes read from clients.
    BytesReceived = "mqtt_bytes_received_total",
    /// Bytes handed to the sockets of clients.
    BytesSent = "mqtt_bytes_sent_total",
    /// Packets of any kind read from clients.
    PacketsReceived = "mqtt_packets_received_total",
    /// Packets of any kind written for clients.
    PacketsSent = "mqtt_packets_sent_total",
    /// Payload bytes of publishes taken.
    PayloadReceived = "mqtt_payload_bytes_received_total",
    /// Payload bytes of publishes sent to subscribers.
    PayloadSent = "mqtt_payload_bytes_sent_total",
    /// Connections since the start.
    Connections = "mqtt_connections_opened_total",
    /// CONNECT packets of clients.
    Connects = "mqtt_connects_total",
    /// Publishes taken from clients, wills and other doors.
    Received = "mqtt_messages_received_total",
    /// Publishes sent to subscribers.
    Delivered = "mqtt_messages_delivered_total",
    /// Publishes that so many get that they are handed out in turns.
    Crowds = "mqtt_crowd_messages_total",
    /// Records appended to streams.
    Stored = "mqtt_messages_stored_total",
    /// Publishes that a stream had stored before.
    Repeats = "mqtt_repeats_total",
    /// Publishes at `QoS` 2 that had come before and were not released; taken once.
    ReceivedAgain = "mqtt_messages_received_again_total",
    /// Publishes sent again, with DUP, to clients that came back.
    SentAgain = "mqtt_messages_sent_again_total",
    /// Sessions that a client came back to.
    Resumed = "mqtt_sessions_resumed_total",
    /// Sessions whose expiry interval passed while the client was away.
    Expired = "mqtt_sessions_expired_total",
    /// Records of what is retained, clears among them, given to the disk.
    RetainedStored = "mqtt_retained_records_total",
    /// Retained messages whose expiry passed.
    RetainedExpired = "mqtt_retained_expired_total",
    /// Wills published.
    Wills = "mqtt_wills_total",
    /// Sessions taken over by a newer connection.
    Takeovers = "mqtt_takeovers_total",
    /// Times that publishers were read no further because a subscriber was full.
    Stalls = "mqtt_stalls_total",
    /// Times that a client was read no further because it had published as much as it may.
    RatePauses = "mqtt_rate_pauses_total",
    /// Acknowledgements of clients for nothing that was in flight.
    UnknownAcks = "mqtt_unknown_acks_total",
    /// Messages that a member of a group had not finished when it went, given to others.
    Returned = "mqtt_shared_returned_total",
    /// Records sent to subscribers of streams.
    StreamRecords = "mqtt_stream_records_total",
    /// Pieces of logs read for subscribers of streams.
    StreamReads = "mqtt_stream_reads_total",
    /// Bytes of those.
    StreamBytes = "mqtt_stream_read_bytes_total",
    /// Of those, what the disk did not give; tried again.
    StreamReadsFailed = "mqtt_stream_reads_failed_total",
    /// For one subscriber of a stream: retention had let it go before it was read.
    DroppedTrimmed = "mqtt_messages_dropped_total{reason=\"trimmed\"}",
    /// For one subscriber of a stream: the log is damaged there.
    DroppedDamaged = "mqtt_messages_dropped_total{reason=\"damaged\"}",
    /// For a group: no member could take it, and it could not wait.
    DroppedGroupAway = "mqtt_messages_dropped_total{reason=\"group_away\"}",
    /// For a group: the bound of its queue was reached.
    DroppedGroupQueue = "mqtt_messages_dropped_total{reason=\"group_queue_full\"}",
    /// For one subscriber: at `QoS` 0, and it was away.
    DroppedAway = "mqtt_messages_dropped_total{reason=\"away\"}",
    /// For one subscriber: its session ended before it came for them.
    DroppedEnded = "mqtt_messages_dropped_total{reason=\"session_ended\"}",
    /// For one subscriber: the oldest in its queue, to make room for a newer one.
    DroppedOldest = "mqtt_messages_dropped_total{reason=\"queue_full_oldest\"}",
    /// For one subscriber: all that waits for clients has reached its bound.
    DroppedMemory = "mqtt_messages_dropped_total{reason=\"memory_full\"}",
    /// For one subscriber: the bound of its queue was reached.
    DroppedQueue = "mqtt_messages_dropped_total{reason=\"queue_full\"}",
    /// For one subscriber: its outbound bound was reached.
    DroppedFull = "mqtt_messages_dropped_total{reason=\"outbound_full\"}",
    /// No stream stores it and nobody has subscribed: the topic may be misspelt.
    DroppedUnmatched = "mqtt_messages_dropped_total{reason=\"no_match\"}",
    /// For one subscriber: longer than its Maximum Packet Size.
    DroppedTooLarge = "mqtt_messages_dropped_total{reason=\"packet_too_large\"}",
    /// Larger than a stream that would store it takes (`max.message.bytes`).
    DroppedMessageTooLarge = "mqtt_messages_dropped_total{reason=\"message_too_large\"}",
    /// As many messages are retained as may be. At `QoS` 0 it was delivered all the same.
    DroppedRetained = "mqtt_messages_dropped_total{reason=\"retained_full\"}",
    /// For one subscriber: its expiry passed while it waited.
    DroppedExpired = "mqtt_messages_dropped_total{reason=\"expired\"}",
    /// At `QoS` 2: all clients together hold as many packet ids as they may.
    DroppedUnreleased = "mqtt_messages_dropped_total{reason=\"unreleased_full\"}",
    /// Below `$queue/`, and there is no such queue.
    DroppedNoQueue = "mqtt_messages_dropped_total{reason=\"unknown_queue\"}",
    /// Below `$queue/`, and what it says of when it is to be delivered is no time.
    DroppedQueueTime = "mqtt_messages_dropped_total{reason=\"queue_time\"}",
    /// Below `$queue/`, and its priority is none, or its queue has no priorities.
    DroppedQueuePriority = "mqtt_messages_dropped_total{reason=\"queue_priority\"}",
    /// A queue owes as much as it may, and refuses more.
    DroppedQueueFull = "mqtt_messages_dropped_total{reason=\"queue_refused\"}",
    /// For one group of a queue that owes more than it may, and drops the oldest.
    DroppedDepth = "mqtt_messages_dropped_total{reason=\"queue_depth\"}",
    /// For one group of a queue that keeps no dead letters: it was rejected, too old, or failed too
    /// often.
    DroppedDead = "mqtt_messages_dropped_total{reason=\"dead\"}",
    /// Publishes that settle a delivery which could no longer be settled, or was none.
    QueueLate = "mqtt_queue_settlements_refused_total",
    /// A topic of the broker's own.
    DroppedTopic = "mqtt_messages_dropped_total{reason=\"reserved_topic\"}",
    /// Its client may not publish there.
    DroppedDenied = "mqtt_messages_dropped_total{reason=\"not_authorized\"}",
    /// A newer epoch of the source has published.
    DroppedStale = "mqtt_messages_dropped_total{reason=\"stale_epoch\"}",
    /// A stream could not store it.
    DroppedNotStored = "mqtt_messages_dropped_total{reason=\"not_stored\"}",
    /// A stream has no room for it now.
    DroppedNoRoom = "mqtt_messages_dropped_total{reason=\"disk_full\"}",
    /// Answers that a client's Maximum Packet Size forbids.
    AnswersTooLarge = "mqtt_answers_dropped_total{reason=\"packet_too_large\"}",
    /// CONNECT: there are as many sessions as there may be.
    RefusedSession = "mqtt_packets_refused_total{reason=\"sessions_full\"}",
    /// AUTH on an open connection: policy said no.
    RefusedAuth = "mqtt_packets_refused_total{reason=\"authentication\"}",
    /// CONNECT: policy said no.
    RefusedConnect = "mqtt_packets_refused_total{reason=\"connect\"}",
    /// A packet that is not what its type says.
    RefusedMalformed = "mqtt_packets_refused_total{reason=\"malformed\"}",
    /// A packet that the state of the connection forbids.
    RefusedProtocol = "mqtt_packets_refused_total{reason=\"protocol_error\"}",
    /// The beginning of a packet, the oldest where beginnings hold as much as they may; a CONNECT
    /// with a will, and all that waits is as much as may.
    RefusedMemory = "mqtt_packets_refused_total{reason=\"memory_full\"}",
    /// A packet longer than the bound.
    RefusedTooLarge = "mqtt_packets_refused_total{reason=\"packet_too_large\"}",
    /// PUBLISH: no topic name.
    RefusedTopic = "mqtt_packets_refused_total{reason=\"topic_name_invalid\"}",
    /// PUBLISH: the client may not publish there, and `access.denied_publish` ends its connection.
    RefusedDenied = "mqtt_packets_refused_total{reason=\"not_authorized\"}",
    /// PUBLISH: topic alias.
    RefusedAlias = "mqtt_packets_refused_total{reason=\"topic_alias_invalid\"}",
    /// PUBLISH: payload format 1, but no UTF-8.
    RefusedFormat = "mqtt_packets_refused_total{reason=\"payload_format_invalid\"}",
    /// PUBLISH: more unacknowledged than the Receive Maximum.
    RefusedWindow = "mqtt_packets_refused_total{reason=\"receive_maximum_exceeded\"}",
    /// One filter of a SUBSCRIBE: it is none.
    FilterInvalid = "mqtt_subscriptions_refused_total{reason=\"topic_filter_invalid\"}",
    /// One filter of a SUBSCRIBE: the client may not see all that it matches.
    FilterDenied = "mqtt_subscriptions_refused_total{reason=\"not_authorized\"}",
    /// One filter of a SUBSCRIBE: the session holds as many as it may.
    FilterQuota = "mqtt_subscriptions_refused_total{reason=\"quota_exceeded\"}",
    /// One filter of a SUBSCRIBE: all sessions together hold as many as they may.
    FilterNode = "mqtt_subscriptions_refused_total{reason=\"subscriptions_full\"}",
    /// One filter of a SUBSCRIBE: it names no stream that there is.
    FilterUnknownStream = "mqtt_subscriptions_refused_total{reason=\"unknown_stream\"}",
    /// One filter of a SUBSCRIBE: a stream cannot be read so, or from there.
    FilterStreamOptions = "mqtt_subscriptions_refused_total{reason=\"stream_options\"}",
    /// One filter of a SUBSCRIBE: a stream is not shared.
    FilterSharedStream = "mqtt_subscriptions_refused_total{reason=\"shared_stream\"}",
    /// One filter of a SUBSCRIBE: it names no queue that there is.
    FilterUnknownQueue = "mqtt_subscriptions_refused_total{reason=\"unknown_queue\"}",
    /// One filter of a SUBSCRIBE: a queue cannot be consumed so.
    FilterQueueOptions = "mqtt_subscriptions_refused_total{reason=\"queue_options\"}",
    /// One filter of a SUBSCRIBE: the log of the stream could not be asked.
    FilterUnavailable = "mqtt_subscriptions_refused_total{reason=\"unavailable\"}",
}

/// All counters, from 0.
#[derive(Debug)]
pub struct Counters([u64; NAMES.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; NAMES.len()])
    }
}

impl Counter {
    /// Why it was, where its name says so.
    pub fn reason(self) -> &'static str {
        let name = NAMES[self as usize];
        let label = name
            .split_once("reason=\"")
            .map_or(name, |(_, label)| label);
        label.trim_end_matches("\"}")
    }
}

impl Counters {
    /// Counts one.
    pub fn count(&mut self, counter: Counter) {
        self.0[counter as usize] += 1;
    }

    /// Counts many.
    pub fn add(&mut self, counter: Counter, amount: usize) {
        self.0[counter as usize] += amount as u64;
    }

    /// Name and value of each.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().copied().zip(self.0)
    }
}
