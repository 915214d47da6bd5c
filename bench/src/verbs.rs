//! The verbs of the command line: each reads its options, runs one measurement, and prints its report.

use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::amqp::{self, AmqpPlan, Row};
use crate::compare;
use crate::durable::{self, DurablePlan, SessionReport};
use crate::idle::{self, IdlePlan};
use crate::ledger::{self, Broker, Driver, LedgerPlan, Rounds, Verdict};
use crate::load::{self, Amount, LoadPlan, Topology};
use crate::options::{self, Known, Options};
use crate::packet::{self, Version};
use crate::process::Server;
use crate::report::Report;
use crate::startup;
use crate::sync_rate;

/// Why a verb failed.
#[derive(Debug)]
pub enum Failure {
    Usage(String),
    Io(io::Error),
    /// The ledger does not hold; the report has said what.
    Broken,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => f.write_str(text),
            Self::Io(error) => write!(f, "{error}"),
            Self::Broken => f.write_str("a promise was broken"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Usage(text)
    }
}

type Verb = (&'static str, &'static str, &'static [Known], fn(&Options) -> Result<(), Failure>);

const PROTOCOL: Known = (
    "protocol",
    Some("3.1.1"),
    "MQTT version: 3.1.1, 5, or 5+properties (a topic alias and two user properties)",
);
const HOST: Known = ("host", Some("127.0.0.1"), "broker's address");
const PORT: Known = ("port", Some("1883"), "broker's port");
const USER: Known = ("user", Some(""), "user name");
const PASSWORD: Known = ("password", Some(""), "password");
const JSON: Known = ("json", None, "print one JSON object");
const PID: Known = ("pid", Some(""), "process of a running broker, to measure its CPU time and memory");
const SERVER: Known =
    ("server", Some(""), "command that starts the broker; it is measured and ended afterwards");
const SERVER_LOG: Known = ("server-log", Some(""), "file for the started broker's output");
const STATUS_URL: Known = ("status-url", Some(""), "status document of a gateway, for bytes and syncs");
const PUBLISHERS: Known = ("publishers", Some("1"), "publishers");
const SIZE: Known = ("size", Some("64"), "payload bytes");
const COUNT: Known = ("count", Some("100000"), "messages in all");
const DURATION: Known = ("duration", Some(""), "measure for this time instead of a count");
const WARM_UP: Known = ("warm-up", Some("1000"), "messages before the measured part");
const PREFIX: Known = ("topic", Some(""), "first levels of the topics [bench/PID]");

const LOAD: &[Known] = &[
    HOST,
    PROTOCOL,
    PORT,
    USER,
    PASSWORD,
    PUBLISHERS,
    ("subscribers", Some("1"), "subscribers"),
    (
        "topology",
        Some("pairs"),
        "pairs (publisher i to subscriber i) or all (everybody gets everything: fan-in, fan-out)",
    ),
    ("qos", Some("0"), "QoS of publishers and subscriptions"),
    ("subscribe-qos", Some(""), "QoS of the subscriptions, when another"),
    SIZE,
    ("window", Some("1000"), "messages of one publisher on their way"),
    COUNT,
    DURATION,
    ("rate", Some(""), "steady messages a second of all publishers"),
    WARM_UP,
    PREFIX,
    ("persistent", None, "subscribers with persistent sessions"),
    PID,
    SERVER,
    SERVER_LOG,
    STATUS_URL,
    JSON,
];

const AMQP: &[Known] = &[
    HOST,
    ("port", Some("5672"), "broker's port"),
    ("mqtt-port", Some("1883"), "its port for MQTT, for the bridge"),
    (
        "row",
        Some("persistent"),
        "persistent (confirms, manual acknowledgements), transient, or bridge (MQTT QoS 1 in)",
    ),
    SIZE,
    ("window", Some("64"), "messages that are not confirmed, or not delivered where nothing is confirmed"),
    COUNT,
    WARM_UP,
    PID,
    JSON,
];

const LATENCY: &[Known] = &[
    HOST,
    PROTOCOL,
    PORT,
    USER,
    PASSWORD,
    ("qos", Some("1"), "QoS of publisher and subscription"),
    SIZE,
    ("count", Some("2000"), "messages, one after the other"),
    ("persistent", None, "subscriber with a persistent session"),
    PID,
    SERVER,
    SERVER_LOG,
    STATUS_URL,
    JSON,
];

const DURABLE: &[Known] = &[
    HOST,
    PROTOCOL,
    PORT,
    USER,
    PASSWORD,
    PUBLISHERS,
    ("sessions", Some("1"), "offline durable sessions"),
    ("topology", Some("all"), "all (each session gets everything) or pairs (session i gets publisher i)"),
    ("qos", Some("1"), "QoS of publishers and subscriptions, 1 or 2"),
    SIZE,
    ("window", Some("64"), "messages of one publisher in flight"),
    COUNT,
    DURATION,
    WARM_UP,
    PREFIX,
    ("no-verify", None, "do not resume the sessions afterwards"),
    PID,
    SERVER,
    SERVER_LOG,
    STATUS_URL,
    JSON,
];

const IDLE: &[Known] = &[
    HOST,
    PROTOCOL,
    PORT,
    USER,
    PASSWORD,
    ("connections", Some("1000"), "connections"),
    ("subscribe", None, "each subscribes to a topic of its own"),
    ("keep-alive", Some("0"), "Keep Alive, seconds"),
    ("watch", Some("10s"), "how long the idle broker is watched"),
    PID,
    SERVER,
    SERVER_LOG,
    JSON,
];

const STARTUP: &[Known] = &[HOST, PORT, ("runs", Some("5"), "starts"), SERVER, SERVER_LOG, JSON];

const LEDGER: &[Known] = &[
    HOST,
    PROTOCOL,
    PORT,
    USER,
    PASSWORD,
    ("file", Some(""), "ledger file; with --verify it is read, else written anew"),
    ("verify", None, "take up the sessions of the file, drain them, judge"),
    ("run", Some(""), "name of the run, part of client identifiers and topics [PID]"),
    ("duration", Some("10s"), "how long to publish when the broker is not started by --server"),
    ("rounds", Some("20"), "kills, with --server"),
    ("life", Some("500ms"), "longest life of the broker between two kills"),
    ("all", None, "do not stop at the first broken promise"),
    ("seed", Some("1"), "seed of all that is random"),
    ("rate", Some("2000"), "messages a second of each publisher"),
    SERVER,
    SERVER_LOG,
    JSON,
];

const SYNC_RATE: &[Known] = &[("duration", Some("3s"), "how long"), JSON];

const VERBS: &[Verb] = &[
    ("throughput", "publishers and subscribers at full pace or at a steady rate", LOAD, throughput),
    ("latency", "one publisher, one message at a time", LATENCY, latency),
    ("durable", "QoS 1 or 2 to durable sessions that are offline, with a ledger", DURABLE, durable),
    ("idle", "memory and wake-ups of idle connections", IDLE, idle_verb),
    ("startup", "time from start to listening, memory of an idle server", STARTUP, startup_verb),
    ("ledger", "acknowledgements against deliveries over kills of the broker", LEDGER, ledger_verb),
    ("amqp", "AMQP 0-9-1: one publisher, one queue, one consumer", AMQP, amqp_verb),
    ("sync-rate", "FILE: 64-byte appends and syncs a second on its file system", SYNC_RATE, sync_rate_verb),
    ("compare", "two brokers side by side, as a markdown table", compare::OPTIONS, compare::verb),
];

/// Runs the verb that `arguments` name.
pub fn run(arguments: &[String]) -> Result<(), Failure> {
    let (name, rest) = arguments.split_first().ok_or_else(|| Failure::Usage(usage()))?;
    let verb = VERBS.iter().find(|(verb, ..)| verb == name);
    let (name, about, known, run) = verb.ok_or_else(|| Failure::Usage(usage()))?;
    if rest.iter().any(|argument| argument == "--help") {
        let text = format!("gateway-bench {name}: {about}\n{}", options::help(known));
        return Ok(io::stdout().lock().write_all(text.as_bytes())?);
    }
    let options = Options::parse(rest, known)?;
    match options.text("protocol") {
        "" | "3.1.1" => {}
        "5" => packet::speak(Version::V5),
        "5+properties" => packet::speak(Version::V5WithProperties),
        other => return Err(format!("--protocol wants 3.1.1, 5 or 5+properties, not {other:?}").into()),
    }
    run(&options)
}

fn usage() -> String {
    let mut text =
        "usage: gateway-bench VERB [--option VALUE]...; VERB --help tells the options\n".to_owned();
    for (name, about, ..) in VERBS {
        text.push_str(&format!("  {name:<12} {about}\n"));
    }
    text
}

/// A server of ours when `--server` says so, and the process to measure.
fn server(options: &Options) -> Result<(Option<Server>, Option<u32>), Failure> {
    let Some(command) = options.text_if_given("server") else {
        return Ok((None, options.number_if_given("pid")?));
    };
    crate::process::raise_open_files();
    let mut server = Server::spawn(command, options.text_if_given("server-log").map(Path::new))?;
    server.wait_listening(options.address()?, Duration::from_secs(30))?;
    let pid = server.pid();
    Ok((Some(server), Some(pid)))
}

/// Ends a server of ours.
fn finish(server: Option<Server>) -> Result<(), Failure> {
    if let Some(mut server) = server {
        server.terminate(Duration::from_secs(30))?;
    }
    Ok(())
}

fn topology(options: &Options) -> Result<Topology, String> {
    match options.text("topology") {
        "pairs" => Ok(Topology::Pairs),
        "all" => Ok(Topology::All),
        other => Err(format!("--topology is pairs or all, not {other}")),
    }
}

fn amount(options: &Options) -> Result<Amount, String> {
    match options.text_if_given("duration") {
        Some(_) => Ok(Amount::Time(options.duration("duration")?)),
        None => Ok(Amount::Messages(options.number("count")?)),
    }
}

fn throughput(options: &Options) -> Result<(), Failure> {
    let (server, pid) = server(options)?;
    let mut plan = LoadPlan {
        user: options.user(),
        publishers: options.number("publishers")?,
        subscribers: options.number("subscribers")?,
        topology: topology(options)?,
        publish_qos: options.number("qos")?,
        subscribe_qos: options.number_if_given("subscribe-qos")?.map_or_else(|| options.number("qos"), Ok)?,
        payload_bytes: options.number("size")?,
        window: options.number("window")?,
        amount: amount(options)?,
        warm_up: options.number("warm-up")?,
        rate: options.number_if_given("rate")?,
        persistent_subscribers: options.flag("persistent"),
        pid,
        status_url: options.text_if_given("status-url").map(str::to_owned),
        ..LoadPlan::new(options.address()?)
    };
    if let Some(prefix) = options.text_if_given("topic") {
        prefix.clone_into(&mut plan.topic_prefix);
    }
    report_load(&plan, options)?;
    finish(server)
}

fn latency(options: &Options) -> Result<(), Failure> {
    let (server, pid) = server(options)?;
    let qos = options.number("qos")?;
    let plan = LoadPlan {
        user: options.user(),
        publish_qos: qos,
        subscribe_qos: qos,
        payload_bytes: options.number("size")?,
        window: 1,
        amount: Amount::Messages(options.number("count")?),
        warm_up: 100,
        persistent_subscribers: options.flag("persistent"),
        pid,
        status_url: options.text_if_given("status-url").map(str::to_owned),
        ..LoadPlan::new(options.address()?)
    };
    report_load(&plan, options)?;
    finish(server)
}

fn report_load(plan: &LoadPlan, options: &Options) -> Result<(), Failure> {
    let mut report = Report::default();
    report.set_load(&load::run(plan)?);
    Ok(report.print(options.flag("json"))?)
}

fn durable(options: &Options) -> Result<(), Failure> {
    let (server, pid) = server(options)?;
    let qos = options.number("qos")?;
    let mut load = LoadPlan {
        user: options.user(),
        publishers: options.number("publishers")?,
        subscribers: options.number("sessions")?,
        topology: topology(options)?,
        publish_qos: qos,
        subscribe_qos: qos,
        payload_bytes: options.number("size")?,
        window: options.number("window")?,
        amount: amount(options)?,
        warm_up: options.number("warm-up")?,
        pid,
        status_url: options.text_if_given("status-url").map(str::to_owned),
        ..LoadPlan::new(options.address()?)
    };
    if let Some(prefix) = options.text_if_given("topic") {
        prefix.clone_into(&mut load.topic_prefix);
    }
    let done = durable::run(&DurablePlan { load, verify: !options.flag("no-verify") })?;
    let mut report = Report::default();
    report.set_load(&done.load);
    let sum = |part: fn(&SessionReport) -> u64| done.sessions.iter().map(part).sum::<u64>();
    let (missing, disordered) = (sum(|session| session.missing), sum(|session| session.disordered));
    if !done.sessions.is_empty() {
        report
            .set("sessions_resumed", done.sessions.iter().filter(|session| session.session_present).count());
        report.set("redelivered", sum(|session| session.delivered));
        report.set("acknowledged_but_missing", missing);
        report.set("out_of_order", disordered);
    }
    report.print(options.flag("json"))?;
    finish(server)?;
    if missing + disordered > 0 { Err(Failure::Broken) } else { Ok(()) }
}

fn idle_verb(options: &Options) -> Result<(), Failure> {
    let (server, pid) = server(options)?;
    let plan = IdlePlan {
        address: options.address()?,
        user: options.user(),
        connections: options.number("connections")?,
        subscribe: options.flag("subscribe"),
        keep_alive_s: options.number("keep-alive")?,
        watch: options.duration("watch")?,
        pid: pid.ok_or_else(|| "idle wants --pid or --server".to_owned())?,
    };
    let done = idle::run(&plan)?;
    let mut report = Report::default();
    report.set("connections", done.connections);
    report.set("resident_before_kib", done.resident_before / 1024);
    report.set("resident_after_kib", done.resident_after / 1024);
    report.set_rounded("bytes_per_connection", done.bytes_per_connection());
    report.set_rounded("wake_ups_per_second", done.wake_ups_per_second);
    report.set_rounded("cpu_s_while_watched", done.cpu.total_s());
    report.print(options.flag("json"))?;
    finish(server)
}

fn startup_verb(options: &Options) -> Result<(), Failure> {
    let command = options.text_if_given("server").ok_or_else(|| "startup wants --server".to_owned())?;
    let log = options.text_if_given("server-log").map(Path::new);
    let mut runs = Vec::new();
    for _ in 0..options.number::<u32>("runs")? {
        runs.push(startup::run(command, options.address()?, log)?);
    }
    runs.sort_by_key(|run| run.listening);
    let Some(median) = runs.get(runs.len() / 2) else {
        return Err("--runs must be at least 1".to_owned().into());
    };
    let mut report = Report::default();
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    report.set("runs", runs.len());
    report.set_rounded("listening_ms_median", ms(median.listening));
    report.set_rounded("listening_ms_max", runs.last().map_or(0.0, |run| ms(run.listening)));
    report.set_rounded("connack_ms_median", ms(median.connack));
    report.set("idle_resident_kib", median.resident_bytes / 1024);
    Ok(report.print(options.flag("json"))?)
}

/// The broker of `ledger --server`.
struct CommandBroker<'a> {
    options: &'a Options,
    command: &'a str,
    running: Option<Server>,
}

