//! The ACL file for the doctor: lines that are for nobody, and lines that nothing was asked about.

use serde_json::Value;

use super::{Found, Level};
use crate::auth::{Acl, Users, Whose};
use crate::config::{ClientCert, Config, ConfigSource};

/// Lines that are shown; of the others how many there are.
const SHOWN_MAX: usize = 10;

/// `used` is what the running gateway says of the lines.
pub(super) fn look(config: &Config, used: Option<&Value>, files: &dyn ConfigSource, found: &mut Found) {
    let Some(path) = &config.auth.acl_file else { return };
    let Ok(text) = files.read(path) else { return };
    let acl = match Acl::parse(&text) {
        Ok(acl) => acl,
        Err(errors) => {
            let errors = errors.iter().map(|error| format!("{}:{error}", path.display()));
            found.extend(errors.map(|error| (Level::Problem, error)));
            return;
        }
    };
    let users =
        config.auth.password_file.as_ref().and_then(|file| Users::parse(&files.read(file).ok()?).ok());
    let by_certificate = config.enabled_listeners().any(|listener| listener.client_cert != ClientCert::None);
    let nameless = config.enabled_listeners().any(|listener| listener.allow_anonymous);
    let text = String::from_utf8_lossy(&text);
    let line_of = |number: usize| text.lines().nth(number - 1).unwrap_or_default().trim();
    let place = |number: usize| format!("{}:{number}: `{}`", path.display(), line_of(number));
    let lines = acl.lines();
    let mut for_nobody = Vec::new();
    for line in &lines {
        let why = match line.whose {
            Whose::User(_) if by_certificate => None,
            Whose::User(name) => match &users {
                Some(users) if users.entry(name).is_some() => None,
                Some(_) => Some((Level::Problem, format!("is for {name}, who is not in auth.password_file"))),
                None => Some((Level::Problem, format!("is for {name}, but there is no auth.password_file"))),
            },
            Whose::Nameless if nameless => None,
            Whose::Nameless => {
                let why = "is for clients without a name, and no listener has allow_anonymous";
                Some((Level::Note, why.to_owned()))
            }
            Whose::Everybody => None,
        };
        if let Some((level, why)) = why {
            for_nobody.push(line.number);
            found.push((level, format!("rights: {} {why}", place(line.number))));
        }
    }
    let same_file =
        used.and_then(|used| used.get("lines")).and_then(Value::as_u64) == Some(lines.len() as u64);
    let unmet = used.and_then(|used| used.get("unmet")).and_then(Value::as_array).filter(|_| same_file);
    let unmet: Vec<usize> = unmet
        .into_iter()
        .flatten()
        .filter_map(|number| usize::try_from(number.as_u64()?).ok())
        .filter(|number| *number > 0 && !for_nobody.contains(number))
        .collect();
    for number in unmet.iter().take(SHOWN_MAX) {
        let what = format!("rights: {} matched nothing since the rules were read", place(*number));
        found.push((Level::Note, what));
    }
    if let Some(more) = unmet.len().checked_sub(SHOWN_MAX + 1) {
        found.push((Level::Note, format!("rights: {} more lines matched nothing", more + 1)));
    }
}
