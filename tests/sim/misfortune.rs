//! What befalls a world: disks that fail, are full or change what they hold, time that passes, connections that break.

use crate::disk::{Fault, SimDisk};
use crate::world::World;

impl World {
    /// The disk fails the next operations, or is full for a while.
    pub fn disk_misfortune(&mut self) {
        let (disk, step) = (self.machine.disk.clone(), self.trace.step);
        if self.plan.fault_one_in > 0 && self.random.below(self.plan.fault_one_in) == 0 {
            let fault = if self.random.below(3) == 0 { Fault::Full } else { Fault::Io };
            if self.random.below(5) == 0 {
                disk.fail_read_at(disk.reads() + self.random.below(20), fault);
            } else {
                disk.fail_at(disk.operations() + self.random.below(20), fault);
            }
            self.outcome.faults += 1;
        }
        if self.plan.damage_one_in > 0 && self.random.below(self.plan.damage_one_in) == 0 {
            self.damage(&disk);
        }
        if self.plan.full_one_in > 0 && self.random.below(self.plan.full_one_in) == 0 {
            self.trace.note(format_args!("the disk is full"));
            disk.set_capacity(disk.used_bytes());
            self.full_until = step + self.random.below(800);
            self.outcome.faults += 1;
        } else if self.full_until > 0 && self.full_until <= step {
            self.end_of_full_disk();
        }
    }

    /// A few bytes of a file change on the medium, and the next operations fail, so that the file is looked at.
    fn damage(&mut self, disk: &SimDisk) {
        let names = ["gateway.redb", "gateway.journal"];
        let name = names.get(usize::from(self.random.below(2) == 0)).copied().unwrap_or_default();
        let content = disk.content(name).unwrap_or_default();
        for _ in 0..1 + self.random.below(6) {
            // Where something is written, not in the empty part.
            let from = usize::try_from(self.random.below(content.len() as u64)).unwrap_or(0);
            let written = content.iter().skip(from).position(|byte| *byte != 0);
            if let Some(at) = written {
                disk.flip(name, (from + at) as u64, 0x40);
            }
        }
        disk.fail_at(disk.operations() + self.random.below(6), Fault::Io);
        self.trace.note(format_args!("{name} is damaged"));
        self.machine.suspect = true;
        self.outcome.faults += 1;
    }

    /// There is room on the disk again.
    pub fn end_of_full_disk(&mut self) {
        self.full_until = 0;
        self.machine.disk.set_capacity(u64::MAX);
    }

    pub fn pass_time(&mut self) {
        let micros = match self.random.below(10) {
            0..6 => self.random.below(2_000),
            6..9 => self.random.below(300_000),
            _ if self.plan.backlog_bytes_max > 0 && self.random.below(8) == 0 => {
                self.random.below(700_000_000)
            }
            _ => self.random.below(2_500_000),
        };
        self.advance(micros);
        match self.random.below(400) {
            // Somebody sets the clock; then time synchronisation finds it again.
            0 => {
                self.wall_off_ms = i64::try_from(self.random.below(7_200_000)).unwrap_or(0) - 3_600_000;
                self.tell_time(self.now.mono, false);
            }
            1..10 => self.tell_time(self.now.mono, true),
            _ => {}
        }
    }

    pub fn lose_something(&mut self) {
        let Some(number) = self.pick_link() else { return };
        match self.random.below(12) {
            0 => self.break_link(number),
            1..3 => {
                if let Some(link) = self.links.get_mut(&number) {
                    link.slow_until = self.trace.step + self.random.below(200);
                }
            }
            _ => {}
        }
    }
}
