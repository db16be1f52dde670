//! The parts of a guest: a new directory, filled for one kernel and one user space.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Places;
use super::debian::{self, Packages};
use super::guest::Guest;
use super::initramfs::{self, Contents};
use super::kernel::Kernel;
use super::scenario::{Scenario, UserSpace};

/// Debian's user space with the package, twice.
const DISK_BYTES: u64 = 2 << 30;

/// `target/vm/KERNEL`, with `-debian` where that is the user space; the bulky part goes with the value unless it is to be kept.
pub struct Work {
    dir: PathBuf,
    stage: PathBuf,
    initramfs: PathBuf,
    disk: PathBuf,
    user_space: UserSpace,
    keep: bool,
}

impl Work {
    /// Writes everything that a guest of this kernel and user space boots from.
    ///
    /// `fairpath` is the built binary if any of `scenarios` needs it; a guest with Debian's user space always does.
    pub fn new(
        kernel: &Kernel,
        user_space: UserSpace,
        scenarios: &[Scenario],
        fairpath: Option<&Path>,
        places: &Places,
        keep: bool,
    ) -> Result<Self> {
        let name = match user_space {
            UserSpace::Busybox => kernel.which.name().to_owned(),
            UserSpace::Debian => format!("{}-debian", kernel.which.name()),
        };
        let dir = places.target.join("vm").join(name);
        let work = Work {
            stage: dir.join("root"),
            initramfs: dir.join("initramfs.cpio"),
            disk: dir.join("disk.img"),
            dir,
            user_space,
            keep,
        };
        let _ = fs::remove_dir_all(&work.stage);
        fs::create_dir_all(&work.stage)
            .with_context(|| format!("create {}", work.stage.display()))?;
        fs::write(work.console_log(), "")
            .with_context(|| format!("create {}", work.console_log().display()))?;
        let contents = Contents {
            tests: &places.tests,
            scenarios,
            fairpath,
            built: &places.target.join(super::command::BUILT),
        };
        work.fill(kernel, &contents, places)?;
        // Without blocks until the guest writes them.
        let disk = File::create(&work.disk);
        disk.and_then(|disk| disk.set_len(DISK_BYTES))
            .with_context(|| format!("create {}", work.disk.display()))?;
        Ok(work)
    }

    fn fill(&self, kernel: &Kernel, contents: &Contents, places: &Places) -> Result<()> {
        let (to, stage) = (&self.initramfs, &self.stage);
        match self.user_space {
            UserSpace::Busybox => initramfs::build(to, stage, kernel, contents),
            UserSpace::Debian => {
                let binary = contents.fairpath.context(
                    "scenarios with Debian's user space need fairpath; say so in their heads",
                )?;
                let packages = Packages::pack(binary, &self.dir.join("packages"))?;
                debian::build(to, stage, kernel, contents, &packages, &places.cache)
            }
        }
    }

    /// Where the guest's console goes.
    pub fn console_log(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// A guest that boots from this.
    pub fn guest<'a>(&'a self, kernel: &Kernel, console_log: &'a Path) -> Guest<'a> {
        Guest {
            which: kernel.which,
            image: kernel.image(),
            initramfs: &self.initramfs,
            console_log,
            disk: match self.user_space {
                UserSpace::Busybox => None,
                UserSpace::Debian => Some(&self.disk),
            },
            arguments: match self.user_space {
                UserSpace::Busybox => "",
                UserSpace::Debian => debian::KERNEL_ARGUMENTS,
            },
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.stage);
            let _ = fs::remove_file(&self.initramfs);
            let _ = fs::remove_file(&self.disk);
            let _ = fs::remove_dir_all(self.dir.join("packages"));
        }
    }
}
