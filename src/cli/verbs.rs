//! The table of verbs: name, arguments and words of each, and the row of the table of HTTP routes that it asks. The
//! parser, the help, the completions and the manual pages are made from it.

use crate::http::routes::Operation;
use clap::{Arg, ArgAction, Command, value_parser};

/// A verb or, inside another, its second word.
pub(super) struct Verb {
    pub name: &'static str,
    pub summary: &'static str,
    pub arguments: &'static [Argument],
    pub verbs: &'static [Self],
    /// What it asks of the running gateway; a method and a path of the table of routes.
    pub asks: Option<Operation>,
}

/// What may follow a verb.
pub(super) struct Argument {
    /// Its long option, or the name of its place.
    pub name: &'static str,
    pub kind: Kind,
    pub summary: &'static str,
}

/// What an argument takes.
pub(super) enum Kind {
    /// `--name`
    Flag,
    /// `--name PATH`
    Path,
    /// `--name N`
    Number { min: i64, max: i64 },
    /// `--name TEXT`
    Text,
    /// `--name TEXT`, which must be there.
    Required,
    /// `--name`, one of these words.
    Choice(&'static [&'static str]),
    /// A word at its place, which must be there.
    Word,
    /// One of these words at its place.
    OneOf(&'static [&'static str]),
}

/// What most verbs have in common.
const VERB: Verb = Verb { name: "", summary: "", arguments: &[], verbs: &[], asks: None };

pub(super) const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

const USER_NAME: Argument = Argument { name: "NAME", kind: Kind::Word, summary: "Name of the user" };
const PASSWORD_FILE: Argument = Argument {
    name: "password-file",
    kind: Kind::Path,
    summary: "File to change [default: auth.password_file of the configuration]",
};
const PASSWORD_STDIN: Argument = Argument {
    name: "password-stdin",
    kind: Kind::Flag,
    summary: "Read the password from standard input instead of asking twice",
};
const ITERATIONS: Argument = Argument {
    name: "iterations",
    kind: Kind::Number { min: 1, max: 5_000_000 },
    summary: "PBKDF2 iterations: more make guessing and each login slower [default: 10000]",
};

const JSON: Argument = Argument { name: "json", kind: Kind::Flag, summary: "Print JSON" };
const QUEUE: Argument = Argument { name: "QUEUE", kind: Kind::Word, summary: "Name of the queue or session" };
const QUEUE_KIND: Argument = Argument {
    name: "kind",
    kind: Kind::Choice(&["queue", "session"]),
    summary: "Which, when a queue and a session have this name [default: the queue]",
};
const COLLECTION: Argument =
    Argument { name: "COLLECTION", kind: Kind::Word, summary: "Name of the collection" };
const SINCE: Argument = Argument {
    name: "since",
    kind: Kind::Text,
    summary: "From this moment on: 1h (ago), 2026-11-29T10:00:00Z, or milliseconds since 1970",
};
const UNTIL: Argument = Argument { name: "until", kind: Kind::Text, summary: "Before this moment" };
const TOPIC: Argument =
    Argument { name: "topic", kind: Kind::Text, summary: "Topics, as an MQTT filter such as sensors/+/temp" };
const WHERE: Argument = Argument {
    name: "where",
    kind: Kind::Text,
    summary: "Condition such as \"value >= 25 and unit = 'C'\"; and, or, not, exists(field), contains",
};