impl Broker for CommandBroker<'_> {
    fn start(&mut self) -> io::Result<()> {
        let log = self.options.text_if_given("server-log").map(Path::new);
        self.running = Some(Server::spawn(self.command, log)?);
        Ok(())
    }

    fn wait_listening(&mut self) -> io::Result<()> {
        let address = self.options.address().map_err(io::Error::other)?;
        match &mut self.running {
            Some(server) => server.wait_listening(address, Duration::from_secs(30)).map(|_| ()),
            None => Err(io::Error::other("the broker is not running")),
        }
    }

    fn kill(&mut self) -> io::Result<()> {
        self.running.take().map_or(Ok(()), |mut server| server.kill())
    }
}

fn ledger_verb(options: &Options) -> Result<(), Failure> {
    let run = options.text_if_given("run").map_or_else(|| std::process::id().to_string(), str::to_owned);
    let plan = LedgerPlan {
        user: options.user(),
        rate: options.number("rate")?,
        file: options.text_if_given("file").map(PathBuf::from),
        ..LedgerPlan::new(options.address()?, &run, options.number("seed")?)
    };
    let verdict = if let Some(command) = options.text_if_given("server") {
        let rounds = Rounds {
            count: options.number("rounds")?,
            life_max: options.duration("life")?,
            stop_at_fault: !options.flag("all"),
        };
        let mut broker = CommandBroker { options, command, running: None };
        let verdict = ledger::crash_rounds(plan, rounds, &mut broker)?;
        finish(broker.running.take())?;
        verdict
    } else if options.flag("verify") {
        Driver::take_up(plan)?.drain(Duration::from_secs(60))?
    } else {
        let mut driver = Driver::set_up(plan)?;
        driver.run_for(options.duration("duration")?)?;
        driver.drain(Duration::from_secs(60))?
    };
    report_ledger(&verdict).print(options.flag("json"))?;
    if verdict.holds() { Ok(()) } else { Err(Failure::Broken) }
}

