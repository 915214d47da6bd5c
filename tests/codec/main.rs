//! Laws, hostile input and foreign oracles for the wire codecs. `CODEC_SEED=n` repeats a run with one seed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod amqp_frames;
mod amqp_oracle;
mod amqp_properties;
mod mqtt_fuzz;
mod mqtt_oracle;
mod mqtt_packets;
mod mqtt_properties;
mod mutate;
mod random;
