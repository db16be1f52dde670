//! `cargo xtask cross`: the router's binary for arm64, built here and tried in an emulator.
//!
//! rustup's targets are not everywhere to be had, Debian's archive is: [`toolchain`] takes rustc and the
//! standard library of both machines from there. C is compiled and linked by Debian's cross gcc; the
//! BPF objects are for arm64's kernel. Nothing is installed: what apt fetches is unpacked in `.cache`.

mod toolchain;

use crate::run;
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toolchain::Toolchain;

const TARGET: &str = "aarch64-unknown-linux-gnu";
const GCC: &str = "aarch64-linux-gnu-gcc";
/// The C library of Debian's cross compiler.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";
const EMULATOR: &str = "qemu-aarch64-static";
/// A capture with a bit of everything, for both machines to read.
const CAPTURE: &str = "tests/golden/two-way.pcap.gz";

/// Builds the binary, checks what it is, and compares its output with that of the native one.
pub fn run() -> Result<()> {
    let toolchain = Toolchain::get(&run::root().join(".cache/arm64"))?;
    let binary = build(&toolchain)?;
    let header = fs::read(&binary).with_context(|| format!("read {}", binary.display()))?;
    ensure!(
        is_aarch64(&header),
        "{}: no 64-bit ELF file for AArch64",
        binary.display()
    );
    println!("cross: {}: ELF, AArch64", binary.display());
    compare(&binary, &toolchain)
}

fn build(toolchain: &Toolchain) -> Result<PathBuf> {
    let target = run::target_dir().join("arm64");
    let (include, libraries) = (toolchain.include(), toolchain.libraries());
    let mut cargo = run::cargo();
    cargo
        .args(["build", "--locked", "--quiet", "--package", "fairpath"])
        .args(["--target", TARGET, "--target-dir"])
        .arg(&target)
        .env("RUSTC", toolchain.rustc())
        // Its rustc is another one: half-compiled crates of the host's are of no use to it.
        .env_remove("RUSTC_WRAPPER")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", GCC)
        .env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            format!("-L native={}", libraries.display()),
        )
        .env("CC_aarch64_unknown_linux_gnu", GCC)
        .env("AR_aarch64_unknown_linux_gnu", "aarch64-linux-gnu-ar")
        .env(
            "CFLAGS_aarch64_unknown_linux_gnu",
            format!("-I{}", include.display()),
        )
        .env("PKG_CONFIG_ALLOW_CROSS", "1")
        .env("PKG_CONFIG_LIBDIR", libraries.join("pkgconfig"))
        .env("PKG_CONFIG_SYSROOT_DIR", toolchain.root());
    run::run(&mut cargo)?;
    Ok(target.join(TARGET).join("debug/fairpath"))
}

/// This machine's binary: from `FAIRPATH_BIN_DIR`, else built now.
fn native() -> Command {
    match env::var_os("FAIRPATH_BIN_DIR") {
        Some(directory) => Command::new(Path::new(&directory).join("fairpath")),
        None => {
            let mut cargo = run::cargo();
            cargo.args(["run", "--locked", "--quiet", "--package", "fairpath", "--"]);
            cargo
        }
    }
}

/// By the ELF header: the magic number, 64 bits, little endian, `EM_AARCH64`.
fn is_aarch64(file: &[u8]) -> bool {
    const EM_AARCH64: [u8; 2] = 183_u16.to_le_bytes();
    file.starts_with(b"\x7fELF\x02\x01") && file.get(18..20) == Some(&EM_AARCH64[..])
}

/// The version, and every record of a capture, byte for byte.
fn compare(binary: &Path, toolchain: &Toolchain) -> Result<()> {
    let emulated = |arguments: &[&str]| {
        let mut command = Command::new(EMULATOR);
        command.args(["-L", SYSROOT, "-E"]);
        command.arg(format!("LD_LIBRARY_PATH={}", toolchain.loader_path()));
        run::output(command.arg(binary).args(arguments)).context("remedy: make setup")
    };
    let version = emulated(&["--version"])?;
    ensure!(
        version.starts_with(concat!("fairpath ", env!("CARGO_PKG_VERSION"), " (commit ")),
        "in {EMULATOR}, --version prints {version:?}"
    );
    let arguments = ["rtt", "--format", "json", "--read", CAPTURE];
    let mut native = native();
    let (here, there) = (run::output(native.args(arguments))?, emulated(&arguments)?);
    ensure!(
        !here.is_empty(),
        "fairpath rtt printed nothing for {CAPTURE}"
    );
    for (line, (native, arm64)) in here.lines().zip(there.lines()).enumerate() {
        if native != arm64 {
            bail!(
                "{CAPTURE}, record {}: arm64 prints\n{arm64}\nand this machine\n{native}",
                line + 1
            );
        }
    }
    ensure!(
        here == there,
        "{CAPTURE}: arm64 prints more or fewer records than this machine"
    );
    println!(
        "cross: in {EMULATOR}, {} records of {CAPTURE} are those of this machine",
        here.lines().count()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elf_file_is_detected_by_its_header() {
        let mut header = [0_u8; 20];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[18] = 183;
        assert!(is_aarch64(&header));
        header[18] = 62;
        assert!(!is_aarch64(&header));
        assert!(!is_aarch64(b"\x7fELF\x02\x01"));
    }
}
