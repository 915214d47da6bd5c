//! Manual pages, made from the table of verbs: gatewayd(8), and gatewayd-VERB(8) for each verb; and gateway.toml(5).

use std::fs;
use std::io;
use std::path::Path;

use clap_mangen::Man;

use super::{Exit, Io, settings_page, verbs};

/// Writes the pages into `folder`, which is made if need be.
///
/// # Errors
/// Writing to the terminal failed.
pub(super) fn write(folder: &Path, io: &mut Io<'_>) -> io::Result<Exit> {
    match pages(folder) {
        Ok(count) => {
            writeln!(io.out, "{count} pages in {}", folder.display())?;
            Ok(Exit::Ok)
        }
        Err(error) => {
            writeln!(io.err, "{}: {error}", folder.display())?;
            Ok(Exit::Failed)
        }
    }
}

fn pages(folder: &Path) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let mut command = verbs::command();
    command.build();
    let mut commands = vec![command.clone()];
    commands.extend(command.get_subcommands().cloned());
    for command in &commands {
        let name = match command.get_name() {
            "gatewayd" => "gatewayd".to_owned(),
            verb => format!("gatewayd-{verb}"),
        };
        let mut page = Vec::new();
        Man::new(command.clone()).title(name.clone()).section("8").manual("gatewayd").render(&mut page)?;
        fs::write(folder.join(format!("{name}.8")), page)?;
    }
    fs::write(folder.join("gateway.toml.5"), settings_page::page())?;
    Ok(commands.len() + 1)
}