pub(super) static VERBS: &[Verb] = &[
    Verb { name: "run", summary: "Run the gateway (the default)", arguments: &[], ..VERB },
    Verb {
        name: "check-config",
        summary: "Say what is wrong with the configuration and the files it names",
        arguments: &[Argument {
            name: "show-effective",
            kind: Kind::Flag,
            summary: "Print every setting with the value that holds, as TOML",
        }],
        ..VERB
    },
    Verb {
        name: "status",
        summary: "Ask the running gateway how it is",
        arguments: &[
            JSON,
            Argument {
                name: "check",
                kind: Kind::Flag,
                summary: "For monitoring: exit 0 when healthy, 1 when not, 3 when unreachable",
            },
            Argument { name: "watch", kind: Kind::Flag, summary: "Show it again every two seconds" },
        ],
        asks: Some(Operation::Status),
        ..VERB
    },
    Verb {
        name: "doctor",
        summary: "Say what is wrong, or soon will be, and what to do: clock, disk, write rate, certificates, file modes, routes, rights, losses",
        asks: Some(Operation::Status),
        ..VERB
    },
    Verb {
        name: "queue",
        summary: "Look into queues and sessions, and empty them",
        verbs: &[
            Verb {
                name: "ls",
                summary: "List queues, sessions and collections, the fullest first",
                arguments: &[JSON],
                asks: Some(Operation::Queues),
                ..VERB
            },
            Verb {
                name: "peek",
                summary: "Show the oldest messages that wait, without taking them",
                arguments: &[
                    QUEUE,
                    QUEUE_KIND,
                    Argument {
                        name: "limit",
                        kind: Kind::Number { min: 1, max: 1000 },
                        summary: "Messages at most [default: 10]",
                    },
                    JSON,
                ],
                asks: Some(Operation::PeekQueue),
                ..VERB
            },
            Verb {
                name: "purge",
                summary: "Drop the messages that wait; what is in flight stays",
                arguments: &[QUEUE, QUEUE_KIND],
                asks: Some(Operation::PurgeQueue),
                ..VERB
            },
        ],
        ..VERB
    },
    Verb {
        name: "trace",
        summary: "Say where messages of a topic go, step by step with counts and examples, and what to change",
        arguments: &[
            Argument { name: "TOPIC", kind: Kind::Word, summary: "Topic name, without wildcards" },
            JSON,
            Argument { name: "watch", kind: Kind::Flag, summary: "Show it again every two seconds" },
        ],
        asks: Some(Operation::Trace),
        ..VERB
    },
    Verb {
        name: "client",
        summary: "See who is connected, and end connections",
        verbs: &[
            Verb {
                name: "ls",
                summary: "List the clients that are connected",
                arguments: &[JSON],
                asks: Some(Operation::Clients),
                ..VERB
            },
            Verb {
                name: "kick",
                summary: "End the connections of a client; its session stays",
                arguments: &[Argument {
                    name: "CLIENT",
                    kind: Kind::Word,
                    summary: "Client identifier, or the number that client ls shows",
                }],
                asks: Some(Operation::KickClient),
                ..VERB
            },
        ],
        ..VERB
    },
    Verb {
        name: "reload",
        summary: "Have the running gateway read its configuration anew: all of it or, when something is wrong, nothing",
        asks: Some(Operation::Reload),
        ..VERB
    },
    Verb {
        name: "query",
        summary: "Show readings of a collection, or what is made of them",
        arguments: &[
            COLLECTION,
            SINCE,
            UNTIL,
            TOPIC,
            WHERE,
            Argument {
                name: "every",
                kind: Kind::Text,
                summary: "Aggregate for each stretch of this length: 1m",
            },
            Argument {
                name: "agg",
                kind: Kind::Text,
                summary: "Aggregates: count, avg, sum, min, max, first, last, p95; avg(field) for another field",
            },
            Argument { name: "by", kind: Kind::Text, summary: "Aggregate by topic, tag or field" },
            Argument {
                name: "field",
                kind: Kind::Text,
                summary: "Field that is aggregated [default: value, else payload]",
            },
            Argument {
                name: "limit",
                kind: Kind::Number { min: 1, max: 4_294_967_295 },
                summary: "Results at most",
            },
            Argument {
                name: "format",
                kind: Kind::Choice(&["table", "json", "jsonl", "csv"]),
                summary: "Form of the results [default: table on a terminal, else jsonl]",
            },
            Argument { name: "plot", kind: Kind::Flag, summary: "Draw a line chart" },
        ],
        asks: Some(Operation::QueryCollection),
        ..VERB
    },
    Verb {
        name: "tail",
        summary: "Follow the readings of a collection, or the messages of topics, as they come",
        arguments: &[
            Argument {
                name: "COLLECTION|TOPIC",
                kind: Kind::Word,
                summary: "A collection, or an MQTT filter with /, + or # in it: sensors/#, alarm/# for alarm itself",
            },
            TOPIC,
            WHERE,
        ],
        asks: Some(Operation::TailCollection),
        ..VERB
    },
    Verb {
        name: "export",
        summary: "Write the readings of a collection out",
        arguments: &[
            COLLECTION,
            SINCE,
            UNTIL,
            TOPIC,
            WHERE,
            Argument {
                name: "format",
                kind: Kind::Choice(&["jsonl", "csv", "line-protocol"]),
                summary: "Form [default: jsonl]",
            },
        ],
        asks: Some(Operation::QueryCollection),
        ..VERB
    },
    Verb {
        name: "delete",
        summary: "Delete readings of a collection by time or topic",
        arguments: &[
            COLLECTION,
            SINCE,
            UNTIL,
            TOPIC,
            Argument { name: "all", kind: Kind::Flag, summary: "All of them" },
        ],
        asks: Some(Operation::DeleteReadings),
        ..VERB
    },
    Verb {
        name: "storage",
        summary: "Look after what is stored",
        arguments: &[],
        verbs: &[
            Verb {
                name: "usage",
                summary: "What collections hold and cost",
                arguments: &[
                    Argument {
                        name: "collection",
                        kind: Kind::Text,
                        summary: "Series by series of this one",
                    },
                    JSON,
                ],
                asks: Some(Operation::Collections),
                ..VERB
            },
            Verb {
                name: "verify",
                summary: "Read everything that is stored, and say what does not verify; changes nothing",
                ..VERB
            },
            Verb {
                name: "repair",
                summary: "Set aside what is damaged and keep what is whole, as a start does; for a stopped gateway",
                ..VERB
            },
            Verb {
                name: "compact",
                summary: "Give back room that files take and do not need; for a stopped gateway",
                ..VERB
            },
        ],
        ..VERB
    },
    Verb {
        name: "backup",
        summary: "Copy everything that the gateway keeps into one file, while it runs or is stopped",
        arguments: &[Argument {
            name: "FILE",
            kind: Kind::Word,
            summary: "File to write, in place of one of this name; - for standard output",
        }],
        asks: Some(Operation::Backup),
        ..VERB
    },
    Verb {
        name: "restore",
        summary: "Make the state folder of a backup; for a stopped gateway",
        arguments: &[
            Argument { name: "FILE", kind: Kind::Word, summary: "The backup; - for standard input" },
            Argument {
                name: "force",
                kind: Kind::Flag,
                summary: "When the state folder is not empty, set it aside under another name",
            },
            Argument { name: "check", kind: Kind::Flag, summary: "Only check the backup; change nothing" },
        ],
        ..VERB
    },
    Verb {
        name: "ingest",
        summary: "Try ingest routes",
        arguments: &[],
        verbs: &[Verb {
            name: "test",
            summary: "Say what the routes make of a message, without a gateway",
            arguments: &[
                Argument { name: "topic", kind: Kind::Required, summary: "Topic of the message" },
                Argument { name: "payload", kind: Kind::Required, summary: "Its payload" },
            ],
            ..VERB
        }],
        ..VERB
    },
    Verb {
        name: "acl",
        summary: "Try access rules",
        verbs: &[Verb {
            name: "test",
            summary: "Say what the rules allow a client, without a gateway",
            arguments: &[
                Argument { name: "user", kind: Kind::Text, summary: "Its user name [default: none]" },
                Argument {
                    name: "client",
                    kind: Kind::Text,
                    summary: "Its client identifier [default: empty]",
                },
                Argument {
                    name: "topic",
                    kind: Kind::Required,
                    summary: "A topic, or a filter to subscribe with",
                },
                Argument {
                    name: "acl-file",
                    kind: Kind::Path,
                    summary: "File of rules [default: auth.acl_file of the configuration]",
                },
            ],
            ..VERB
        }],
        ..VERB
    },
    Verb {
        name: "import",
        summary: "Take over what another broker was told",
        verbs: &[Verb {
            name: "mosquitto",
            summary: "Make a gateway.toml of a mosquitto.conf, and say what has no counterpart",
            arguments: &[
                Argument {
                    name: "source",
                    kind: Kind::Path,
                    summary: "File to read [default: /etc/mosquitto/mosquitto.conf]",
                },
                Argument {
                    name: "output",
                    kind: Kind::Path,
                    summary: "File to write, which must not be there [default: standard output]",
                },
            ],
            ..VERB
        }],
        ..VERB
    },
    Verb {
        name: "user",
        summary: "Change who may log in",
        arguments: &[],
        verbs: &[
            Verb {
                name: "add",
                summary: "Add a user",
                arguments: &[USER_NAME, PASSWORD_FILE, PASSWORD_STDIN, ITERATIONS],
                ..VERB
            },
            Verb {
                name: "passwd",
                summary: "Change a user's password",
                arguments: &[USER_NAME, PASSWORD_FILE, PASSWORD_STDIN, ITERATIONS],
                ..VERB
            },
            Verb { name: "rm", summary: "Remove a user", arguments: &[USER_NAME, PASSWORD_FILE], ..VERB },
        ],
        ..VERB
    },
    Verb {
        name: "manual",
        summary: "Write manual pages into a folder: one for each verb, and gateway.toml(5)",
        arguments: &[Argument {
            name: "FOLDER",
            kind: Kind::Word,
            summary: "Where, such as /usr/share/man/man8",
        }],
        ..VERB
    },
    Verb {
        name: "completions",
        summary: "Print the completions of a shell",
        arguments: &[Argument { name: "SHELL", kind: Kind::OneOf(&SHELLS), summary: "Which shell" }],
        ..VERB
    },
];

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed, 2 usage, 3 daemon unreachable, 78 bad configuration";