fn report_ledger(verdict: &Verdict) -> Report {
    let mut report = Report::default();
    let counts = [
        ("sent", verdict.sent),
        ("acknowledged", verdict.acknowledged),
        ("received", verdict.received),
        ("repeated_at_qos_1", verdict.repeated),
        ("kills", verdict.kills),
        ("resumed", verdict.resumed),
        ("acknowledged_but_missing", verdict.missing),
        ("duplicated_at_qos_2", verdict.duplicated),
        ("out_of_order", verdict.disordered),
        ("never_sent", verdict.phantom),
        ("corrupt", verdict.corrupt),
        ("sessions_lost", verdict.sessions_lost),
        ("disconnected", verdict.disconnected),
    ];
    for (name, count) in counts {
        report.set(name, count);
    }
    report.set("examples", verdict.examples.clone());
    report
}

fn amqp_verb(options: &Options) -> Result<(), Failure> {
    let row = match options.text("row") {
        "persistent" => Row::Persistent,
        "transient" => Row::Transient,
        "bridge" => Row::Bridge,
        other => return Err(format!("--row is persistent, transient or bridge, not {other:?}").into()),
    };
    let plan = AmqpPlan {
        address: options.address()?,
        mqtt: options.address_of("mqtt-port")?,
        row,
        window: options.number("window")?,
        count: options.number("count")?,
        warm_up: options.number("warm-up")?,
        payload_bytes: options.number("size")?,
        pid: options.number_if_given("pid")?,
    };
    let done = amqp::run(&plan)?;
    let mut report = Report::default();
    report.set("delivered", done.delivered);
    report.set_rounded("per_second", done.per_second());
    report.set_rounded("client_cpu_s", done.client_cpu.total_s());
    if let Some(cost) = done.server_cpu_s_per_million() {
        report.set_rounded("server_cpu_s_per_million", cost);
    }
    Ok(report.print(options.flag("json"))?)
}

fn sync_rate_verb(options: &Options) -> Result<(), Failure> {
    let [file] = options.words() else { return Err("sync-rate wants one FILE".to_owned().into()) };
    let done = sync_rate::measure(Path::new(file), options.duration("duration")?)?;
    let mut report = Report::default();
    report.set_rounded("syncs_per_second", done.per_second);
    report.set_latency("latency", &done.latency);
    Ok(report.print(options.flag("json"))?)
}
