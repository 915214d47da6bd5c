//! Bounds that are fixed by a protocol or a format. What an operator may set stands in `config`.

/// Body bytes kept in one stored row; a larger message becomes a run of rows. With the row header a row stays
/// under a 4 KiB page, which keeps the store from writing a value as a power-of-two run of pages.
pub const ROW_BYTES_MAX: usize = 3_900;

/// Rows in one batch: the index of a row key has 16 bits.
pub const BATCH_ROWS_MAX: usize = 65_536;

/// Bytes of a row's rows handed to the store in one batch before it closes.
pub const BATCH_BYTES_SOFT: usize = 256 * 1024;

/// Bytes of rows that wait in memory while the flash does not take them.
pub const UNPERSISTED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// MQTT topic name or filter, bytes (two-byte length on the wire). [MQTT-4.7.3-3]
pub const TOPIC_BYTES_MAX: usize = 65_535;

/// Bytes of an address that named queues take: AMQP's routing keys have one byte of length.
pub const SHARED_ADDRESS_BYTES_MAX: usize = 255;

/// Levels of a topic that are matched one by one; deeper names are refused as invalid so that no peer makes the
/// index deep.
pub const TOPIC_LEVELS_MAX: usize = 128;

/// Bytes of a client identifier that are accepted. The specification guarantees 23 and allows more.
pub const CLIENT_IDENTIFIER_BYTES_MAX: usize = 1_024;

/// Bytes that a connection may send before it is authenticated: a CONNECT with its largest legal will excluded.
pub const CONNECT_BYTES_MAX: usize = 256 * 1024;

/// Exactly-once publishes that each session may hold without releasing them. More, up to the 65 535 identifiers that
/// there are, need room in what all sessions may keep: the identifiers are state on flash.
pub const PUBLISHER_WINDOW_SURE: usize = 2_048;

/// Publishes of QoS 1 and 2 that a client of MQTT 5 may have under way.
pub const RECEIVE_MAXIMUM: u16 = 1_024;

/// Topic aliases of one connection, each way.
pub const TOPIC_ALIASES_MAX: u16 = 32;

/// Bytes of the topics that they stand for, each way.
pub const TOPIC_ALIAS_BYTES_MAX: usize = 64 * 1024;

/// Topic filters of one session. More are refused with 0x80: a peer must not fill memory with subscriptions.
pub const SUBSCRIPTIONS_PER_SESSION_MAX: usize = 10_000;

/// Bytes of a session's topic filters together: they stand in its record.
pub const FILTER_BYTES_PER_SESSION_MAX: usize = 1024 * 1024;

/// Levels of a session's topic filters together: each may be a node of the topic index.
pub const FILTER_LEVELS_PER_SESSION_MAX: usize = 65_536;

/// Bytes of the arguments of one exchange, queue or binding: they stand in its record.
pub const ARGUMENTS_BYTES_MAX: usize = 4 * 1024;

/// Bytes of output that wait for a slow consumer before deliveries to it stop.
pub const OUTPUT_BYTES_HIGH: usize = 256 * 1024;

/// Deliveries go on when no more than this waits.
pub const OUTPUT_BYTES_LOW: usize = 64 * 1024;

/// Bytes of replies that one connection may be owed: beyond it nothing more is read until some leave, so that a peer
/// fills no memory with requests whose answers wait for the flash.
pub const OWED_BYTES_MAX: usize = 256 * 1024;

/// Bytes read from one connection before the others have their turn.
pub const READ_BYTES_MAX: usize = 64 * 1024;

/// Tables and arrays within each other in an AMQP field table. Dead-letter headers need four.
pub const FIELD_TABLE_DEPTH_MAX: usize = 32;
