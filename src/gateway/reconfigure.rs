//! New settings for a gateway that runs: limits, bounds, routes, users and rules. Owns who may stay; listeners and
//! certificates are the driver's.

use super::collections::collection_plans;
use super::logins::LoginPolicy;
use super::{Gateway, GatewayPolicy, Pause, broker_policy};
use crate::auth::{Acl, Users};
use crate::config::Config;
use crate::ids::ConnectionId;
use crate::time::Now;

impl Gateway {
    /// Takes new settings. `anonymous` says whether nameless clients may enter, by the number of each listener; one that
    /// is gone lets nobody in. Connections whose user is gone or has another password, and nameless ones where those may
    /// no longer enter, end: how many is answered. All others stay, and rules hold from their next message on.
    pub fn reconfigure(
        &mut self,
        now: Now,
        config: &Config,
        (users, acl): (Option<Users>, Option<Acl>),
        anonymous: &[bool],
    ) -> usize {
        self.policy = GatewayPolicy::new(config, self.policy.id.clone());
        self.logins.set_policy(LoginPolicy::new(&config.auth));
        let quota = self.broker.flash_quota_bytes();
        // What the files may hold stays as it is until the next start.
        self.broker.set_policy(now, broker_policy(config, quota, 0));
        self.readings.retain(&self.broker);
        self.broker.reconcile_collections(now, &collection_plans(config, quota));
        self.facts.flash_bytes_per_day = config.storage.bytes_per_day_budget;
        self.acl = acl;
        let before = std::mem::replace(&mut self.users, users);
        self.logins.forget_verified();
        let mut revoked = 0;
        for id in self.connections.ids() {
            let Some(endpoint) = self.connections.get_mut(id) else { continue };
            let anonymous = anonymous.get(usize::from(endpoint.listener)).copied().unwrap_or(false);
            endpoint.protocol.set_allow_anonymous(anonymous);
            let known = endpoint.protocol.is_joined() || endpoint.pause == Pause::Verifying;
            let stays = match (endpoint.protocol.identity().username, &before, &self.users) {
                _ if !known || endpoint.protocol.is_vouched_for() => true,
                (Some(name), Some(before), Some(after)) => {
                    after.entry(name).is_some() && after.entry(name) == before.entry(name)
                }
                // The default user of AMQP stands for nobody: it is as good as no name.
                (None, _, _) | (Some(_), None, None) => anonymous,
                (Some(_), _, _) => false,
            };
            if !stays {
                revoked += 1;
                self.revoke(now, id);
            }
        }
        self.drain(now);
        revoked
    }

    /// What guessing passwords costs. Without it, nothing.
    pub const fn set_login_policy(&mut self, policy: LoginPolicy) {
        self.logins.set_policy(policy);
    }

    /// Ends a connection whose right to be there is gone.
    pub fn revoke(&mut self, now: Now, id: ConnectionId) {
        let Some(endpoint) = self.connections.get(id) else { return };
        let end = endpoint.protocol.kicked();
        self.end(now, id, end);
    }

    /// The number of the listener that a connection came through, and the user that its certificate proves.
    #[must_use]
    pub fn entrance(&self, id: ConnectionId) -> Option<(u16, Option<&str>)> {
        let endpoint = self.connections.get(id)?;
        let user = endpoint.protocol.identity().username.filter(|_| endpoint.protocol.is_vouched_for());
        Some((endpoint.listener, user))
    }
}
