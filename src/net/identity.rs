//! The gateway's name: from the configuration, or derived from the machine's identifier.

use std::fs;

use sha2::{Digest, Sha256};

use crate::config::GatewayId;

/// The name in loss receipts, `status` and `$SYS`. The machine identifier itself is not told: it is hashed with a
/// word of our own, as its manual page asks.
pub(super) fn gateway_id(configured: &GatewayId) -> String {
    match configured {
        GatewayId::Fixed(id) => id.clone(),
        GatewayId::Auto => {
            let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
            let digest = Sha256::new().chain_update("gatewayd:").chain_update(machine.trim()).finalize();
            let short: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
            format!("gw-{short}")
        }
    }
}
