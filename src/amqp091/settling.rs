//! basic.ack, nack, reject, recover and qos: what the client answers to its deliveries, and how many it takes.

use super::channel::Channel;
use super::codec::method::basic;
use super::fault::Fault;
use super::link::{Context, Link};
use crate::broker::{Broker, QueueIndex, Settlement};
use crate::time::Now;

/// A delivery that the client has not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsettled {
    pub tag: u64,
    pub queue: QueueIndex,
    /// Its number in the broker.
    pub number: u64,
    /// It counts to the channel's shared credit; a message that was asked for does not.
    pub credited: bool,
}

/// Deliveries and what becomes of them.
#[derive(Debug)]
pub(super) struct Settling {
    pub deliveries: Vec<Unsettled>,
    pub settlement: Settlement,
}

impl Channel {
    pub(super) fn handle_settled(
        &mut self,
        _link: &mut Link,
        context: &mut Context<'_>,
        (tag, multiple): (u64, bool),
        settlement: Settlement,
    ) -> Result<(), Fault> {
        if !multiple && self.transaction.is_none() && self.unsettled.front().is_some_and(|u| u.tag == tag) {
            // By far the most frequent.
            if let Some(unsettled) = self.unsettled.pop_front() {
                self.settle_all(context, &[unsettled], settlement);
            }
            return Ok(());
        }
        let deliveries = self.take_unsettled(tag, multiple)?;
        let settling = Settling { deliveries, settlement };
        match &mut self.transaction {
            Some(transaction) => transaction.settled.push(settling),
            None => self.settle(context, settling),
        }
        Ok(())
    }

    pub(super) fn settle(&mut self, context: &mut Context<'_>, settling: Settling) {
        self.settle_all(context, &settling.deliveries, settling.settlement);
    }

    pub(super) fn handle_recover(&mut self, context: &mut Context<'_>, requeue: bool) -> Result<(), Fault> {
        if !requeue {
            return Err(Fault::not_implemented("requeue=false"));
        }
        let deliveries: Vec<_> = std::mem::take(&mut self.unsettled).into();
        self.settle(context, Settling { deliveries, settlement: Settlement::Requeue });
        Ok(())
    }

    /// Bounds what is delivered and not acknowledged: of each consumer, those that consume already included, or of
    /// the channel.
    pub(super) fn handle_qos(
        &mut self,
        link: &mut Link,
        context: &mut Context<'_>,
        qos: basic::Qos,
    ) -> Result<(), Fault> {
        if qos.prefetch_size != 0 {
            return Err(Fault::not_implemented(format!("prefetch_size!=0 ({})", qos.prefetch_size)));
        }
        if qos.global {
            self.pool.limit.set(u32::from(qos.prefetch_count));
            self.resume_all(context.now, context.broker);
        } else {
            self.prefetch = qos.prefetch_count;
            for consumer in self.consumers.values() {
                let credit = u32::from(qos.prefetch_count);
                context.broker.set_credit(context.now, consumer.queue, link.id, consumer.handle, credit);
            }
        }
        link.send(self.number, &basic::QosOk {});
        Ok(())
    }

    fn take_unsettled(&mut self, tag: u64, multiple: bool) -> Result<Vec<Unsettled>, Fault> {
        if multiple && tag == 0 {
            return Ok(std::mem::take(&mut self.unsettled).into());
        }
        let unknown = || Fault::precondition(format!("unknown delivery tag {tag}"));
        let at =
            self.unsettled.binary_search_by_key(&tag, |unsettled| unsettled.tag).map_err(|_| unknown())?;
        if multiple {
            return Ok(self.unsettled.drain(..=at).collect());
        }
        Ok(self.unsettled.remove(at).into_iter().collect())
    }

    fn settle_all(&mut self, context: &mut Context<'_>, deliveries: &[Unsettled], settlement: Settlement) {
        let credited = deliveries.iter().filter(|unsettled| unsettled.credited).count();
        let was_full = self.take_back(u32::try_from(credited).unwrap_or(u32::MAX));
        let settled = deliveries.iter().map(|unsettled| (unsettled.queue, unsettled.number));
        context.broker.settle_deliveries(context.now, settled, settlement);
        if was_full {
            self.resume_all(context.now, context.broker);
        }
    }

    /// A delivery that the channel's credit was lowered for did not leave.
    pub(super) fn give_back_credit(&self, now: Now, broker: &mut Broker) {
        if self.take_back(1) {
            self.resume_all(now, broker);
        }
    }

    /// So many deliveries no longer count to the channel's shared credit. True when it was used up.
    fn take_back(&self, credited: u32) -> bool {
        let (limit, used) = (self.pool.limit.get(), self.pool.used.get());
        self.pool.used.set(used.saturating_sub(credited));
        limit != 0 && used >= limit
    }
}
