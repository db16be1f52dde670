//! Writes the tests' synthetic report into a directory, for inspection: `made DIR [RUNS]`.

use std::path::PathBuf;
use std::{env, fs, io};

#[path = "../tests/page/made.rs"]
#[allow(dead_code, reason = "the hostile report is for tests")]
mod made;

fn main() -> io::Result<()> {
    let mut arguments = env::args_os().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| "report".into()));
    let runs = arguments.next().and_then(|n| n.to_str()?.parse().ok());
    for file in fairpath_report::files(&made::report(runs.unwrap_or(40))) {
        let path = dir.join(&file.path);
        fs::create_dir_all(path.parent().unwrap_or(&dir))?;
        fs::write(path, file.content)?;
    }
    Ok(())
}
