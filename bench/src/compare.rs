//! Two brokers side by side in one run on one machine: every row of the table starts each broker anew, measures it, and
//! ends it. Durable rows stand beside the sync rate of the same file system, measured right before and after them.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::durable::{self, DurablePlan};
use crate::idle::{self, IdlePlan};
use crate::load::{self, Amount, LoadPlan, LoadReport, Topology};
use crate::options::{Known, Options};
use crate::packet::{self, Version};
use crate::process::Server;
use crate::startup;
use crate::sync_rate;
use crate::verbs::Failure;

/// Options of the verb.
pub const OPTIONS: &[Known] = &[
    ("host", Some("127.0.0.1"), "address of both brokers"),
    ("a", Some(""), "NAME=COMMAND of the first broker"),
    ("a-port", Some("1883"), "its port"),
    ("a-status", Some(""), "URL of its status document, when it has one"),
    ("b", Some(""), "NAME=COMMAND of the second broker"),
    ("b-port", Some("1884"), "its port"),
    ("b-status", Some(""), "URL of its status document, when it has one"),
    (
        "rows",
        Some("all"),
        "rows to measure, by comma: qos0,qos1,qos2,v5,fanout,steady,latency,idle,start,durable",
    ),
    ("pairs", Some("1"), "publisher and subscriber pairs of the one-to-one rows"),
    ("window", Some("1000"), "messages on their way of each QoS 0 pair"),
    ("in-flight", Some("20"), "messages in flight of each QoS 1 and 2 pair"),
    ("connections", Some("10000"), "idle connections"),
    ("scale", Some("1"), "factor on the message counts"),
    ("repeat", Some("3"), "times each load is run; the median by server CPU stands in the table"),
    ("sync-file", Some("sync-rate.tmp"), "file for the sync rate, on the file system of the durable state"),
    ("server-log", Some(""), "file for the brokers' output"),
];

struct Contestant {
    name: String,
    command: String,
    address: SocketAddr,
    status_url: Option<String>,
}

/// One line of the table: what is measured, then a cell for each contestant.
struct Row {
    measure: String,
    cells: Vec<String>,
}

struct Comparison<'a> {
    options: &'a Options,
    contestants: Vec<Contestant>,
    rows: Vec<Row>,
    scale: f64,
}

/// Measures all wanted rows and prints the table.
pub fn verb(options: &Options) -> Result<(), Failure> {
    let mut contestants = Vec::new();
    for side in ["a", "b"] {
        let Some(given) = options.text_if_given(side) else { continue };
        let (name, command) = given.split_once('=').ok_or_else(|| format!("--{side} wants NAME=COMMAND"))?;
        contestants.push(Contestant {
            name: name.to_owned(),
            command: command.to_owned(),
            address: options.address_of(&format!("{side}-port"))?,
            status_url: options.text_if_given(&format!("{side}-status")).map(str::to_owned),
        });
    }
    if contestants.is_empty() {
        return Err("compare wants --a NAME=COMMAND".to_owned().into());
    }
    let mut comparison =
        Comparison { options, contestants, rows: Vec::new(), scale: options.number("scale")? };
    comparison.measure()?;
    Ok(io::stdout().lock().write_all(comparison.table().as_bytes())?)
}

