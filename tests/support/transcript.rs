//! Conversations as text, run against the gateway: what clients do is played, what the gateway answers is compared.
//!
//! ```text
//! # a remark
//! % inflight_max=3            a setting, before the first step
//! % whole=true                packets of version 5 with what every client hears, and with reason strings
//! > a CONNECT client=sensor   client `a` sends; it connects first if it has no connection
//! > a PINGREQ ~               ... and the packet arrives in the same round as the next line's
//! < a CONNACK present=0 code=0        the gateway sends
//! < a closed keep_alive_timeout       the gateway closes, and why
//! @ +30s                      time passes (ms, s, m, h, d)
//! @ wall -1h                  the wall clock is set
//! ! hold                      batches wait at the store ...
//! ! persist                   ... and one of them is written
//! ! release                   the store works again
//! ! fail | full | heal        the flash fails (EIO), is full (ENOSPC), works again
//! ! power-cut                 power goes and comes back
//! ! stop                      a clean stop, and a start
//! ! a accept | reset | stall | read   of client `a`'s socket
//! ? flash.elided              a figure of the status
//! = flash.elided 1            and its value
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use gatewayd::auth::{Acl, Users};

use super::disk::Fault;
use super::driver::{Setup, World};

/// Plays `script` in a fresh world and panics where the gateway answers otherwise. Answers the world.
#[track_caller]
pub fn check(script: &str) -> World {
    let mut world = World::new(setup(script));
    world.whole = script.lines().any(|line| line.trim() == "% whole=true");
    check_in(&mut world, script);
    world
}

/// Plays `script` in `world` and panics where the gateway answers otherwise. What one step brings to different clients
/// has no order.
#[track_caller]
pub fn check_in(world: &mut World, script: &str) {
    let lines = script.lines().map(str::trim).filter(|line| is_step(line) || is_answer(line));
    let mut expected: Vec<_> = lines.collect();
    for answers in expected.chunk_by_mut(|_, next| is_answer(next)) {
        answers[1..].sort_by_key(|line| client(line).to_owned());
    }
    let mut played = Vec::new();
    for line in expected.iter().filter(|line| is_step(line)) {
        played.push((*line).to_owned());
        step(world, line);
        let mut answers = world.lines();
        answers.sort_by_key(|line| client(line).to_owned());
        played.extend(answers);
    }
    if played != expected {
        panic!("{}", difference(&expected, &played));
    }
}

/// Plays the steps of `script` in a fresh world and gives it back with the gateway's answers.
pub fn play(script: &str) -> String {
    let mut world = World::new(setup(script));
    world.whole = script.lines().any(|line| line.trim() == "% whole=true");
    let mut out = String::new();
    for line in script.lines().filter(|line| !is_answer(line.trim())) {
        writeln!(out, "{line}").expect("a string takes all");
        if is_step(line.trim()) {
            step(&mut world, line.trim());
            for line in world.lines() {
                writeln!(out, "{line}").expect("a string takes all");
            }
        }
    }
    out
}

/// Whom an answer goes to.
fn client(line: &str) -> &str {
    line.split(' ').nth(1).unwrap_or_default()
}

fn is_step(line: &str) -> bool {
    line.starts_with(['>', '@', '!', '?'])
}

fn is_answer(line: &str) -> bool {
    line.starts_with(['<', '='])
}

