//! The simulator: the real gateway and its real store in a world of seeded misfortune.
//!
//! A seed decides everything: who takes part, what they do, how bytes are cut, when the power goes and what is left of
//! unsynced writes. Each seed runs twice, and both runs must have done the same. After the misfortune comes a quiet
//! phase in which everybody returns and all that is owed must arrive.
//!
//! ```text
//! SIM_SEED=17 SIM_TRACE=1 cargo test --test sim     one seed, readable
//! SIM_SEEDS=10000 cargo test --profile sim --test sim   many fresh seeds; SIM_FIRST=n: from n on
//! cargo test --features mutations --test sim        also: known mistakes, each of which must be found
//! ```
//!
//! `seeds.txt` holds seeds that are run each time, one a line, with what they are there for.

#![allow(clippy::disallowed_methods, reason = "the environment chooses the seeds")]

mod amqp;
mod amqp_workload;
mod checker;
mod client;
#[path = "../support/disk.rs"]
mod disk;
mod expiry;
mod liveness;
mod machine;
mod misfortune;
mod mistakes;
mod model;
mod mutations;
mod network;
mod payload;
mod plan;
mod queues;
mod retained;
mod series;
mod trace;
mod wills;
mod workload;
mod world;

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};

use mistakes::Mistake;
use trace::show;
use world::Outcome;

/// Fresh seeds of an ordinary run.
const FRESH_SEEDS: u64 = 80;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a seed; a panic is a finding like any other.
fn try_run(seed: u64, mistake: Option<Mistake>, shown: bool) -> Result<Outcome, String> {
    catch_unwind(AssertUnwindSafe(|| world::run(seed, mistake, shown)))
        .unwrap_or_else(|_| Err("a panic, see above".into()))
}

/// Runs a seed twice and compares.
fn run_twice(seed: u64, shown: bool) -> Result<Outcome, String> {
    let run = |shown| try_run(seed, None, shown);
    let first = run(shown).map_err(|wrong| format!("SIM_SEED={seed}: {wrong}"))?;
    let second = run(false).map_err(|wrong| format!("SIM_SEED={seed}, second run: {wrong}"))?;
    if first == second { Ok(first) } else { Err(format!("SIM_SEED={seed} differs: {first:?} {second:?}")) }
}

fn hold(seeds: impl Iterator<Item = u64>) {
    let mut failures = Vec::new();
    let mut total = Outcome::default();
    for seed in seeds {
        match run_twice(seed, false) {
            Ok(outcome) => total.add(&outcome),
            Err(wrong) => {
                show(format_args!("{wrong}"));
                failures.push(wrong);
            }
        }
    }
    show(format_args!("{total:?}"));
    assert!(failures.is_empty(), "{} seeds failed, the first: {}", failures.len(), failures[0]);
}

#[test]
fn seeds_of_the_list_hold() {
    if number("SIM_SEED").is_some() {
        return;
    }
    let lines = include_str!("seeds.txt").lines();
    hold(lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()));
}

#[test]
fn fresh_seeds_hold() {
    if let Some(seed) = number("SIM_SEED") {
        let outcome =
            run_twice(seed, number("SIM_TRACE").is_some()).unwrap_or_else(|wrong| panic!("{wrong}"));
        show(format_args!("SIM_SEED={seed}: {outcome:?}"));
        return;
    }
    // Fresh ones: the standard library's own hash seed is the only randomness here. A failure names its seed.
    let first = number("SIM_FIRST").unwrap_or_else(|| RandomState::new().hash_one("seeds") >> 16);
    hold(first..first + number("SIM_SEEDS").unwrap_or(FRESH_SEEDS));
}