impl Comparison<'_> {
    fn measure(&mut self) -> Result<(), Failure> {
        let (pairs, window, in_flight) = (
            self.options.number("pairs")?,
            self.options.number("window")?,
            self.options.number("in-flight")?,
        );
        let one_to_one = |plan: &mut LoadPlan, qos: u8| {
            (plan.publishers, plan.subscribers) = (pairs, pairs);
            (plan.publish_qos, plan.subscribe_qos) = (qos, qos);
            plan.window = if qos == 0 { window } else { in_flight };
        };
        for (row, qos, messages) in [("qos0", 0, 1_000_000), ("qos1", 1, 300_000), ("qos2", 2, 100_000)] {
            if self.wants(row) {
                let name = format!("QoS {qos}, {pairs} to {pairs} in pairs");
                self.load(&name, messages, |plan| one_to_one(plan, qos))?;
            }
        }
        if self.wants("v5") {
            self.version_5(pairs, &one_to_one)?;
        }
        if self.wants("fanout") {
            self.load("QoS 0, 1 to 100 (per delivery)", 15_000, |plan| {
                plan.subscribers = 100;
                plan.topology = Topology::All;
                plan.window = 20;
                plan.warm_up = 100;
            })?;
        }
        if self.wants("steady") {
            for qos in [0, 1] {
                self.load(&format!("QoS {qos}, steady 1000 a second"), 20_000, |plan| {
                    one_to_one(plan, qos);
                    plan.rate = Some(1000.0);
                })?;
            }
        }
        if self.wants("latency") {
            self.latency()?;
        }
        if self.wants("idle") {
            self.idle()?;
        }
        if self.wants("start") {
            self.start()?;
        }
        if self.wants("durable") {
            self.durable("QoS 1 to an offline session, 64 in flight", 200_000, 64)?;
            self.durable("QoS 1 to an offline session, one at a time", 5000, 1)?;
        }
        Ok(())
    }

    /// The one-to-one rows in version 5, without properties and with some.
    fn version_5(&mut self, pairs: usize, one_to_one: &impl Fn(&mut LoadPlan, u8)) -> Result<(), Failure> {
        for (version, with) in [(Version::V5, ""), (Version::V5WithProperties, ", alias and user properties")]
        {
            packet::speak(version);
            for (qos, messages) in [(0, 1_000_000), (1, 300_000), (2, 100_000)] {
                let name = format!("MQTT 5{with}, QoS {qos}, {pairs} to {pairs} in pairs");
                self.load(&name, messages, |plan| one_to_one(plan, qos))?;
            }
        }
        packet::speak(Version::V311);
        Ok(())
    }

    fn wants(&self, row: &str) -> bool {
        let rows = self.options.text("rows");
        rows == "all" || rows.split(',').any(|wanted| wanted == row)
    }

    fn scaled(&self, messages: u32) -> Amount {
        let messages = Duration::from_secs(u64::from(messages)).mul_f64(self.scale).as_secs();
        Amount::Messages(messages.max(100))
    }

    fn spawn(&self, contestant: &Contestant) -> io::Result<Server> {
        crate::process::raise_open_files();
        let log = self.options.text_if_given("server-log").map(Path::new);
        let mut server = Server::spawn(&contestant.command, log)?;
        server.wait_listening(contestant.address, Duration::from_secs(30))?;
        Ok(server)
    }

    fn plan(&self, contestant: &Contestant, server: &Server, messages: u32) -> LoadPlan {
        LoadPlan {
            amount: self.scaled(messages),
            pid: Some(server.pid()),
            status_url: contestant.status_url.clone(),
            ..LoadPlan::new(contestant.address)
        }
    }

    /// Two rows: deliveries a second, and CPU seconds per million; the median run by CPU.
    fn load(&mut self, name: &str, messages: u32, shape: impl Fn(&mut LoadPlan)) -> Result<(), Failure> {
        let repeat: u32 = self.options.number("repeat")?;
        let (mut paces, mut costs) = (Vec::new(), Vec::new());
        for contestant in &self.contestants {
            let mut runs = Vec::new();
            for _ in 0..repeat.max(1) {
                let mut server = self.spawn(contestant)?;
                let mut plan = self.plan(contestant, &server, messages);
                shape(&mut plan);
                runs.push(load::run(&plan)?);
                server.terminate(Duration::from_secs(30))?;
            }
            let cost = |run: &LoadReport| run.server_cpu_s_per_million().unwrap_or(0.0);
            runs.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
            let Some(median) = runs.get(runs.len() / 2) else { continue };
            let lost = if median.lost > 0 { format!(", {} lost", median.lost) } else { String::new() };
            paces.push(format!("{:.0}/s{lost}", median.per_second()));
            let low = runs.first().map_or(0.0, cost);
            let high = runs.last().map_or(0.0, cost);
            costs.push(format!("{:.2} ({low:.2} to {high:.2})", cost(median)));
        }
        self.rows.push(Row { measure: format!("{name}: deliveries"), cells: paces });
        self.rows.push(Row { measure: format!("{name}: server CPU s per million"), cells: costs });
        Ok(())
    }

    fn latency(&mut self) -> Result<(), Failure> {
        let mut cells = Vec::new();
        for contestant in &self.contestants {
            let mut server = self.spawn(contestant)?;
            let mut plan = self.plan(contestant, &server, 5000);
            (plan.publish_qos, plan.subscribe_qos, plan.window) = (1, 1, 1);
            let run = load::run(&plan)?;
            server.terminate(Duration::from_secs(30))?;
            let us = |per_mille| run.delivery_latency.percentile(per_mille).as_micros();
            cells.push(format!("{} / {} us", us(500), us(990)));
        }
        self.rows.push(Row { measure: "QoS 1, one at a time: delivery p50 / p99".to_owned(), cells });
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Failure> {
        let connections: usize = self.options.number("connections")?;
        let (mut memory, mut wake_ups) = (Vec::new(), Vec::new());
        for contestant in &self.contestants {
            let mut server = self.spawn(contestant)?;
            let run = idle::run(&IdlePlan {
                address: contestant.address,
                user: None,
                connections,
                subscribe: false,
                keep_alive_s: 0,
                watch: Duration::from_secs(10),
                pid: server.pid(),
            })?;
            server.terminate(Duration::from_secs(30))?;
            memory.push(format!("{:.0} bytes", run.bytes_per_connection()));
            wake_ups.push(format!("{:.1}/s", run.wake_ups_per_second));
        }
        self.rows.push(Row {
            measure: format!("{connections} idle connections: resident memory each"),
            cells: memory,
        });
        self.rows.push(Row { measure: format!("{connections} idle connections: wake-ups"), cells: wake_ups });
        Ok(())
    }

    fn start(&mut self) -> Result<(), Failure> {
        let (mut times, mut memory) = (Vec::new(), Vec::new());
        for contestant in &self.contestants {
            let log = self.options.text_if_given("server-log").map(Path::new);
            let mut runs = Vec::new();
            for _ in 0..5 {
                runs.push(startup::run(&contestant.command, contestant.address, log)?);
            }
            runs.sort_by_key(|run| run.listening);
            let ms = |at: usize| runs.get(at).map_or(0.0, |run| run.listening.as_secs_f64() * 1000.0);
            times.push(format!("{:.1} ms ({:.1} to {:.1})", ms(2), ms(0), ms(4)));
            let kib = runs.iter().map(|run| run.resident_bytes / 1024).max().unwrap_or(0);
            memory.push(format!("{kib} KiB"));
        }
        self.rows.push(Row { measure: "start to listening, median of 5".to_owned(), cells: times });
        self.rows.push(Row { measure: "idle process: resident memory".to_owned(), cells: memory });
        Ok(())
    }

    /// Acknowledgements a second, their cost, and both beside the sync rate.
    fn durable(&mut self, name: &str, messages: u32, window: u16) -> Result<(), Failure> {
        let (mut paces, mut costs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for contestant in &self.contestants {
            let before = self.sync_rate()?;
            let mut server = self.spawn(contestant)?;
            let load = LoadPlan {
                publish_qos: 1,
                subscribe_qos: 1,
                topology: Topology::All,
                window,
                warm_up: u64::from(window) * 4,
                ..self.plan(contestant, &server, messages)
            };
            let run = durable::run(&DurablePlan { load, verify: false })?.load;
            server.terminate(Duration::from_secs(30))?;
            let syncs = f64::midpoint(before, self.sync_rate()?);
            paces.push(format!("{:.0}/s", run.per_second()));
            costs.push(format!("{:.2}", run.server_cpu_s_per_million().unwrap_or(0.0)));
            let each = run.storage.map_or_else(String::new, |storage| {
                let bytes = storage.bytes_written as f64 / run.published as f64;
                let messages = run.published as f64 / storage.syncs as f64;
                format!(", {bytes:.0} bytes each, {messages:.1} a sync")
            });
            ratios.push(format!("{:.2} ({syncs:.0} syncs/s{each})", run.per_second() / syncs));
        }
        self.rows.push(Row { measure: format!("{name}: acknowledgements"), cells: paces });
        self.rows.push(Row { measure: format!("{name}: server CPU s per million"), cells: costs });
        self.rows.push(Row { measure: format!("{name}: per 64-byte append and sync"), cells: ratios });
        Ok(())
    }

    fn sync_rate(&self) -> io::Result<f64> {
        let path = PathBuf::from(self.options.text("sync-file"));
        Ok(sync_rate::measure(&path, Duration::from_secs(2))?.per_second)
    }

    fn table(&self) -> String {
        let names: Vec<_> = self.contestants.iter().map(|contestant| contestant.name.as_str()).collect();
        let mut table = format!("| measure | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
        for row in &self.rows {
            writeln!(table, "| {} | {} |", row.measure, row.cells.join(" | "))
                .expect("a String takes every write");
        }
        table
    }
}
