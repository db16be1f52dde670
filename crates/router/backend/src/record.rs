//! `[shape] record`: operation logs of shaper instances, for `fairpath sched replay`.

use std::fs::{DirBuilder, File};
use std::io::BufWriter;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::Context;
use fairpath_files::DIRECTORY_MODE;
use fairpath_sched::log::{Batch, LogError, Run, Writer};
use fairpath_sched::tree::Tree;
use fairpath_shape::{Recorder, ShapeInstance, Side};

/// Maximum operations of a file: about 100 MB, 20 to 40 s at 100,000 packets per second.
const MOST: u64 = 1 << 22;
/// Maximum number of batches that wait for the file.
const WAITING: usize = 256;

/// The operation log of a running shaper instance. It is complete when dropped after the instance.
pub struct Recording {
    writer: Option<JoinHandle<()>>,
}

impl Recording {
    /// Records an instance that was built from `tree` and has no operation yet. The directory is created
    /// if its parent exists.
    ///
    /// # Errors
    /// Where no file can be made in the directory.
    pub fn begin(
        instance: &mut ShapeInstance,
        tree: &Tree,
        side: Side,
        directory: &Path,
    ) -> anyhow::Result<Recording> {
        let time = jiff::Zoned::now().strftime("%Y%m%dT%H%M%S%.3f");
        let path = directory.join(format!("{}-{time}.ops", side.name()));
        if !directory.exists() {
            DirBuilder::new()
                .mode(DIRECTORY_MODE)
                .create(directory)
                .with_context(|| format!("[shape] record: create the directory {directory:?}"))?;
        }
        let file = fairpath_files::create(&path)
            .with_context(|| format!("[shape] record: create {path:?}"))?;
        let (to, from) = sync_channel(WAITING);
        let run = instance.run_of(tree);
        instance.record(Recorder::new(to, MOST));
        let writer = thread::Builder::new()
            .name("shape record".into())
            .spawn(move || report(&path, write(file, &run, &from)))
            .context("start the thread of the operation log")?;
        Ok(Recording {
            writer: Some(writer),
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            // A panic in it was printed.
            let _ = writer.join();
        }
    }
}

fn write(file: File, run: &Run, from: &Receiver<Batch>) -> Result<u64, LogError> {
    let mut writer = Writer::new(BufWriter::new(file))?;
    writer.begin(run)?;
    let mut count = 0;
    for batch in from {
        writer.record(&batch.ops, &batch.outcomes)?;
        count += batch.ops.len() as u64;
    }
    writer.finish()?;
    Ok(count)
}

fn report(path: &PathBuf, written: Result<u64, LogError>) {
    match written {
        Ok(count) => tracing::info!("recorded {count} operations to {path:?}"),
        Err(error) => {
            let error = anyhow::Error::new(error);
            tracing::warn!(
                "record to {path:?}: {error:#}; the recording ends, and its file cannot be replayed: \
                 free space on its disk, then restart shaping with `fairpath shape stop` and `start`"
            );
        }
    }
}