/// The settings that a script begins with.
pub fn setup(script: &str) -> Setup {
    let mut setup = Setup::default();
    let (mut users, mut acl) = (String::new(), String::new());
    for line in script.lines().filter_map(|line| line.trim().strip_prefix("% ")) {
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("no value in % {line}"));
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("no number in % {line}"));
        let config = &mut setup.config;
        match name {
            "whole" => {}
            "keep_alive_max" => config.limits.keep_alive_max = duration(value),
            "retained_bytes_max" => config.limits.retained_bytes_max = number(),
            "inflight_max" => config.limits.inflight_max = number() as u16,
            "retained_max" => config.limits.retained_max = number() as u32,
            "sessions_max" => config.limits.sessions_max = number() as u32,
            "message_bytes_max" => config.limits.message_bytes_max = number(),
            "session_messages_max" => config.queues.session.messages_max = number(),
            "session_bytes_max" => config.queues.session.bytes_max = number(),
            "session_expiry_max" => config.limits.session_expiry_max = duration(value),
            "elision_window" => config.storage.elision_window = duration(value),
            "bytes_per_day_budget" => config.storage.bytes_per_day_budget = Some(number()),
            "allow_anonymous" => setup.allow_anonymous = value == "true",
            "user" => {
                let (name, password) = value.split_once(':').expect("name:password");
                let hash = gatewayd::auth::hash_password(password.as_bytes(), [7; 12], 2);
                writeln!(users, "{name}:{hash}").expect("a string takes all");
            }
            "acl" => writeln!(acl, "{value}").expect("a string takes all"),
            _ => panic!("unknown setting % {line}"),
        }
    }
    if !users.is_empty() {
        setup.users = Some(Users::parse(users.as_bytes()).expect("the lines are right"));
    }
    if !acl.is_empty() {
        setup.acl = Some(Acl::parse(acl.as_bytes()).expect("the rules are right"));
    }
    setup
}

/// Plays one line.
pub fn step(world: &mut World, line: &str) {
    let (kind, rest) = line.split_at(1);
    let rest = rest.trim();
    match kind {
        ">" => {
            let (name, text) = rest.split_once(' ').unwrap_or_else(|| panic!("no packet in {line}"));
            match text.strip_suffix(" ~") {
                Some(text) => world.queue(name, text),
                None => world.send(name, text),
            }
        }
        "@" => match rest.strip_prefix("wall ") {
            Some(by) => {
                let (sign, by) = by.split_at(1);
                let ms = i64::try_from(duration(by).as_millis()).expect("a step of the clock is short");
                world.step_wall(if sign == "-" { -ms } else { ms });
            }
            None => world.pass(duration(rest.trim_start_matches('+'))),
        },
        "!" => event(world, rest),
        "?" => {
            let value = world.figure(rest);
            push(world, format!("= {rest} {value}"));
        }
        _ => panic!("no step: {line}"),
    }
}

fn event(world: &mut World, text: &str) {
    match text.split_once(' ') {
        Some((name, "accept")) => {
            if !world.accept(name) {
                push(world, format!("< {name} refused"));
            }
        }
        Some((name, "reset")) => world.reset(name),
        Some((name, "stall")) => world.stall(name),
        Some((name, "read")) => world.reads(name),
        Some(_) => panic!("no event: {text}"),
        None => match text {
            "hold" => world.hold(),
            "persist" => assert!(world.persist(), "no batch waits at the store"),
            "release" => world.release(),
            "fail" => world.fail(Fault::Io),
            "full" => world.fail(Fault::Full),
            "heal" => world.heal(),
            "power-cut" | "stop" => {
                if text == "stop" {
                    world.stop();
                } else {
                    world.cut_power();
                }
                let found = world.recovery;
                let text = format!(
                    "= recovered sessions={} queued={} retained={} wills={}",
                    found.sessions, found.queued, found.retained, found.wills
                );
                push(world, text);
            }
            _ => panic!("no event: {text}"),
        },
    }
}

fn push(world: &mut World, line: String) {
    let mut lines = world.lines();
    lines.push(line);
    world.put_lines(lines);
}

fn duration(text: &str) -> Duration {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: u64 = digits.parse().unwrap_or_else(|_| panic!("no time: {text}"));
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => panic!("no time: {text}"),
    };
    Duration::from_millis(count * unit_ms)
}

/// Both texts side by side from the first difference on.
pub fn difference(expected: &[&str], played: &[String]) -> String {
    let same = expected.iter().zip(played).take_while(|(a, b)| a == b).count();
    let mut text = String::from("the conversation went differently\n");
    for line in played.iter().take(same) {
        writeln!(text, "    {line}").expect("a string takes all");
    }
    for (sign, lines) in [
        ("expected", expected.iter().skip(same).map(ToString::to_string).collect::<Vec<_>>()),
        ("played", played.iter().skip(same).cloned().collect()),
    ] {
        for line in lines.iter().take(12) {
            writeln!(text, "{sign:>9} {line}").expect("a string takes all");
        }
        if lines.is_empty() {
            writeln!(text, "{sign:>9} (nothing more)").expect("a string takes all");
        }
    }
    text
}
