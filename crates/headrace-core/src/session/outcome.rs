//! How publishes end, and what their publishers are told of it.

/// How a publish ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Taken, by a stream or by subscribers.
    Accepted,
    /// Nothing wanted it.
    NoSubscribers,
    /// A stream had stored it before.
    AlreadyStored,
    /// A newer epoch of its source has published.
    StaleEpoch,
    /// The topic is the broker's own.
    NotAuthorized,
    /// A stream wanted it and could not store it.
    NotStored,
    /// A stream wanted it and has no room for it now.
    NoRoom,
    /// As many messages are retained as may be.
    RetainedFull,
    /// A stream that wanted it takes no record so large.
    TooLarge,
    /// A queue that wanted it owes as much as it may.
    QueueFull,
    /// All clients together hold as many packet ids at `QoS` 2 as they may.
    UnreleasedFull,
    /// There is no such queue.
    NoQueue,
    /// It says of no delivery that it is over.
    NoMessageId,
    /// It says of no time how long it is.
    BadDelay,
    /// The deadline that it sets is too far away.
    BadDeadline,
    /// It names a group that its queue has not.
    NoGroup,
    /// Below a queue's name, it is to a level that is the broker's and no verb.
    NoVerb,
    /// Its priority is no number from 0 to 9.
    BadPriority,
    /// It has a priority, and the queue has none.
    NoPriorities,
    /// No such delivery was made to the client's group.
    NoDelivery,
    /// Several of the groups that the client may mean have such a delivery.
    WhichGroup,
    /// The message is settled already.
    SettledBefore,
    /// The message is to be delivered again, or was.
    TooLate,
}

/// How the append of a publish ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is as durable as its stream asks.
    Stored,
    /// The disk refused.
    Refused,
    /// The disk is nearly full.
    NoRoom,
}

impl From<bool> for Ending {
    fn from(stored: bool) -> Self {
        if stored {
            Self::Stored
        } else {
            Self::Refused
        }
    }
}

/// What is said of [`Outcome::BadDeadline`].
pub const FAR_DEADLINE: &str = "a deadline is 365 days from now at most; give a shorter delay";

impl Outcome {
    /// The reason code of its PUBACK or PUBREC (MQTT 5.0 3.4.2.1, 3.5.2.1).
    pub const fn reason_code(self) -> u8 {
        match self {
            Self::Accepted | Self::AlreadyStored => 0x00,
            Self::NoSubscribers | Self::SettledBefore => 0x10,
            Self::NotStored => 0x80,
            Self::StaleEpoch
            | Self::NoMessageId
            | Self::BadDelay
            | Self::BadDeadline
            | Self::NoGroup
            | Self::BadPriority
            | Self::NoPriorities
            | Self::NoDelivery
            | Self::WhichGroup
            | Self::TooLate => 0x83,
            Self::NoQueue => 0x90,
            Self::NotAuthorized | Self::NoVerb => 0x87,
            Self::NoRoom
            | Self::RetainedFull
            | Self::TooLarge
            | Self::QueueFull
            | Self::UnreleasedFull => 0x97,
        }
    }

    /// The reason string of its PUBACK or PUBREC.
    pub const fn reason_string(self) -> Option<&'static str> {
        match self {
            // The code says it, and some clients know no acknowledgement that is longer.
            Self::Accepted | Self::NoSubscribers | Self::NotAuthorized => None,
            Self::AlreadyStored => Some("already stored"),
            Self::StaleEpoch => Some("stale epoch"),
            Self::NotStored => Some("not stored: the broker's disk refused"),
            Self::NoRoom => Some("not stored: the broker's disk is nearly full"),
            Self::RetainedFull => Some("the broker retains as many messages as it may"),
            Self::QueueFull => Some("the queue owes as much as it may, which its depth.max.* says"),
            Self::UnreleasedFull => Some("clients have as many QoS 2 exchanges open as they may"),
            Self::NoQueue => Some("no queue has this name; headrace queues create makes one"),
            Self::NoMessageId => Some("give user property message-id: PARTITION:OFFSET:ATTEMPT"),
            Self::BadDelay => {
                Some("delay is a time such as 30s or 5m, deliver-at milliseconds since 1970")
            }
            Self::BadDeadline => Some(FAR_DEADLINE),
            Self::NoGroup => Some("the queue has no group of this group-id"),
            Self::NoVerb => Some("not enqueued: of levels that begin with $ there are $ack, $nack, $reject and $extend, the last behind $queue/NAME"),
            Self::BadPriority => Some("priority is a number from 0 to 9, 4 without one"),
            Self::NoPriorities => Some("the queue has no priorities; alter it with priorities=on"),
            Self::NoDelivery => Some("no such delivery to a group of this client; name group-id"),
            Self::WhichGroup => Some("several groups have it; name group-id and group-filter"),
            Self::SettledBefore => Some("settled before"),
            Self::TooLate => Some("too late: the message is delivered again, or will be"),
            Self::TooLarge => Some("larger than max.message.bytes of a stream that stores it"),
        }
    }
}
