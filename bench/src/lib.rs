//! gateway-bench: drives any MQTT or AMQP 0-9-1 broker by host and port, measures it, and keeps a ledger of what it acknowledged.
//!
//! One thread, one epoll, pipelined reads and writes: the generator must cost less than the broker that it measures.
//! It shares no code with the gateway, so that an error in the gateway's codec cannot hide here.

pub mod amqp;
pub mod compare;
pub mod durable;
pub mod histogram;
pub mod idle;
pub mod ledger;
pub mod link;
pub mod load;
pub mod options;
pub mod packet;
pub mod poll;
pub mod process;
pub mod report;
pub mod rng;
pub mod startup;
pub mod status;
pub mod sync_rate;
pub mod verbs;
