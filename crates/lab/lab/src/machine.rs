//! Where experiments run: what explains results, and nothing that names the machine or its owner.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fairpath_analysis::manifest::Machine;

use crate::bbr::kernel_bbr;

/// Names of hypervisors in the firmware's identity, and their short names.
const HYPERVISORS: &[(&str, &str)] = &[
    ("KVM", "kvm"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VirtualBox", "virtualbox"),
    ("Microsoft", "hyper-v"),
    ("Xen", "xen"),
    ("Google", "kvm (Google)"),
    ("Amazon", "kvm (Amazon)"),
];

/// The description of this machine; unknown values are empty. `fairpath` is the router's binary.
pub fn reported(fairpath: &Path) -> Machine {
    let cpuinfo = read("/proc/cpuinfo");
    Machine {
        kernel: kernel(),
        cpu_model: value_of(&cpuinfo, "model name").unwrap_or_default(),
        cpus: cpus(),
        memory_bytes: memory_bytes(&read("/proc/meminfo")),
        virtualisation: virtualisation(&cpuinfo),
        iperf3: first_line(Path::new("iperf3"), "--version"),
        fairpath: version(fairpath),
        default_congestion: read("/proc/sys/net/ipv4/tcp_congestion_control"),
        congestion_controls: congestion_controls(),
        bbr: kernel_bbr().to_string(),
    }
}

/// Release and version of the kernel.
pub fn kernel() -> String {
    let of = |file| read(&format!("/proc/sys/kernel/{file}"));
    format!("{} {}", of("osrelease"), of("version"))
}

/// The version that the router's binary prints; empty if there is none.
pub fn version(fairpath: &Path) -> String {
    first_line(fairpath, "--version")
}

/// The congestion controls of the kernel, without loading modules.
pub fn congestion_controls() -> Vec<String> {
    let text = read("/proc/sys/net/ipv4/tcp_available_congestion_control");
    text.split_whitespace().map(str::to_owned).collect()
}

/// Processors that this process may use.
pub fn cpus() -> u32 {
    let found = std::thread::available_parallelism();
    found.map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// True if a program is on PATH.
pub fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// The router's binary: as named, in FAIRPATH or FAIRPATH_BIN_DIR, in our directory, in bin next to libexec, on PATH.
pub fn fairpath(named: Option<&Path>) -> PathBuf {
    let from_env = std::env::var_os("FAIRPATH").map(PathBuf::from);
    if let Some(path) = named.map(Path::to_owned).or(from_env) {
        return path;
    }
    let directory = std::env::var_os("FAIRPATH_BIN_DIR").map(PathBuf::from);
    let own = std::env::current_exe().ok();
    let sibling = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let installed = sibling.as_ref().map(|folder| folder.join("../../bin"));
    [directory, sibling, installed]
        .into_iter()
        .flatten()
        .map(|folder| folder.join("fairpath"))
        .find(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from("fairpath"))
}

fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn value_of(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = value_of(meminfo, "MemTotal");
    let kib = total.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn virtualisation(cpuinfo: &str) -> String {
    let identity =
        ["sys_vendor", "product_name"].map(|file| read(&format!("/sys/class/dmi/id/{file}")));
    let known = |(mark, name): &(&str, &str)| {
        identity
            .iter()
            .any(|text| text.contains(mark))
            .then(|| (*name).to_owned())
    };
    let named = HYPERVISORS.iter().find_map(known);
    let flagged = value_of(cpuinfo, "flags")
        .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    named.unwrap_or_else(|| {
        if flagged {
            "virtual machine".to_owned()
        } else {
            String::new()
        }
    })
}

/// The first line that a program prints; empty where there is none.
fn first_line(program: &Path, argument: &str) -> String {
    let output = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_models_are_read_from_the_kernel() {
        assert_eq!(
            memory_bytes("MemTotal:        4026532 kB\nMemFree: 1 kB\n"),
            4_026_532 * 1024
        );
        let cpuinfo =
            "processor\t: 0\nmodel name\t: Some CPU @ 2GHz\nflags\t\t: fpu hypervisor sse\n";
        assert_eq!(value_of(cpuinfo, "model name").unwrap(), "Some CPU @ 2GHz");
        assert_ne!(virtualisation(cpuinfo), "");
    }

    #[test]
    fn the_machine_has_kernel_and_congestion_control() {
        let machine = reported(Path::new("/nowhere/fairpath"));
        assert!(!machine.kernel.trim().is_empty() && machine.cpus > 0);
        assert!(
            machine
                .congestion_controls
                .contains(&machine.default_congestion)
        );
        assert_eq!(machine.fairpath, "");
    }
}
