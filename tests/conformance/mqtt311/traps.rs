//! Traps: what broke real brokers, each by its name.