/// The parser of the command line.
pub(super) fn command() -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(value_parser!(std::path::PathBuf))
        .global(true)
        .help("Configuration file [default: /etc/gateway.toml, which need not exist]");
    Command::new("gatewayd")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Edge IoT gateway: durable MQTT broker for embedded Linux boards")
        .after_help(EXIT_CODES)
        .disable_help_subcommand(true)
        .arg(config)
        .subcommands(VERBS.iter().map(subcommand))
}

fn subcommand(verb: &Verb) -> Command {
    Command::new(verb.name)
        .about(verb.summary)
        .disable_help_subcommand(true)
        .subcommand_required(!verb.verbs.is_empty())
        .arg_required_else_help(!verb.verbs.is_empty())
        .args(verb.arguments.iter().map(argument))
        .subcommands(verb.verbs.iter().map(subcommand))
}

fn argument(argument: &Argument) -> Arg {
    let arg = Arg::new(argument.name).help(argument.summary);
    match argument.kind {
        Kind::Flag => arg.long(argument.name).action(ArgAction::SetTrue),
        Kind::Path => {
            arg.long(argument.name).value_name("FILE").value_parser(value_parser!(std::path::PathBuf))
        }
        Kind::Number { min, max } => {
            arg.long(argument.name).value_name("N").value_parser(value_parser!(u32).range(min..=max))
        }
        Kind::Text => arg.long(argument.name).value_name("TEXT").allow_hyphen_values(true),
        Kind::Required => arg.long(argument.name).value_name("TEXT").allow_hyphen_values(true).required(true),
        Kind::Choice(words) => arg.long(argument.name).value_name("FORMAT").value_parser(words.to_vec()),
        Kind::Word => arg.required(true),
        Kind::OneOf(words) => arg.required(true).value_parser(words.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_makes_a_sound_parser() {
        command().debug_assert();
    }

    #[test]
    fn the_default_in_the_help_is_the_default() {
        let shown = format!("[default: {}]", crate::auth::ITERATIONS_DEFAULT);
        assert!(ITERATIONS.summary.ends_with(&shown));
        assert_eq!(crate::config::DEFAULT_PATH, "/etc/gateway.toml");
    }
}
