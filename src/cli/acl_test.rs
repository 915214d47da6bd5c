//! `acl test`: what the rules say to a client, without a gateway.

use std::io;
use std::path::PathBuf;

use super::{Exit, Io};
use crate::auth::{Acl, Identity};
use crate::config::Config;

/// `acl test` as it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclTest {
    pub config: Option<PathBuf>,
    /// Else `auth.acl_file` of the configuration.
    pub acl_file: Option<PathBuf>,
    /// `None` is a client without a user name.
    pub user: Option<String>,
    pub client: String,
    /// A topic, or a filter.
    pub topic: String,
}

/// Says what the client may. Failure when it may nothing.
///
/// # Errors
/// Writing failed.
pub fn acl_test(test: &AclTest, io: &mut Io<'_>) -> io::Result<Exit> {
    let file = match &test.acl_file {
        Some(file) => Some(file.clone()),
        None => match Config::load(test.config.as_deref(), io.files) {
            Ok(config) => config.auth.acl_file,
            Err(errors) => {
                for error in errors {
                    writeln!(io.err, "{error}")?;
                }
                return Ok(Exit::BadConfiguration);
            }
        },
    };
    let Some(file) = file else {
        writeln!(io.out, "no ACL file (auth.acl_file): everybody may everything")?;
        return Ok(Exit::Ok);
    };
    let bytes = match io.files.read(&file) {
        Ok(bytes) => bytes,
        Err(error) => {
            writeln!(io.err, "{}: cannot be read: {error}", file.display())?;
            return Ok(Exit::BadConfiguration);
        }
    };
    let acl = match Acl::parse(&bytes) {
        Ok(acl) => acl,
        Err(errors) => {
            for error in errors {
                writeln!(io.err, "{}:{error}", file.display())?;
            }
            return Ok(Exit::BadConfiguration);
        }
    };
    let client = Identity { username: test.user.as_deref(), client_identifier: &test.client };
    let is_filter = test.topic.split('/').any(|level| matches!(level, "+" | "#"));
    let mut rights = vec![("subscribe", acl.may_subscribe(client, &test.topic))];
    if !is_filter {
        rights.push(("read", acl.may_read(client, &test.topic)));
        rights.push(("publish", acl.may_publish(client, &test.topic)));
    }
    for (right, given) in &rights {
        writeln!(io.out, "{right:<10} {}", if *given { "allowed" } else { "denied" })?;
    }
    Ok(if rights.iter().any(|(_, given)| *given) { Exit::Ok } else { Exit::Failed })
}

#[cfg(test)]
mod tests {
    use super::super::user::tests::Scratch;
    use super::*;

    #[test]
    fn rights_are_told() {
        let scratch = Scratch::new("acl-test");
        scratch.write("acl", "user ada\ntopic read plant/#\ntopic write plant/set\n");
        let test = |user: Option<&str>, topic: &str| AclTest {
            config: None,
            acl_file: Some(scratch.path("acl")),
            user: user.map(str::to_owned),
            client: String::new(),
            topic: topic.to_owned(),
        };
        for (user, topic, exit, expected) in [
            (
                Some("ada"),
                "plant/set",
                Exit::Ok,
                "subscribe  allowed\nread       allowed\npublish    allowed\n",
            ),
            (Some("ada"), "plant/a", Exit::Ok, "subscribe  allowed\nread       allowed\npublish    denied\n"),
            (Some("ada"), "plant/+", Exit::Ok, "subscribe  allowed\n"),
            (None, "plant/a", Exit::Failed, "subscribe  denied\nread       denied\npublish    denied\n"),
        ] {
            let (got, out, err) = scratch.run(|io| acl_test(&test(user, topic), io));
            assert_eq!((got, out.as_str(), err.as_str()), (exit, expected, ""), "{topic}");
        }
    }
}
